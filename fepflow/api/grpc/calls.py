"""The steps before the handler of a call: who calls, and may they; its message; the record; its errors."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fepflow.access.access import BEGUN, Access
from fepflow.access.caller import Caller, Scope
from fepflow.access.connections import BODY_SECONDS, HEAD_SECONDS
from fepflow.access.peers import address_of_peer
from fepflow.api.grpc.errors import ResultTooLargeError, known, status_of
from fepflow.api.grpc.front import AUTHORITY, PEER
from fepflow.errors import FepflowError, InputError, Problem, RateLimitError, SlowRequestError

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


def _no_limit() -> None:
    """Counts nothing."""


@dataclass(slots=True)
class Call:
    """A call that was admitted. Its handler says what it is about: the id of an evaluation or operation.

    `count` is called for each further evaluation of the same call; it raises RateLimitError.
    """

    caller: Caller
    count: Callable[[], None] = field(default=_no_limit)
    resource: str | None = None


_current: ContextVar[Call] = ContextVar("call")


def current_call() -> Call:
    """The call that is handled."""
    return _current.get()


class Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # its stubs are generic, it is not
    """Puts a `Guard` around each handler."""

    def __init__(self, access: Access, max_message: int, max_open: int) -> None:
        self._access = access
        self._max_message = max_message
        self._streams, self._questions = Places(max_open), Places(max_open)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler, guarded; None for a method that there is not."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        places = self._streams if handler.response_streaming else self._questions
        guard = Guard(handler, handler_call_details.method, self._access, self._max_message, places)
        # To gRPC each request is a stream: it would wait for the one message of a request before it asks us, forever.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(guard.stream, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(guard.respond, None, handler.response_serializer)


@dataclass(slots=True)
class Places:
    """Places for calls of anybody, who shows no key: others keep theirs however long such calls last."""

    free: int


class Guard:
    """One method's handler. gRPC hands it the bytes of messages, so that one that cannot be read has a true status.

    A message is read once its caller is admitted, and has a deadline.
    """

    def __init__(self, handler: Any, method: str, access: Access, max_message: int, places: Places) -> None:
        self._handler = handler
        self._places = places
        self._action = method.removeprefix("/")
        service, _, self._name = self._action.partition("/")
        self._needs = NEEDS.get(self._name) if service in SERVICES else None
        self._access = access
        self._max_message = max_message

    async def respond(self, requests: AsyncIterator[bytes], context: Context) -> Any:
        """The response."""
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
        """The next message. Raises InputError without one, SlowRequestError for one that does not come."""
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
        try:
            await (self._of_anybody(work) if self._needs is None else self._admitted(work, self._needs, context))
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await context.abort(*status_of(known(error, self._action)))

    async def _of_anybody(self, work: Work) -> None:
        if not self._places.free:
            raise RateLimitError("too many calls of this kind are open: try again later", 1.0)
        self._places.free -= 1
        try:
            await work()
        finally:
            self._places.free += 1

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
    """The metadata of a call, without what is binary, and the address that it comes from.

    Where the relay is before us (`fepflow.api.grpc.front`), it has added the host of the call, and the address.
    """
    headers = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
    source = address_of_peer(context.peer())
    if source is None:
        added = dict(headers)  # of the same name, the last one is the relay's
        headers.append(("host", added.get(AUTHORITY, "")))
        source = added.get(PEER)
    return headers, source
