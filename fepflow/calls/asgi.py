"""An ASGI application of the user, which an HTTP target calls in process, by httpx.ASGITransport."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fepflow.calls.python.source import MODULES, Source, load, locate, source_hash
from fepflow.calls.python.target import Failure, given_up
from fepflow.calls.python.worker import failure_of
from fepflow.calls.responses import too_large
from fepflow.calls.thread_pool import AgentLoop
from fepflow.documents.messages import did_you_mean
from fepflow.errors import InputError, Problem, TargetError
from fepflow.protocol.content_hash import content_hash
from fepflow.security.redaction import known_secrets, words_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

SHUTDOWN_SECONDS = 5.0
"""Longest time that an application may take to shut down."""

_SETTING = "target.http.app"

logger = logging.getLogger("fepflow.calls")


def open_app(name: str, folder: Path, roots: Sequence[Path], max_bytes: int) -> AsgiApp:
    """Load the application `file.py:name` or `package.module:name`, which executes its code; see `locate`.

    Raises InputError, with file, line and advice.
    """
    source = locate(name, folder, roots, _SETTING)
    app: Any = load(source)
    for part in source.name.split("."):
        if not hasattr(app, part):
            advice = did_you_mean(part, [other for other in vars(app) if not other.startswith("_")])
            raise InputError(Problem(f"there is no {part} in {source.module}", source.shown, None, _SETTING, advice))
        app = getattr(app, part)
    try:
        inspect.signature(app).bind({}, None, None)
    except (TypeError, ValueError):
        message = f"{source.name} is no ASGI application: it cannot be called with scope, receive and send"
        advice = "name the application itself, such as app = FastAPI(), and not a function that makes one"
        raise InputError(Problem(message, source.shown, None, _SETTING, advice)) from None
    return AsgiApp(source, app, max_bytes)


class AsgiApp:
    """The application for httpx.ASGITransport; `content_hash` is that of its code.

    It runs in a separate event loop, in a daemon thread, so that a blocking application does not delay the run. It is
    started before its first request and shut down at the end (ASGI's lifespan protocol). A response is cut off at
    `max_bytes`. Its exceptions become TargetErrors with type, message, file and line.
    """

    def __init__(self, source: Source, app: Application, max_bytes: int) -> None:
        self.content_hash = content_hash(source.name, source_hash(source))
        self._source = source
        self._app = app
        self._max_bytes = max_bytes
        self._loop = AgentLoop()
        # A loop that the application holds up is given up, and it is started up anew in the next one.
        self._lifespans: dict[asyncio.AbstractEventLoop, _Lifespan] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request. Raises TargetError, or BodyError for a response that is too large."""
        response = _Response(send, self._max_bytes)
        try:
            failure = await self._loop.run(self._respond(scope, receive, response))
        except asyncio.CancelledError:
            given_up.set()
            raise
        if response.is_too_large:
            raise too_large(self._max_bytes)
        if response.mistake is not None:
            message = f"{self._source.name} breaks the protocol of ASGI: {response.mistake}"
            raise TargetError(message, kind="malformed", retryable=False)
        if failure is not None:
            raise failure.error(known_secrets())
        if not response.is_complete:
            message = f"{self._source.name} ended without a complete response"
            raise TargetError(message, kind="malformed", retryable=False)

    async def _respond(self, scope: Message, receive: Receive, send: Send) -> Failure | None:
        MODULES.activate(self._source.folder)
        loop = asyncio.get_running_loop()
        if (lifespan := self._lifespans.get(loop)) is None:
            lifespan = self._lifespans[loop] = _Lifespan(self._app, self._source.folder)
        if (failure := await lifespan.start_up()) is not None:
            return failure
        try:
            await self._app({**scope, "state": lifespan.state.copy()}, receive, send)
        except BaseException as error:  # it may raise anything, SystemExit, too
            return Failure(**failure_of(error, self._source.folder))
        return None

    async def aclose(self) -> None:
        """Shut the application down, and end its loop."""
        with suppress(TimeoutError, RuntimeError):  # it takes too long, or is closed
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._loop.run(self._shut_down())
        self._loop.close()

    async def _shut_down(self) -> None:
        lifespan = self._lifespans.get(asyncio.get_running_loop())
        if lifespan is not None:
            await lifespan.shut_down()


class _Response:
    """ASGI's `send`, which counts the bytes of the response. `mistake` is the application's first one, if any.

    httpx.ASGITransport asserts, without a word, that there is none.
    """

    def __init__(self, send: Send, max_bytes: int) -> None:
        self.is_complete = self.is_too_large = self._is_started = False
        self.mistake: str | None = None
        self._send = send
        self._left = max_bytes

    async def __call__(self, message: Message) -> None:
        self.mistake = self.mistake or self._mistake_in(message)
        if self.mistake is not None:
            raise ValueError(self.mistake)  # ends the application
        if message["type"] == "http.response.start":
            self._is_started = True
        elif message["type"] == "http.response.body":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self.is_too_large = True
                raise too_large(0)  # ends the application; who called it says how much there may be
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    def _mistake_in(self, message: Message) -> str | None:
        if message["type"] == "http.response.start":
            if self._is_started:
                return "it starts its response twice"
            if not isinstance(message.get("status"), int):
                return f"the status of its response is {message.get('status')!r:.40}, and not a number"
        elif message["type"] == "http.response.body":
            if not self._is_started or self.is_complete:
                return f"it sends a body {'after the end' if self.is_complete else 'before the start'} of its response"
            if not isinstance(message.get("body", b""), bytes | bytearray | memoryview):
                return f"the body of its response is {type(message['body']).__name__}, and not bytes"
        return None


class _Lifespan:
    """Start-up and shut-down of an application in one event loop (ASGI's lifespan protocol, 2.0).

    An application that raises before it answers the start-up does not know the protocol, and needs none.
    """

    def __init__(self, app: Application, folder: Path) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._folder = folder
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._received_startup = False
        self._failed: str | None = None
        self._failure: Failure | None = None
        self._task: asyncio.Task[None] | None = None

    async def start_up(self) -> Failure | None:
        """Start the application, once for all calls. Return why that failed, if it did."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await self._started.wait()
        return self._failure

    async def shut_down(self) -> None:
        """Shut it down."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        error: BaseException | None = None
        try:
            await self._app(scope, self._receive, self._send)
        except BaseException as raised:
            error = raised
        if error is not None and self._started.is_set():
            logger.warning("the application's shut-down failed: %s: %s", type(error).__name__, words_of(error))
        elif self._failed is not None:
            cause = Failure(self._failed, "exception", retryable=False)
            if error:
                cause = Failure(**failure_of(error, self._folder))
            self._failure = replace(
                cause, message=f"the application's start-up failed: {cause.message}", retryable=False
            )
        self._started.set()

    async def _receive(self) -> Message:
        if not self._received_startup:
            self._received_startup = True
            return {"type": "lifespan.startup"}
        await self._stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            self._started.set()
        elif message["type"] == "lifespan.startup.failed":
            self._failed = str(message.get("message", ""))
