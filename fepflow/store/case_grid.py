"""A run's cases beside its checks, a page at a time: who opens a large run reads some of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Text, or_, select, type_coerce

from fepflow.json.codec import encode
from fepflow.protocol.status import StatusText
from fepflow.protocol.test_case import TestCase
from fepflow.store.check_order import declared_check_ids, rank_of, ranks
from fepflow.store.column_types import indexable
from fepflow.store.database import Repository
from fepflow.store.records import RunRecord, StoredOutput
from fepflow.store.results import cases_at, outputs_where, shared_ids_of
from fepflow.store.runs import taken_in
from fepflow.store.tables import CASE, CHECK_RESULT, OUTPUT, RUN


@dataclass(frozen=True, slots=True)
class CheckMark:
    """How one check of one output came out; `passed` is None for one without a yes or no."""

    status: StatusText
    passed: bool | None


@dataclass(frozen=True, slots=True)
class GridRow:
    """A case with its outputs by repeat, and how its checks came out by repeat and check id; both count from 0.

    The checks are in the order declared.
    """

    case_index: int
    case: TestCase
    outputs: dict[int, StoredOutput] = field(default_factory=dict)
    marks: dict[tuple[int, str], CheckMark] = field(default_factory=dict)


class CaseGrid(Repository):
    """Reading a run's grid."""

    def grid_rows(self, run_id: str, case_indices: Sequence[int]) -> list[GridRow]:
        """The rows of these cases, in this order; none of the checks' results is read."""
        checks = CHECK_RESULT.c
        marks = select(checks.case_index, checks.repeat, checks.check_id, checks.status, checks.passed)
        with self._database.reading() as connection:
            shared = shared_ids_of(connection, run_id)
            rows = {index: GridRow(index, case) for index, case in cases_at(connection, run_id, case_indices).items()}
            for (index, repeat), output in outputs_where(
                connection, run_id, OUTPUT.c.case_index.in_(case_indices)
            ).items():
                rows[index].outputs[repeat] = output
            wanted = marks.where(checks.run_id == run_id, checks.case_index.in_(case_indices))
            found = defaultdict(list)
            for index, *mark in connection.execute(wanted):
                found[index].append(mark)
        for index, marks_of_case in found.items():
            places = ranks(declared_check_ids(rows[index].case, shared))
            marks_of_case.sort(key=lambda mark: (mark[0], rank_of(places, mark[1])))
            for repeat, check_id, status, passed in marks_of_case:
                rows[index].marks[repeat, check_id] = CheckMark(status, passed)
        return [rows[index] for index in case_indices if index in rows]

    def earlier_indices(self, run: RunRecord, case_id: str, limit: int) -> list[tuple[str, datetime, int, int]]:
        """The newest older runs of this name with this case: run id, time of creation, repeats, the case's index."""
        rows = (
            select(RUN.c.id, RUN.c.created_at, RUN.c.repeats, CASE.c.case_index)
            .join(CASE, (CASE.c.run_id == RUN.c.id) & (CASE.c.case_id == indexable(case_id)))
            .where(RUN.c.name == run.name, RUN.c.created_at < run.created_at, CASE.c.case_index < RUN.c.n_cases)
            .order_by(RUN.c.created_at.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [(row.id, row.created_at, row.repeats, row.case_index) for row in connection.execute(rows)]

    def find_cases(self, run_id: str, text: str) -> list[int]:
        """The indices of the cases with this text in their id, input or other data, or in an output, in order.

        SQLite takes small and capital letters of ASCII for the same, PostgreSQL those of all alphabets.
        """
        # As it is in JSON, which is what is searched.
        needle = str(encode(text))[1:-1]
        in_data = type_coerce(CASE.c.data, Text).icontains(needle, autoescape=True)
        in_id = type_coerce(CASE.c.case_id, Text).icontains(needle, autoescape=True)
        in_output = type_coerce(OUTPUT.c.value, Text).icontains(needle, autoescape=True)
        cases = select(CASE.c.case_index).where(CASE.c.run_id == run_id, taken_in(run_id), or_(in_data, in_id))
        outputs = select(OUTPUT.c.case_index).where(OUTPUT.c.run_id == run_id, in_output)
        with self._database.reading() as connection:
            return sorted({*connection.scalars(cases), *connection.scalars(outputs)})
