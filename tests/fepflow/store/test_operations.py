"""Operations: runs that were requested as such, the newest first, page by page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

from fepflow.errors import NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import OPERATION, RUN, NewOutput, RunRecord, RunRequest
from fepflow.store.store import Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def request(store: Store, kind: str = OPERATION, created_at: datetime | None = None) -> str:
    """A requested run with an output."""
    run = RunRecord(id=uuid4().hex, name="run", suite={"name": "run"}, repeats=1)
    asked = RunRequest(
        run_id=run.id,
        kind=kind,
        caller=None,
        idempotency_key=None,
        request_hash="0" * 64,
        request={},
        created_at=utc_now(),
    )
    outputs = [NewOutput(0, 0, "0" * 64, Output(value="x"))]
    store.requests.create(run, [TestCase(id="a", input="x")], asked, outputs)
    if created_at is not None:
        created = update(RUN).where(RUN.c.id == run.id).values(created_at=created_at)
        store._database.write(lambda connection: connection.execute(created))
    return run.id


def pages(store: Store, size: int, **options: Any) -> list[list[str]]:
    found, after = [], None
    while page := store.requests.operations(size, after=after, **options):
        found.append([each.id for each in page])
        after = (page[-1].created_at, page[-1].id)
    return found


def test_pages_have_every_operation_once_the_newest_first(store: Store) -> None:
    ids = [request(store) for _ in range(5)]
    assert pages(store, 2) == [ids[:2:-1], ids[2:0:-1], ids[:1]]


def test_those_of_one_moment_are_in_the_order_of_their_ids(store: Store) -> None:
    ids = sorted(request(store, created_at=NOON) for _ in range(7))
    assert [each for page in pages(store, 2) for each in page] == ids[::-1]


def test_they_are_found_by_their_status(store: Store) -> None:
    cancelled, pending = request(store), request(store)
    store.runs.request_cancel(cancelled)
    assert pages(store, 5, statuses=("cancelled",)) == [[cancelled]]
    assert pages(store, 5, statuses=("pending", "running")) == [[pending]]
    assert store.requests.operation(cancelled).error == "cancelled before it began"


def test_runs_of_other_interfaces_are_none(store: Store) -> None:
    other = request(store, "evaluation")
    assert store.requests.operations(5) == []
    with pytest.raises(NotFoundError):
        store.requests.operation(other)
    assert store.requests.operation(mine := request(store)).id == mine
    assert store.requests.operation(mine).n_cases == 1
    assert store.results.cases_with_results(mine) == 0
