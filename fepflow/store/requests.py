"""Requests over the network: runs, created once for each idempotency key; stored test cases and graders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, Connection, Row, Select, and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fepflow.errors import ConflictError, NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.database import KEYS_AT_ONCE, Repository, chunks
from fepflow.store.records import (
    GRADER,
    OPERATION,
    RUN,
    RUN_REQUEST,
    TEST_CASE,
    Grader,
    NewOutput,
    RequestedRun,
    RunRecord,
    RunRequest,
    RunStatus,
)
from fepflow.store.result_rows import insert_results
from fepflow.store.runs import SUMMARY, find_run, insert_run
from fepflow.store.totals import count_end

_OF_RUN = RUN_REQUEST.c.run_id == RUN.c.id
_OPERATIONS = select(RunRecord).options(*SUMMARY).join(RUN_REQUEST, _OF_RUN).where(RUN_REQUEST.c.kind == OPERATION)


class _KeyTakenError(Exception):
    """Another transaction has inserted the same idempotency key."""


class Requests(Repository):
    """Requested runs, and whether they were handed to Prefect; test cases and graders, of which runs have copies."""

    def create(
        self, run: RunRecord, cases: Sequence[TestCase], request: RunRequest, outputs: Sequence[NewOutput] = ()
    ) -> RunRecord:
        """Store the run, pending, with its request, its cases and existing outputs; all of it or nothing.

        Returns the run of an earlier request with the same idempotency key instead of a new one. Raises ConflictError
        if that request was another one, and as `Runs.create` does.
        """
        insert_outputs = insert_results(run.id, outputs)

        def create(connection: Connection) -> RunRecord:
            if request.idempotency_key is not None:
                before = _requested_before(connection, request.idempotency_key, request.request_hash)
                if before is not None:
                    return before
            insert_run(connection, run, cases)
            try:
                connection.execute(insert(RUN_REQUEST).values(request.values()))
            except IntegrityError:
                raise _KeyTakenError from None
            insert_outputs(connection)
            return find_run(connection, run.id)

        try:
            return self._database.write_once(create)
        except _KeyTakenError:
            return self._database.write_once(create)  # the other one is committed now, and is found

    def requested_before(self, idempotency_key: str, request_hash: str) -> RunRecord | None:
        """Return the run of an earlier request with this key. Raises ConflictError if that request was another."""
        with self._database.reading() as connection:
            return _requested_before(connection, idempotency_key, request_hash)

    def get(self, kind: str, run_id: str) -> RequestedRun:
        """Return a run of this kind, and its request. Raises NotFoundError."""
        with self._database.reading() as connection:
            for run in _requested(connection, _of_kind(kind).where(RUN.c.id == run_id)):
                return run
        raise NotFoundError("Evaluation run not found")

    def newest(
        self, kind: str, limit: int, skip: int = 0, statuses: Sequence[RunStatus] = ()
    ) -> tuple[list[RequestedRun], int]:
        """Return a page of the runs of this kind after the first `skip`, the newest first, and the number of all."""
        runs = _of_kind(kind)
        if statuses:
            runs = runs.where(RUN.c.status.in_(statuses))
        page = runs.order_by(RUN_REQUEST.c.created_at.desc(), RUN.c.id.desc()).limit(limit).offset(skip)
        with self._database.reading() as connection:
            total = connection.scalar(select(func.count()).select_from(runs.with_only_columns(RUN.c.id).subquery()))
            return _requested(connection, page), total or 0

    def undispatched(self, limit: int) -> list[RunRecord]:
        """Return pending runs that were not yet handed to Prefect, oldest first."""
        pending = select(RunRecord).join(RUN_REQUEST, _OF_RUN).where(RUN.c.status == "pending")
        waiting = pending.where(RUN_REQUEST.c.dispatched_at.is_(None))
        return self._records(waiting.order_by(RUN_REQUEST.c.created_at, RUN.c.id).limit(limit))

    def unbegun(self) -> list[RunRecord]:
        """Return pending runs that were handed to Prefect, oldest first.

        They are requested ones, and those of any deployment that wait for another executor.
        """
        unclaimed = (RUN.c.takeovers > 0) & RUN.c.lease_owner.is_(None)
        known = RUN_REQUEST.c.dispatched_at.is_not(None) | unclaimed
        pending = select(RunRecord).outerjoin(RUN_REQUEST, _OF_RUN).where(RUN.c.status == "pending", known)
        return self._records(pending.order_by(RUN.c.created_at, RUN.c.id))

    def count_unbegun(self) -> int:
        """Count the requested runs that were handed to Prefect and have not started."""
        unbegun = select(func.count()).select_from(RUN).join(RUN_REQUEST, _OF_RUN)
        unbegun = unbegun.where(RUN.c.status == "pending", RUN_REQUEST.c.dispatched_at.is_not(None))
        return self._scalar(unbegun) or 0

    def mark_dispatched(self, run_id: str, flow_run_id: str) -> None:
        """Note that the run was handed to Prefect, and which flow run executes it."""

        def mark(connection: Connection) -> None:
            of_run = RUN.c.id == run_id, RUN.c.flow_run_id.is_(None)
            connection.execute(update(RUN).where(*of_run).values(flow_run_id=flow_run_id))
            of_request = RUN_REQUEST.c.run_id == run_id, RUN_REQUEST.c.dispatched_at.is_(None)
            connection.execute(update(RUN_REQUEST).where(*of_request).values(dispatched_at=utc_now()))

        self._database.write(mark)

    def withdraw_dispatch(self, run_id: str, flow_run_id: str) -> None:
        """Mark a pending run to be handed to Prefect again, because its flow run no longer exists."""

        def withdraw(connection: Connection) -> None:
            unbegun = RUN.c.id == run_id, RUN.c.flow_run_id == flow_run_id, RUN.c.status == "pending"
            if connection.execute(update(RUN).where(*unbegun).values(flow_run_id=None)).rowcount:
                request = update(RUN_REQUEST).where(RUN_REQUEST.c.run_id == run_id)
                connection.execute(request.values(dispatched_at=None))

        self._database.write(withdraw)

    def end_unbegun(self, run_id: str, status: RunStatus, error: str) -> bool:
        """End a run that is still pending; False if it is not."""
        pending = update(RUN).where(RUN.c.id == run_id, RUN.c.status == "pending")
        change = pending.values(status=status, completed_at=utc_now(), error=error)

        def end(connection: Connection) -> bool:
            if has_ended := connection.execute(change).rowcount == 1:
                count_end(connection, run_id)
            return has_ended

        return self._database.write(end)

    def operation(self, run_id: str) -> RunRecord:
        """Return the operation with this id, without its suite and metrics. Raises NotFoundError."""
        if operation := self._first(_OPERATIONS.where(RUN.c.id == run_id)):
            return operation
        raise NotFoundError(f"There is no operation {run_id}.")

    def operations(
        self, limit: int, statuses: Sequence[RunStatus] = (), after: tuple[datetime, str] | None = None
    ) -> list[RunRecord]:
        """Return the newest operations first, or those `after` the one with this time of creation and id.

        Operations created between two calls do not shift the pages.
        """
        run_id = self._database.by_code_points(RUN.c.id)
        page = _OPERATIONS.order_by(RUN.c.created_at.desc(), run_id.desc()).limit(limit)
        if statuses:
            page = page.where(RUN.c.status.in_(statuses))
        if after is not None:
            created_at, last = after
            page = page.where(or_(RUN.c.created_at < created_at, and_(RUN.c.created_at == created_at, run_id < last)))
        return self._records(page)

    def add_test_cases(self, cases: Sequence[TestCase]) -> None:
        """Store test cases in their order; all of them or none. Raises ConflictError if an id already exists."""
        now = utc_now()
        rows = [
            # A microsecond apart, so that they are listed in their order.
            {"id": case.id, "data": case.model_dump(), "created_at": now + timedelta(microseconds=index)}
            for index, case in enumerate(cases)
        ]

        def add(connection: Connection) -> None:
            ids = [case.id for case in cases]
            if taken := sorted(row.id for row in _test_cases(connection, ids, TEST_CASE.c.id)):
                shown = ", ".join(taken[:10])
                raise ConflictError(f"There are test cases with these ids already: {shown}. Delete them first.")
            connection.execute(insert(TEST_CASE), rows)

        if rows:
            self._database.write(add)

    def test_case(self, case_id: str) -> TestCase:
        """Return the test case with this id. Raises NotFoundError."""
        if cases := self.find_test_cases([case_id]):
            return cases[case_id]
        raise NotFoundError("Test case not found")

    def find_test_cases(self, ids: Sequence[str]) -> dict[str, TestCase]:
        """Return the existing test cases among these ids, by id."""
        with self._database.reading() as connection:
            rows = _test_cases(connection, ids, TEST_CASE.c.id, TEST_CASE.c.data)
            return {row.id: TestCase.model_validate(row.data) for row in rows}

    def test_cases(self, limit: int, skip: int = 0) -> tuple[list[TestCase], int]:
        """Return a page of test cases after the first `skip`, the oldest first, and the number of all."""
        page = select(TEST_CASE.c.data).order_by(TEST_CASE.c.created_at, TEST_CASE.c.id).limit(limit).offset(skip)
        with self._database.reading() as connection:
            cases = [TestCase.model_validate(data) for data in connection.scalars(page)]
            return cases, connection.scalar(select(func.count()).select_from(TEST_CASE)) or 0

    def delete_test_case(self, case_id: str) -> None:
        """Delete a test case; runs keep their copies. Raises NotFoundError."""
        if not self._execute(delete(TEST_CASE).where(TEST_CASE.c.id == case_id)):
            raise NotFoundError("Test case not found")

    def add_grader(self, grader: Grader) -> None:
        """Store a grader. Raises ConflictError if its id already exists."""

        def add(connection: Connection) -> None:
            try:
                connection.execute(insert(GRADER).values(grader.values()))
            except IntegrityError:
                raise ConflictError(f"There is a grader {grader.id} already: delete it first.") from None

        self._database.write(add)

    def find_graders(self, ids: Sequence[str]) -> dict[str, Grader]:
        """Return the existing graders among these ids, by id."""
        return {grader.id: grader for grader in self._records(select(Grader).where(GRADER.c.id.in_(ids)))}

    def graders(self) -> list[Grader]:
        """Return all graders, the oldest first."""
        return self._records(select(Grader).order_by(GRADER.c.created_at, GRADER.c.id))

    def delete_grader(self, grader_id: str) -> None:
        """Delete a grader. Raises NotFoundError."""
        if not self._execute(delete(GRADER).where(GRADER.c.id == grader_id)):
            raise NotFoundError("Grader not found")


def _of_kind(kind: str) -> Select[tuple[RunRecord, RunRequest]]:
    return select(RunRecord, RunRequest).join(RUN_REQUEST, _OF_RUN).where(RUN_REQUEST.c.kind == kind)


def _requested(connection: Connection, runs: Select[tuple[RunRecord, RunRequest]]) -> list[RequestedRun]:
    with Session(connection) as session:
        return [(run, request) for run, request in session.execute(runs)]


def _requested_before(connection: Connection, key: str, request_hash: str) -> RunRecord | None:
    requests = select(RunRecord, RunRequest).join(RUN_REQUEST, _OF_RUN)
    for run, request in _requested(connection, requests.where(RUN_REQUEST.c.idempotency_key == key)):
        if request.request_hash != request_hash:
            raise ConflictError("The idempotency key belongs to another request: take a new key for a new request.")
        return run
    return None


def _test_cases(connection: Connection, ids: Sequence[str], *columns: Column[Any]) -> Iterator[Row[Any]]:
    for chunk in chunks(ids, KEYS_AT_ONCE):
        yield from connection.execute(select(*columns).where(TEST_CASE.c.id.in_(chunk)))
