import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from fepflow.protocol.test_case import TestCase
from fepflow.store import migrate
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

MakeRun = Callable[..., str]
MakeUrl = Callable[[], str]


class PostgresDatabases:
    """Databases of one server: empty ones, and ones with the newest schema, which are copies of the first."""

    def __init__(self, server: str) -> None:
        self._server = make_url(server).set(drivername="postgresql+psycopg")
        self._names = (f"store_{number}" for number in count())
        self._admin = create_engine(self._server, isolation_level="AUTOCOMMIT")
        with self._admin.connect() as connection:
            # What is durable against power cuts is PostgreSQL's to test; a deadlock is found the sooner.
            for setting in ("fsync = off", "deadlock_timeout = '100ms'"):
                connection.execute(text(f"ALTER SYSTEM SET {setting}"))
            connection.execute(text("SELECT pg_reload_conf()"))
        self.template = make_url(self.create("template0")).database
        Store.open(self._url(self.template)).close()

    def create(self, template: str | None = None) -> str:
        """The URL of a new database."""
        name = next(self._names)
        with self._admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template or self.template} STRATEGY file_copy"))
        return self._url(name)

    def drop(self, url: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {make_url(url).database} WITH (FORCE)"))

    def close(self) -> None:
        self._admin.dispose()

    def _url(self, database: str | None) -> str:
        return self._server.set(database=database, drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def databases(postgresql: Any) -> Iterator[PostgresDatabases]:
    databases = PostgresDatabases(postgresql.url)
    yield databases
    databases.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'fepflow.db'}"


@pytest.fixture
def postgresql_url(databases: PostgresDatabases) -> Iterator[str]:
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """A store on each database; the one on PostgreSQL has its tables already."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def make_url_of_empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeUrl]:
    """Gives a URL of a database with nothing in it, another at each call."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path / 'empty' / str(len(list(tmp_path.rglob('*'))))}.db"
        return
    databases = request.getfixturevalue("databases")
    made: list[str] = []

    def make() -> str:
        made.append(databases.create("template0"))
        return made[-1]

    yield make
    for url in made:
        databases.drop(url)


@pytest.fixture
def store(url: str, new_store: Callable[[str], str]) -> Iterator[Store]:
    with Store.open(new_store(url) if url.startswith("sqlite") else url) as store:
        yield store


@pytest.fixture
def make_run(store: Store) -> MakeRun:
    """Creates a run of `cases` test cases named case-0, case-1, … and gives its id."""

    def make(run_id: str = "run-1", cases: int = 3, repeats: int = 1, **fields: Any) -> str:
        run = RunRecord(**{"id": run_id, "name": "refunds", "suite": {}, "repeats": repeats, **fields})
        store.runs.create(run, (TestCase(id=f"case-{number}", input=number) for number in range(cases)))
        return run_id

    return make


LATER = """
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{newest}"


def upgrade():
    with op.batch_alter_table("run") as run:
        run.add_column(sa.Column("note", sa.Text))


def downgrade():
    with op.batch_alter_table("run") as run:
        run.drop_column("note")
"""


@pytest.fixture
def later_version(monkeypatch, tmp_path: Path) -> str:
    """Makes this a fepflow with one revision more. SQLite undoes it by copying the table that all others refer to."""
    newest = migrate.revisions()[-1]
    folder = tmp_path / "migrations"
    shutil.copytree(migrate._MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9000_later.py").write_text(LATER.format(newest=newest))
    monkeypatch.setattr(migrate, "_MIGRATIONS", folder)
    return newest
