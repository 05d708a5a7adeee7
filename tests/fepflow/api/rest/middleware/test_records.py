"""What is called is on record, or nothing is done; and no secret is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fepflow.store.store import Store
from tests.fepflow.api.rest.middleware.conftest import Serve


async def test_a_fault_is_recorded_and_stays_a_fault(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as service:
        assert (await service.send("GET", "/v1/broken")).status_code == 500
        assert (await service.send("GET", "/nowhere")).status_code == 404
        assert [outcome for *_, outcome in service.entries()] == ["500", "404"]


async def test_a_caller_that_waits_for_an_evaluation_has_one_entry(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        for headers in (mine, mine, None, mine):
            await service.send("GET", "/api/evaluations/a", headers)
        await service.send("GET", "/api/evaluations/b", mine)
        assert [(resource, outcome) for *_, resource, outcome in service.entries()] == [
            ("a", "200"), ("a", "401"), ("b", "200")
        ]  # fmt: skip


class FailingLog:
    """A store, and its repository of access, whose audit log takes so many groups of entries."""

    def __init__(self, store: Store, groups: int) -> None:
        self._store = store
        self._groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store if hasattr(self._store, name) else self._store.access, name)

    @property
    def access(self) -> Any:
        return self

    def waiting(self, seconds: float) -> Any:
        return self

    def add_audit_entries(self, entries: Any) -> None:
        self._groups -= 1
        if self._groups < 0:
            raise OSError(28, "No space left on device")
        self._store.access.add_audit_entries(entries)


async def test_without_a_record_nothing_is_done(serve: Serve) -> None:
    async with serve(wrap_store=lambda store: FailingLog(store, 0)) as service:
        for method, path in (("POST", "/api/evaluations"), ("GET", "/v1/runs"), ("DELETE", "/v1/a/b")):
            answer = await service.send(method, path)
            assert (answer.status_code, "audit log" in answer.text) == (503, True)
            assert "No space" not in answer.text, "what is wrong here is not for callers"
        assert [line for line in service.seen if not line.startswith("GET")] == []
        service.key()
        assert (await service.send("GET", "/v1/runs")).status_code == 503
        assert (await service.send("GET", "/v1/health")).status_code == 200


async def test_an_outcome_that_cannot_be_recorded_takes_the_response_away(serve: Serve) -> None:
    async with serve(wrap_store=lambda store: FailingLog(store, 1)) as service:
        answer = await service.send("PUT", "/v1/a/b")
        assert (answer.status_code, "caller" in answer.json()) == (503, False)
        answer = await service.send("GET", "/v1/endless")
        assert answer.status_code == 503
        assert len(service.seen) < 5, "the stream was given up"
        assert [outcome for *_, outcome in service.entries()] == ["begun"]


async def test_without_the_keys_table_nobody_is_admitted(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        service.store._database.write_once(lambda connection: connection.exec_driver_sql("DROP TABLE api_key"))
        for headers in (mine, {}):
            assert (await service.send("GET", "/v1/runs", headers)).status_code == 503
        assert service.seen == []


async def test_concurrent_requests_are_each_admitted_and_recorded(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        answers = await asyncio.gather(
            *(service.send("GET", f"/v1/runs/{number}", mine if number % 2 else None) for number in range(20))
        )
        assert [answer.status_code for answer in answers] == [401, 201] * 10
        assert {(resource, outcome) for _, _, resource, outcome in service.entries()} == {
            (str(number), "201" if number % 2 else "401") for number in range(20)
        }


async def test_a_secret_is_in_no_log_no_table_and_no_file(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve() as service:
        mine = service.key("read")
        key = mine["X-API-Key"]
        secret = key[17:]
        for headers in (mine, {"Authorization": f"Bearer {key}"}, {"X-API-Key": key + "x"}, [*mine.items()] * 2):
            for method in ("GET", "POST"):
                await service.send(method, f"/v1/runs/{key}/x", headers)
        await service.send("GET", f"/v1/{key}", {"Host": key})
        assert len(service.entries()) == 9
        service.store._database.write_once(lambda connection: connection.exec_driver_sql("DROP TABLE api_key"))
        assert (await service.send("GET", "/v1/runs", mine)).status_code == 503
        written = [Path(folder) / name for folder, _, names in os.walk(service.home) for name in names]
        assert len(written) >= 2
        for path in written:
            assert secret.encode() not in path.read_bytes(), path
        lines = [
            json.loads(line) for path in written if path.suffix == ".jsonl" for line in path.read_text().splitlines()
        ]
        assert len(lines) == 10
    # Paths are in the records of the client alone, for the server's access log is off.
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not any(secret in record.getMessage() for record in ours)


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"BEGIN {sys.argv[2]}")
print("held", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


@contextmanager
def held(file: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the store until its input is closed."""
    command = [sys.executable, "-S", "-c", HOLD, str(file), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.parametrize("mode", ["IMMEDIATE", pytest.param("EXCLUSIVE", marks=pytest.mark.battery)])
async def test_while_another_process_holds_the_store_reads_are_answered_and_writes_wait(
    serve: Serve, mode: str
) -> None:
    async with serve() as service:
        mine = service.key()
        service.client.timeout = httpx.Timeout(30)
        with held(service.home / "fepflow.db", mode) as holder:
            writing = asyncio.create_task(service.send("POST", "/api/evaluations", mine))
            began = time.monotonic()
            for number in range(3):
                assert (await service.send("GET", f"/v1/runs/{number}", mine)).status_code == 201
                assert (await service.send("GET", f"/v1/runs/{number}")).status_code == 401
            assert service.entries() == []
            assert time.monotonic() - began < 8
            (file,) = (service.home / "audit").iterdir()
            assert len(file.read_text().splitlines()) == 7, "nothing is lost if this process dies now"
            assert not writing.done()
            holder.stdin.close()
            assert (await writing).status_code == 201
        await service.send("GET", "/v1/last", mine)
        found = [(action, resource, outcome) for _, action, resource, outcome in service.entries()]
        reads = [("GET /v1/runs/{id}", str(number), status) for number in range(3) for status in ("201", "401")]
        assert [entry for entry in found if entry[0] == "GET /v1/runs/{id}"] == reads
        assert [outcome for action, _, outcome in found if action.startswith("POST")] == ["begun", "201"]
        assert found[-1] == ("GET /v1/last", None, "201")


async def test_what_waits_for_the_store_is_written_before_the_end(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        context = held(service.home / "fepflow.db", "IMMEDIATE")
        process = await asyncio.to_thread(context.__enter__)
        assert (await service.send("GET", "/v1/runs/a", mine)).status_code == 201
        assert service.entries() == []
        asyncio.get_running_loop().call_later(1, process.stdin.close)
    assert [outcome for *_, outcome in service.entries()] == ["201"]
    assert process.wait(20) == 0
