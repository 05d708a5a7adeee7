"""The spans that a run exports: over a real socket, read as a collector reads them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fepflow import extras
from fepflow.protocol.test_case import Output
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks import spans
from fepflow.tasks.batches import Batch, CaseOutput, ShardSpec
from fepflow.tasks.call_target import call_target
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.tasks.spans import open_spans, spans_endpoint
from fepflow.verdict.verdict import Verdict
from tests.collector import Collector, collecting
from tests.conftest import free_port
from tests.traced_agent import TracedAgent

from .conftest import SAME, Agent, Plan

WRONG = {"id": "wrong", "input": "wrong", "expected": "right"}
BROKEN = {"id": "broken", "type": "threshold", "arguments": {"value": "$.output.value", "min_value": 1}}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


@pytest.fixture
def spool(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own for the spans that agents export to the run."""
    monkeypatch.setenv("FEPFLOW_TRACES", str(tmp_path / "spool"))
    settings.cache_clear()
    yield
    settings.cache_clear()


async def evaluated(run_id: str, calls: int) -> Verdict:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        return await decide_run(context)


async def test_a_run_its_calls_and_its_checks_are_one_tree(
    plan: Plan, agent: Agent, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=ci")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer collector-key")
    run_id = plan(["a", WRONG, "fail 1"], checks=[SAME, BROKEN])
    await evaluated(run_id, 3)
    (run,) = collector.named("evaluate s")
    assert (run.parent_id, run.failed) == ("", False)
    assert run.attributes["fepflow.run.id"] == run_id
    assert (run.attributes["fepflow.run.status"], run.attributes["fepflow.verdict"]) == ("completed", "fail")
    assert run.resource["service.name"] == "fepflow"
    assert run.resource["deployment.environment"] == "ci"
    calls = {
        (span.attributes["fepflow.test_case.id"], span.attributes["fepflow.attempt"]): span
        for span in collector.named("invoke_agent")
    }
    assert calls.keys() == {("a", 1), ("wrong", 1), ("fail 1", 1), ("fail 1", 2)}
    assert {span.parent_id for span in calls.values()} == {run.span_id}
    assert {span.trace_id for span in collector.spans} == {run.trace_id}
    assert [key for key, span in calls.items() if span.failed] == [("fail 1", 1)]
    assert calls["fail 1", 1].attributes["error.type"] == "http_status"
    sent = sorted(str(parent).rpartition("-")[0] for parent in agent.traceparents)
    assert sent == sorted(f"00-{span.trace_id}-{span.span_id}" for span in calls.values())
    results = {
        (span.attributes["fepflow.test_case.id"], span.attributes["gen_ai.evaluation.name"]): span
        for span in collector.named("gen_ai.evaluation.result")
    }
    assert len(results) == 6
    assert len(collector.spans) == 1 + 4 + 6
    assert results["fail 1", "exact_match"].parent_id == calls["fail 1", 2].span_id
    assert _about(results["a", "exact_match"].attributes) == {"score.value": 1.0, "score.label": "pass"}
    assert _about(results["wrong", "exact_match"].attributes) == {"score.value": 0.0, "score.label": "fail"}
    assert _about(results["a", "broken"].attributes) == {}
    assert results["a", "broken"].failed
    assert results["a", "broken"].attributes["error.type"] == "validation_error"
    assert "right" not in str([span.attributes for span in collector.spans])  # the expected value
    assert collector.headers[0]["authorization"] == "Bearer collector-key"


def _about(attributes: dict[str, Any]) -> dict[str, Any]:
    names = ("score.value", "score.label", "explanation")
    return {
        name: attributes[f"gen_ai.evaluation.{name}"] for name in names if f"gen_ai.evaluation.{name}" in attributes
    }


async def test_explanations_quote_answers_and_are_exported_if_content_may_be(
    plan: Plan, agent: Agent, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await evaluated(plan([WRONG]), 1)
    (result,) = collector.named("gen_ai.evaluation.result")
    assert _about(result.attributes)["explanation"] == 'got "wrong", wanted "right"'


async def test_repeats_are_told_apart_and_a_resumed_runs_checks_are_in_its_span(
    plan: Plan, agent: Agent, collector: Collector
) -> None:
    run_id = plan(["a"], repeats=2)
    async with open_run(run_id) as context:
        await call_target(context, await context.begin(Batch(0, 2)))
        await context.finish("interrupted")
    assert sorted(span.attributes["fepflow.repeat"] for span in collector.named("invoke_agent")) == [1, 2]
    collector.spans.clear()
    async with open_run(run_id) as context:
        assert await run_checks_of_batch(context, await context.begin(Batch(0, 2))) == 2
    (run,) = collector.named("evaluate s")
    assert {span.parent_id for span in collector.named("gen_ai.evaluation.result")} == {run.span_id}


async def test_an_agents_own_spans_are_below_the_call(plan: Plan, collector: Collector) -> None:
    traced = TracedAgent(collector.url, batch=False)
    with traced.serving() as url:
        await evaluated(plan(["Paris x", "Rome x"], target={"http": {"url": url}}), 2)
    calls = {span.span_id: span.trace_id for span in collector.named("invoke_agent")}
    assert {span.parent_id: span.trace_id for span in collector.named("POST /ask")} == calls
    assert len(calls) == 2


TOOLS = {
    "type": "tool_usage",
    "arguments": {
        "calls": "$.output.trace.tool_calls",
        "expected": [{"name": "get_weather", "arguments": {"city": "Paris"}}],
    },
}


@pytest.mark.parametrize("sampler", ["parentbased_always_on", "always_off"])
async def test_a_call_whose_trace_is_judged_has_one_of_its_own_linked_to_the_run(
    plan: Plan, collector: Collector, store: Store, spool: None, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    port = free_port()
    traced = TracedAgent(f"http://127.0.0.1:{port}", batch=False)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)  # of what we export: the agent has its own
    with traced.serving() as url:
        target = {"http": {"url": url}, "trace": {"port": port, "wait": "5s"}}
        run_id = plan(["Paris", "idle x"], checks=[TOOLS], target=target)
        verdict = await evaluated(run_id, 2)
    results = {result.case.id: result for result in store.results.by_case(run_id)}
    assert {name: result.checks[0].results["missing"] for name, result in results.items()} == {
        "Paris": [],
        "idle x": ["get_weather"],
    }
    assert (verdict.outcome, verdict.warnings) == ("fail", [])
    if sampler == "always_off":
        assert collector.spans == []
        return
    (run,) = collector.named("evaluate s")
    calls = collector.named("invoke_agent")
    assert {span.trace_id for span in calls} == {
        result.output.metadata["trace"]["trace_id"]
        for result in results.values()
        if result.output is not None and result.output.metadata is not None
    }
    assert [(span.parent_id, span.links) for span in calls] == [("", [run.span_id])] * 2
    assert {span.parent_id for span in collector.named("gen_ai.evaluation.result")} == {span.span_id for span in calls}


async def test_results_of_recorded_traces_are_in_these(plan: Plan, collector: Collector, tmp_path: Path) -> None:
    span = {"span_id": "b" * 16, "parent_id": "c" * 16}
    traces = {
        "whole": {"trace_id": "a" * 32, "spans": [span, {"span_id": "d" * 16, "parent_id": "b" * 16}]},
        "called": {"trace_id": "a" * 32, "call_id": "e" * 16, "spans": [span]},
        "without ids": {"trace_id": "session 7", "spans": [{"span_id": "1", "parent_id": None}]},
        "empty": {"trace_id": "0" * 32, "spans": []},
    }
    run_id = plan(list(traces))
    async with open_run(run_id) as context:
        assert context.spans is not None
        work = await context.begin(Batch(0, 4))
        for index, (name, trace) in enumerate(traces.items()):
            output = Output(value=name, metadata={"trace": trace})
            work.add_output(CaseOutput(work.case((index, 0)), (index, 0), output, "a" * 64))
        await run_checks_of_batch(context, work)
        await context.finish("interrupted")
    (run,) = collector.named("evaluate s")
    assert {
        span.attributes["fepflow.test_case.id"]: (span.trace_id, span.parent_id)
        for span in collector.named("gen_ai.evaluation.result")
    } == {
        "whole": ("a" * 32, "b" * 16),
        "called": ("a" * 32, "e" * 16),
        "without ids": (run.trace_id, run.span_id),
        "empty": (run.trace_id, run.span_id),
    }


async def test_spans_are_not_exported_to_the_run_itself(
    plan: Plan, spool: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent in the same environment needs the variable to export to the run."""
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://localhost:{port}")
    traced = TracedAgent(f"http://127.0.0.1:{port}", batch=False)
    with traced.serving() as url:
        target = {"http": {"url": url}, "trace": {"port": port, "wait": "5s"}}
        verdict = await evaluated(plan(["Paris"], checks=[TOOLS], target=target), 1)
    assert (verdict.outcome, verdict.warnings) == ("pass", [])


async def test_a_run_that_breaks_off_says_so(plan: Plan, agent: Agent, collector: Collector) -> None:
    with pytest.raises(RuntimeError):
        async with open_run(plan(["a"])):
            raise RuntimeError("a fault")
    (run,) = collector.named("evaluate s")
    assert (run.failed, run.attributes["fepflow.run.status"]) == (True, "failed")


def one_warning(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    return record.getMessage()


async def test_a_collector_that_is_not_there_is_one_warning_and_some_seconds(
    plan: Plan, agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spans, "UNREACHABLE_SECONDS", 0.5)
    address = f"http://user:collector-key@127.0.0.1:{free_port()}/?token=collector-key"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
    began = time.monotonic()
    verdict = await evaluated(plan(["a"]), 1)
    assert time.monotonic() - began < 10
    assert verdict.outcome == "pass"
    assert one_warning(caplog).startswith("spans were not all exported to 127.0.0.1 (0 were): ")
    assert "collector-key" not in caplog.text
    assert logging.getLogger("opentelemetry").propagate


async def test_a_collector_that_refuses_is_one_warning(
    plan: Plan, agent: Agent, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 401
    assert (await evaluated(plan(["a"]), 1)).outcome == "pass"
    assert "401" in one_warning(caplog)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "schedule_delay_millis must be positive"),
    ],
)
async def test_settings_that_cannot_be_used_are_a_warning(
    plan: Plan,
    agent: Agent,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
    why: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert (await evaluated(plan(["a"]), 1)).outcome == "pass"
    assert why in one_warning(caplog)
    assert collector.spans == []


async def test_without_the_extra_a_warning_tells_what_to_install(
    plan: Plan, agent: Agent, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(extras, "_is_there", lambda module: not module.startswith("opentelemetry.exporter"))
    assert (await evaluated(plan(["a"]), 1)).outcome == "pass"
    assert 'pip install "fepflow[otel]"' in one_warning(caplog)


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "http://a"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b"}, "http://b"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "otlp,console"}, "http://a"),
    ],
)
def test_spans_are_exported_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], endpoint: str | None
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert spans_endpoint() == endpoint


def test_a_run_in_a_forked_process_exports_its_spans(plan: Plan, store: Store, collector: Collector) -> None:
    """As `fepflow serve` forks them, from a process in which OpenTelemetry may be at work already."""
    run, spec = store.runs.get(plan(["a"])), ShardSpec()
    here = open_spans(run, spec)
    assert here is not None
    forked = os.fork()
    if forked == 0:
        there = open_spans(run, spec)
        assert there is not None
        asyncio.run(there.aclose())
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0
    assert len(collector.named("evaluate s")) == 1
    asyncio.run(here.aclose())
    assert len(collector.named("evaluate s")) == 2


def test_without_an_endpoint_nothing_of_the_sdk_is_imported() -> None:
    code = (
        "import json, sys\nimport fepflow.tasks.spans\n"
        "assert fepflow.tasks.spans.open_spans(None, None) is None\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry.')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout.splitlines()[-1])
    assert not [name for name in imported if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
