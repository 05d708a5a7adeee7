"""The conformance of agents behind an address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.ecp.conformance import check_conformance, goes_on
from fepflow.calls.ecp.target import target_of
from tests.fepflow.calls.conftest import Serve

from .conftest import failed, status_of


class HttpAgent:
    """The good agent behind an address."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        self._turns = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            message = json.loads(await request.text())
        except ValueError:
            return web.json_response(self._answer(None, error={"code": -32700, "message": "parse"}), status=400)
        if "id" not in message and self._fault != "notification":
            return web.Response(status=202)
        method, own = message["method"], message.get("id")
        if method == "agent/step":
            self._turns += 1
            said = {"status": "done", "public_output": f"{self._turns}: {message['params']['input'][:1000]}"}
            return web.json_response(self._answer(own, result=said))
        if method == "agent/reset":
            self._turns = 0 if self._fault != "reset_effect" else self._turns
            return web.json_response(self._answer(own, result=True))
        if method == "agent/initialize":
            info = {"name": "web", "capabilities": {}}
            return await self._stream(request, self._answer(own, result=info))
        return web.json_response(self._answer(own, error={"code": -32601, "message": "unknown"}))

    def _answer(self, own: Any, **what: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": str(own) if self._fault == "ids" else own, **what}

    async def _stream(self, request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f": hello\n\ndata: {json.dumps(answer)}\n\n".encode())
        return response


@pytest.mark.parametrize("fault", ["", "notification", "ids", "reset_effect"])
async def test_an_address_is_checked_in_the_same_way(serve: Serve, fault: str, tmp_path: Path) -> None:
    target = target_of(await serve(HttpAgent(fault).handle))
    report = await check_conformance(target, tmp_path, "hello", 20)
    assert failed(report).keys() == ({fault} if fault else set())
    assert {name for name, status in status_of(report).items() if status == "skip"} == {"fresh_process", "end_of_input"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["turn 3", "turn 4", "turn 5"], True),
        (["a 7 b 1", "a 7 b 2", "a 7 b 3"], True),
        (["hello", "hello hello", "hello hello hello"], True),
        (["9", "2", "3"], False),
        (["it is 12:00:01.120", "it is 12:00:01.133", "it is 12:00:01.141"], False),
        (["one", "two", "three"], False),
        (["", "a", "ab"], False),
        ([None, None, "a"], False),
    ],
)
def test_answers_that_show_a_memory(said: list[str | None], expected: bool) -> None:
    assert goes_on([{"status": "done", "public_output": one, "tool_calls": None} for one in said]) is expected


async def test_an_address_where_nobody_is(tmp_path: Path) -> None:
    report = await check_conformance(target_of("http://127.0.0.1:9/ecp"), tmp_path, "hello", 5)
    assert list(failed(report)) == ["initialize"]
    assert "127.0.0.1:9" in failed(report)["initialize"]
