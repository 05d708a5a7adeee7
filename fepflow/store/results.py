"""Outputs and check results: writing them whole and once, reading them in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    case,
    delete,
    exists,
    func,
    null,
    or_,
    select,
    true,
    type_coerce,
    update,
)

from fepflow.json.values import Encoded, encode
from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.results import CheckResult, score_in
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.blobs import LargeOutputs
from fepflow.store.database import KEYS_AT_ONCE, Database, Repository, chunks, upsert
from fepflow.store.records import (
    CACHED_RESPONSE,
    CASE,
    CHECK_RESULT,
    OUTPUT,
    RUN,
    CacheTotals,
    CaseResult,
    CheckCounts,
    CheckMark,
    CheckRow,
    FailureKind,
    GridRow,
    NewCheckResult,
    NewOutput,
    OutputFacts,
    Progress,
    RunRecord,
    StoredOutput,
)
from fepflow.store.result_rows import (
    check_key,
    declared_check_ids,
    insert_check_rows,
    insert_results,
    rank_of,
    ranks,
    shared_check_ids,
)
from fepflow.store.runs import no_such_run, taken_in

_CASES_AT_ONCE = 100
_ROWS_IN_MEMORY = 1_000
_PICOUSD = 10**12
_FAILING = (
    (CHECK_RESULT.c.status == "completed") & CHECK_RESULT.c.passed.is_(False),
    (CHECK_RESULT.c.status == "error") & CHECK_RESULT.c.passed.is_(None),
)
"""Conditions of a failed check, and of one in error: with each column of their index fixed, SQLite reads the fewest
rows."""

_OUTPUT_COLUMNS = tuple(OUTPUT.c[name] for name in ("content_hash", "failed", "output_id", "value", "metadata", "blob"))


class Results(Repository):
    """The outputs and check results of runs, and the cached responses of models.

    Case indices and repeats count from 0; ranges exclude their `stop`. Where an output need not be `whole`, large ones
    are read without their blobs: their `value` is a beginning, and large entries of their metadata are None.
    """

    def __init__(self, database: Database, large_outputs: LargeOutputs) -> None:
        super().__init__(database)
        self._large_outputs = large_outputs

    def write(
        self,
        run_id: str,
        outputs: Sequence[NewOutput],
        checks: Sequence[NewCheckResult],
        *,
        are_calls: bool = True,
        write_seconds: Sequence[float] = (),
    ) -> None:
        """Store the rows in one transaction; return when it is committed. What already exists stays as it is.

        What is new is counted for metrics, and the seconds that earlier writes took, see `fepflow.store.totals`;
        `are_calls` where the outputs are answers of the run's target.

        A value without a JSON form (see `fepflow.json.values`) does not keep the others out: it is stored as a failed
        output, or as a check in status error, that says so. Raises InfrastructureError; then no row is stored.
        """
        if outputs or checks:
            contents = self._large_outputs.moved_out
            rows = insert_results(run_id, outputs, checks, contents, are_calls=are_calls, write_seconds=write_seconds)
            self._large_outputs.write(contents, rows)

    def outputs(
        self, run_id: str, start: int = 0, stop: int | None = None, *, whole: bool = True
    ) -> dict[tuple[int, int], StoredOutput]:
        """Return the outputs of the cases from `start` to `stop`, by (case index, repeat)."""
        with self._database.reading() as connection:
            outputs = _outputs_where(connection, run_id, _between(start, stop))
        return self._large_outputs.whole(outputs) if whole else outputs

    def outputs_at(
        self, run_id: str, case_indices: Collection[int], *, whole: bool = True
    ) -> dict[tuple[int, int], StoredOutput]:
        """Return the outputs of these cases, by (case index, repeat)."""
        outputs: dict[tuple[int, int], StoredOutput] = {}
        with self._database.reading() as connection:
            for chunk in chunks(list(case_indices), KEYS_AT_ONCE):
                outputs |= _outputs_where(connection, run_id, OUTPUT.c.case_index.in_(chunk))
        return self._large_outputs.whole(outputs) if whole else outputs

    def has_blobs(self, run_id: str) -> bool:
        """Return whether a run has large outputs that are in blobs."""
        some = select(OUTPUT.c.case_index).where(OUTPUT.c.run_id == run_id, OUTPUT.c.blob.is_not(None)).limit(1)
        return self._scalar(some) is not None

    def whole_check_rows(self, run_id: str, case_indices: Collection[int]) -> list[dict[str, Any]]:
        """Return the check results of these cases as whole rows, for `copy_checks`; each `result` is JSON's text."""
        columns = [type_coerce(column, Text) if column.name == "result" else column for column in CHECK_RESULT.c]
        rows = select(*columns).where(CHECK_RESULT.c.run_id == run_id, CHECK_RESULT.c.case_index.in_(case_indices))
        return [dict(zip(CHECK_RESULT.c.keys(), row, strict=True)) for row in self._rows(rows)]

    def copy_checks(self, run_id: str, rows: Sequence[dict[str, Any]]) -> None:
        """Store rows of check results in another run, in one transaction. What already exists stays as it is."""
        own = [{**row, "run_id": run_id, "result": Encoded(row["result"])} for row in rows]
        if own:
            self._database.write(insert_check_rows(own))

    def reusable(self, hashes: Collection[str], run_id: str) -> dict[str, tuple[str, Output]]:
        """Return outputs of other runs by their content hash, each with the id of the run that made it: the newest that
        did not fail. One whose blob is lost is left out."""
        table, newest, made_by = OUTPUT.c, dict[str, StoredOutput](), dict[str, str]()
        columns = *_OUTPUT_COLUMNS, table.run_id, table.reused_from
        asked = table.run_id.not_in(select(RUN.c.id).where(RUN.c.rescored_from.is_not(None)))
        # Each run that reuses an output stores it again: the values of the newest ones only are read.
        rank = func.row_number().over(partition_by=table.content_hash, order_by=table.created_at.desc())
        with self._database.reading() as connection:
            for chunk in chunks(sorted(hashes), KEYS_AT_ONCE):
                same = table.content_hash.in_(chunk)
                rows = select(*columns, rank.label("rank")).where(same, ~table.failed, table.run_id != run_id, asked)
                ranked = rows.subquery()
                for row in connection.execute(select(ranked).where(ranked.c.rank == 1)):
                    made_by[row.content_hash] = row.reused_from or row.run_id
                    newest[row.content_hash] = _stored(row)
        outputs = self._large_outputs.whole(newest)
        return {hashed: (made_by[hashed], stored.output) for hashed, stored in outputs.items() if not stored.failed}

    def delete_errors(self, run_id: str) -> int:
        """Delete what resuming an ended run repeats, and return the number of rows deleted.

        These are failed outputs with all their check results, and check results in status error. The run notes whose
        results will be second tries: not those of outputs that were never asked for, as the target was down.
        """
        failed = and_(OUTPUT.c.run_id == run_id, OUTPUT.c.failed.is_(True))
        of_failed_output = exists().where(
            failed, OUTPUT.c.case_index == CHECK_RESULT.c.case_index, OUTPUT.c.repeat == CHECK_RESULT.c.repeat
        )
        erroneous = or_(CHECK_RESULT.c.status == "error", of_failed_output)

        def tried(connection: Connection) -> Iterator[tuple[int, int]]:
            yield from ((row[0], row[1]) for row in _failed_outputs(connection, run_id) if not _never_asked(row[2]))
            checks = select(CHECK_RESULT.c.case_index, CHECK_RESULT.c.repeat).distinct()
            in_error = CHECK_RESULT.c.run_id == run_id, CHECK_RESULT.c.status == "error", ~of_failed_output
            yield from ((row[0], row[1]) for row in connection.execute(checks.where(*in_error)))

        def forget(connection: Connection) -> int:
            options = connection.scalar(select(RUN.c.options).where(RUN.c.id == run_id)) or {}
            if units := {*tried(connection), *map(tuple, options.get("tried_again", ()))}:
                noted = update(RUN).where(RUN.c.id == run_id)
                connection.execute(noted.values(options={**options, "tried_again": sorted(units)}))
            checks = connection.execute(delete(CHECK_RESULT).where(CHECK_RESULT.c.run_id == run_id, erroneous))
            return checks.rowcount + connection.execute(delete(OUTPUT).where(failed)).rowcount

        return self._database.write(forget)

    def never_asked(self, run_id: str) -> int:
        """Count the failed outputs that were not asked for, as the target was down."""
        with self._database.reading() as connection:
            return sum(_never_asked(row[2]) for row in _failed_outputs(connection, run_id))

    def second_tries(self, run: RunRecord) -> set[tuple[int, int]]:
        """Return which outputs of a resumed run, by case index and repeat, were asked for again or checked again, and
        did not fail then."""
        units = {(case_index, repeat) for case_index, repeat in (run.options or {}).get("tried_again", ())}
        if not units:
            return units
        answered = select(OUTPUT.c.case_index, OUTPUT.c.repeat).where(OUTPUT.c.run_id == run.id, ~OUTPUT.c.failed)
        return units & {(row[0], row[1]) for row in self._rows(answered)}

    def progress(self, run_id: str) -> Progress:
        """Count the rows of a run. Raises NotFoundError."""
        checks = CHECK_RESULT.c
        by_outcome = (
            select(checks.status, checks.passed, func.count())
            .where(checks.run_id == run_id)
            .group_by(checks.status, checks.passed)
        )
        reused = func.count(OUTPUT.c.reused_from).label("reused")
        by_failure = (
            select(OUTPUT.c.failed, func.count().label("rows"), reused)
            .where(OUTPUT.c.run_id == run_id)
            .group_by(OUTPUT.c.failed)
        )
        with self._database.reading() as connection:
            if connection.scalar(select(RUN.c.id).where(RUN.c.id == run_id)) is None:
                raise no_such_run(run_id)
            outcomes = {(status, passed): count for status, passed, count in connection.execute(by_outcome)}
            of_outputs = connection.execute(by_failure).all()
        failures = {row.failed: row.rows for row in of_outputs}
        return Progress(
            outputs=sum(failures.values()),
            failed_outputs=failures.get(True, 0),
            checks=sum(outcomes.values()),
            passed=outcomes.get(("completed", True), 0),
            failed=outcomes.get(("completed", False), 0),
            error=sum(count for (status, _), count in outcomes.items() if status == "error"),
            skipped=sum(count for (status, _), count in outcomes.items() if status == "skip"),
            reused=sum(row.reused for row in of_outputs),
        )

    def check_totals(self, run_id: str) -> list[CheckCounts]:
        """Count the results of each check of a run.

        Checks of single cases come first, by the case where they first stand, then those that all cases share.
        """
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
            shared = _shared_ids_of(connection, run_id)
            own = sorted({row.first_case for row in rows if row.check_id not in shared})
            cases = [
                case
                for chunk in chunks(own, _CASES_AT_ONCE)
                for _, case in sorted(_cases_at(connection, run_id, chunk).items())
            ]
        own_ids = (
            check_id for case in cases for check_id in declared_check_ids(case, shared) if check_id not in shared
        )
        places = ranks([*own_ids, *shared])
        counts = (CheckCounts(check_id, *numbers) for check_id, _, *numbers in rows)
        return sorted(counts, key=lambda row: rank_of(places, row.check_id))

    def check_rows(
        self,
        run_id: str,
        case_indices: Sequence[int] | None = None,
        *,
        results: bool = True,
        types: Sequence[str] = (),
    ) -> Iterator[CheckRow]:
        """Yield the check results of these cases, or of all, by case index and repeat, read a hundred cases at a time.

        Those of a case are in the order of their ids, as the cases, which declare another, are not read. Without
        `results` no `result` is read, which takes a fraction of the time. `types` are check types; none: all.
        """
        checks = CHECK_RESULT.c
        only = checks.check_type.in_(types) if types else true()
        wanted = self._all_case_indices(run_id) if case_indices is None else sorted(case_indices)
        rows = _checks(run_id, results=results).where(only)
        for chunk in chunks(wanted, _CASES_AT_ONCE):
            for row in sorted(self._rows(rows.where(checks.case_index.in_(chunk))), key=check_key):
                yield CheckRow(*row)

    def checks_done(self, run_id: str, start: int, stop: int) -> dict[tuple[int, int], int]:
        """Count the check results of each output of the cases from `start` to `stop`, by (case index, repeat)."""
        unit = CHECK_RESULT.c.case_index, CHECK_RESULT.c.repeat
        counts = select(*unit, func.count()).where(*_checks_between(run_id, start, stop)).group_by(*unit)
        return {(row[0], row[1]): row[2] for row in self._rows(counts)}

    def failing_checks(self, run_id: str, start: int, stop: int) -> list[CheckRow]:
        """Return the checks of the cases from `start` to `stop` that failed or ended in error, without their `result`,
        in no order."""
        checks = _checks(run_id, results=False).where(*_checks_between(run_id, start, stop))
        with self._database.reading() as connection:
            return [CheckRow(*row) for kind in _FAILING for row in connection.execute(checks.where(kind))]

    def by_case(
        self,
        run_id: str,
        *,
        failed_only: bool = False,
        case_indices: Sequence[int] | None = None,
        whole: bool = True,
    ) -> Iterator[CaseResult]:
        """Yield a result for each repeat of each case by case index and repeat, read a hundred cases at a time.

        Its checks are in the order declared: those of the case, then those of the suite. A case that the run has not
        got to is there too, without an output. `failed_only` leaves the results whose output failed or that have a
        check that did not pass or ended in error. With `case_indices`: of those cases, in that order.
        """
        with self._database.reading() as connection:
            repeats = connection.scalar(select(RUN.c.repeats).where(RUN.c.id == run_id)) or 0
            shared = _shared_ids_of(connection, run_id)
        if case_indices is None:
            case_indices = self.failed_case_indices(run_id) if failed_only else self._all_case_indices(run_id)
        for chunk in chunks(case_indices, _CASES_AT_ONCE):
            for result, failed in self._results(run_id, chunk, repeats, shared, whole=whole):
                if failed or not failed_only:
                    yield result

    def _results(
        self, run_id: str, case_indices: Sequence[int], repeats: int, shared: Sequence[str], *, whole: bool
    ) -> Iterator[tuple[CaseResult, bool]]:
        with self._database.reading() as connection:
            cases = _cases_at(connection, run_id, case_indices)
            outputs = _outputs_where(connection, run_id, OUTPUT.c.case_index.in_(case_indices))
            checks: dict[tuple[int, int], list[Row[Any]]] = defaultdict(list)
            for row in connection.execute(_checks(run_id).where(CHECK_RESULT.c.case_index.in_(case_indices))):
                checks[row.case_index, row.repeat].append(row)
        if whole:
            outputs = self._large_outputs.whole(outputs)
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

    def _all_case_indices(self, run_id: str) -> Sequence[int]:
        return range(self._scalar(select(RUN.c.n_cases).where(RUN.c.id == run_id)) or 0)

    def failed_case_indices(
        self, run_id: str, check_id: str | None = None, kind: FailureKind | None = None
    ) -> list[int]:
        """Return the indices of cases with a result that did not pass, in order; of one check, of one kind, or all.

        A call without an answer counts as an error, too, unless one check is asked for.
        """
        of_kind = {"failed": CHECK_RESULT.c.passed.is_(False), "error": CHECK_RESULT.c.status == "error"}
        checks = select(CHECK_RESULT.c.case_index).where(
            CHECK_RESULT.c.run_id == run_id,
            of_kind[kind] if kind else or_(*of_kind.values()),
            true() if check_id is None else CHECK_RESULT.c.check_id == check_id,
        )
        outputs = select(OUTPUT.c.case_index).where(OUTPUT.c.run_id == run_id, OUTPUT.c.failed.is_(True))
        statements = [checks, outputs] if check_id is None and kind != "failed" else [checks]
        with self._database.reading() as connection:
            return sorted({case_index for statement in statements for case_index in connection.scalars(statement)})

    def failing_case_ids(self, run_id: str, limit: int) -> list[str]:
        """Return the ids of cases that a check failed, or ended in error, at most so many of each; as `indexable` cuts
        them. Of a call without an answer, the checks ended in error. No result is read, only the index.
        """
        checks = CHECK_RESULT.c
        with self._database.reading() as connection:
            indices: set[int] = set()
            for kind in _FAILING:
                failing = select(checks.case_index).where(checks.run_id == run_id, kind).distinct()
                indices.update(connection.scalars(failing.order_by(checks.case_index).limit(limit)))
            ids: list[str] = []
            for chunk in chunks(sorted(indices), KEYS_AT_ONCE):
                ids += connection.scalars(
                    select(CASE.c.case_id).where(CASE.c.run_id == run_id, CASE.c.case_index.in_(chunk))
                )
        return ids

    def indices_of_cases(self, run_id: str, case_ids: Collection[str]) -> dict[str, int]:
        """Return where a run has these cases, by their ids as `indexable` cuts them; what it does not have is left
        out."""
        wanted = select(CASE.c.case_id, CASE.c.case_index).where(CASE.c.run_id == run_id, CASE.c.case_id.in_(case_ids))
        with self._database.reading() as connection:
            # Not as a condition of the query: SQLite would read all cases up to that index.
            taken = connection.scalar(select(RUN.c.n_cases).where(RUN.c.id == run_id)) or 0
            return {case_id: index for case_id, index in connection.execute(wanted) if index < taken}

    def output_counts(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Count the outputs of each of the runs; a run without one is left out."""
        if not run_ids:
            return {}
        counts = (
            select(OUTPUT.c.run_id, func.count().label("outputs"))
            .where(OUTPUT.c.run_id.in_(run_ids))
            .group_by(OUTPUT.c.run_id)
        )
        return {row.run_id: row.outputs for row in self._rows(counts)}

    def complete_outputs(self, run_id: str, checks: int) -> list[OutputFacts]:
        """Return the outputs of a run that have at least so many check results, by case index and repeat."""
        table, result = OUTPUT.c, CHECK_RESULT.c
        facts = select(table.case_index, table.repeat, table.failed, table.metadata).where(table.run_id == run_id)
        if checks:
            checked = select(result.case_index, result.repeat).where(result.run_id == run_id)
            whole = checked.group_by(result.case_index, result.repeat).having(func.count() >= checks).subquery()
            facts = facts.join(whole, and_(whole.c.case_index == table.case_index, whole.c.repeat == table.repeat))
        return [OutputFacts(*row) for row in self._rows(facts.order_by(table.case_index, table.repeat))]

    def grid_rows(
        self, run_id: str, case_indices: Sequence[int], *, whole: bool = False, scores: bool = False
    ) -> list[GridRow]:
        """Return the rows of these cases, in this order. Scores are in the checks' results: without `scores`, only
        those without a yes or no are read.
        """
        checks = CHECK_RESULT.c
        marks = select(checks.case_index, checks.repeat, checks.check_id, checks.status, checks.passed)
        here = checks.run_id == run_id, checks.case_index.in_(case_indices)
        scored = select(checks.case_index, checks.repeat, checks.check_id, checks.result).where(
            *here, checks.status == "completed", *([] if scores else [checks.passed.is_(None)])
        )
        with self._database.reading() as connection:
            shared = _shared_ids_of(connection, run_id)
            rows = {index: GridRow(index, case) for index, case in _cases_at(connection, run_id, case_indices).items()}
            outputs = _outputs_where(connection, run_id, OUTPUT.c.case_index.in_(case_indices))
            by_case = defaultdict(list)
            for index, *mark in connection.execute(marks.where(*here)):
                by_case[index].append(mark)
            scores_by_check = {tuple(key): score_in(result["results"]) for *key, result in connection.execute(scored)}
        for (index, repeat), output in (self._large_outputs.whole(outputs) if whole else outputs).items():
            rows[index].outputs[repeat] = output
        for index, marks_of_case in by_case.items():
            places = ranks(declared_check_ids(rows[index].case, shared))
            marks_of_case.sort(key=lambda mark: (mark[0], rank_of(places, mark[1])))
            for repeat, check_id, status, passed in marks_of_case:
                score = scores_by_check.get((index, repeat, check_id))
                rows[index].marks[repeat, check_id] = CheckMark(status, passed, score)
        return [rows[index] for index in case_indices if index in rows]

    def find_cases(self, run_id: str, text: str) -> list[int]:
        """Return the indices of the cases with this text in their id, input or other data, or in an output, in order.

        SQLite ignores the case of ASCII letters, PostgreSQL that of all letters. Only the beginning of an output in a
        blob is searched: to read all blobs of a run could take minutes.
        """
        # The columns hold JSON, so the text is searched as JSON writes it.
        needle = str(encode(text))[1:-1]
        in_data = type_coerce(CASE.c.data, Text).icontains(needle, autoescape=True)
        in_id = type_coerce(CASE.c.case_id, Text).icontains(needle, autoescape=True)
        in_output = type_coerce(OUTPUT.c.value, Text).icontains(needle, autoescape=True)
        cases = select(CASE.c.case_index).where(CASE.c.run_id == run_id, taken_in(run_id), or_(in_data, in_id))
        outputs = select(OUTPUT.c.case_index).where(OUTPUT.c.run_id == run_id, in_output)
        with self._database.reading() as connection:
            return sorted({*connection.scalars(cases), *connection.scalars(outputs)})

    def completed_results(self, run_id: str, check_id: str) -> Iterator[tuple[int, Any]]:
        """Yield the index of each case that a check has completed, with its `results`, by case index and repeat."""
        checks = CHECK_RESULT.c
        completed = select(checks.case_index, checks.result).where(
            checks.run_id == run_id, checks.check_id == check_id, checks.status == "completed"
        )
        with self._database.reading() as connection:
            ordered = completed.order_by(checks.case_index, checks.repeat)
            for row in connection.execution_options(yield_per=_ROWS_IN_MEMORY).execute(ordered):
                yield row.case_index, row.result["results"]

    def checks_of_types(self, run_id: str, check_types: Sequence[str]) -> set[str]:
        """Return the ids of the checks of these types that a run has results of."""
        checks = CHECK_RESULT.c
        ids = select(checks.check_id).where(checks.run_id == run_id, checks.check_type.in_(check_types)).distinct()
        return set(self._scalars(ids))

    def cases_with_results(self, run_id: str) -> int:
        """Count the test cases of a run that have results of checks."""
        cases = select(func.count(CHECK_RESULT.c.case_index.distinct())).where(CHECK_RESULT.c.run_id == run_id)
        return self._scalar(cases) or 0

    def cached_responses(self, keys: Collection[str], since: datetime) -> dict[str, CachedResponse]:
        """Return the cached responses of models that are there, by their keys; none that came before `since`.

        A key is the content hash of the request. All runs share the responses.
        """
        fresh = select(CACHED_RESPONSE).where(CACHED_RESPONSE.c.responded_at >= since)
        return {
            row.key: _response(row)
            for chunk in chunks(list(keys), KEYS_AT_ONCE)
            for row in self._rows(fresh.where(CACHED_RESPONSE.c.key.in_(chunk)))
        }

    def cache_responses(self, responses: Mapping[str, CachedResponse]) -> None:
        """Store responses by their keys, in the place of older ones, in one transaction."""
        rows = [_row(key, responses[key]) for key in sorted(responses)]
        self._database.write(lambda connection: upsert(connection, CACHED_RESPONSE, rows))

    def delete_cached_responses(self, model: str | None = None, before: datetime | None = None) -> int:
        """Delete the cached responses of a model, or of all, that came before a time, or ever; return their number."""
        statement = delete(CACHED_RESPONSE)
        if model is not None:
            statement = statement.where(CACHED_RESPONSE.c.model == model)
        if before is not None:
            statement = statement.where(CACHED_RESPONSE.c.responded_at < before)
        return self._execute(statement)

    def cache_totals(self) -> list[CacheTotals]:
        """Count the cached responses by kind and model."""
        columns = CACHED_RESPONSE.c
        totals = select(
            columns.kind,
            columns.model,
            func.count(),
            func.sum(func.length(columns.text)),
            func.sum(columns.cost_picousd),
            func.count() - func.count(columns.cost_picousd),
            func.min(columns.responded_at),
            func.max(columns.responded_at),
        ).group_by(columns.kind, columns.model)
        rows = [
            CacheTotals(kind, model, count, int(size), _usd(cost), unknown, oldest, newest)
            for kind, model, count, size, cost, unknown, oldest, newest in self._rows(totals)
        ]
        return sorted(rows, key=lambda row: (row.kind, row.model))  # each PostgreSQL orders text in its own way


def _shared_ids_of(connection: Connection, run_id: str) -> list[str]:
    """Return the ids of the checks that all cases of a run share; none of a run that is not there."""
    return shared_check_ids(connection.scalar(select(RUN.c.suite).where(RUN.c.id == run_id)) or {})


def _cases_at(connection: Connection, run_id: str, case_indices: Sequence[int]) -> dict[int, TestCase]:
    """Return a run's cases at these indices, by index; indices without a case are left out."""
    rows = select(CASE.c.case_index, CASE.c.data).where(CASE.c.run_id == run_id, CASE.c.case_index.in_(case_indices))
    return {case_index: TestCase.trusted(data) for case_index, data in connection.execute(rows)}


def _checks_between(run_id: str, start: int, stop: int) -> tuple[ColumnElement[bool], ...]:
    checks = CHECK_RESULT.c
    return checks.run_id == run_id, checks.case_index >= start, checks.case_index < stop


def _between(start: int, stop: int | None) -> ColumnElement[bool]:
    from_start = OUTPUT.c.case_index >= start
    return from_start if stop is None else and_(from_start, OUTPUT.c.case_index < stop)


def _failed_outputs(connection: Connection, run_id: str) -> Iterable[Row[tuple[int, int, Any]]]:
    failed = OUTPUT.c.run_id == run_id, OUTPUT.c.failed.is_(True)
    return connection.execute(select(OUTPUT.c.case_index, OUTPUT.c.repeat, OUTPUT.c.metadata).where(*failed))


def _never_asked(metadata: Any) -> bool:
    return isinstance(metadata, dict) and metadata.get("attempts") == 0


def _outputs_where(
    connection: Connection, run_id: str, which: ColumnElement[bool]
) -> dict[tuple[int, int], StoredOutput]:
    table = OUTPUT.c
    rows = select(table.case_index, table.repeat, *_OUTPUT_COLUMNS).where(table.run_id == run_id, which)
    return {(row.case_index, row.repeat): _stored(row) for row in connection.execute(rows)}


def _stored(row: Row[Any]) -> StoredOutput:
    optional: dict[str, Any] = {"id": row.output_id, "metadata": row.metadata}
    known = {name: field for name, field in optional.items() if field is not None}
    return StoredOutput(Output(value=row.value, **known), row.content_hash, row.failed, row.blob)


def _checks(run_id: str, *, results: bool = True) -> Select[Any]:
    checks = CHECK_RESULT.c
    result = checks.result if results else null().label("result")
    return (
        select(checks.case_index, checks.repeat, checks.check_id, checks.status, checks.passed, result)
        .where(checks.run_id == run_id)
        .order_by(checks.case_index, checks.repeat)
    )


def _usd(picousd: Any) -> float | None:
    return None if picousd is None else int(picousd) / _PICOUSD


def _response(row: Row[Any]) -> CachedResponse:
    fields = dict(row._mapping)
    del fields["key"]
    cost, dropped = _usd(fields.pop("cost_picousd")), tuple(fields.pop("dropped_params"))
    return CachedResponse(**fields, cost_usd=cost, dropped_params=dropped)


def _row(key: str, response: CachedResponse) -> dict[str, Any]:
    row = asdict(response)
    cost = row.pop("cost_usd")
    return {**row, "key": key, "cost_picousd": None if cost is None else round(cost * _PICOUSD)}
