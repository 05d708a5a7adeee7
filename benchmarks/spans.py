"""Spans that a run receives: 1,000 a second over OTLP/HTTP, and what that costs the run's process."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import click
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.measuring import Line, free_port

RATE, SECONDS, BATCH, CASES = 1_000, 10, 50, 200
MAX_SHARE = 0.25
"""Share of one processor that receiving may take."""


def spans() -> Iterator[Line]:
    """The share of a processor that a run's process takes to receive spans, and how many it has got."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.spans", str(port := free_port())]
        env = {**os.environ, "FEPFLOW_TRACES": folder}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe) as run:  # noqa: S603  # ourselves
            assert run.stdin is not None
            assert run.stdout is not None
            traces = json.loads(run.stdout.readline())
            _send(port, traces)
            run.stdin.write("\n")
            run.stdin.flush()
            share, received = json.loads(run.stdout.readline())
    sent = RATE * SECONDS
    yield Line(
        f"receiving {RATE:,} spans a second",
        f"{share:.0%} of a processor, {received:,} of {sent:,} spans",
        f"{MAX_SHARE:.0%}, all",
        share <= MAX_SHARE and received == sent,
        f"batches of {BATCH}, protobuf in gzip",
    )


def _send(port: int, traces: list[tuple[str, str]]) -> None:
    """Send spans at the rate, each batch when it is due."""
    bodies = [_batch(number, *traces[number % CASES]) for number in range(RATE * SECONDS // BATCH)]
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    began = time.monotonic()
    for number, body in enumerate(bodies):
        time.sleep(max(0.0, began + number * BATCH / RATE - time.monotonic()))
        with urlopen(Request(f"http://127.0.0.1:{port}/v1/traces", body, headers), timeout=10) as answer:
            answer.read()


def _batch(number: int, trace_id: str, call_id: str) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for index in range(BATCH):
        span = scope.spans.add(
            trace_id=bytes.fromhex(trace_id),
            span_id=(number * BATCH + index + 1).to_bytes(8, "big"),
            parent_span_id=bytes.fromhex(call_id),
            name="chat small",
        )
        for name in ("gen_ai.operation.name", "gen_ai.request.model", "server.address"):
            span.attributes.add(key=name).value.string_value = "chat"
        for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            span.attributes.add(key=name).value.int_value = 100
    return gzip.compress(request.SerializeToString())


async def _receive(port: int) -> None:
    from fepflow.calls.traces import Traces
    from fepflow.suite.target import Trace

    traces = Traces(Trace(port=port))
    async with traces.listening():
        calls = [traces.begin() for _ in range(CASES)]
        click.echo(json.dumps([(call.trace_id, call.call_id) for call in calls]))
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.sleep(0.2)
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        click.echo(json.dumps([share, sum(len(call.spans) for call in calls)]))


if __name__ == "__main__":
    asyncio.run(_receive(int(sys.argv[1])))
