"""Runs and their test cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    delete,
    func,
    insert,
    select,
    type_coerce,
    update,
)
from sqlalchemy import case as sql_case
from sqlalchemy.exc import IntegrityError

from fepflow.errors import InputError, NotFoundError, Problem, UserError
from fepflow.json.codec import encode
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.database import Repository, now_of
from fepflow.store.records import (
    Baseline,
    NewCheckResult,
    NewOutput,
    NewRun,
    Outcome,
    RunFigures,
    RunFilter,
    RunRecord,
    RunSummary,
)
from fepflow.store.result_rows import insert_results
from fepflow.store.tables import (
    BASELINE,
    CASE,
    RUN,
    SHORTEST_CUT,
    indexable,
)

LATEST = "latest"
MIN_PREFIX = 4

_CASES_AT_ONCE = 1_000


def no_such_run(run_id: str) -> NotFoundError:
    """The error of an id that no run has."""
    return NotFoundError(f"There is no run {run_id}: `fepflow list` shows the runs there are.")


def find_run(connection: Connection, run_id: str) -> RunRecord:
    """The run with just this id. Raises NotFoundError."""
    row = connection.execute(select(RUN).where(RUN.c.id == run_id)).mappings().one_or_none()
    if row is None:
        raise no_such_run(run_id)
    return RunRecord(**row)


def insert_run(connection: Connection, run: NewRun, cases: Iterable[TestCase]) -> None:
    """Insert the run, pending, and its cases; raises as `Runs.create_run` does."""
    try:
        connection.execute(insert(RUN).values(_run_row(run)))
    except IntegrityError:
        raise UserError(
            f"There is already a run {run.id}, or one of the flow run {run.flow_run_id}: a new run needs an id "
            "of its own."
        ) from None
    count, total = 0, 0
    rows = _case_rows(run.id, cases)
    while some := list(islice(rows, _CASES_AT_ONCE)):
        connection.execute(insert(CASE), some)
        count += len(some)
        # A sum, as the same cases in another order are the same set.
        total += sum(int(content_hash(str(row["data"])), 16) for row in some)
    ended = update(RUN).where(RUN.c.id == run.id)
    n_cases = count if run.n_cases is None else min(run.n_cases, count)
    connection.execute(ended.values(n_cases=n_cases, cases_hash=f"{total % 2**256:064x}"))


def taken_in(run_id: str) -> ColumnElement[bool]:
    """Whether a case is one that its run has taken in, see `Leases.extend_run`."""
    return CASE.c.case_index < select(RUN.c.n_cases).where(RUN.c.id == run_id).scalar_subquery()


def _with_prefix(prefix: str) -> Select[Any]:
    # Not LIKE, which on SQLite takes capitals and small letters for the same.
    begins_so = func.substr(RUN.c.id, 1, len(prefix)) == prefix
    return select(RUN).where(begins_so).order_by(RUN.c.created_at.desc()).limit(5)


def _run_row(run: NewRun) -> dict[str, Any]:
    row = {item.name: getattr(run, item.name) for item in fields(run)}
    return {**row, "status": "pending", "created_at": utc_now(), "n_cases": 0}


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


CUT_CASE = sql_case((func.length(CASE.c.case_id, type_=Integer) >= SHORTEST_CUT, CASE.c.data)).label("cut_case")
"""Beside the column of ids: the case as JSON, where its id may have been cut; else None."""


def whole_id(case_id: str, cut_case: dict[str, Any] | None) -> str:
    """A case's id as it was given, from the column of ids and `CUT_CASE`."""
    return case_id if cut_case is None else str(cut_case["id"])


_COLUMNS = [RUN.c[item.name] for item in fields(RunSummary)]


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    same = {RUN.c.name: wanted.suite, RUN.c.outcome: wanted.outcome, RUN.c.status: wanted.status}
    found = [column == text for column, text in same.items() if text is not None]
    if wanted.tag is not None:
        # A tag is a text in a JSON list: with its quotes it is found whole.
        found.append(type_coerce(RUN.c.tags, Text).contains(str(encode(wanted.tag)), autoescape=True))
    if wanted.since is not None:
        found.append(RUN.c.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(RUN.c.created_at < wanted.until)
    return found


class Runs(Repository):
    """Runs, their test cases, requests to cancel them, and baselines: runs of a suite under a name."""

    def create(self, run: NewRun, cases: Iterable[TestCase], owner: str | None = None, seconds: float = 0.0) -> None:
        """Store the run, pending, with its cases in their order; all of it or nothing.

        An `owner` claims it for so many `seconds`, as `Leases.claim` does.

        Raises InputError for cases with the same id, a very long one or without a JSON form, UserError if the run's
        id or its flow run is there already.
        """

        def create(connection: Connection) -> None:
            insert_run(connection, run, cases)
            if owner is not None:
                until = now_of(connection) + timedelta(seconds=seconds)
                connection.execute(update(RUN).where(RUN.c.id == run.id).values(lease_owner=owner, lease_until=until))

        self._database.write_once(create)  # `cases` may be an iterator, which cannot be read twice

    def get(self, run_id: str) -> RunRecord:
        """The run with this id, with the only id that begins so (4 characters or more), or the "latest".

        Raises NotFoundError.
        """
        if run_id == LATEST:
            if newest := self.newest(limit=1):
                return newest[0]
            raise NotFoundError("There are no runs yet: `fepflow run SUITE` makes the first.")
        found = self._records(_with_prefix(run_id)) if run_id.isascii() and run_id.isprintable() else []
        exact = [record for record in found if record.id == run_id]
        if exact or (len(found) == 1 and len(run_id) >= MIN_PREFIX):
            return (exact or found)[0]
        if found and len(run_id) < MIN_PREFIX:
            raise NotFoundError(
                f"{run_id!r} is too short to name a run: write at least {MIN_PREFIX} characters of its id."
            )
        if found:
            ids = ", ".join(record.id for record in found)
            raise NotFoundError(f"{run_id!r} could be any of {ids}: write more characters of the id.")
        raise NotFoundError(f"There is no run {run_id!r}: `fepflow list` shows the runs there are.")

    def newest(self, limit: int = 20, name: str | None = None) -> list[RunRecord]:
        """The newest runs first, of one suite where its name is given."""
        newest = (
            select(RUN).order_by(RUN.c.created_at.desc(), self._database.by_code_points(RUN.c.id).desc()).limit(limit)
        )
        return self._records(newest if name is None else newest.where(RUN.c.name == name))

    def before(self, run: RunRecord, *, alike: bool = True) -> RunRecord | None:
        """The newest older run of this name with an outcome: of those that measured the same on the same cases, and
        were begun by the same cause, or of all.
        """
        older = select(RUN).where(RUN.c.name == run.name, RUN.c.outcome.is_not(None), RUN.c.created_at < run.created_at)
        if alike:  # an unknown value (NULL) equals nothing
            columns = [RUN.c[name] for name in ("suite_hash", "cases_hash", "cause")]
            older = older.where(*(column.is_not(None) for column in columns))
            older = older.where(*(column == getattr(run, column.name) for column in columns))
        records = self._records(older.order_by(RUN.c.created_at.desc(), RUN.c.id.desc()).limit(1))
        return records[0] if records else None

    def alike(self, run: RunRecord, limit: int) -> list[RunFigures]:
        """The newest runs with an outcome that measured the same on the same cases as this one, and were begun by the
        same cause, itself included and none that is newer; the oldest first."""
        columns = [RUN.c[name] for name in ("name", "suite_hash", "cases_hash", "cause")]
        newest = (
            select(RUN.c.id, RUN.c.created_at, RUN.c.outcome, RUN.c.metrics)
            .where(RUN.c.outcome.is_not(None), RUN.c.created_at <= run.created_at)
            .where(*(column == getattr(run, column.name) for column in columns))
            .order_by(RUN.c.created_at.desc(), RUN.c.id.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [RunFigures(*row) for row in connection.execute(newest)][::-1]

    def of_flow_run(self, flow_run_id: str) -> RunRecord | None:
        """The run that this Prefect flow run executes."""
        records = self._records(select(RUN).where(RUN.c.flow_run_id == flow_run_id))
        return records[0] if records else None

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

    def cases(self, run_id: str, start: int = 0, stop: int | None = None) -> list[TestCase]:
        """The run's test cases at the indices from `start` up to, without, `stop`; none that it may yet take in."""
        rows = select(CASE.c.data).where(CASE.c.run_id == run_id, CASE.c.case_index >= start, taken_in(run_id))
        if stop is not None:
            rows = rows.where(CASE.c.case_index < stop)
        with self._database.reading() as connection:
            return [TestCase.trusted(data) for data in connection.scalars(rows.order_by(CASE.c.case_index))]

    def _records(self, statement: Select[Any]) -> list[RunRecord]:
        with self._database.reading() as connection:
            return [RunRecord(**row) for row in connection.execute(statement).mappings()]

    def add_completed(
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

    def index_of_case(self, run_id: str, case_id: str) -> int | None:
        """The index of a case in a run; None if the run has no such case."""
        with self._database.reading() as connection:
            found = select(CASE.c.case_index).where(
                CASE.c.run_id == run_id, CASE.c.case_id == indexable(case_id), taken_in(run_id)
            )
            return connection.scalar(found)

    def case_ids(self, run_id: str, limit: int) -> list[str]:
        """The ids of the first cases of a run."""
        rows = select(CASE.c.case_id, CUT_CASE).where(CASE.c.run_id == run_id).order_by(CASE.c.case_index)
        with self._database.reading() as connection:
            return [whole_id(*row) for row in connection.execute(rows.limit(limit))]

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

    def find(self, wanted: RunFilter, limit: int, skip: int = 0) -> list[RunSummary]:
        """The newest of the runs that are wanted, after `skip` of them."""
        run_id = self._database.by_code_points(RUN.c.id)
        page = select(*_COLUMNS).where(*_conditions(wanted)).order_by(RUN.c.created_at.desc(), run_id.desc())
        with self._database.reading() as connection:
            return [RunSummary(*row) for row in connection.execute(page.limit(limit).offset(skip))]

    def count(self, wanted: RunFilter) -> int:
        """How many runs are wanted."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(RUN).where(*_conditions(wanted))) or 0

    def suite_names(self) -> list[str]:
        """The names of all suites that have runs, in order."""
        with self._database.reading() as connection:
            return sorted(connection.scalars(select(RUN.c.name).distinct()))

    def newest_of_suites(self) -> list[tuple[RunSummary, int]]:
        """The newest run of each suite, newest first, and how many runs it has."""
        newest = select(RUN.c.name, func.max(RUN.c.created_at).label("created_at"), func.count().label("runs"))
        of_suite = newest.group_by(RUN.c.name).subquery()
        rows = (
            select(*_COLUMNS, of_suite.c.runs)
            .join(of_suite, (RUN.c.name == of_suite.c.name) & (RUN.c.created_at == of_suite.c.created_at))
            .order_by(RUN.c.created_at.desc(), RUN.c.name)
        )
        with self._database.reading() as connection:
            found = [(RunSummary(*row[:-1]), row[-1]) for row in connection.execute(rows)]
        return list({summary.name: (summary, runs) for summary, runs in reversed(found)}.values())[::-1]

    def request_cancel(self, run_id: str) -> RunRecord:
        """Request the run's cancellation, and return it: still running, or cancelled already if it has no executor.

        Raises NotFoundError for an unknown run, UserError for one that is over.
        """

        def request(connection: Connection) -> RunRecord:
            now = utc_now()
            run = update(RUN).where(RUN.c.id == run_id)
            connection.execute(
                run.where(RUN.c.status == "running", RUN.c.cancel_requested_at.is_(None)).values(
                    cancel_requested_at=now
                )
            )
            connection.execute(
                run.where(RUN.c.status == "pending").values(
                    status="cancelled", cancel_requested_at=now, completed_at=now, error="cancelled before it began"
                )
            )
            record = find_run(connection, run_id)
            if record.status != "running" and record.completed_at != now:
                raise UserError(f"Run {run_id} is over, it is {record.status}: there is nothing to cancel.")
            return record

        return self._database.write(request)

    def cancel_requested(self, run_id: str) -> bool:
        """Whether the run is to stop."""
        with self._database.reading() as connection:
            return connection.scalar(select(RUN.c.cancel_requested_at).where(RUN.c.id == run_id)) is not None

    def withdraw_cancel(self, run_id: str) -> None:
        """Take the flag back from a run that is over, because it is to be resumed."""
        over = update(RUN).where(RUN.c.id == run_id, RUN.c.status.not_in(("pending", "running")))
        self._database.write(lambda connection: connection.execute(over.values(cancel_requested_at=None)))

    def mark_cancelled(self, run_id: str) -> bool:
        """Say that an interrupted run was cancelled: its executor was killed on request."""
        interrupted = update(RUN).where(RUN.c.id == run_id, RUN.c.status == "interrupted")
        change = interrupted.values(status="cancelled", error="cancelled while it was running")
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)

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
