"""Baselines: runs of a suite under a name."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from fepflow.protocol.model import utc_now
from fepflow.store.database import Repository
from fepflow.store.records import Baseline
from fepflow.store.tables import BASELINE


class Baselines(Repository):
    """Baselines by suite and name."""

    def set_baseline(self, suite: str, name: str, run_id: str) -> str | None:
        """Give a run of the suite this name; the id of the run that had it, None if none had."""
        where = BASELINE.c.suite == suite, BASELINE.c.name == name

        def replace(connection: Connection) -> str | None:
            before = connection.scalar(select(BASELINE.c.run_id).where(*where))
            connection.execute(delete(BASELINE).where(*where))
            row = {"suite": suite, "name": name, "run_id": run_id, "set_at": utc_now()}
            connection.execute(insert(BASELINE).values(row))
            return before

        return self._database.write(replace)

    def baselines(self, name: str | None = None) -> list[Baseline]:
        """All baselines, or those of a name, by suite and name."""
        rows = select(BASELINE) if name is None else select(BASELINE).where(BASELINE.c.name == name)
        with self._database.reading() as connection:
            return sorted(Baseline(**row) for row in connection.execute(rows).mappings())

    def remove_baseline(self, suite: str, name: str) -> None:
        """Take the name from its run."""
        where = BASELINE.c.suite == suite, BASELINE.c.name == name
        self._database.write(lambda connection: connection.execute(delete(BASELINE).where(*where)))
