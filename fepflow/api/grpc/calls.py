"""The steps before the handler of a call: admission, its message, the record, and its errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from fepflow.access.access import BEGUN, Access
from fepflow.access.caller import Caller, Scope
from fepflow.access.listening import BODY_SECONDS, HEAD_SECONDS
from fepflow.api.evaluations.fep import Pending
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.messages import sendable, write_struct
from fepflow.api.rest.http import type_of
from fepflow.errors import FepflowError, InputError, Problem, RateLimitError, SlowRequestError
from fepflow.observability.metrics import GRPC_CALLS, GRPC_SECONDS
from fepflow.security.redaction import words_of


def address_of_peer(peer: str) -> str | None:
    """Return `127.0.0.1` for `ipv4:127.0.0.1:50051`, `::1` for `ipv6:%5B::1%5D:50051`, None for a Unix socket.

    Other forms are returned unchanged, and are not trusted (`Access`).
    """
    kind, _, rest = peer.partition(":")
    if kind in ("unix", "unix-abstract"):
        return None
    host = unquote(rest).rpartition(":")[0]
    return host.strip("[]").partition("%")[0] if kind in ("ipv4", "ipv6") and host else peer


logger = logging.getLogger("fepflow.grpc")

AUTHORITY, PEER = "fepflow-authority", "fepflow-peer"
"""Metadata that the relay before an open server adds: the host that a call is for, empty unless there is exactly one,
and who calls."""

DETAILS = "grpc-status-details-bin"
"""The metadata in which gRPC's libraries look for details."""

MAX_TEXT = 1_000
"""Bytes of a sentence as gRPC sends it, which writes most of Unicode as `%E6%97%A5`."""
MAX_DETAILS = 1_500

Status = tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]


class PendingError(FepflowError):
    """The requested evaluation has no result yet."""

    recoverable = True
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        done = f"{pending.completed_test_cases} of {pending.total_test_cases} test cases are done"
        super().__init__(f"Evaluation {pending.evaluation_id} is {pending.status}: {done}. Ask again later.")


class ResultTooLargeError(FepflowError):
    """A stored result that is too large for a message."""

    http_status = 413
    grpc_code = "RESOURCE_EXHAUSTED"

    def __init__(self, size: int, limit: int, evaluation_id: str | None = None) -> None:
        self.evaluation_id = evaluation_id
        which = f"The result of evaluation {evaluation_id}" if evaluation_id else "The response"
        where = f": GET /v1/evaluations/{evaluation_id} of the REST interface has it" if evaluation_id else ""
        super().__init__(f"{which} has {size:,} bytes, and a message has {limit:,} at most{where}.")


def known(error: Exception, where: str) -> FepflowError:
    """Return the error to send to the caller; other errors than fepflow's are logged."""
    if isinstance(error, FepflowError):
        return error
    logger.error("%s: %s: %s", where, type(error).__name__, words_of(error))
    return FepflowError("This is a fault of fepflow; its log says more.")


def status_of(error: FepflowError) -> Status:
    """Return code, sentence and trailing metadata of an error."""
    code = grpc.StatusCode[error.grpc_code]
    details = fep_error(error)
    status = fep_pb2.ErrorStatus(code=code.value[0], message=details.message)
    status.details.add().Pack(details)
    return code, details.message, ((DETAILS, status.SerializeToString()),)


def fep_error(error: FepflowError, **details: Any) -> fep_pb2.FepError:
    """Return an error in the protocol's form; `code` is that of REST, for example `validation_error`."""
    message = fep_pb2.FepError(code=type_of(error.http_status, error), message=_cut(sendable(str(error)), MAX_TEXT))
    details = {**details, **_details(error)}
    if details:
        write_struct(details, message.details)
    return message


def _details(error: FepflowError) -> dict[str, Any]:
    if isinstance(error, PendingError):
        pending = error.pending
        return {name: getattr(pending, name) for name in ("status", "completed_test_cases", "total_test_cases")}
    if isinstance(error, ResultTooLargeError) and error.evaluation_id:
        return {"evaluation_id": error.evaluation_id}
    if isinstance(error, InputError):
        return {"problems": _problems(error)}
    return {}


def _problems(error: InputError) -> list[dict[str, Any]]:
    """Return as many problems as fit."""
    found: list[dict[str, Any]] = []
    room = MAX_DETAILS
    for problem in error.problems:
        item = {"path": sendable(problem.path or ""), "message": sendable(str(problem))}
        room -= sum(len(text.encode()) for text in item.values()) + 40  # about what a Struct has around them
        if room < 0:
            break
        found.append(item)
    return found


def _cut(text: str, room: int) -> str:
    """Return the beginning of a text, limited to a number of bytes in gRPC's form."""
    for index, char in enumerate(text):
        room -= 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode())
        if room < 0:
            return f"{text[: max(index - 3, 0)]}…"
    return text


SERVICES = ("fep.v1.EvaluationService", "fep.v1.AsyncEvaluationService")

NEEDS: dict[str, Scope] = {
    "RunEvaluation": "evaluate",
    "StreamEvaluation": "evaluate",
    "BatchEvaluation": "evaluate",
    "GetEvaluation": "read",
    "StartEvaluation": "evaluate",
    "GetOperation": "read",
    "ListOperations": "read",
    "CancelOperation": "evaluate",
}
"""The scope of each RPC of ours. What is not here anybody may call: health, and the description of the services."""

STARTS = frozenset({"StartEvaluation"})
"""RPCs that start runs."""

UNREAD = frozenset({"RunEvaluation", "StreamEvaluation", "StartEvaluation"})
"""RPCs whose handlers take the bytes of the message: to read them may take long, and is done in another process."""

Context = Any
"""A `grpc.aio.ServicerContext`."""

Work = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Call:
    """An admitted call. Its handler sets its resource: the id of an evaluation or operation.

    `count` is called for each further evaluation of the same call; it raises RateLimitError.
    """

    caller: Caller
    count: Callable[[], None]
    resource: str | None = None


_current: ContextVar[Call] = ContextVar("call")


def current_call() -> Call:
    """Return the current call."""
    return _current.get()


class Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # its stubs are generic, it is not
    """An interceptor that puts a `Guard` around each handler."""

    def __init__(self, access: Access, max_message: int, max_open: int) -> None:
        self._access = access
        self._max_message = max_message
        # Places for calls without a key: long ones do not take those of others.
        self._streams, self._questions = asyncio.Semaphore(max_open), asyncio.Semaphore(max_open)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the guarded handler, or None for an unknown method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        places = self._streams if handler.response_streaming else self._questions
        guard = Guard(handler, handler_call_details.method, self._access, self._max_message, places)
        # To gRPC each request is a stream: it would wait for the one message of a request before it asks us, forever.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(guard.stream, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(guard.respond, None, handler.response_serializer)


class Guard:
    """A guard of one method's handler. It gets the bytes of messages, so that unreadable ones get a correct status.

    A message is read once its caller is admitted, and has a deadline.
    """

    def __init__(self, handler: Any, method: str, access: Access, max_message: int, places: asyncio.Semaphore) -> None:
        self._handler = handler
        self._places = places
        self._action = method.removeprefix("/")
        service, _, self._name = self._action.partition("/")
        self._needs = NEEDS.get(self._name) if service in SERVICES else None
        self._access = access
        self._max_message = max_message

    async def respond(self, requests: AsyncIterator[bytes], context: Context) -> Any:
        """Return the response."""
        responses: list[Any] = []

        async def work() -> None:
            message = await self._message(requests)
            responses.append(self._checked(await self._handler.unary_unary(message, context)))

        await self._guarded(work, context)
        return responses[0]

    async def stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Write each response as it comes."""
        await self._guarded(partial(self._write, requests, context), context)

    async def _write(self, requests: AsyncIterator[bytes], context: Context) -> None:
        if self._handler.request_streaming:
            responses = self._handler.stream_stream(self._messages(requests), context)
        else:
            responses = self._handler.unary_stream(await self._message(requests), context)
        if inspect.isawaitable(responses):  # it writes by itself
            await responses
            return
        async with aclosing(responses):
            async for response in responses:
                await context.write(self._checked(response))

    async def _message(self, requests: AsyncIterator[bytes]) -> Any:
        """Return the next message. Raises InputError without one, SlowRequestError for a late one."""
        async for message in self._messages(requests):
            return message
        raise InputError(Problem(f"there is no message, and {self._action} takes one"))

    async def _messages(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        stream = aiter(requests)
        seconds = HEAD_SECONDS if self._needs is None else BODY_SECONDS
        while True:
            try:
                async with asyncio.timeout(seconds):
                    data = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise SlowRequestError(f"The message did not come within {seconds:.0f} s.") from None
            if self._needs is not None and self._name in UNREAD:
                yield data
                continue
            try:
                message = self._handler.request_deserializer(data)
            except DecodeError:
                raise InputError(Problem(f"the message is not one that {self._action} takes")) from None
            yield message

    def _checked(self, response: Any) -> Any:
        size = response.ByteSize()
        if size > self._max_message:
            raise ResultTooLargeError(size, self._max_message, current_call().resource if self._needs else None)
        return response

    async def _guarded(self, work: Work, context: Context) -> None:
        began, code = time.monotonic(), "OK"
        try:
            await (self._of_anybody(work) if self._needs is None else self._admitted(work, self._needs, context))
        except grpc.aio.AbortError:
            code = "ABORTED"
            raise
        except Exception as error:
            error_of_ours = known(error, self._action)
            code = error_of_ours.grpc_code
            await context.abort(*status_of(error_of_ours))
        except BaseException:
            code = "CANCELLED"
            raise
        finally:
            GRPC_CALLS.labels(self._action, code).inc()
            GRPC_SECONDS.labels(self._action).observe(time.monotonic() - began)

    async def _of_anybody(self, work: Work) -> None:
        if self._places.locked():
            raise RateLimitError("too many calls of this kind are open: try again later", 1.0)
        async with self._places:
            await work()

    async def _admitted(self, work: Work, needs: Scope, context: Context) -> None:
        headers, source = _headers(context)
        call: Call | None = None

        async def record(outcome: str) -> None:
            caller, resource = (call.caller.name, call.resource) if call else (None, None)
            may_be_late = call is None or needs == "read"
            await self._access.record(caller, source, self._action, resource, outcome, may_be_late=may_be_late)

        try:
            caller = await self._access.admit(headers, source)
            call = Call(caller, partial(self._access.permit, caller, needs, starts_run=False))
            self._access.permit_request(caller, needs, headers, starts_run=self._name in STARTS)
            _current.set(call)
            if needs != "read":
                await record(BEGUN)
            await work()
        except BaseException as error:
            try:
                await record(_outcome(error))
            except FepflowError:
                if isinstance(error, Exception):
                    raise
            raise
        await record("OK")


def _outcome(error: BaseException) -> str:
    if isinstance(error, FepflowError):
        return error.grpc_code
    return "INTERNAL" if isinstance(error, Exception) else "CANCELLED"


def _headers(context: Context) -> tuple[list[tuple[str, str]], str | None]:
    """Return the metadata of a call, without binary values, and the caller's address.

    Where the relay is before us (`fepflow.api.grpc.server`), it has added the host of the call, and the address.
    """
    headers = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
    source = address_of_peer(context.peer())
    if source is None:
        added = dict(headers)  # of the same name, the last one is the relay's
        headers.append(("host", added.get(AUTHORITY, "")))
        source = added.get(PEER)
    return headers, source
