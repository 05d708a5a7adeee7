"""Spans of a run for an OpenTelemetry collector: the run, each call of the target, the result of each check.

They are exported where the environment names an endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`); else none of OpenTelemetry's
SDK is imported. The provider is the run's own, made in the process that executes the run: it changes nothing for other
users of OpenTelemetry in that process, such as Prefect or an agent, and no thread of it has to survive a fork.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
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
from fepflow.tasks.batches import ShardSpec
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.local_run import local_run
from fepflow.text import one_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span, SpanContext

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable by which instrumentations of models are told to record what was said: explanations quote it."""

MAX_QUEUE = 50_000
"""Spans that wait to be exported; OpenTelemetry's default is less than a fast run makes in a second."""

FLUSH_SECONDS, UNREACHABLE_SECONDS, GIVE_UP_SECONDS = 10.0, 2.0, 1.0
"""How long the end of a run waits for its last spans; how long if none could be exported; and then for its thread."""

MAX_ID = 200
MAX_CAUSE = 100


def spans_endpoint() -> str | None:
    """Return where the environment has spans exported to; None if nowhere."""
    env = os.environ
    exporters = [name.strip() for name in env.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or "otlp" not in exporters:
        return None
    return next((env[name].strip() for name in ENDPOINTS if env.get(name, "").strip()), None)


def open_spans(run: RunRecord, spec: ShardSpec) -> RunSpans | None:
    """Begin the span of a run, or of a shard of it; None, with a warning if they were meant to be, if none are made."""
    endpoint = spans_endpoint()
    if endpoint is None:
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


class RunSpans:
    """The spans of one executor of a run. Raises ValueError for settings of OpenTelemetry that cannot be used."""

    def __init__(self, run: RunRecord, spec: ShardSpec, endpoint: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create()
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "fepflow"}))
        self._trace = trace
        self._host = urlsplit(endpoint).hostname or endpoint
        self._exporter = _counting(OTLPSpanExporter)()
        queue = None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else MAX_QUEUE
        # shutdown_on_exit: else the interpreter's end waits for it once more, without a limit
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, max_queue_size=queue))
        self._tracer = self._provider.get_tracer("fepflow")
        self._run_id = run.id
        self._shows_content = os.environ.get(CAPTURE_CONTENT, "").strip().lower() not in ("", "false", "no_content")
        self._log = _LogOfSdk()
        shard = {} if spec.shards == 1 else {"fepflow.shard": spec.shard + 1, "fepflow.shards": spec.shards}
        attributes: dict[str, Any] = {"fepflow.run.id": run.id, "fepflow.suite.name": run.name, **shard}
        self._span = self._tracer.start_span(f"evaluate {one_line(run.name, MAX_ID)}", attributes=attributes)
        self._of_run = trace.set_span_in_context(self._span)

    def note_end(self, status: str, fields: Mapping[str, Any]) -> None:
        """Note how the run ended, and its verdict if it has one."""
        self._span.set_attribute("fepflow.run.status", status)
        if (outcome := fields.get("outcome")) is not None:
            self._span.set_attribute("fepflow.verdict", outcome)
        if status != "completed":
            self._span.set_status(self._trace.StatusCode.ERROR)

    @contextmanager
    def attempt(self, case: TestCase, record: CallRecord) -> Iterator[None]:
        """Make an attempt a span, in which the target's own spans are: its context is sent along, and is current."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            **self._of_case(case.id, record.repeat),
            "fepflow.attempt": len(record.attempts) + 1,
        }
        kind = self._trace.SpanKind.CLIENT
        parent, links = self._of_run, []
        if record.trace is not None:  # each call has a trace of its own, from which the agent's spans come to us
            ids = int(record.trace.trace_id, 16), int(record.trace.call_id, 16)
            own = self._trace.SpanContext(*ids, is_remote=True, trace_flags=self._trace.TraceFlags(1))
            parent = self._trace.set_span_in_context(self._trace.NonRecordingSpan(own))
            links = [self._trace.Link(self._span.get_span_context())]
        span = self._tracer.start_span("invoke_agent", parent, kind, attributes=attributes, links=links)
        record.span = span.get_span_context()
        if record.trace is not None:
            record.trace.call_id = f"{record.span.span_id:016x}"
        token = traceparent.set(_traceparent(record.span))
        try:
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            _mark_failed(span, error.kind if isinstance(error, TargetError) else type(error).__name__)
            raise
        finally:
            traceparent.reset(token)
            span.end()

    def add_results(self, call: Any, case_id: str, repeat: int, results: Sequence[CheckResult]) -> None:
        """Make each result a span, in that of the call whose output was checked, else in that of the run."""
        trace = self._trace
        parent = self._of_run if call is None else trace.set_span_in_context(trace.NonRecordingSpan(call))
        ended = time_ns()
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
        """End the run's span and export what waits, within some seconds; whatever was not exported is one warning."""
        self._span.end()
        # Threads are not waited for by Python's end if they are daemons, as is that of the SDK.
        flush = Thread(target=self._provider.shutdown, name="fepflow-spans", daemon=True)
        flush.start()
        await asyncio.to_thread(flush.join, UNREACHABLE_SECONDS)
        if flush.is_alive() and self._exporter.exported:
            await asyncio.to_thread(flush.join, FLUSH_SECONDS - UNREACHABLE_SECONDS)
        late = flush.is_alive()
        if late:
            self._exporter.given_up = True  # of batches that wait; the one at work may wait to try again
            await asyncio.to_thread(self._exporter.shutdown)
            await asyncio.to_thread(flush.join, GIVE_UP_SECONDS)
        self._log.close()
        if late or self._log.cause or self._exporter.failed:
            cause = self._log.cause or "it does not answer in time"
            _warn(f"spans were not all exported to {self._host} ({self._exporter.exported:,} were): {cause}")


def _warn(message: str) -> None:
    """Log a warning, and tell it to the command line that started the run, where one did."""
    run_log().warning("%s", message)
    begun = local_run.get()
    if begun is not None:
        begun.warnings.append(message)


def _traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _mark_failed(span: Span, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _counting(exporter_class: type[Any]) -> type[Any]:
    """Return an exporter that counts the spans that it could export, and those that it could not."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Counting(exporter_class):  # type: ignore[misc]  # a class of a package that is imported on demand
        exported = failed = 0
        given_up = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result: SpanExportResult = SpanExportResult.FAILURE if self.given_up else super().export(spans)
            if result is SpanExportResult.SUCCESS:
                self.exported += len(spans)
            else:
                self.failed += len(spans)
            return result

    return Counting


class _LogOfSdk(logging.Handler):
    """Takes what OpenTelemetry logs while the run's spans are exported: it logs each try, and quotes addresses."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.cause: str | None = None
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first cause, without the words of exceptions: they quote addresses, which may hold keys."""
        if self.cause is None:
            arguments = record.args if isinstance(record.args, tuple) else ()
            parts = tuple(type(part).__name__ if isinstance(part, Exception) else part for part in arguments)
            self.cause = one_line(str(record.msg) % parts, MAX_CAUSE)

    def close(self) -> None:
        """Stop."""
        self._logger.removeHandler(self)
        self._logger.propagate = not any(isinstance(handler, _LogOfSdk) for handler in self._logger.handlers)
        super().close()
