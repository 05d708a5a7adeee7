"""What an attack is, and the one way in which each is made: by a real socket, into a real store, up to the verdict."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.evalguard.verdict import Verdict
from fepflow.store.records import StoredResult
from fepflow.store.store import Store
from tasks.batches import Batch
from tasks.call_target import call_target
from tasks.decide import decide_run
from tasks.plan_run import plan_run
from tasks.run_checks import run_checks_of_batch
from tasks.runtime import open_runtime
from tasks.validation.suite import inspect_suite
from tests.watch import MAX_STALL, Taken, watched

ANSWERED = "answered"
"""The outcome of an attack that is an answer all the same."""

CHECKS: list[dict[str, Any]] = [
    {"type": "equals", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}},
    {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}},
    {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["fine"], "case_sensitive": False}},
    {"type": "regex", "arguments": {"text": "$.output.value", "pattern": "(f+i*)+ne$"}},
    {"type": "set_equal", "arguments": {"actual": "$.output.value", "expected": "$.output.value"}},
    {"type": "subset", "arguments": {"collection": "$.output.value", "required": ["fine"]}},
    {"type": "tool_usage", "arguments": {"calls": "$.output.value", "name": "search"}},
    {"type": "json_valid", "arguments": {"text": "$.output.value"}},
    {"type": "is_empty", "arguments": {"value": "$.output.value"}},
    {"type": "attribute_exists", "arguments": {"path": "$.output.value..needle"}},
    {"type": "threshold", "arguments": {"value": "$.output.value", "min_value": 0}},
    {
        "type": "schema_validation",
        "arguments": {
            "data": "$.output.value",
            "schema": {
                "properties": {"a": {"type": "string", "pattern": "^(a|b)*c$"}},
                "items": {"minItems": 1},
                "uniqueItems": True,
                "unevaluatedProperties": False,
            },
        },
    },
]
"""As many ways as there are to look at an answer."""


@dataclass(frozen=True)
class Attack:
    """One hostile thing: what comes of it, and what it may take at most.

    `outcome` is ANSWERED, or words that the error of the call has; `made` makes what is sent, of whatever kind.
    """

    name: str
    made: Callable[[], Any] = field(repr=False)
    outcome: str = ANSWERED
    seconds: float = 10.0
    megabytes: float = 400.0
    stall: float = MAX_STALL
    checks: list[dict[str, Any]] = field(default_factory=lambda: CHECKS, repr=False)
    case: dict[str, Any] = field(default_factory=dict, repr=False)
    target: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Ended:
    """What came of an attack: the attacked case, one beside it, the verdict, and what all that took."""

    attacked: StoredResult
    neighbour: StoredResult
    verdict: Verdict
    taken: Taken


FINE = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"answer":"fine"}'


@contextmanager
def endpoint(reply: bytes) -> Iterator[str]:
    """An agent, in a thread with a loop of its own, that says `reply` to the attacked case, and "fine" to others."""
    started: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()
    stop = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            asked = await reader.readexactly(length)
            writer.write(FINE if b"neighbour" in asked else reply)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller has heard enough
        finally:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ask"
            started.set_result((url, asyncio.get_running_loop()))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, loop = started.result(10)
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


async def run(attack: Attack, reply: bytes, store: Store, folder: Path) -> Ended:
    """Evaluate a suite of two cases, of which one is attacked; everything is real but Prefect, which has no part."""
    with endpoint(reply) as url:
        suite = {
            "name": "hostile",
            "target": {
                "http": {"url": url, "body": {"question": "$.test_case.id"}, "output": "$.answer"},
                "timeout": 4,
                "attempts": 1,
                "retries": 0,
                **attack.target,
            },
            "test_cases": [
                {"id": "attacked", "input": "?", "expected": "fine", **attack.case},
                {"id": "neighbour", "input": "?", "expected": "fine"},
            ],
            "checks": attack.checks,
            "gate": {"min": {attack.checks[0]["type"]: 0.5}},
        }
        path = folder / "suite.json"
        path.write_text(json.dumps(suite), encoding="utf-8")
        run_id = plan_run(store, inspect_suite(path))
        async with watched(memory=True) as taken, open_runtime(run_id) as runtime:
            await call_target(runtime, Batch(0, 2))
            await run_checks_of_batch(runtime, Batch(0, 2))
            verdict = await decide_run(runtime)
    attacked, neighbour = store.results(run_id)
    return Ended(attacked, neighbour, verdict, taken)


def refuse_wrong_end(attack: Attack, ended: Ended) -> None:
    """Assert what holds for every attack."""
    beside = {check.check_id: check.results for check in ended.neighbour.checks}
    assert beside["equals"] == {"passed": True}, "one case's trouble is not that of another"
    assert {check.check_id for check in ended.attacked.checks} == {check["type"] for check in attack.checks}
    for check in ended.attacked.checks:
        assert (check.error is None) == (check.status == "completed")
        assert len(check.error.message if check.error else "") < 2_100
    output = ended.attacked.output
    assert output is not None
    error = (output.metadata or {}).get("error") if output.value is None else None
    said = ANSWERED if error is None else error["message"]
    assert attack.outcome in said, said
    assert len(said) < 2_100
    assert ended.verdict.outcome in ("pass", "fail", "inconclusive")
    assert ended.taken.stall < attack.stall, ended.taken
    assert ended.taken.seconds < attack.seconds, ended.taken
    assert ended.taken.megabytes < attack.megabytes, ended.taken
