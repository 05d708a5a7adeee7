"""Servers that break the protocol: each call gets a truthful error, soon, and the next server is a new one."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from tests.fepflow.calls.mcp.conftest import HOSTILE, Open, ask, error_of

PRINTED = "(stdout is for the protocol only: print to stderr)"


@pytest.mark.parametrize(
    ("mode", "kind", "recoverable", "words"),
    [
        (
            "garbage",
            "malformed",
            False,
            f"the server printed to stdout a line that is not an MCP message: debug: looking things up {PRINTED}",
        ),
        (
            "garbage at once",
            "malformed",
            False,
            "initialize: the server printed to stdout a line that is not an MCP message: ",
        ),
        ("log line", "malformed", False, "the server printed to stdout a line that is not an MCP message: {"),
        ("broken message", "malformed", False, "the server sent a line that is not a JSON-RPC 2.0 message: {"),
        ("wrong id", "malformed", False, "an answer came with the id 99, which no request has"),
        (
            "no id",
            "malformed",
            False,
            "the server answered without an id that it cannot read a request: Parse error",
        ),
        ("half line", "crashed", True, "the server exited with code 0"),
        ("exits", "crashed", True, "the server exited with code 4; the end of its stderr: database is gone"),
        ("exits at once", "crashed", True, "initialize: the server exited with code 4; the end of its stderr: data"),
        ("large", "too_large", False, "the server wrote more than 200,000 bytes without an answer (target.mcp.max_"),
        ("flood", "too_large", False, "the server wrote more than 200,000 bytes without an answer (target.mcp.max_"),
        ("many values", "too_large", False, "the result holds more than 200,000 JSON values"),
        ("nan", "malformed", False, "the result is not JSON: it has NaN"),
        ("no content", "malformed", False, "the result does not fit the protocol: content: Field required"),
        ("result is text", "malformed", False, "the server sent a line that is not a JSON-RPC 2.0 message: {"),
        ("rpc error", "agent_error", False, "the server answered with the error -32602: order_id must be a text"),
        ("overloaded", "agent_error", True, "the server answered with the error 429: slow down"),
        ("old version", "incompatible", False, "initialize: Unsupported protocol version from the server: 1999-01-01"),
        ("pages without end", "malformed", False, "tools/list: the server sends more than 100 pages"),
        ("one page again", "malformed", False, "tools/list: the server sends the same page again and again"),
        ("no tools", "request", False, "the server has no tool act (it lists none)"),
        ("odd tools", "malformed", False, "tools/list: the result does not fit the protocol: tools.0."),
    ],
)
async def test_what_breaks_the_protocol_is_an_error_of_its_case(
    mode: str, kind: str, recoverable: bool, words: str, open_server: Open
) -> None:
    client = open_server(command=[*HOSTILE, mode], max_bytes=200_000 if mode in ("large", "flood") else 16_000_000)
    began = monotonic()
    error = error_of(await ask(client, "act"))
    assert (error["kind"], error["recoverable"]) == (kind, recoverable), error
    assert error["message"].startswith(words)
    assert monotonic() - began < 20


@pytest.mark.parametrize("mode", ["id as text", "answers twice", "null"])
async def test_what_the_protocol_forgives_is_no_error(mode: str, open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, mode])
    assert [(await ask(client, "act")).value for _ in range(3)] == ["done"] * 3


async def test_a_server_that_starts_slower_than_a_call_may_last_is_waited_for_by_the_next_attempt(
    open_server: Open,
) -> None:
    output = await ask(open_server(command=[*HOSTILE, "slow start"], timeout=0.8, attempts=4), "act")
    assert output.value == "done", output


@pytest.mark.battery
async def test_a_server_that_never_answers_initialize_is_started_anew_and_says_where_it_hung(
    open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fepflow.calls.mcp.session.START_SECONDS", 3.0)
    client = open_server(command=[*HOSTILE, "no answer to initialize"], timeout=2.0, attempts=2)
    for output in (await ask(client, "act"), await ask(client, "act", "c2")):
        first, last = (output.metadata or {})["attempt_log"]
        assert first["error"]["message"] == "initialize: no complete answer within 2 s (target.timeout)"
        assert last["error"]["message"] == "initialize: the server did not answer within 3 s"
        assert error_of(output)["type"] == "timeout_error"


async def test_a_server_of_the_newest_version_is_discovered_in_place_of_initialize(open_server: Open) -> None:
    output = await ask(open_server(command=[*HOSTILE, "modern"]), "act")
    assert output.value == "done", output
    assert (output.metadata or {})["protocol_version"] == "2026-07-28"


async def test_tools_are_listed_anew_once_the_server_says_that_they_have_changed(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "changes tools"])
    first, second = await ask(client, "act"), await ask(client, "act", "c2")
    assert (first.value, "outputSchema" in (first.metadata or {})) == ("done", False)
    assert (second.metadata or {})["outputSchema"] == {"type": "object"}


async def test_requests_of_the_server_are_declined(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "asks back"])
    assert "Elicitation not supported" in (await ask(client, "act")).value


async def test_of_several_calls_under_way_none_is_blamed_for_a_line_that_belongs_to_none(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "garbage"])
    outputs = await asyncio.gather(*(ask(client, "act", f"c{number}") for number in range(3)))
    messages = {
        error_of(output)["message"].rpartition(" (")[2] for output in outputs if error_of(output)["recoverable"]
    }
    assert messages <= {"of 3 calls under way)", "of 2 calls under way)"}
    assert messages


async def test_a_cut_off_call_leaves_the_session_to_the_others(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "wrong id"], timeout=5.0)
    first = error_of(await ask(client, "act"))
    again = error_of(await ask(client, "act"))
    assert first["message"] == again["message"]


async def test_a_server_that_hangs_in_one_call_is_started_anew_for_the_next(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "hangs"], timeout=2.0)
    assert error_of(await ask(client, "act", "c1", hang=True))["kind"] == "timeout"
    assert (await ask(client, "act", "c2")).value == "done"


async def test_each_call_that_a_dead_server_leaves_says_where_it_was_itself(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "dies in a call"])
    assert (await ask(client, "none", "c0")).failure is not None
    listing, calling = await asyncio.gather(ask(client, "none", "c1"), ask(client, "act", "c2"))
    assert error_of(listing)["message"].startswith("tools/list: the server exited with code 4")
    assert error_of(calling)["message"].startswith("the server exited with code 4")
