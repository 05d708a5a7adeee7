"""Results that are complete: an output with all of its checks. A run that is under way has some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, select

from fepflow.store.database import Repository
from fepflow.store.tables import CHECK_RESULT, OUTPUT


class OutputFacts(NamedTuple):
    """What an output says of its call."""

    case_index: int
    repeat: int
    failed: bool
    metadata: dict[str, Any] | None


class CompleteResults(Repository):
    """Counting and listing outputs by whether all their checks are there."""

    def output_counts(self, run_ids: Sequence[str]) -> dict[str, int]:
        """How many outputs each of the runs has; none of a run is not in it."""
        counts = (
            select(OUTPUT.c.run_id, func.count().label("outputs"))
            .where(OUTPUT.c.run_id.in_(run_ids))
            .group_by(OUTPUT.c.run_id)
        )
        with self._database.reading() as connection:
            return {row.run_id: row.outputs for row in connection.execute(counts)}

    def complete_outputs(self, run_id: str, checks: int) -> list[OutputFacts]:
        """The outputs of a run that have at least so many check results, by case index and repeat."""
        with self._database.reading() as connection:
            return [OutputFacts(*row) for row in connection.execute(_complete(run_id, checks))]


def _complete(run_id: str, checks: int) -> Select[Any]:
    columns = OUTPUT.c.case_index, OUTPUT.c.repeat, OUTPUT.c.failed, OUTPUT.c.metadata
    facts = select(*columns).where(OUTPUT.c.run_id == run_id).order_by(OUTPUT.c.case_index, OUTPUT.c.repeat)
    if not checks:
        return facts
    found = CHECK_RESULT.c
    checked = (
        select(found.case_index, found.repeat)
        .where(found.run_id == run_id)
        .group_by(found.case_index, found.repeat)
        .having(func.count() >= checks)
        .subquery()
    )
    same = and_(checked.c.case_index == OUTPUT.c.case_index, checked.c.repeat == OUTPUT.c.repeat)
    return facts.join(checked, same)
