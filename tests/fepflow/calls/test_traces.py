"""Traces of calls: an agent with the OpenTelemetry SDK, over real sockets."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.base import TargetResponse
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.calls.policy import RunBudget
from fepflow.calls.traces import CallTrace, Traces, is_traced
from fepflow.errors import RunLimitExceededError
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.suite.models import Budget
from fepflow.suite.target import Target, Trace
from fepflow.traces.conventions import MAX_TEXT, Span
from tests.conftest import free_port
from tests.traced_agent import TracedAgent

CALL = "the call"


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FEPFLOW_TRACES", str(tmp_path / "spool"))
    settings.cache_clear()
    yield tmp_path / "spool"
    settings.cache_clear()


@asynccontextmanager
async def asking(target: dict[str, Any], trace: dict[str, Any], folder: Path) -> AsyncIterator[Any]:
    """Give a function that asks the target a question in a traced call, and returns the metadata; and the traces."""
    config = Target.model_validate({**target, "trace": {"quiet": 0.2, **trace}, "attempts": 1})
    opened = await asyncio.to_thread(open_target, config, folder=folder, case_ids=list)
    assert config.trace is not None
    traces = Traces(config.trace)
    client = TargetClient(opened, RetryPolicy.of(config), traces=traces)

    async def ask(question: str) -> dict[str, Any]:
        record = await client.ask(TestCase(id=question, input=question))
        output = record.output()
        return {**(output.metadata or {}), "value": output.value}

    try:
        async with traces.listening():
            yield ask, traces
    finally:
        await opened.aclose()


def http(url: str) -> dict[str, Any]:
    return {"http": {"url": url, "body": {"question": "$.test_case.input"}, "output": "$.answer"}}


@pytest.mark.parametrize("batch", [True, False])
async def test_a_call_has_the_trace_that_the_sdk_exports(batch: bool, tmp_path: Path) -> None:
    port = free_port()
    agent = TracedAgent(f"http://127.0.0.1:{port}", batch=batch)
    with agent.serving() as url:
        async with asking(http(url), {"port": port, "wait": 5.0}, tmp_path) as (ask, traces):
            outputs = await asyncio.gather(*(ask(f"Paris {number}") for number in range(5)))
    assert len({output["trace"]["trace_id"] for output in outputs}) == 5
    trace = outputs[0]["trace"]
    assert outputs[0]["value"] == "sunny"
    assert outputs[0]["tokens"] == 40  # and not the agent's own 30 as well
    assert [span["name"] for span in trace["spans"]] == [
        "POST /ask", "invoke_agent weather", "chat small", "execute_tool get_weather", "chat small"
    ]  # fmt: skip
    assert trace["spans"][0]["parent_id"] == trace["call_id"]
    assert trace["spans"][0]["kind"] == "server"
    (call,) = trace["tool_calls"]
    assert (call["name"], call["arguments"], call["result"], call["error"]) == (
        "get_weather", {"city": "Paris"}, {"sky": "sunny"}, None
    )  # fmt: skip
    assert [model["tokens"] for model in trace["model_calls"]] == [15, 25]
    assert trace["tokens"] == 40
    assert trace["unknown"] == {"usd": "2 of 2 calls of models do not report their usd"}
    assert traces.warnings() == []
    assert is_traced(outputs[0])


async def test_missing_unfinished_and_foreign_spans_leave_the_trace_unknown(tmp_path: Path) -> None:
    port = free_port()
    agent = TracedAgent(f"http://127.0.0.1:{port}", batch=False)
    with agent.serving() as url:
        async with asking(http(url), {"port": port, "wait": 0.9}, tmp_path) as (ask, traces):
            modes = ("silent", "alone", "unfinished", "late", "fail", "idle", "gap", "apart")
            silent, alone, unfinished, late, failed, idle, gap, apart = await asyncio.gather(
                *(ask(f"{mode} x") for mode in modes)
            )
            async with asyncio.timeout(30):
                while not traces.late:  # noqa: ASYNC110  # it is what another thread has counted
                    await asyncio.sleep(0.05)
    assert silent["trace"]["unknown"]["tool_calls"].startswith("no span came within 0.9 s after the answer")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in silent["trace"]["unknown"]["tool_calls"]
    assert "spans of other traces came" in alone["trace"]["unknown"]["tool_calls"]
    for half in (unfinished, late):
        assert "but not the one that handles the call" in half["trace"]["unknown"]["tool_calls"]
        assert "tool_calls" not in half["trace"]
        assert "tokens" not in half
    assert "5 spans came within 0.9 s" in gap["trace"]["unknown"]["tool_calls"]
    assert "the parents of 1 of them did not" in gap["trace"]["unknown"]["tool_calls"]
    assert [call["name"] for call in apart["trace"]["tool_calls"]] == ["a", "b"]
    assert failed["error"]["status"] == 500
    assert idle["trace"]["tool_calls"] == []
    assert not any(map(is_traced, (silent, alone, unfinished, late, failed, gap, {}, {"value": 1})))
    assert traces.late == 1
    assert any("came when their case was done" in warning for warning in traces.warnings())
    assert any("5 spans of other traces" in warning for warning in traces.warnings())


async def test_a_budget_waits_for_what_the_traces_of_calls_tell(tmp_path: Path) -> None:
    port = free_port()
    agent = TracedAgent(f"http://127.0.0.1:{port}", batch=False)
    with agent.serving() as url:
        config = Target.model_validate({**http(url), "trace": {"port": port, "wait": 5.0, "quiet": 0.05}})
        opened = await asyncio.to_thread(open_target, config, folder=tmp_path, case_ids=list)
        traces, budget = Traces(Trace(port=port, wait=5.0, quiet=0.05)), RunBudget(budget=Budget(tokens=60))
        client = TargetClient(opened, replace(RetryPolicy.of(config), concurrency=1), budget, traces=traces)

        async def ask(number: int) -> bool:
            try:
                budget.spend((await client.ask(TestCase(id=str(number), input="Paris"))).output().metadata)
            except RunLimitExceededError:
                return False
            return True

        async with traces.listening():
            asked = await asyncio.gather(*map(ask, range(5)))
        await opened.aclose()
    assert (sum(asked), budget.spent) == (2, {"tokens": 80})


async def test_two_runs_share_a_port_and_get_their_own_spans(tmp_path: Path) -> None:
    port = free_port()
    agent = TracedAgent(f"http://127.0.0.1:{port}", batch=True)
    trace = {"port": port, "wait": 5.0}
    with agent.serving() as url:
        async with asking(http(url), trace, tmp_path) as (ask, _), asking(http(url), trace, tmp_path) as (other, _):
            outputs = await asyncio.gather(*(function(f"Paris {n}") for n in range(4) for function in (ask, other)))
    assert [len(output["trace"]["spans"]) for output in outputs] == [5] * 8
    assert len({output["trace"]["trace_id"][:16] for output in outputs}) == 2


AGENT = """\
import json, os, sys
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")


def answer(question, traceparent=None):
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent or os.environ.get("TRACEPARENT", "")})
    with tracer.start_as_current_span("execute_tool find", context) as span:
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"})
    return question


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        text = request["params"].get("input", "")
        result = {"name": "a", "capabilities": {"reset": True}}
        if request["method"] == "agent/step":
            result = {"status": "done", "public_output": answer(text)}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    "target",
    [
        {"python": {"function": "agent.py:answer", "isolate": "process"}, "concurrency": 1},
        {"ecp": {"command": [sys.executable, "agent.py"]}, "concurrency": 2},
    ],
)
async def test_a_process_exports_where_it_is_told_and_continues_the_trace_of_each_case(
    target: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/v1/traces")  # where fepflow's own go
    async with asking(target, {"port": free_port(), "wait": 10.0}, tmp_path) as (ask, _):
        outputs = [await ask(question) for question in ("one", "two")]
    for output in outputs:
        assert output.get("error") is None
        assert [call["name"] for call in output["trace"]["tool_calls"]] == ["find"]
        assert output["trace"]["spans"][0]["parent_id"] == output["trace"]["call_id"]


@pytest.mark.parametrize(
    ("spans", "is_whole"),
    [
        ([("server", CALL, 5.0)], True),
        ([("internal", CALL, 9.95)], True),
        ([("internal", None, 9.95)], True),  # the agent took over the trace, and not the parent
        ([("internal", CALL, 5.0)], False),  # what came after it may wait in the agent's exporter
        ([("internal", CALL, 5.0), ("internal", CALL, 9.95)], False),  # and is there a third?
        ([("server", CALL, 9.95), ("client", "f" * 16, 9.0)], False),
        ([], False),
    ],
)
def test_a_trace_is_whole_if_a_span_holds_all_that_the_request_did(
    spans: list[tuple[str, str | None, float]], is_whole: bool
) -> None:
    trace = CallTrace("a" * 32)
    for number, (kind, parent, ended) in enumerate(spans, 1):
        parent_id = trace.call_id if parent == CALL else parent
        span = Span(trace.trace_id, f"{number:016x}", parent_id, "s", kind, 1, int(ended * 1e9), "unset", "", {})
        trace.add(span, 0.0)
    assert trace.is_whole(1, answered=10 * 10**9) is is_whole


async def test_a_secret_is_hidden_also_where_a_long_text_is_cut() -> None:
    traces = Traces(Trace(wait=0.01))
    trace = traces.begin()
    attributes = {"prompt": "z" * (MAX_TEXT - 8) + "open sesame, open sesame"}
    trace.add(Span(trace.trace_id, "1" * 16, trace.call_id, "s", "server", 1, 2, "unset", "", attributes), 0.0)
    response = await traces.finish(trace, TargetResponse("x"), frozenset({"open sesame"}))
    (span,) = response.metadata["trace"]["spans"]
    assert "open" not in span["attributes"]["prompt"]


async def test_spans_of_a_run_that_was_killed_are_removed_after_a_week(spool: Path) -> None:
    killed, at_work = "0" * 16, "1" * 16
    for name, age in ((killed, 8 * 86_400), (at_work, 60), ("others", 8 * 86_400)):
        (spool / name).mkdir(parents=True)
        (spool / name / "1").touch()
        os.utime(spool / name, (time.time() - age,) * 2)
    os.chmod(spool, 0o700)
    async with Traces(Trace(port=free_port())).listening():
        assert {at_work, "others"} < {*os.listdir(spool)}
        assert killed not in os.listdir(spool)
