"""An OTLP/HTTP endpoint for agents' spans, and the spool from which each run takes the spans of its calls.

All trace ids of a run begin with the same 8 bytes, and a folder of that name exists while the run lasts. Any receiver
of a span puts it there: the run itself, another run that listens on the same port, or `fepflow serve`. So runs on one
machine share a port, in any order of their starts and ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fepflow.calls.responses import BodyError, read_body
from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.settings import settings
from fepflow.text import one_line
from fepflow.traces.otlp import (
    OtlpError,
    request_of_json,
    request_of_protobuf,
    trace_ids,
)

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MAX_BODY = 8_000_000
"""Bytes of a request, and of what it decompresses to. A batch of the SDKs has 512 spans."""

MAX_WAITING = 500
"""Requests that may wait in a run's folder, which it empties many times a second."""

MAX_MESSAGE = 200
"""Characters of an answer's message, which may quote the request."""

PREFIX_LENGTH = 16
"""Characters of a trace id, in hexadecimal, that are the same for all traces of a run."""

_WEEK = 7 * 86_400.0

LOOPBACK = "127.0.0.1"

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
PATH = "/v1/traces"
_SIGNALS = (PATH, "/v1/logs", "/v1/metrics")


def spool_folder() -> Path:
    """Return the folder with a folder for each run of this user, on this machine. Raises InfrastructureError."""
    user = os.getuid() if hasattr(os, "getuid") else os.getpid()
    folder = settings().traces or Path(tempfile.gettempdir()) / f"fepflow-traces-{user}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    is_shared = hasattr(os, "getuid") and (status.st_uid != user or status.st_mode & 0o022)
    if not stat.S_ISDIR(status.st_mode) or is_shared:
        message = f"{folder} is not a folder of this user that nobody else may write to"
        raise InfrastructureError(f"{message}: remove it, or name another one (FEPFLOW_TRACES)")
    return folder


def remove_what_killed_runs_left(spool: Path) -> None:
    """Remove the folders of runs, and no others, that got no spans for a week."""
    for folder in spool.glob("[0-9a-f]" * PREFIX_LENGTH):
        with suppress(OSError):  # another run removes it, too
            if folder.stat().st_mtime < time.time() - _WEEK:
                shutil.rmtree(folder)


class Spool:
    """The folders of runs, which get each request as a file. `foreign` counts spans that belong to no run."""

    def __init__(self) -> None:
        self.foreign = 0

    def put(self, request: ExportTraceServiceRequest) -> tuple[int, int]:
        """Give a request to each run whose spans it has. Returns the numbers of invalid and of surplus spans.

        Invalid spans have invalid ids; surplus ones belong to a run whose folder is full.
        """
        counts = Counter(trace_id[:PREFIX_LENGTH] for trace_id in trace_ids(request))
        invalid, full = counts.pop("", 0), 0
        spool = spool_folder()
        for prefix, count in counts.items():
            folder = spool / prefix
            try:
                if len(os.listdir(folder)) >= MAX_WAITING:
                    full += count
                    continue
                beginning = folder / f".{uuid.uuid4().hex}"
                beginning.write_bytes(request.SerializeToString())
                beginning.rename(folder / beginning.name[1:])
            except FileNotFoundError:
                self.foreign += count
        return invalid, full


class OtlpApp:
    """The endpoint as an ASGI application, by the specification of OTLP/HTTP. Logs and metrics are accepted and
    dropped.

    https://opentelemetry.io/docs/specs/otlp/#otlphttp
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3)."""
        if scope["type"] == "http":
            response = await self._respond(Request(scope, receive))
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        path = request.scope["path"].rstrip("/")
        if path not in _SIGNALS:
            return _answer(404, _JSON, "spans go to /v1/traces")
        if request.method != "POST":
            return _answer(405, _JSON, "send spans with POST")
        if kind not in (_PROTOBUF, _JSON):
            return _answer(415, _JSON, f"the Content-Type is {_PROTOBUF} or {_JSON}")
        try:
            body = await read_body(request.stream(), request.headers.get("content-encoding", ""), MAX_BODY)
        except BodyError as error:
            return _answer(413 if error.kind == "too_large" else 400, kind, str(error))
        except ClientDisconnect:
            return _answer(400, kind, "the body ended too early")
        if path != PATH:
            return _answer(200, kind)
        status, message, rejected = await asyncio.to_thread(self._take, body, is_json=kind == _JSON)
        return _answer(status, kind, message, rejected)

    def _take(self, body: bytes, *, is_json: bool) -> tuple[int, str, int]:
        """Put a body into the spool; return the status, the mistake, and the number of refused spans."""
        try:
            request = request_of_json(body) if is_json else request_of_protobuf(body)
        except OtlpError as error:
            return 400, f"the body {error}", 0
        invalid, full = self._spool.put(request)
        if full:
            return 503, "the run has more spans waiting than it takes", 0
        return 200, "ids of spans are not valid" if invalid else "", invalid


def _answer(status: int, kind: str, message: str = "", rejected: int = 0) -> Response:
    """Return a response: `partial_success` for an accepted request, else a google.rpc.Status."""
    from google.protobuf.json_format import MessageToJson
    from google.rpc.status_pb2 import Status
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse() if status == 200 else Status(message=one_line(message, MAX_MESSAGE))
    if isinstance(answer, ExportTraceServiceResponse) and rejected:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = message
    body = answer.SerializeToString() if kind == _PROTOBUF else MessageToJson(answer)
    return Response(body, status, {"retry-after": "1"} if status == 503 else None, kind)


class Receiver:
    """The endpoint on a port of loopback, in a thread, from `start` to `close`."""

    def __init__(self, port: int) -> None:
        self.spool = Spool()
        self._port = port
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen. Raises InputError if the port is taken."""
        import uvicorn

        listener = _listen(self._port)
        config = uvicorn.Config(
            OtlpApp(self.spool),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=1_000,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        # Signals are heard in the main thread only: they stay the run's own.
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="fepflow-otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread is not None:
            self._server.should_exit = True
            self._thread.join(5)
            self._thread = None


def _listen(port: int) -> socket.socket:
    """Return a socket on which other runs of this user may listen, too; each puts its spans into the spool."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(OSError, AttributeError):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(1_024)
    except OSError as error:
        listener.close()
        why = "something else listens on it" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        message = f"spans cannot be received on port {port}: {why}"
        advice = "name another port here, and export the agent's spans to it (OTEL_EXPORTER_OTLP_ENDPOINT)"
        raise InputError(Problem(message, path="target.trace.port", advice=advice)) from None
    return listener
