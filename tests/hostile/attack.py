"""What an attack is, and the one way in which each is made: by a real socket, into a real store, up to the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.store.records import CaseResult
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.context import MAX_ESCALATIONS
from fepflow.tasks.create_run import create_run
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch, run_model_checks
from fepflow.verdict.verdict import Verdict
from tests.watch import MAX_STALL, Taken, watched

ANSWERED = "answered"
"""The outcome of an attack that is an answer all the same."""

AGENT, JUDGE, EMBEDDINGS = "/ask", "/v1/chat/completions", "/v1/embeddings"
"""Where the agent is, and the models that checks ask: all of them are at one port."""

JUDGE_KEY = "sk-judge-0123456789"
"""What the models are asked with. It is seen nowhere."""

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


PATIENCE = 30.0
"""Seconds more that an attack may take on a busy machine; each call has its own deadline of 4 s."""


@dataclass(frozen=True)
class Attack:
    """One hostile thing: what comes of it, and what it may take at most.

    `outcome` is ANSWERED, or words that the error of the call has; `made` makes what is sent: bytes, or several, each
    a tenth of a second after the one before. `seconds` are those of computing. `location` is the hostile part, and
    `case` more of the attacked case.
    """

    name: str
    made: Callable[[], Any] = field(repr=False)
    outcome: str = ANSWERED
    seconds: float = 10.0
    megabytes: float = 400.0
    stall: float = MAX_STALL
    location: str = AGENT
    checks: list[dict[str, Any]] = field(default_factory=lambda: CHECKS, repr=False)
    case: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Ended:
    """What came of an attack: the attacked case, one beside it, the verdict, and what all that took."""

    attacked: CaseResult
    neighbour: CaseResult
    verdict: Verdict
    taken: Taken


def http(body: bytes, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def judgement(content: Any = '{"passed":true}') -> dict[str, Any]:
    """What a judge answers that has nothing to hide."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


FINE = {
    AGENT: http(b'{"answer":"fine"}'),
    JUDGE: http(json.dumps(judgement()).encode()),
}


@contextmanager
def endpoint(location: str, reply: bytes | Iterable[bytes]) -> Iterator[str]:
    """An agent and its judge, in a thread with a loop of their own.

    They answer as they should, but for `location`, which says `reply` to the attacked case.
    """
    started: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()
    stop = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            asked = await reader.readexactly(length)
            path = head.split(b" ")[1].decode()
            if path != location or b"neighbour" in asked:
                writer.write(FINE[path])
            elif isinstance(reply, bytes):
                writer.write(reply)
            else:
                await drip(writer, reply)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the caller has heard enough, or the test is over
        finally:
            writer.close()

    async def drip(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.1)

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started.set_result((url, asyncio.get_running_loop()))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, loop = started.result(10)
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def suite_at(url: str, attack: Attack) -> dict[str, Any]:
    """A suite of two cases, of which one is attacked."""
    provider = {"api_base": f"{url}/v1", "api_key": "${JUDGE_KEY}", "timeout": 4, "max_retries": 0}
    return {
        "name": "hostile",
        "target": {
            "http": {"url": f"{url}{AGENT}", "body": {"question": "$.test_case.id"}, "output": "$.answer"},
            "timeout": 4,
            "attempts": 1,
            "retries": 0,
        },
        "judge": {"model_config": {"model": "openai/gpt-4o-mini"}, "provider_config": provider},
        "embedding": {"model_config": {"model": "openai/text-embedding-3-small"}, "provider_config": provider},
        "test_cases": [
            {"id": "attacked", "input": "?", "expected": "fine", **attack.case},
            {"id": "neighbour", "input": "?", "expected": "fine"},
        ],
        "checks": attack.checks,
        "gate": {"min": {attack.checks[0]["type"]: 0.5}},
    }


async def run(attack: Attack, store: Store, folder: Path) -> Ended:
    """Evaluate the suite of an attack; everything is real but Prefect, which has no part."""
    with endpoint(attack.location, attack.made()) as url:
        path = folder / "suite.json"
        path.write_text(json.dumps(suite_at(url, attack)), encoding="utf-8")
        run_id = create_run(store, validate_suite(path)).run.id
        both = Batch(0, 2)
        async with watched(memory=True) as taken, open_run(run_id) as context:
            context.escalations = MAX_ESCALATIONS  # no task run of Prefect's tries again
            work = await context.begin(both)
            await call_target(context, work)
            await run_checks_of_batch(context, work)
            await run_model_checks(context, work)
            verdict = await decide_run(context)
    attacked, neighbour = store.results.by_case(run_id)
    return Ended(attacked, neighbour, verdict, taken)


def refuse_wrong_end(attack: Attack, ended: Ended) -> None:
    """Assert what holds for every attack."""
    logger.info("%s: %s", attack.name, ended.taken)
    beside = {check.check_id: check for check in ended.neighbour.checks}
    assert beside[attack.checks[0]["type"]].passed, "one case's trouble is not that of another"
    checks = [*attack.checks, *attack.case.get("checks", ())]
    assert {check.check_id for check in ended.attacked.checks} == {check["type"] for check in checks}
    for check in ended.attacked.checks:
        assert (check.error is None) == (check.status == "completed")
        assert len(check.error.message if check.error else "") < 2_100
        assert JUDGE_KEY not in check.model_dump_json()
    said = outcome_of(attack, ended.attacked)
    assert attack.outcome in said, said
    assert len(said) < 2_100
    assert ended.verdict.outcome in ("pass", "fail", "inconclusive")
    ended.taken.refuse_stall(attack.stall)
    # On a busy machine all threads wait for each other, and for the disk: only computing takes as long as ever.
    assert ended.taken.computed < attack.seconds, ended.taken
    assert ended.taken.seconds < attack.seconds + PATIENCE, ended.taken
    assert ended.taken.megabytes < attack.megabytes, ended.taken


PASSED, FAILED = "a pass", "a fail"
"""The outcomes of an attack on a check that are a judgement all the same."""

logger = logging.getLogger("tests.hostile")

_ASKS = {JUDGE: "llm_judge", EMBEDDINGS: "semantic_similarity"}


def outcome_of(attack: Attack, attacked: CaseResult) -> str:
    """What came of the call, or of the check that asked the model: the words of its error, if it has one."""
    if attack.location in _ASKS:
        (check,) = (check for check in attacked.checks if check.check_type == _ASKS[attack.location])
        return check.error.message if check.error else PASSED if check.passed else FAILED
    output = attacked.output
    assert output is not None
    error = (output.metadata or {}).get("error") if output.value is None else None
    return ANSWERED if error is None else str(error["message"])
