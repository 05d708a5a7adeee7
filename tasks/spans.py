"""Spans of a run for an OpenTelemetry collector: the run, each call of the target, the result of each check.

They are exported where the environment names an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`); else none of OpenTelemetry's
SDK is imported. The provider is the run's own, made in the process that executes the run: it changes nothing for other
users of OpenTelemetry in that process, such as Prefect or an agent, and no thread of it has to survive a fork.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fepflow.calls.base import traceparent
from fepflow.calls.client import CallRecord
from fepflow.checks.explanation import explain
from fepflow.errors import MissingExtraError, TargetError
from fepflow.extras import require
from fepflow.protocol.results import CheckResult, score_of
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.suite.target import Trace
from fepflow.tasks.batches import CaseOutput, ShardSpec
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.local_run import local_run
from fepflow.text import one_line

if TYPE_CHECKING:
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which instrumentations of models are told to record what was said: explanations quote it."""

FLUSH_SECONDS, UNREACHABLE_SECONDS, GIVE_UP_SECONDS = 10.0, 2.0, 1.0
"""Longest waits at the end of a run: for its last spans; for them if none could be exported; then for its thread."""

MAX_ID = 200


def spans_endpoint() -> str | None:
    """Return the address to which the environment has spans exported, or None."""
    env = os.environ
    exporters = [name.strip() for name in env.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or "otlp" not in exporters:
        return None
    return next((env[name].strip() for name in ENDPOINTS if env.get(name, "").strip()), None)


def open_spans(run: RunRecord, spec: ShardSpec, trace: Trace | None = None) -> RunSpans | None:
    """Start the span of a run, or of a shard of it. Returns None if spans are not exported, with a warning if they
    should be.

    `trace` is where the run receives its agent's spans; fepflow's own are not sent there.
    """
    endpoint = spans_endpoint()
    if endpoint is None or (trace is not None and _is_same_address(endpoint, trace.endpoint)):
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    try:
        if protocol is not None and protocol.strip() != "http/protobuf":
            message = "fepflow exports them as http/protobuf only: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to it"
            raise ValueError(f"{message}, and the endpoint to the port for that (4318, as a rule)")
        require("otel", "exporting them", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        return RunSpans(run, spec, endpoint)
    except (MissingExtraError, ValueError) as error:
        _warn(f"OpenTelemetry's endpoint is set, but no spans are exported: {error}")
        return None


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _is_same_address(endpoint: str, receiver: str) -> bool:
    """Return whether spans would be sent to the run's own receiver on this machine."""
    try:
        exported, received = urlsplit(endpoint), urlsplit(receiver)
        return exported.hostname in _LOOPBACK and (exported.port or 80) == received.port
    except ValueError:  # a port that is none
        return False


class RunSpans:
    """The spans of one executor of a run. Raises ValueError for unusable settings of OpenTelemetry."""

    def __init__(self, run: RunRecord, spec: ShardSpec, endpoint: str) -> None:
        from opentelemetry import context, trace

        from fepflow.tasks.span_exporter import SpanExporter

        self._trace = trace
        self._host = urlsplit(endpoint).hostname or endpoint
        self._exporter = SpanExporter()
        self._tracer = self._exporter.tracer
        self._run_id = run.id
        self._shows_content = os.environ.get(CAPTURE_CONTENT, "").strip().lower() not in ("", "false", "no_content")
        shard = {} if spec.shards == 1 else {"fepflow.shard": spec.shard + 1, "fepflow.shards": spec.shards}
        attributes: dict[str, Any] = {"fepflow.run.id": run.id, "fepflow.suite.name": run.name, **shard}
        self._span = self._tracer.start_span(f"evaluate {one_line(run.name, MAX_ID)}", attributes=attributes)
        self._of_run = trace.set_span_in_context(self._span)
        self._no_parent = context.Context()

    def note_end(self, status: str, fields: Mapping[str, Any]) -> None:
        """Note how the run ended, and its verdict if it has one."""
        self._span.set_attribute("fepflow.run.status", status)
        if (outcome := fields.get("outcome")) is not None:
            self._span.set_attribute("fepflow.verdict", outcome)
        if status != "completed":
            self._span.set_status(self._trace.StatusCode.ERROR)

    @contextmanager
    def attempt(self, case: TestCase, record: CallRecord) -> Iterator[None]:
        """Open a span for an attempt. Its context is current, and is sent along, so the target's spans are inside."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            **self._of_case(case.id, record.repeat),
            "fepflow.attempt": len(record.attempts) + 1,
        }
        parent, links = self._of_run, []
        if record.trace is not None:  # it is a trace of its own, from which the agent's spans come to us
            self._exporter.ids.next_trace = int(record.trace.trace_id, 16)
            parent, links = self._no_parent, [self._trace.Link(self._span.get_span_context())]
        kind = self._trace.SpanKind.CLIENT
        span = self._tracer.start_span("invoke_agent", parent, kind, attributes=attributes, links=links)
        record.span = span.get_span_context()
        if record.trace is not None:
            record.trace.call_id = f"{record.span.span_id:016x}"
        own = f"00-{record.span.trace_id:032x}-{record.span.span_id:016x}-{record.span.trace_flags:02x}"
        token = traceparent.set(own if record.trace is None else record.trace.traceparent)
        try:
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            _mark_failed(span, error.kind if isinstance(error, TargetError) else type(error).__name__)
            raise
        finally:
            traceparent.reset(token)
            span.end()

    def add_results(self, output: CaseOutput, results: Sequence[CheckResult]) -> None:
        """Add a span for each result, inside the span of the call that was checked, or else of the run.

        If the output has a trace (from an earlier process, or a recorded one), the call is the first span of that
        trace.
        """
        trace = self._trace
        call = output.span
        if call is None and (ids := _ids_of_call(output.output.metadata or {})) is not None:
            call = trace.SpanContext(*ids, is_remote=True, trace_flags=trace.TraceFlags(1))
        parent = self._of_run if call is None else trace.set_span_in_context(trace.NonRecordingSpan(call))
        ended, repeat, case_id = time_ns(), output.unit[1], output.case.id
        for result in results:
            attributes = {**self._of_case(case_id, repeat), **self._of_result(result)}
            lasted = (result.metadata or {}).get("execution_time_ms", 0)
            span = self._tracer.start_span(
                "gen_ai.evaluation.result",
                parent,
                attributes=attributes,
                start_time=ended - int(lasted * 1_000_000),
            )
            if result.error is not None:
                _mark_failed(span, result.error.type)
            span.end(ended)

    def _of_case(self, case_id: str, repeat: int) -> dict[str, Any]:
        of_run = {"fepflow.run.id": self._run_id, "fepflow.repeat": repeat + 1}
        return {**of_run, "fepflow.test_case.id": one_line(case_id, MAX_ID)}

    def _of_result(self, result: CheckResult) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.evaluation.name": result.check_id,
            "fepflow.check.type": result.check_type,
        }
        score = score_of(result)
        if score is None and result.passed is not None:
            score = float(result.passed)
        if score is not None:
            attributes["gen_ai.evaluation.score.value"] = float(score)
        if result.passed is not None:
            attributes["gen_ai.evaluation.score.label"] = "pass" if result.passed else "fail"
        if self._shows_content and (explanation := explain(result)):
            attributes["gen_ai.evaluation.explanation"] = explanation
        return attributes

    async def aclose(self) -> None:
        """End the run's span and export the waiting spans, within some seconds. One warning covers those that were not
        sent.
        """
        self._span.end()
        flush = self._exporter.flush()
        await asyncio.to_thread(flush.join, UNREACHABLE_SECONDS)
        if flush.is_alive() and self._exporter.exported:
            await asyncio.to_thread(flush.join, FLUSH_SECONDS - UNREACHABLE_SECONDS)
        cause = None
        if flush.is_alive():
            cause = "it does not answer in time"
            await asyncio.to_thread(self._exporter.give_up)
            await asyncio.to_thread(flush.join, GIVE_UP_SECONDS)
        self._exporter.close()
        if cause := self._exporter.cause or cause:
            _warn(f"spans were not all exported to {self._host} ({self._exporter.exported:,} were): {cause}")


def _warn(message: str) -> None:
    """Log a warning, and pass it to the command line that started the run, if there is one."""
    run_log().warning("%s", message)
    begun = local_run.get()
    if begun is not None:
        begun.warnings.append(message)


def _ids_of_call(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the ids of the trace and span of a call, from the trace in an output's metadata."""
    trace = metadata.get("trace")
    if not isinstance(trace, dict):
        return None
    spans = [span for span in trace.get("spans") or () if isinstance(span, dict)]
    known = {span.get("span_id") for span in spans}
    first = next((span.get("span_id") for span in spans if span.get("parent_id") not in known), None)
    try:
        trace_id, span_id = int(str(trace.get("trace_id")), 16), int(str(trace.get("call_id") or first), 16)
    except ValueError:
        return None
    return (trace_id, span_id) if 0 < trace_id < 2**128 and 0 < span_id < 2**64 else None


def _mark_failed(span: Span, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
