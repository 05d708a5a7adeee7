"""Stores that earlier versions have written are opened by this one, and hold what they held."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, make_url

from fepflow.store.maintenance import check_integrity
from fepflow.store.records import METADATA
from fepflow.store.store import Store

from .releases.record import LABELLED_BY, NEXT, OUTPUTS

FOLDER = Path(__file__).parent / "releases"
DUMPS = sorted(FOLDER.glob("*.sql"))
ADVICE = (
    "The records no longer fit the store that {version} has written. If {version} is released, its users have such"
    " stores: add a migration to fepflow/store/migrations/versions that brings the tables to what the records say. If"
    f" it is `{NEXT}`, nobody has one yet: run `python tests/fepflow/store/releases/record.py` and commit its files."
)


@pytest.fixture
def restored(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Makes a database of a dump; returns its URL."""

    def restore(dump: Path) -> str:
        sql = dump.read_text(encoding="utf-8")
        if dump.name.endswith(".sqlite.sql"):
            with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
                connection.executescript(sql)
            return f"sqlite:///{tmp_path / 'store.db'}"
        url = str(request.getfixturevalue("databases").create("template0"))
        engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(sql.replace("%", "%%"))
        engine.dispose()
        request.addfinalizer(lambda: request.getfixturevalue("databases").drop(url))
        return url

    return restore


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_a_store_of_an_earlier_version_is_upgraded_and_read(dump: Path, restored: Callable[[Path], str]) -> None:
    url, advice = restored(dump), ADVICE.format(version=dump.name.split(".s")[0].split(".p")[0])
    try:
        with Store.open(url) as store:
            _read(store)
        assert check_integrity(url).problems == []
    except Exception as error:
        error.add_note(advice)
        raise
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:", 1)))
    columns = {
        table.name: {column["name"] for column in inspect(engine).get_columns(table.name)}
        for table in METADATA.sorted_tables
    }
    engine.dispose()
    assert columns == {table.name: set(table.columns.keys()) for table in METADATA.sorted_tables}, advice


def _read(store: Store) -> None:
    """Read the runs, verdicts, results, labels and the baseline that `releases/record.py` has written."""
    runs = store.runs.newest()[::-1]
    assert [(run.name, run.status, run.verdict["outcome"]) for run in runs] == [
        ("capitals", "completed", outcome) for outcome in OUTPUTS
    ]
    for run, texts in zip(runs, OUTPUTS.values(), strict=True):
        results = list(store.results.by_case(run.id))
        assert [result.case.id for result in results] == ["france", "japan", "peru"]
        assert [result.output.value for result in results] == texts
        assert [result.checks[0].results["passed"] for result in results] == [
            result.case.expected in result.output.value for result in results
        ]
    (label,) = store.labels.current(runs[1].id)
    assert (label.case_id, label.check_id, label.label, label.labelled_by) == ("japan", "right", True, LABELLED_BY)
    (baseline,) = store.runs.baselines("main")
    assert (baseline.suite, baseline.run_id) == ("capitals", runs[1].id)


def test_both_databases_of_every_version_are_there() -> None:
    names = {dump.name for dump in DUMPS}
    versions = {name.removesuffix(".sql").rpartition(".")[0] for name in names}
    assert names == {f"{version}.{database}.sql" for version in versions for database in ("sqlite", "postgresql")}
    assert NEXT in versions
