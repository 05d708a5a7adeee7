"""An agent behind HTTP that is instrumented with the OpenTelemetry SDK: it calls one tool, and a model twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


class TracedAgent:
    """Answers `{question}`. A question of several words has the agent do as its first word says:

    `silent` exports nothing, `alone` begins a trace of its own, `unfinished` never ends the span of the request,
    `late` does so after a while, `gap` never ends one inside, `apart` has no span around its tools, the second of which
    comes late, `idle` calls no tool, and `fail` answers 500.
    """

    def __init__(self, endpoint: str, *, batch: bool) -> None:
        exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", compression=Compression.Gzip, timeout=5)
        self._provider = TracerProvider()
        processor = BatchSpanProcessor(exporter, schedule_delay_millis=100) if batch else SimpleSpanProcessor(exporter)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("weather")
        self.headers: list[dict[str, str]] = []

    def answer(self, question: str, headers: dict[str, str]) -> tuple[int, Any]:
        self.headers.append(headers)
        mode = question.partition(" ")[0]
        if mode == "silent":
            return 200, {"answer": "sunny"}
        context = None if mode == "alone" else TraceContextTextMapPropagator().extract(headers)
        if mode == "apart":
            self._tracer.start_span("execute_tool a", context, attributes={"gen_ai.tool.name": "a"}).end()
            time.sleep(0.3)
            second = self._tracer.start_span("execute_tool b", context, attributes={"gen_ai.tool.name": "b"})
            threading.Timer(0.3, second.end).start()
            return 200, {"answer": "sunny"}
        span = self._tracer.start_span("POST /ask", context, SpanKind.SERVER)
        with self.use(span), self.use(self._tracer.start_span("step")) if mode == "gap" else nullcontext():
            answer = self._work(mode)
        if mode == "late":
            threading.Timer(1.8, span.end).start()
        elif mode != "unfinished":
            span.end()
        return (500, {"error": "broken"}) if mode == "fail" else (200, {"answer": answer})

    @staticmethod
    def use(span: Any) -> Any:
        from opentelemetry.trace import use_span

        return use_span(span)

    def _work(self, mode: str) -> str:
        with self._tracer.start_as_current_span("invoke_agent weather") as agent:
            agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30})
            if mode != "idle":
                self._chat(10, 5, ["tool_calls"])
                with self._tracer.start_as_current_span("execute_tool get_weather") as tool:
                    tool.set_attributes(
                        {
                            "gen_ai.operation.name": "execute_tool",
                            "gen_ai.tool.name": "get_weather",
                            "gen_ai.tool.call.arguments": json.dumps({"city": "Paris"}),
                            "gen_ai.tool.call.result": json.dumps({"sky": "sunny"}),
                        }
                    )
            self._chat(20, 5, ["stop"])
        return "sunny"

    def _chat(self, prompt: int, completion: int, reasons: list[str]) -> None:
        with self._tracer.start_as_current_span("chat small") as span:
            span.set_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "small",
                    "gen_ai.usage.input_tokens": prompt,
                    "gen_ai.usage.output_tokens": completion,
                    "gen_ai.response.finish_reasons": reasons,
                }
            )
            time.sleep(0.002)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of the agent, which answers meanwhile."""
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # the library's name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer = agent.answer(body["question"], headers)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/ask"
        finally:
            server.shutdown()
            server.server_close()
            self._provider.shutdown()
