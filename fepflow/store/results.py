"""Outputs and check results: writing them whole and once, reading them in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    null,
    or_,
    select,
    true,
)

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.bulk_insert import insert_new
from fepflow.store.case_lookup import CaseLookup
from fepflow.store.check_order import declared_check_ids, rank_of, ranks, shared_check_ids
from fepflow.store.records import CaseResult, CheckCounts, CheckRow, NewCheckResult, NewOutput, Progress, StoredOutput
from fepflow.store.result_rows import check_key, check_row, output_key, output_row
from fepflow.store.runs import no_such_run
from fepflow.store.tables import CASE, CHECK_RESULT, OUTPUT, RUN

_CASES_AT_ONCE = 100


class Results(CaseLookup):
    """The outputs and check results of runs. Case indices and repeats count from 0; ranges exclude their `stop`."""

    def write(self, run_id: str, outputs: Sequence[NewOutput], checks: Sequence[NewCheckResult]) -> None:
        """Store the rows in one transaction; return when it is committed. What is there already stays as it is.

        A value without a JSON form (see `fepflow.json.codec`) does not keep the others out: it is stored as a failed
        output, or as a check in status error, that says so. Raises InfrastructureError; then no row is stored.
        """
        if outputs or checks:
            self._database.write(insert_results(run_id, outputs, checks))

    def outputs(self, run_id: str, start: int = 0, stop: int | None = None) -> dict[tuple[int, int], StoredOutput]:
        """The outputs of the cases from `start` to `stop`, by (case index, repeat)."""
        with self._database.reading() as connection:
            return outputs_where(connection, run_id, _between(OUTPUT, start, stop))

    def present_outputs(self, run_id: str, start: int = 0, stop: int | None = None) -> set[tuple[int, int]]:
        """The (case index, repeat) of the outputs that are there, failed ones included."""
        return {(row.case_index, row.repeat) for row in self._keys(OUTPUT, run_id, start, stop)}

    def present_checks(self, run_id: str, start: int = 0, stop: int | None = None) -> set[tuple[int, int, str]]:
        """The (case index, repeat, check id) of the check results that are there, in whatever status."""
        rows = self._keys(CHECK_RESULT, run_id, start, stop)
        return {(row.case_index, row.repeat, row.check_id) for row in rows}

    def delete_errors(self, run_id: str) -> int:
        """Delete what resuming an ended run repeats; the number of rows deleted.

        That is: failed outputs with all their check results, and check results in status error.
        """
        failed = and_(OUTPUT.c.run_id == run_id, OUTPUT.c.failed.is_(True))
        of_failed_output = exists().where(
            failed, OUTPUT.c.case_index == CHECK_RESULT.c.case_index, OUTPUT.c.repeat == CHECK_RESULT.c.repeat
        )
        erroneous = or_(CHECK_RESULT.c.status == "error", of_failed_output)

        def forget(connection: Connection) -> int:
            checks = connection.execute(delete(CHECK_RESULT).where(CHECK_RESULT.c.run_id == run_id, erroneous))
            return checks.rowcount + connection.execute(delete(OUTPUT).where(failed)).rowcount

        return self._database.write(forget)

    def progress(self, run_id: str) -> Progress:
        """How far the run is. Raises NotFoundError."""
        checks = CHECK_RESULT.c
        by_outcome = (
            select(checks.status, checks.passed, func.count())
            .where(checks.run_id == run_id)
            .group_by(checks.status, checks.passed)
        )
        by_failure = (
            select(OUTPUT.c.failed, func.count().label("rows"))
            .where(OUTPUT.c.run_id == run_id)
            .group_by(OUTPUT.c.failed)
        )
        with self._database.reading() as connection:
            if connection.scalar(select(RUN.c.id).where(RUN.c.id == run_id)) is None:
                raise no_such_run(run_id)
            outcomes = {(status, passed): count for status, passed, count in connection.execute(by_outcome)}
            failures = {row.failed: row.rows for row in connection.execute(by_failure)}
        return Progress(
            outputs=sum(failures.values()),
            failed_outputs=failures.get(True, 0),
            checks=sum(outcomes.values()),
            passed=outcomes.get(("completed", True), 0),
            failed=outcomes.get(("completed", False), 0),
            error=sum(count for (status, _), count in outcomes.items() if status == "error"),
            skipped=sum(count for (status, _), count in outcomes.items() if status == "skip"),
        )

    def check_totals(self, run_id: str) -> list[CheckCounts]:
        """The results of each check of a run, counted: checks of single cases by where they first stand, then those
        that all cases share, as declared."""
        checks = CHECK_RESULT.c

        def count(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
            return func.coalesce(func.sum(case((and_(*conditions), 1), else_=0)), 0)

        completed = checks.status == "completed"
        totals = select(
            checks.check_id,
            func.min(checks.case_index).label("first_case"),
            count(completed, checks.passed.is_(True)).label("passed"),
            count(completed, checks.passed.is_(False)).label("failed"),
            count(checks.status == "error").label("error"),
            count(checks.status == "skip").label("skipped"),
            count(completed, checks.passed.is_(None)).label("unjudged"),
        )
        with self._database.reading() as connection:
            rows = connection.execute(totals.where(checks.run_id == run_id).group_by(checks.check_id)).all()
            shared = shared_ids_of(connection, run_id)
            own = sorted({row.first_case for row in rows if row.check_id not in shared})
            cases = [case for chunk in _chunks(own) for _, case in sorted(cases_at(connection, run_id, chunk).items())]
        own_ids = (
            check_id for case in cases for check_id in declared_check_ids(case, shared) if check_id not in shared
        )
        places = ranks([*own_ids, *shared])
        counts = (CheckCounts(check_id, *numbers) for check_id, _, *numbers in rows)
        return sorted(counts, key=lambda row: rank_of(places, row.check_id))

    def check_rows(self, run_id: str, *, results: bool = True, types: Sequence[str] = ()) -> Iterator[CheckRow]:
        """All check results by case index and repeat, read a hundred cases at a time; those of a case are in the order
        of their ids, as the cases, which declare another, are not read.

        Without `results` no `result` is read, which takes a fraction of the time. `types` are check types; none: all.
        """
        only = CHECK_RESULT.c.check_type.in_(types) if types else true()
        for case_indices in self._all_case_indices(run_id):
            with self._database.reading() as connection:
                rows = connection.execute(_checks(run_id, case_indices, results=results).where(only)).all()
            for row in sorted(rows, key=check_key):
                yield CheckRow(*row)

    def results(
        self, run_id: str, *, failed_only: bool = False, case_indices: Sequence[int] | None = None
    ) -> Iterator[CaseResult]:
        """One result for each repeat of each case by case index and repeat, read a hundred cases at a time.

        Its checks are in the order declared: those of the case, then those of the suite.
        What the run has not got to is there too, without an output. `failed_only` leaves the results whose output
        failed or that have a check that did not pass or ended in error. With `case_indices`: of
        those cases, in that order.
        """
        with self._database.reading() as connection:
            repeats = connection.scalar(select(RUN.c.repeats).where(RUN.c.id == run_id)) or 0
            shared = shared_ids_of(connection, run_id)
        if case_indices is not None:
            chunks = _chunks(case_indices)
        else:
            chunks = _chunks(self.failed_case_indices(run_id)) if failed_only else self._all_case_indices(run_id)
        for chunk in chunks:
            for result, failed in self._results(run_id, chunk, repeats, shared):
                if failed or not failed_only:
                    yield result

    def _results(
        self, run_id: str, case_indices: Sequence[int], repeats: int, shared: Sequence[str]
    ) -> Iterator[tuple[CaseResult, bool]]:
        with self._database.reading() as connection:
            cases = cases_at(connection, run_id, case_indices)
            outputs = outputs_where(connection, run_id, OUTPUT.c.case_index.in_(case_indices))
            checks: dict[tuple[int, int], list[Row[Any]]] = defaultdict(list)
            for row in connection.execute(_checks(run_id, case_indices)):
                checks[row.case_index, row.repeat].append(row)
        for case_index in (case_index for case_index in case_indices if case_index in cases):
            places = ranks(declared_check_ids(cases[case_index], shared))
            for repeat in range(repeats):
                stored = outputs.get((case_index, repeat))
                case, output = cases[case_index], stored.output if stored else None
                rows = sorted(checks.get((case_index, repeat), ()), key=lambda row: rank_of(places, row.check_id))
                results = [CheckResult.model_validate(row.result) for row in rows]
                yield (
                    CaseResult(case_index, repeat, case, output, results),
                    bool(stored and stored.failed) or any(row.status == "error" or row.passed is False for row in rows),
                )

    def _keys(self, table: Table, run_id: str, start: int, stop: int | None) -> Sequence[Row[Any]]:
        keys = select(*table.primary_key).where(table.c.run_id == run_id, _between(table, start, stop))
        with self._database.reading() as connection:
            return connection.execute(keys).all()

    def _all_case_indices(self, run_id: str) -> Iterator[Sequence[int]]:
        with self._database.reading() as connection:
            cases = connection.scalar(select(RUN.c.n_cases).where(RUN.c.id == run_id)) or 0
        for start in range(0, cases, _CASES_AT_ONCE):
            yield range(start, min(start + _CASES_AT_ONCE, cases))


def insert_results(
    run_id: str, outputs: Sequence[NewOutput], checks: Sequence[NewCheckResult]
) -> Callable[[Connection], None]:
    """What inserts the rows, see `Results.write`; they are made here, once."""
    now = utc_now()
    output_rows = [output_row(run_id, new, now) for new in sorted(outputs, key=output_key)]
    check_rows = [check_row(run_id, new, now) for new in sorted(checks, key=check_key)]

    def insert_both(connection: Connection) -> None:
        insert_new(connection, OUTPUT, output_rows)
        insert_new(connection, CHECK_RESULT, check_rows)

    return insert_both


def shared_ids_of(connection: Connection, run_id: str) -> list[str]:
    """Return the ids of the checks that all cases of a run share; none of a run that is not there."""
    return shared_check_ids(connection.scalar(select(RUN.c.suite).where(RUN.c.id == run_id)) or {})


def cases_at(connection: Connection, run_id: str, case_indices: Sequence[int]) -> dict[int, TestCase]:
    """Return those of a run's cases at these indices that are there, by index."""
    rows = select(CASE.c.case_index, CASE.c.data).where(CASE.c.run_id == run_id, CASE.c.case_index.in_(case_indices))
    return {case_index: TestCase.model_validate(data) for case_index, data in connection.execute(rows)}


def _chunks(case_indices: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(case_indices), _CASES_AT_ONCE):
        yield case_indices[start : start + _CASES_AT_ONCE]


def _between(table: Table, start: int, stop: int | None) -> ColumnElement[bool]:
    from_start = table.c.case_index >= start
    return from_start if stop is None else and_(from_start, table.c.case_index < stop)


def outputs_where(
    connection: Connection, run_id: str, which: ColumnElement[bool]
) -> dict[tuple[int, int], StoredOutput]:
    """Outputs of a run by (case index, repeat)."""
    table = OUTPUT.c
    columns = (
        table.case_index,
        table.repeat,
        table.output_id,
        table.value,
        table.metadata,
        table.content_hash,
        table.failed,
    )
    rows = connection.execute(select(*columns).where(table.run_id == run_id, which))
    return {
        (case_index, repeat): StoredOutput(_output(output_id, value, metadata), content_hash, failed)
        for case_index, repeat, output_id, value, metadata, content_hash, failed in rows
    }


def _output(output_id: str | None, value: Any, metadata: dict[str, Any] | None) -> Output:
    optional: dict[str, Any] = {"id": output_id, "metadata": metadata}
    return Output(value=value, **{name: given for name, given in optional.items() if given is not None})


def _checks(run_id: str, case_indices: Iterable[int], *, results: bool = True) -> Select[Any]:
    checks = CHECK_RESULT.c
    result = checks.result if results else null().label("result")
    return (
        select(checks.case_index, checks.repeat, checks.check_id, checks.status, checks.passed, result)
        .where(checks.run_id == run_id, checks.case_index.in_(case_indices))
        .order_by(checks.case_index, checks.repeat)
    )
