"""Starting requested runs where Prefect's API, for which a server stands in, refuses one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.exceptions import PrefectHTTPStatusError

from fepflow.access.caller import SCOPES, Caller
from fepflow.api.evaluations.fep import request_run
from fepflow.deployments.reaper import next_runs, start
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import settings
from fepflow.store.records import RunRecord
from fepflow.store.store import Store


class Api(BaseHTTPRequestHandler):
    """Answers each request with one status."""

    status = 422
    names: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.names.append(body["name"])
        answer = b'{"detail": "not with this name"}'
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.send_error(404)  # no token is needed

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def api() -> Iterator[str]:
    Api.names = []
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()
        thread.join()


@pytest.fixture
def store(new_store: Callable[[str], str], tmp_path: Path) -> Iterator[Store]:
    with Store.open(new_store(f"sqlite:///{tmp_path / 'store.db'}")) as store:
        yield store


def requested(store: Store) -> RunRecord:
    caller = Caller(None, frozenset(SCOPES))
    return request_run(
        store, {"name": "wanted", "checks": []}, [TestCase(id="a", input=1)], kind="operation", caller=caller,
        idempotency_key=None, request={}, outputs=[Output(value=1)],
    )  # fmt: skip


async def start_one(store: Store, api: str, run: RunRecord) -> None:
    async with PrefectClient(api) as client:
        await start(store, client, uuid4(), run)


def test_a_run_that_prefect_refuses_has_failed_and_is_not_started_again(store: Store, api: str) -> None:
    Api.status = 422
    run = requested(store)
    asyncio.run(start_one(store, api, run))
    after = store.runs.get(run.id)
    assert (after.status, after.outcome, after.error) == ("failed", None, "Prefect refuses to start this run.")
    assert store.requests.undispatched(10) == []
    assert Api.names == ["wanted"]


def test_only_so_many_runs_wait_in_prefect(store: Store) -> None:
    most = settings().most_waiting_runs
    runs = [requested(store) for _ in range(most + 2)]
    waiting, first = next_runs(store)
    assert waiting == 0
    assert [run.id for run in first] == [run.id for run in runs[:most]]
    for run in first:
        store.requests.mark_dispatched(run.id, str(uuid4()))
    assert next_runs(store) == (most, [])
    store.leases.acquire(first[0].id, "host/1/a", 60)  # it has begun
    store.requests.end_unbegun(first[1].id, "failed", "gone")
    assert [run.id for run in next_runs(store)[1]] == [run.id for run in runs[most:]]


def test_a_run_waits_where_the_api_may_take_it_later(store: Store, api: str) -> None:
    Api.status = 403
    run = requested(store)
    with pytest.raises(PrefectHTTPStatusError):
        asyncio.run(start_one(store, api, run))
    assert store.runs.get(run.id).status == "pending"
    assert [each.id for each in store.requests.undispatched(10)] == [run.id]
