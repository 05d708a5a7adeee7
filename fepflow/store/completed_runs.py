"""Runs that are over when they are stored: of a test, or of outputs that somebody else had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, update

from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.database import Repository
from fepflow.store.records import NewCheckResult, NewOutput, NewRun, Outcome
from fepflow.store.results import insert_results
from fepflow.store.runs import insert_run
from fepflow.store.tables import RUN


class CompletedRuns(Repository):
    """Storing runs that are over."""

    def add_completed_run(
        self,
        run: NewRun,
        cases: Sequence[TestCase],
        outputs: Sequence[NewOutput],
        checks: Sequence[NewCheckResult],
        *,
        outcome: Outcome,
        metrics: Any,
        verdict: Any,
    ) -> None:
        """Store a run with its cases, results and verdict, in one transaction: all of it or nothing.

        Raises InputError for cases with the same id, a very long one or without a JSON form, UserError if the run's
        id is there already.
        """
        insert_rows = insert_results(run.id, outputs, checks)
        end = update(RUN).where(RUN.c.id == run.id)

        def add(connection: Connection) -> None:
            insert_run(connection, run, cases)
            insert_rows(connection)
            connection.execute(
                end.values(
                    status="completed", completed_at=utc_now(), outcome=outcome, metrics=metrics, verdict=verdict
                )
            )

        self._database.write(add)
