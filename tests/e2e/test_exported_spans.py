"""Runs whose environment names an OpenTelemetry collector, which listens on a real socket."""

from __future__ import annotations

import pytest

from tests.collector import collecting

from .conftest import Workplace
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

WRONG = {"id": "wrong", "input": "wrong", "expected": "right"}


def test_a_run_is_a_trace_that_its_agent_continues(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(["a", WRONG])
    with collecting() as collector:
        done = workplace.run(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME="nightly")
    assert done.returncode == 1, done.stderr
    (run,) = collector.named("evaluate e2e")
    assert (run.attributes["fepflow.run.id"], run.attributes["fepflow.verdict"]) == (workplace.record.id, "fail")
    assert {span.resource["service.name"] for span in collector.spans} == {"nightly"}
    calls = {span.attributes["fepflow.test_case.id"]: span for span in collector.named("invoke_agent")}
    assert {span.parent_id for span in calls.values()} == {run.span_id}
    for asked in endpoint.asked:
        span = calls[asked.question]
        assert asked.headers["traceparent"].startswith(f"00-{span.trace_id}-{span.span_id}-")
    results = collector.named("gen_ai.evaluation.result")
    labels = {span.parent_id: span.attributes["gen_ai.evaluation.score.label"] for span in results}
    assert labels == {calls["a"].span_id: "pass", calls["wrong"].span_id: "fail"}
    assert len(collector.spans) == 5
