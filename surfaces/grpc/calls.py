"""What each call passes before its handler sees it: who calls, and may they; its message; the record; its errors."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fepflow.errors import AuthenticationError, FepflowError, InputError, Problem
from surfaces.access.access import BEGUN, Access, Credentials
from surfaces.access.caller import Caller, Scope
from surfaces.access.peers import address_of_peer
from surfaces.grpc.errors import ResultTooLargeError, known, status_of

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

    def __init__(self, access: Access, max_message: int) -> None:
        self._access = access
        self._max_message = max_message

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler, guarded; None for a method that there is not."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        guard = Guard(handler, handler_call_details.method, self._access, self._max_message)
        if not handler.response_streaming:
            return grpc.unary_unary_rpc_method_handler(guard.respond, None, handler.response_serializer)
        kind = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return kind(guard.stream, None, handler.response_serializer)


class Guard:
    """One method's handler. gRPC hands it the bytes of a message, so that one that cannot be read has a true status."""

    def __init__(self, handler: Any, method: str, access: Access, max_message: int) -> None:
        self._handler = handler
        self._action = method.removeprefix("/")
        service, _, self._name = self._action.partition("/")
        self._needs = NEEDS.get(self._name) if service in SERVICES else None
        self._access = access
        self._max_message = max_message

    async def respond(self, request: bytes, context: Context) -> Any:
        """The response."""
        responses: list[Any] = []

        async def work() -> None:
            responses.append(self._checked(await self._handler.unary_unary(self._message(request), context)))

        await self._guarded(work, context)
        return responses[0]

    async def stream(self, request: Any, context: Context) -> None:
        """Write each response as it comes."""
        await self._guarded(partial(self._write, request, context), context)

    async def _write(self, request: Any, context: Context) -> None:
        if self._handler.request_streaming:
            responses = self._handler.stream_stream(self._messages(request), context)
        else:
            responses = self._handler.unary_stream(self._message(request), context)
        if inspect.isawaitable(responses):  # it writes by itself
            await responses
            return
        async with aclosing(responses):
            async for response in responses:
                await context.write(self._checked(response))

    def _message(self, data: bytes) -> Any:
        try:
            return self._handler.request_deserializer(data)
        except DecodeError:
            raise InputError(Problem(f"the message is not one that {self._action} takes")) from None

    async def _messages(self, stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in stream:
            yield self._message(data)

    def _checked(self, response: Any) -> Any:
        size = response.ByteSize()
        if size > self._max_message:
            raise ResultTooLargeError(size, self._max_message, current_call().resource if self._needs else None)
        return response

    async def _guarded(self, work: Work, context: Context) -> None:
        try:
            await (work() if self._needs is None else self._admitted(work, self._needs, context))
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await context.abort(*status_of(known(error, self._action)))

    async def _admitted(self, work: Work, needs: Scope, context: Context) -> None:
        source = address_of_peer(context.peer())
        call: Call | None = None

        async def record(outcome: str) -> None:
            caller, resource = (call.caller.name, call.resource) if call else (None, None)
            await self._access.record(caller, source, self._action, resource, outcome)

        try:
            credentials = Credentials(_only(context, "x-api-key"), _only(context, "authorization"), source)
            caller = await self._access.identify(credentials)
            call = Call(caller, partial(self._access.permit, caller, needs, starts_run=False))
            self._access.permit(caller, needs, starts_run=self._name in STARTS)
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


def _only(context: Context, name: str) -> str | None:
    """A value of the call's metadata. Raises AuthenticationError if there are several."""
    values = [value for key, value in context.invocation_metadata() or () if key == name]
    if len(values) > 1:
        raise AuthenticationError(f"There are several values of {name} in the metadata: send one.")
    return str(values[0]) if values else None
