"""Runs of suites that judge the traces of an agent, which is instrumented with the OpenTelemetry SDK."""

from __future__ import annotations

import pytest

from tests.conftest import free_port
from tests.traced_agent import TracedAgent

from .conftest import Workplace

pytestmark = pytest.mark.e2e

CALLS = {
    "id": "calls",
    "type": "tool_usage",
    "arguments": {"calls": "$.output.trace.tool_calls", "name": "get_weather"},
}
NO_REFUND = {
    "id": "no_refund",
    "type": "tool_usage",
    "arguments": {"calls": "$.output.trace.tool_calls", "name": "refund", "max_count": 0},
}
CHEAP = {"id": "cheap", "type": "threshold", "arguments": {"value": "$.output.trace.tokens", "max_value": 100}}


def test_a_verdict_rests_on_the_trace_and_a_missing_one_is_no_pass(workplace: Workplace) -> None:
    port = free_port()
    agent = TracedAgent(f"http://127.0.0.1:{port}", batch=True)
    trace = {"otlp": True, "wait": "2s", "quiet": "200ms", "port": port}
    sections = {"target": {"trace": trace, "timeout": "10s"}, "checks": [CALLS, NO_REFUND, CHEAP]}
    with agent.serving() as url:
        workplace.write_suite(["Paris", "Oslo"], http={"url": url}, **sections)
        done = workplace.run()
        assert done.returncode == 0, done.stdout + done.stderr
        workplace.write_suite(["Paris", "silent x", "alone x"], http={"url": url}, **sections)
        missing = workplace.run()
        shown = workplace.fepflow("show", "latest", "--case", "Paris")
    assert missing.returncode == 4, missing.stdout + missing.stderr
    assert "5 spans of other traces came, which do not continue" in missing.stdout
    results = workplace.results
    assert [check.passed for check in results["Paris"].checks] == [True, True, True]
    for check in results["silent x"].checks:
        assert (check.status, check.passed) == ("error", None)
        assert check.error is not None
        assert "no span came within 2 s after the answer" in check.error.message
    assert "5 spans; 1 tool call; 2 model calls; 40 tokens" in shown.stdout
