"""The part of OpenTelemetry's SDK that runs use: their own provider and exporter. Imported on demand."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from fepflow.text import one_line

MAX_QUEUE = 50_000
"""Spans that wait to be exported; OpenTelemetry's default is less than a fast run makes in a second."""

MAX_CAUSE = 100


class SpanExporter:
    """A provider of spans, exported to the address in the environment, beside other exporters of the process.

    Raises ValueError for unusable settings of OpenTelemetry.
    """

    def __init__(self) -> None:
        resource = Resource.create()
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "fepflow"}))
        self.ids = TraceIds()
        self._exporter = _CountingExporter()
        queue = None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else MAX_QUEUE
        processor = BatchSpanProcessor(self._exporter, max_queue_size=queue)
        # shutdown_on_exit: else the interpreter's end waits for it once more, without a limit
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self.ids)
        self._provider.add_span_processor(processor)
        self._log = _LogOfSdk()
        self.tracer = self._provider.get_tracer("fepflow")

    @property
    def exported(self) -> int:
        """The number of spans that the collector has accepted."""
        return self._exporter.exported

    @property
    def cause(self) -> str | None:
        """The reason why spans were not exported; None if all were, as far as is known."""
        return self._log.cause or ("the collector refused some" if self._exporter.failed else None)

    def flush(self) -> Thread:
        """Start to export the waiting spans; neither this thread nor the SDK's keeps the process alive."""
        thread = Thread(target=self._provider.shutdown, name="fepflow-spans", daemon=True)
        thread.start()
        return thread

    def give_up(self) -> None:
        """Export no more, not even the current batch, which may be waiting for a retry."""
        self._exporter.given_up = True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK does not say that it returns nothing

    def close(self) -> None:
        """Restore the log's handlers."""
        self._log.close()


class TraceIds(RandomIdGenerator):
    """Ids of spans and traces; `next_trace` is the id of the next trace, if it is known before."""

    next_trace: int | None = None

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        known, self.next_trace = self.next_trace, None
        return super().generate_trace_id() if known is None else known


class _CountingExporter(OTLPSpanExporter):
    """An exporter that counts the spans that it could export, and those that it could not."""

    exported = failed = 0
    given_up = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch."""
        result = SpanExportResult.FAILURE if self.given_up else super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result


class _LogOfSdk(logging.Handler):
    """A handler for OpenTelemetry's log while the run's spans are exported: the SDK logs each try, and quotes
    addresses.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.cause: str | None = None
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first cause, without the texts of exceptions, which quote addresses that may contain keys."""
        if self.cause is None:
            arguments = record.args if isinstance(record.args, tuple) else ()
            parts = tuple(type(part).__name__ if isinstance(part, Exception) else part for part in arguments)
            self.cause = one_line(str(record.msg) % parts, MAX_CAUSE)

    def close(self) -> None:
        """Stop."""
        self._logger.removeHandler(self)
        self._logger.propagate = not any(isinstance(handler, _LogOfSdk) for handler in self._logger.handlers)
        super().close()
