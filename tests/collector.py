"""An OpenTelemetry collector on a real socket, in this process: it keeps the spans that it gets by OTLP/HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class ExportedSpan:
    """A span as it was sent; ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    lasted_ns: int
    links: list[str]
    """Ids of spans."""


@dataclass
class Collector:
    """The address to export to, and what has come; it answers with `status`."""

    url: str
    status: int = 200
    spans: list[ExportedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> list[ExportedSpan]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _spans(body: bytes) -> Iterator[ExportedSpan]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = {item.key: _value(item.value) for item in group.resource.attributes}
        for span in (span for scope in group.scope_spans for span in scope.spans):
            yield ExportedSpan(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.status.code == span.status.STATUS_CODE_ERROR,
                {item.key: _value(item.value) for item in span.attributes},
                resource,
                span.end_time_unix_nano - span.start_time_unix_nano,
                [link.span_id.hex() for link in span.links],
            )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for the length of a `with` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            if collector.status == 200 and self.path == "/v1/traces":
                collector.spans.extend(_spans(body))
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join(10)
