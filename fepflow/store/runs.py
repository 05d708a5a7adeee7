"""Runs and their test cases, requests to cancel runs, and baselines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    delete,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy import case as sql_case
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from fepflow.errors import InputError, NotFoundError, Problem, UserError
from fepflow.json.values import encode
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.blobs import LargeOutputs
from fepflow.store.database import KEYS_AT_ONCE, SHORTEST_CUT, Database, Repository, chunks, indexable, now_of, records
from fepflow.store.records import (
    BASELINE,
    CASE,
    FILTERS,
    REUSE_OUTPUTS,
    RUN,
    UNDER_WAY,
    Baseline,
    NewCheckResult,
    NewOutput,
    Outcome,
    RunFigures,
    RunFilter,
    RunRecord,
)
from fepflow.store.result_rows import insert_results
from fepflow.store.totals import count_end

LATEST = "latest"
MIN_PREFIX = 4
CUT_CASE = sql_case((func.length(CASE.c.case_id, type_=Integer) >= SHORTEST_CUT, CASE.c.data)).label("cut_case")
"""A column beside that of the case ids: the case as JSON, where its id may have been cut; else None."""
SUMMARY = [defer(getattr(RunRecord, name), raiseload=True) for name in ("suite", "metrics", "stats")]
"""Options of a query whose runs are read without their large values."""

_CASES_AT_ONCE = 1_000
_newest_first = RUN.c.created_at.desc()
_WAS_ASKED = RUN.c.rescored_from.is_(None)
"""The condition that the outputs of a run are not those of an earlier one that was rescored."""


class Runs(Repository):
    """Runs with their test cases and baselines. Case indices count from 0; ranges exclude their `stop`."""

    def __init__(self, database: Database, large_outputs: LargeOutputs) -> None:
        super().__init__(database)
        self._large_outputs = large_outputs

    def create(self, run: RunRecord, cases: Iterable[TestCase], owner: str | None = None, seconds: float = 0.0) -> None:
        """Store the run, pending, with its cases in their order; all of it or nothing.

        An `owner` claims it for so many `seconds`, as `Leases.claim` does.

        Raises InputError for cases with the same id, a very long one or without a JSON form, UserError if the run's
        id or its flow run already exists.
        """

        def create(connection: Connection) -> None:
            insert_run(connection, run, cases)
            if owner is not None:
                until = now_of(connection) + timedelta(seconds=seconds)
                connection.execute(update(RUN).where(RUN.c.id == run.id).values(lease_owner=owner, lease_until=until))

        self._database.write_once(create)  # `cases` may be an iterator, which cannot be read twice

    def add_completed(
        self,
        run: RunRecord,
        cases: Sequence[TestCase],
        outputs: Sequence[NewOutput],
        checks: Sequence[NewCheckResult],
        *,
        outcome: Outcome | None,
        metrics: Any,
        verdict: Any,
        completed_at: datetime | None = None,
        cases_hash: str | None = None,
    ) -> None:
        """Store a run that is over, with its cases, results and verdict, in one transaction; raises as `create` does.

        Such runs are those of a test, of outputs that somebody else had, and of another store. `completed_at` is the
        time at which it ended; None: now. `cases_hash` is that of the cases before some were erased; None: of `cases`.
        """
        contents = self._large_outputs.moved_out
        insert_rows = insert_results(run.id, outputs, checks, contents)
        end = {"status": "completed", "completed_at": completed_at or utc_now(), "outcome": outcome}
        end |= {} if cases_hash is None else {"cases_hash": cases_hash}

        def add(connection: Connection) -> None:
            insert_run(connection, run, cases)
            insert_rows(connection)
            ended = update(RUN).where(RUN.c.id == run.id).values(**end, metrics=metrics, verdict=verdict)
            connection.execute(ended)
            count_end(connection, run.id)

        self._large_outputs.write(contents, add)

    def get(self, run_id: str) -> RunRecord:
        """Return the run with this id, with the only id that begins so (4 characters or more), or the "latest".

        Raises NotFoundError.
        """
        if re.fullmatch("[0-9a-f]{8}-[0-9a-f-]{,27}", run_id):  # a UUID, as the evaluations API writes the id
            run_id = run_id.replace("-", "")
        if run_id == LATEST:
            if newest := self.newest(limit=1):
                return newest[0]
            raise NotFoundError("There are no runs yet: `fepflow run SUITE` makes the first.")
        # Not LIKE, which on SQLite takes capitals and small letters for the same.
        begins_so = select(RunRecord).where(func.substr(RUN.c.id, 1, len(run_id)) == run_id).order_by(_newest_first)
        matches = self._records(begins_so.limit(5)) if run_id.isascii() and run_id.isprintable() else []
        exact = [record for record in matches if record.id == run_id]
        if exact or (len(matches) == 1 and len(run_id) >= MIN_PREFIX):
            return (exact or matches)[0]
        if matches and len(run_id) < MIN_PREFIX:
            raise NotFoundError(
                f"{run_id!r} is too short to name a run: write at least {MIN_PREFIX} characters of its id."
            )
        if matches:
            ids = ", ".join(record.id for record in matches)
            raise NotFoundError(f"{run_id!r} could be any of {ids}: write more characters of the id.")
        raise NotFoundError(f"There is no run {run_id!r}: `fepflow list` shows all runs.")

    def newest(self, limit: int = 20, name: str | None = None, *, variants: bool = False) -> list[RunRecord]:
        """Return the newest runs first, of one suite where its name is given, with those of its `variants` if asked."""
        newest = select(RunRecord).order_by(_newest_first, self._database.by_code_points(RUN.c.id).desc()).limit(limit)
        if name is None:
            return self._records(newest)
        of_suite = RUN.c.name == name
        if variants:
            of_suite |= RUN.c.name.startswith(f"{name} [", autoescape=True)
        return self._records(newest.where(of_suite))

    def before(self, run: RunRecord, *, alike: bool = True) -> RunRecord | None:
        """Return the newest older run of this name with an outcome, whose cases no filter chose, and whose target was
        asked: no rescored run. Before a rescored run comes what came before the run that has its outputs.

        Only runs that measured the same on the same cases, and were begun by the same cause, are considered if `alike`.
        """
        asked = self._asked(run)
        older = select(RunRecord).where(RUN.c.outcome.is_not(None), RUN.c.created_at < asked.created_at, _WAS_ASKED)
        older = older.where(*_equal(run, "name"), _without_option(FILTERS))
        if alike:
            same = "suite_hash", "cases_hash"
            older = older.where(*_equal(run, *same), *(RUN.c[name].is_not(None) for name in (*same, "cause")))
            older = older.where(*_equal(asked, "cause"))
        return self._first(older.order_by(_newest_first, RUN.c.id.desc()))

    def decided_before(self, run: RunRecord) -> RunRecord | None:
        """Return the newest older run of this name that passed or failed, begun by the same cause: what a change of the
        outcome is a change of. An inconclusive run changes nothing, and neither do chosen cases or a rescored run."""
        older = select(RunRecord).where(RUN.c.outcome.in_(("pass", "fail")), RUN.c.created_at < run.created_at)
        older = older.where(*_equal(run, "name", "cause"), _without_option(FILTERS), _WAS_ASKED)
        return self._first(older.order_by(_newest_first, RUN.c.id.desc()))

    def _asked(self, run: RunRecord) -> RunRecord:
        """Return the run in which the target was asked; the run itself if that one is not there any more."""
        if run.rescored_from is None:
            return run
        return self._first(select(RunRecord).where(RUN.c.id == run.asked_in)) or run

    def alike(self, run: RunRecord, limit: int, *, all_causes: bool = False) -> list[RunFigures]:
        """Return the newest runs with an outcome that measured the same on the same cases as this one, itself included
        and none that is newer; the oldest first. Without `all_causes`, only those that the same cause began.

        There are none for a run whose cases a filter chose, and for a rescored one, which measured nothing again.
        """
        if run.filtered or run.rescored_from is not None:
            return []
        same = ["name", "suite_hash", "cases_hash", *([] if all_causes else ["cause"])]
        newest = (
            select(RUN.c.id, RUN.c.created_at, RUN.c.outcome, RUN.c.metrics)
            .where(RUN.c.outcome.is_not(None), RUN.c.created_at <= run.created_at, _WAS_ASKED)
            .where(*_equal(run, *same))
            .order_by(_newest_first, RUN.c.id.desc())
            .limit(limit)
        )
        return [RunFigures(*row) for row in self._rows(newest)][::-1]

    def looks(self, run: RunRecord) -> list[tuple[str, Outcome | None]]:
        """Return the ids and outcomes of the other runs of the same suite on the same version of its target, the
        oldest first: those with an outcome, and those that were created earlier and are under way. A random sample of
        the cases is one; cases that a filter chose are not, nor outputs that are reused or rescored."""
        under_way = RUN.c.status.in_(UNDER_WAY) & (RUN.c.created_at < run.created_at)
        same = "name", "suite_hash", "target_hash", "version"
        others = (
            select(RUN.c.id, RUN.c.outcome)
            .where(*_equal(run, *same), _without_option(FILTERS), _without_option(REUSE_OUTPUTS), _WAS_ASKED)
            .where(RUN.c.id != run.id)
            .where(RUN.c.outcome.is_not(None) | under_way)
            .order_by(RUN.c.created_at, RUN.c.id)
        )
        return [(row.id, row.outcome) for row in self._rows(others)]

    def equal_to(self, run: RunRecord, before: datetime) -> set[str]:
        """Return the ids of the runs of the same suite and cases, on the same version of the target, that had an
        outcome by then."""
        same = "name", "suite_hash", "cases_hash", "target_hash", "version"
        ended = RUN.c.outcome.is_not(None) & (RUN.c.completed_at <= before) & _WAS_ASKED
        return set(self._scalars(select(RUN.c.id).where(*_equal(run, *same), ended)))

    def note_target(self, run_id: str, target_hash: str) -> None:
        """Note how the run asks its target."""
        self._execute(update(RUN).where(RUN.c.id == run_id).values(target_hash=target_hash))

    def of_flow_run(self, flow_run_id: str) -> RunRecord | None:
        """Return the run that this Prefect flow run executes."""
        return self._first(select(RunRecord).where(RUN.c.flow_run_id == flow_run_id))

    def of_variants(self, variants_id: str) -> list[RunRecord]:
        """Return the runs of all variants of a suite that were begun together, in their order; none if nothing has
        this id, or its beginning (4 characters or more)."""
        if len(variants_id) < MIN_PREFIX or not variants_id.isalnum():
            return []
        noted = type_coerce(RUN.c.options, Text).contains(str(encode(variants_id))[:-1], autoescape=True)
        candidates = [run for run in self._records(select(RunRecord).where(noted)) if run.variants_id is not None]
        ids = {run.variants_id for run in candidates if str(run.variants_id).startswith(variants_id)}
        whole = variants_id if variants_id in ids else next(iter(ids)) if len(ids) == 1 else None
        runs = [run for run in candidates if run.variants_id == whole]
        return sorted(runs, key=lambda run: (run.options or {}).get("variant_number", 0))

    def set_flow_run(self, run_id: str, flow_run_id: str) -> None:
        """Note which Prefect flow run executes the run.

        Raises NotFoundError for an unknown run, UserError if the flow run executes another one.
        """
        change = update(RUN).where(RUN.c.id == run_id).values(flow_run_id=flow_run_id)

        def note(connection: Connection) -> None:
            try:
                changed = connection.execute(change).rowcount
            except IntegrityError:
                raise UserError(f"The flow run {flow_run_id} executes another run than {run_id} already.") from None
            if not changed:
                raise no_such_run(run_id)

        self._database.write(note)

    def find(self, wanted: RunFilter, limit: int, skip: int = 0) -> list[RunRecord]:
        """Return the newest of the wanted runs after `skip` of them, without their suites and metrics."""
        run_id = self._database.by_code_points(RUN.c.id)
        page = select(RunRecord).options(*SUMMARY).where(*_conditions(wanted)).order_by(_newest_first, run_id.desc())
        return self._records(page.limit(limit).offset(skip))

    def count(self, wanted: RunFilter) -> int:
        """Count the runs that are wanted."""
        return self._scalar(select(func.count()).select_from(RUN).where(*_conditions(wanted))) or 0

    def metrics_of(self, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the metrics of these runs; of one without a verdict, none."""
        rows = self._rows(select(RUN.c.id, RUN.c.metrics).where(RUN.c.id.in_(run_ids)))
        return {row.id: row.metrics or [] for row in rows}

    def suite_names(self) -> list[str]:
        """Return the names of all suites that have runs, in order."""
        return sorted(self._scalars(select(RUN.c.name).distinct()))

    def newest_of_suites(self) -> list[tuple[RunRecord, int]]:
        """Return the newest run of each suite without its suite and metrics, newest first, and the number of the
        suite's runs."""
        newest = select(RUN.c.name, func.max(RUN.c.created_at).label("created_at"), func.count().label("runs"))
        suite = newest.group_by(RUN.c.name).subquery()
        rows = (
            select(RunRecord, suite.c.runs)
            .options(*SUMMARY)
            .join(suite, (RUN.c.name == suite.c.name) & (RUN.c.created_at == suite.c.created_at))
            .order_by(_newest_first, RUN.c.name)
        )
        with self._database.reading() as connection, Session(connection) as session:
            pairs = [(run, runs) for run, runs in session.execute(rows)]
        return list({run.name: (run, runs) for run, runs in reversed(pairs)}.values())[::-1]

    def cases(self, run_id: str, start: int = 0, stop: int | None = None, *, waiting: bool = False) -> list[TestCase]:
        """Return the run's test cases at the indices from `start` to `stop`; those that it may yet take in only if they
        are wanted, too, as `waiting`."""
        rows = select(CASE.c.data).where(CASE.c.run_id == run_id, CASE.c.case_index >= start)
        if not waiting:
            rows = rows.where(taken_in(run_id))
        if stop is not None:
            rows = rows.where(CASE.c.case_index < stop)
        return [TestCase.trusted(data) for data in self._scalars(rows.order_by(CASE.c.case_index))]

    def cases_by_id(self, run_id: str, case_ids: Iterable[str]) -> dict[str, tuple[int, TestCase]]:
        """Return the cases with these ids that the run has taken in, each with its index, by id."""
        wanted = {indexable(case_id): case_id for case_id in case_ids}
        cases: dict[str, tuple[int, TestCase]] = {}
        rows = select(CASE.c.case_id, CASE.c.case_index, CASE.c.data).where(CASE.c.run_id == run_id, taken_in(run_id))
        with self._database.reading() as connection:
            for chunk in chunks(sorted(wanted), KEYS_AT_ONCE):
                for case_id, case_index, data in connection.execute(rows.where(CASE.c.case_id.in_(chunk))):
                    cases[wanted[case_id]] = case_index, TestCase.trusted(data)
        return cases

    def ids_of_cases(self, run_id: str) -> Iterator[str]:
        """Yield the ids of all cases that the run has taken in, in order."""
        rows = select(CASE.c.case_id, CUT_CASE).where(CASE.c.run_id == run_id, taken_in(run_id))
        with self._database.reading() as connection:
            for row in connection.execution_options(yield_per=_CASES_AT_ONCE).execute(rows.order_by(CASE.c.case_index)):
                yield whole_id(*row)

    def index_of_case(self, run_id: str, case_id: str) -> int | None:
        """Return the index of a case in a run; None if the run has no such case."""
        wanted = CASE.c.run_id == run_id, CASE.c.case_id == indexable(case_id), taken_in(run_id)
        return self._scalar(select(CASE.c.case_index).where(*wanted))

    def earlier_indices(self, run: RunRecord, case_id: str, limit: int) -> list[tuple[str, datetime, int, int]]:
        """Return the newest older runs of this name with this case.

        Each is (run id, time of creation, repeats, the case's index).
        """
        rows = (
            select(RUN.c.id, RUN.c.created_at, RUN.c.repeats, CASE.c.case_index)
            .join(CASE, (CASE.c.run_id == RUN.c.id) & (CASE.c.case_id == indexable(case_id)))
            .where(RUN.c.name == run.name, RUN.c.created_at < run.created_at, CASE.c.case_index < RUN.c.n_cases)
            .where(_WAS_ASKED)
            .order_by(_newest_first)
            .limit(limit)
        )
        return [(row.id, row.created_at, row.repeats, row.case_index) for row in self._rows(rows)]

    def request_cancel(self, run_id: str) -> RunRecord:
        """Request the run's cancellation, and return it: still running, or cancelled already if it has no executor.

        The executor, on any machine, polls the request and stops. Raises NotFoundError for an unknown run, UserError
        for one that is over.
        """

        def request(connection: Connection) -> RunRecord:
            now = utc_now()
            run = update(RUN).where(RUN.c.id == run_id)
            running = run.where(RUN.c.status == "running", RUN.c.cancel_requested_at.is_(None))
            connection.execute(running.values(cancel_requested_at=now))
            cancelled = {"status": "cancelled", "cancel_requested_at": now, "completed_at": now, "takeovers_left": 0}
            pending = run.where(RUN.c.status == "pending")
            error = sql_case(
                (RUN.c.takeovers > 0, "cancelled before it was resumed"), else_="cancelled before it began"
            )
            if connection.execute(pending.values(**cancelled, error=error)).rowcount:
                count_end(connection, run_id)
            record = find_run(connection, run_id)
            if record.status != "running" and record.completed_at != now:
                raise UserError(f"Run {run_id} is over, it is {record.status}: there is nothing to cancel.")
            return record

        return self._database.write(request)

    def cancel_requested(self, run_id: str) -> bool:
        """Return whether the run has to stop."""
        return self._scalar(select(RUN.c.cancel_requested_at).where(RUN.c.id == run_id)) is not None

    def withdraw_cancel(self, run_id: str) -> None:
        """Withdraw the request from a run that is over, because it is to be resumed."""
        over = update(RUN).where(RUN.c.id == run_id, RUN.c.status.not_in(UNDER_WAY))
        self._execute(over.values(cancel_requested_at=None))

    def interrupted(self, since: datetime) -> dict[str, str]:
        """Return the ids of the runs that were interrupted since then, by that of their flow run."""
        runs = select(RUN.c.flow_run_id, RUN.c.id).where(RUN.c.status == "interrupted", RUN.c.completed_at >= since)
        return {row.flow_run_id: row.id for row in self._rows(runs.where(RUN.c.flow_run_id.is_not(None)))}

    def mark_cancelled(self, run_id: str) -> bool:
        """Turn an interrupted run into a cancelled one: its executor was killed on request."""
        interrupted = update(RUN).where(RUN.c.id == run_id, RUN.c.status == "interrupted")
        return self._execute(interrupted.values(status="cancelled", error="cancelled while it was running")) == 1

    def set_baseline(self, suite: str, name: str, run_id: str, others: Sequence[str] = ()) -> str | None:
        """Give a run of the suite this name, pooled with `others`, and return the id of the run that had it, None if
        none had."""
        where = BASELINE.c.suite == suite, BASELINE.c.name == name
        baseline = Baseline(suite=suite, name=name, run_id=run_id, others=list(others), set_at=utc_now())

        def replace(connection: Connection) -> str | None:
            before = connection.scalar(select(BASELINE.c.run_id).where(*where))
            connection.execute(delete(BASELINE).where(*where))
            connection.execute(insert(BASELINE).values(baseline.values()))
            return before

        return self._database.write(replace)

    def baselines(self, name: str | None = None) -> list[Baseline]:
        """Return all baselines, or those of a name, by suite and name."""
        rows = select(Baseline) if name is None else select(Baseline).where(BASELINE.c.name == name)
        return sorted(self._records(rows), key=lambda baseline: (baseline.suite, baseline.name))

    def remove_baseline(self, suite: str, name: str) -> None:
        """Take the name from its run."""
        self._execute(delete(BASELINE).where(BASELINE.c.suite == suite, BASELINE.c.name == name))


def no_such_run(run_id: str) -> NotFoundError:
    """Return the error for an id that no run has."""
    return NotFoundError(f"There is no run {run_id}: `fepflow list` shows all runs.")


def find_run(connection: Connection, run_id: str) -> RunRecord:
    """Return the run with exactly this id. Raises NotFoundError."""
    for record in records(connection, select(RunRecord).where(RUN.c.id == run_id)):
        return record
    raise no_such_run(run_id)


def insert_run(connection: Connection, run: RunRecord, cases: Iterable[TestCase]) -> None:
    """Insert the run, pending, and its cases; raises as `Runs.create` does."""
    try:
        connection.execute(insert(RUN).values({**run.values(), "n_cases": 0}))
    except IntegrityError:
        raise UserError(
            f"There is already a run {run.id}, or one of the flow run {run.flow_run_id}: a new run needs an id "
            "of its own."
        ) from None
    count, total = 0, 0
    rows = _case_rows(run.id, cases)
    while chunk := list(islice(rows, _CASES_AT_ONCE)):
        connection.execute(insert(CASE), chunk)
        count += len(chunk)
        total += _sum_of_hashes(chunk)
    n_cases = min(run.n_cases or count, count)
    counted = update(RUN).where(RUN.c.id == run.id).values(n_cases=n_cases, cases_hash=_hash_of_sum(total))
    connection.execute(counted)


def cases_hash_of(cases: Iterable[TestCase]) -> str:
    """Return the content hash of a set of cases, as a run of them has it; raises InputError as `Runs.create` does."""
    return _hash_of_sum(_sum_of_hashes(_case_rows("", cases)))


def _sum_of_hashes(rows: Iterable[dict[str, Any]]) -> int:
    """Return a sum, as the same cases in another order are the same set."""
    return sum(int(content_hash(str(row["data"])), 16) for row in rows)


def _hash_of_sum(total: int) -> str:
    return f"{total % 2**256:064x}"


def taken_in(run_id: str) -> ColumnElement[bool]:
    """Return the condition that the run has taken in a case, see `Leases.extend_run`."""
    return CASE.c.case_index < select(RUN.c.n_cases).where(RUN.c.id == run_id).scalar_subquery()


def whole_id(case_id: str, cut_case: dict[str, Any] | None) -> str:
    """Return a case's whole id, from the column of ids and `CUT_CASE`."""
    return case_id if cut_case is None else str(cut_case["id"])


def _equal(run: RunRecord, *names: str) -> list[ColumnElement[bool]]:
    return [RUN.c[name] == getattr(run, name) for name in names]


def _without_option(name: str) -> ColumnElement[bool]:
    # A key of a JSON object: with its quotes it is found whole.
    has_option = type_coerce(RUN.c.options, Text).contains(str(encode(name)), autoescape=True)
    return or_(RUN.c.options.is_(None), ~has_option)


def _case_rows(run_id: str, cases: Iterable[TestCase]) -> Iterator[dict[str, Any]]:
    case_indices: dict[str, int] = {}
    for case_index, case in enumerate(cases):
        path = f"test_cases[{case_index}]"
        if (first := case_indices.setdefault(case.id, case_index)) != case_index:
            raise InputError(
                Problem(f"the id {case.id!r} is that of test_cases[{first}] too", path=path, advice="ids are unique")
            )
        try:
            data = encode(case.model_dump())
        except ValueError as error:
            raise InputError(Problem(f"the case {case.id!r} has no JSON form: {error}", path=path)) from None
        yield {"run_id": run_id, "case_index": case_index, "case_id": indexable(case.id), "data": data}


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    equal = {RUN.c.name: wanted.suite, RUN.c.outcome: wanted.outcome, RUN.c.status: wanted.status}
    conditions = [column == text for column, text in equal.items() if text is not None]
    if wanted.tag is not None:
        # A tag is a text in a JSON list: with its quotes it is found whole.
        conditions.append(type_coerce(RUN.c.tags, Text).contains(str(encode(wanted.tag)), autoescape=True))
    if wanted.since is not None:
        conditions.append(RUN.c.created_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(RUN.c.created_at < wanted.until)
    return conditions
