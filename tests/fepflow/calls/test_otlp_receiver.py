"""The endpoint for spans under requests of all kinds, over a real socket."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fepflow.calls.otlp_receiver import MAX_BODY, MAX_WAITING, Receiver
from fepflow.calls.traces import CallTrace
from fepflow.errors import InputError
from fepflow.settings import settings
from fepflow.traces.conventions import MAX_SPANS, Span, read_trace
from fepflow.traces.otlp import request_of_protobuf, spans_of
from tests.conftest import free_port

PROTOBUF, JSON = {"Content-Type": "application/x-protobuf"}, {"Content-Type": "application/json"}
RUN = "0af7651916cd43dd"
TRACE = RUN + "8448eb211c80319c"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Receiver, Path]]:
    """A client of a receiver, the receiver, and the folder of the run that it receives for."""
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEPFLOW_TRACES", str(folder))
        settings.cache_clear()
        port = free_port()
        receiver = Receiver(port)
        receiver.start()
        (folder / RUN).mkdir()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client, receiver, folder / RUN
        receiver.close()
    settings.cache_clear()


def batch(*spans: dict[str, Any]) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for span in spans:
        scope.spans.add(**span)
    return request.SerializeToString()


def a_span(number: int = 1, trace_id: str = TRACE, **fields: Any) -> dict[str, Any]:
    return {"trace_id": bytes.fromhex(trace_id), "span_id": number.to_bytes(8, "big"), "name": "a", **fields}


def json_of(*spans: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def test_every_body_has_the_answer_of_the_specification(endpoint: Any, subtests: pytest.Subtests) -> None:
    for headers, body, status in [
        (PROTOBUF, batch(a_span()), 200),
        ({**PROTOBUF, "Content-Encoding": "gzip"}, gzip.compress(batch(a_span()), mtime=0), 200),
        ({**PROTOBUF, "Content-Encoding": "deflate"}, zlib.compress(batch(a_span())), 200),
        (JSON, json_of({"traceId": TRACE, "spanId": "b7ad6b7169203331", "name": "a"}), 200),
        (JSON, b"{}", 200),
        (PROTOBUF, b"", 200),
        (PROTOBUF, b"\xff\xfe no protobuf", 400),
        (JSON, b"{", 400),
        (JSON, b"[]", 400),
        (JSON, json_of(3), 400),
        (JSON, json_of({"traceId": TRACE, "spanId": "b7ad6b7169203331", "startTimeUnixNano": "x"}), 400),
        (JSON, b'{"resourceSpans": ' + b"[" * 10_000, 400),
        ({**PROTOBUF, "Content-Encoding": "gzip"}, gzip.compress(bytes(MAX_BODY + 1), 1), 413),
        (PROTOBUF, bytes(MAX_BODY + 1), 413),
        ({**PROTOBUF, "Content-Encoding": "gzip"}, b"no gzip", 400),
        ({**PROTOBUF, "Content-Encoding": "zstd"}, b"", 400),
        ({"Content-Type": "text/plain"}, b"", 415),
    ]:
        with subtests.test(headers=headers, body=body, status=status):
            client, _, _ = endpoint
            answer = client.post("/v1/traces", content=body, headers=headers)
            assert answer.status_code == status, answer.text
            if answer.status_code != 415:
                assert answer.headers["Content-Type"] == headers["Content-Type"]
            if status != 200:
                is_protobuf = answer.headers["Content-Type"] == PROTOBUF["Content-Type"]
                assert Status.FromString(answer.content).message if is_protobuf else answer.json()["message"]


def test_other_paths_methods_and_signals(endpoint: Any) -> None:
    client, _, _ = endpoint
    assert client.get("/v1/traces").status_code == 405
    assert client.post("/v1/else", content=b"").status_code == 404
    for signal in ("logs", "metrics"):
        assert client.post(f"/v1/{signal}", content=b"anything", headers=PROTOBUF).status_code == 200


def test_wrong_ids_are_a_partial_success_and_foreign_traces_are_counted(endpoint: Any) -> None:
    client, receiver, folder = endpoint
    for file in folder.iterdir():
        file.unlink()
    foreign = receiver.spool.foreign
    zero = {"traceId": "0" * 32, "spanId": "b7ad6b7169203331"}
    spans = [zero, {"traceId": TRACE, "spanId": "xyz"}, {"traceId": "f" * 32, "spanId": "b7ad6b7169203331"}]
    good = {"traceId": TRACE, "spanId": "b7ad6b7169203331"}
    answer = client.post("/v1/traces", content=json_of(*spans, good), headers=JSON).json()
    assert answer["partialSuccess"]["rejectedSpans"] == "2"
    assert receiver.spool.foreign == foreign + 1
    (file,) = folder.iterdir()
    spans_there = [one for one in spans_of(request_of_protobuf(file.read_bytes())) if one is not None]
    assert [one.trace_id for one in spans_there] == ["f" * 32, TRACE]
    file.unlink()


def test_a_run_that_takes_nothing_is_not_filled_without_end(endpoint: Any) -> None:
    client, _, folder = endpoint
    for number in range(MAX_WAITING):
        (folder / f"{number}").write_bytes(b"")
    answer = client.post("/v1/traces", content=batch(a_span()), headers=PROTOBUF)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    for file in folder.iterdir():
        file.unlink()


def test_a_port_that_something_else_has_is_an_error_with_advice() -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: something else listens") as raised:
            Receiver(port).start()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in str(raised.value)
    assert not [thread for thread in threading.enumerate() if thread.name == "fepflow-otlp" and not thread.is_alive()]


def span_of(number: int, parent: int | None = None, start: int = 0, end: int = 1_000_000, **attributes: Any) -> Span:
    parent_id = None if parent is None else f"{parent:016x}"
    return Span(TRACE, f"{number:016x}", parent_id, "a", "internal", start, end, "unset", "", attributes, size=100)


async def test_a_trace_keeps_so_many_spans_and_bytes_and_counts_the_others() -> None:
    trace = CallTrace(TRACE)
    for number in range(MAX_SPANS + 500):
        trace.add(span_of(number), 0.0)
    assert (len(trace.spans), trace.dropped) == (MAX_SPANS, 500)
    giant = CallTrace(TRACE)
    large = span_of(1)
    large.size = 5_000_000
    giant.add(large, 0.0)
    assert (len(giant.spans), giant.dropped) == (0, 1)


def test_circles_of_parents_and_times_that_run_backwards_are_read() -> None:
    model: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2,
    }
    spans = [span_of(1, 2, **model), span_of(2, 3), span_of(3, 1), span_of(4, 4, start=-5)]
    trace = read_trace(spans, TRACE, None, None)
    assert len(trace["spans"]) == 4
    assert trace["tokens"] == 3
    (backwards,) = spans_of(
        request_of_protobuf(batch(a_span(start_time_unix_nano=2_000_000, end_time_unix_nano=1_000_000)))
    )
    assert backwards is not None
    assert backwards.end == backwards.start


def test_giant_texts_are_cut_where_they_are_stored_but_read_whole() -> None:
    arguments = json.dumps({"text": "x" * 50_000})
    tool: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "t",
        "gen_ai.tool.call.arguments": arguments,
    }
    trace = read_trace([span_of(1, **tool)], TRACE, None, None)
    assert len(trace["tool_calls"][0]["arguments"]["text"]) == 50_000
    assert trace["spans"][0]["attributes"]["gen_ai.tool.call.arguments"].endswith("characters)")
