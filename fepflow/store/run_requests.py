"""Runs that were requested over the network: created once for each idempotency key, dispatched to Prefect, found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from fepflow.errors import ConflictError, NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.bulk_insert import insert_new
from fepflow.store.database import Repository
from fepflow.store.network_tables import RUN_REQUEST
from fepflow.store.records import NewOutput, NewRun, RunRecord, RunRequest, RunStatus
from fepflow.store.result_rows import output_key, output_row
from fepflow.store.runs import find_run, insert_run
from fepflow.store.tables import OUTPUT, RUN

RequestedRun = tuple[RunRecord, RunRequest]


class _KeyTakenError(Exception):
    """Another transaction has inserted the same idempotency key."""


class RunRequests(Repository):
    """Requested runs, and how far Prefect has been told of them."""

    def create_requested_run(
        self, run: NewRun, cases: Sequence[TestCase], request: RunRequest, outputs: Sequence[NewOutput] = ()
    ) -> RunRecord:
        """Store the run, pending, with its request, its cases and the outputs that there are; all of it or nothing.

        The run of an earlier request with the same idempotency key is given instead of a new one; raises
        ConflictError if that request was another. Raises as `create_run` does, too.
        """

        def create(connection: Connection) -> RunRecord:
            if request.idempotency_key is not None:
                before = _requested_before(connection, request.idempotency_key, request.request_hash)
                if before is not None:
                    return before
            insert_run(connection, run, cases)
            try:
                connection.execute(insert(RUN_REQUEST).values(asdict(request)))
            except IntegrityError:
                raise _KeyTakenError from None
            now = utc_now()
            insert_new(connection, OUTPUT, [output_row(run.id, new, now) for new in sorted(outputs, key=output_key)])
            return find_run(connection, run.id)

        try:
            return self._database.write_once(create)
        except _KeyTakenError:
            return self._database.write_once(create)  # the other one is committed now, and is found

    def requested_before(self, idempotency_key: str, request_hash: str) -> RunRecord | None:
        """The run of an earlier request with this key. Raises ConflictError if that request was another."""
        with self._database.reading() as connection:
            return _requested_before(connection, idempotency_key, request_hash)

    def requested_run(self, kind: str, run_id: str) -> RequestedRun:
        """A run of this kind, and its request. Raises NotFoundError."""
        found = self._requested(_of_kind(kind).where(RUN.c.id == run_id))
        if not found:
            raise NotFoundError("Evaluation run not found")
        return found[0]

    def requested_runs(
        self, kind: str, limit: int, skip: int = 0, statuses: Sequence[RunStatus] = ()
    ) -> tuple[list[RequestedRun], int]:
        """So many runs of this kind after the first `skip`, the newest first; and how many there are."""
        runs = _of_kind(kind)
        if statuses:
            runs = runs.where(RUN.c.status.in_(statuses))
        page = runs.order_by(RUN_REQUEST.c.created_at.desc(), RUN.c.id.desc()).limit(limit).offset(skip)
        with self._database.reading() as connection:
            total = connection.scalar(select(func.count()).select_from(runs.with_only_columns(RUN.c.id).subquery()))
        return self._requested(page), total or 0

    def undispatched_runs(self, limit: int) -> list[RunRecord]:
        """Pending runs that Prefect has not been told of, the oldest first."""
        return self._pending(select(RUN).where(RUN_REQUEST.c.dispatched_at.is_(None)), limit)

    def unbegun_runs(self, limit: int) -> list[RunRecord]:
        """Pending runs that Prefect has been told of, the oldest first."""
        return self._pending(select(RUN).where(RUN_REQUEST.c.dispatched_at.is_not(None)), limit)

    def mark_dispatched(self, run_id: str, flow_run_id: str) -> None:
        """Note that Prefect has been told of the run, and which flow run is to execute it."""

        def mark(connection: Connection) -> None:
            of_run = RUN.c.id == run_id, RUN.c.flow_run_id.is_(None)
            connection.execute(update(RUN).where(*of_run).values(flow_run_id=flow_run_id))
            of_request = RUN_REQUEST.c.run_id == run_id, RUN_REQUEST.c.dispatched_at.is_(None)
            connection.execute(update(RUN_REQUEST).where(*of_request).values(dispatched_at=utc_now()))

        self._database.write(mark)

    def withdraw_dispatch(self, run_id: str, flow_run_id: str) -> None:
        """Have Prefect be told of a pending run again, as it does not know the flow run any more."""

        def withdraw(connection: Connection) -> None:
            unbegun = RUN.c.id == run_id, RUN.c.flow_run_id == flow_run_id, RUN.c.status == "pending"
            if connection.execute(update(RUN).where(*unbegun).values(flow_run_id=None)).rowcount:
                request = update(RUN_REQUEST).where(RUN_REQUEST.c.run_id == run_id)
                connection.execute(request.values(dispatched_at=None))

        self._database.write(withdraw)

    def end_unbegun(self, run_id: str, status: RunStatus, error: str) -> bool:
        """End a run that is pending yet; False if it is not any more."""
        pending = update(RUN).where(RUN.c.id == run_id, RUN.c.status == "pending")
        change = pending.values(status=status, completed_at=utc_now(), error=error)
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)

    def _pending(self, runs: Select[Any], limit: int) -> list[RunRecord]:
        pending = runs.join(RUN_REQUEST, RUN_REQUEST.c.run_id == RUN.c.id).where(RUN.c.status == "pending")
        page = pending.order_by(RUN_REQUEST.c.created_at, RUN.c.id).limit(limit)
        with self._database.reading() as connection:
            return [RunRecord(**row) for row in connection.execute(page).mappings()]

    def _requested(self, runs: Select[Any]) -> list[RequestedRun]:
        columns = [column.label(f"request_{column.name}") for column in RUN_REQUEST.c]
        with self._database.reading() as connection:
            rows = connection.execute(runs.add_columns(*columns)).mappings().all()
        return [
            (
                RunRecord(**{column.name: row[column.name] for column in RUN.c}),
                RunRequest(**{column.name: row[f"request_{column.name}"] for column in RUN_REQUEST.c}),
            )
            for row in rows
        ]


def _of_kind(kind: str) -> Select[Any]:
    return select(RUN).join(RUN_REQUEST, RUN_REQUEST.c.run_id == RUN.c.id).where(RUN_REQUEST.c.kind == kind)


def _requested_before(connection: Connection, key: str, request_hash: str) -> RunRecord | None:
    columns = [*RUN.c, RUN_REQUEST.c.request_hash]
    before = select(*columns).join(RUN_REQUEST, RUN_REQUEST.c.run_id == RUN.c.id)
    row = connection.execute(before.where(RUN_REQUEST.c.idempotency_key == key)).mappings().one_or_none()
    if row is None:
        return None
    if row["request_hash"] != request_hash:
        raise ConflictError("The idempotency key belongs to another request: take a new key for a new request.")
    return RunRecord(**{column.name: row[column.name] for column in RUN.c})
