"""OTLP export requests, in protobuf or JSON, and the spans in them.

It needs `opentelemetry-proto`, an extra: importers have to require it first.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from math import isfinite
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from fepflow.json.values import parse
from fepflow.traces.conventions import Span

MAX_ATTRIBUTES, MAX_EVENTS = 256, 128
"""Most attributes of a span or event, and events of a span; the specification's limit is 128."""

_KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
_STATUS = ("unset", "ok", "error")
_ID_FIELDS = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")
_MAX_DEPTH = 100


class OtlpError(Exception):
    """The error of a body that is not an export request; the message continues "the body"."""


def request_of_protobuf(body: bytes) -> ExportTraceServiceRequest:
    """Read an export request in protobuf. Raises OtlpError."""
    try:
        return ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise OtlpError("is not an ExportTraceServiceRequest in protobuf") from None


def request_of_json(body: bytes | str) -> ExportTraceServiceRequest:
    """Read an export request in OTLP's JSON. Raises OtlpError."""
    try:
        document = parse(body if isinstance(body, str) else body.decode())
    except ValueError as error:
        raise OtlpError(f"is not valid JSON: {error}") from None
    return request_of_document(document)


def request_of_document(document: Any) -> ExportTraceServiceRequest:
    """Read an export request from a JSON document with hexadecimal ids. Raises OtlpError."""
    if not isinstance(document, dict):
        raise OtlpError("is not an object")
    try:
        return ParseDict(
            _with_binary_ids(document),
            ExportTraceServiceRequest(),
            ignore_unknown_fields=True,
            max_recursion_depth=_MAX_DEPTH,
        )
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise OtlpError(f"is not an ExportTraceServiceRequest in JSON: {str(error)[:200]}") from None


def _with_binary_ids(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with ids in base64, as protobuf's JSON needs them, instead of OTLP's hexadecimal."""
    resources = []
    for resource in _list(document, "resourceSpans", "resource_spans"):
        scopes = [
            {"spans": [_span_with_binary_ids(span) for span in _list(scope, "spans")]}
            for scope in _list(resource, "scopeSpans", "scope_spans")
        ]
        resources.append({"scopeSpans": scopes})
    return {"resourceSpans": resources}


def _list(parent: Any, *names: str) -> list[Any]:
    if not isinstance(parent, dict):
        raise OtlpError("has something else where an object should be")
    value = next((parent[name] for name in names if name in parent), None)
    if not isinstance(value, list | None):
        raise OtlpError(f"has {names[0]} that is not a list")
    return value or []


def _span_with_binary_ids(span: Any) -> dict[str, Any]:
    if not isinstance(span, dict):
        raise OtlpError("has a span that is not an object")
    changed = {name: value for name, value in span.items() if name != "links"}
    for name in _ID_FIELDS:
        if isinstance(text := changed.get(name), str):
            try:
                changed[name] = base64.b64encode(bytes.fromhex(text)).decode()
            except ValueError:
                changed[name] = ""  # an invalid id: only its span is refused
    return changed


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Span | None]:
    """Yield each span of a request; None for a span with invalid ids."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span(span)


def trace_ids(request: ExportTraceServiceRequest) -> Iterator[str]:
    """Yield the trace id of each span in hexadecimal; empty for a span with invalid ids."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield span.trace_id.hex() if _is_id(span.trace_id, 16) and _is_id(span.span_id, 8) else ""


def _is_id(value: bytes, length: int) -> bool:
    return len(value) == length and any(value)


def _span(span: trace_pb2.Span) -> Span | None:
    if not _is_id(span.trace_id, 16) or not _is_id(span.span_id, 8):
        return None
    kind, code = span.kind, span.status.code
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() if _is_id(span.parent_span_id, 8) else None,
        span.name,
        _KINDS[kind] if 0 <= kind < len(_KINDS) else "internal",
        span.start_time_unix_nano,
        max(span.end_time_unix_nano, span.start_time_unix_nano),  # a clock that was set back
        _STATUS[code] if 0 <= code < len(_STATUS) else "unset",
        span.status.message,
        _attributes(span.attributes),
        [
            {"name": event.name, "time": event.time_unix_nano, "attributes": _attributes(event.attributes)}
            for event in span.events[:MAX_EVENTS]
        ],
        span.ByteSize(),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs[:MAX_ATTRIBUTES]}


def _value(value: AnyValue) -> Any:
    """Return an attribute's value as JSON; bytes become base64, NaN and infinities texts."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    content = getattr(value, which)
    if which == "array_value":
        return [_value(item) for item in content.values]
    if which == "kvlist_value":
        pairs: list[KeyValue] = content.values
        return {pair.key: _value(pair.value) for pair in pairs}
    if which == "bytes_value":
        return binascii.b2a_base64(content, newline=False).decode()
    if which == "double_value" and not isfinite(content):
        return str(content)
    return content
