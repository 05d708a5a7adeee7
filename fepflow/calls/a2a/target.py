"""The system under test as an agent that speaks the Agent2Agent protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fepflow.calls.a2a.transport import AgentTransport
from fepflow.calls.base import (
    Conversation,
    Progress,
    TargetResponse,
    Turn,
    pass_traceparent,
    progress_of_call,
    template_context,
)
from fepflow.calls.http_client import address_without_secrets
from fepflow.errors import TargetError
from fepflow.jsonpath.template import compile_template
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import is_secret_name, redact_json, remember, secrets_in_address
from fepflow.suite import target

if TYPE_CHECKING:
    from a2a.client import ClientCallContext
    from a2a.types import SendMessageRequest, StreamResponse

    from fepflow.calls.a2a.agent import Agent, Exchange

# The SDK takes most of a second to load, so it is loaded only for a target that is called, and not by `validate`.

_FIRST_WAIT = 0.1
_CANCEL_SECONDS = 2.0
"""A run that is stopped has ended within 5 s."""


class A2aTarget:
    """An A2A agent as a target: each test case is a message, and its task is followed until it is over.

    The card is read at the first call. A task is cancelled at the agent if the time is over or its answers cannot be
    read. Raises InputError for an address, a header or a host that cannot be used, JSONPathError for an invalid path.
    """

    def __init__(self, config: target.Target, secrets: frozenset[str] = frozenset()) -> None:
        assert config.a2a is not None  # the factory has looked
        self._a2a = config.a2a
        self.secrets = secrets | secrets_in_address(config.a2a.card)
        remember(self.secrets)
        self._message = compile_template(config.a2a.message, with_texts=True)
        self._transport = AgentTransport(config, self.secrets)
        self._met: Agent | None = None
        self._meeting = asyncio.Lock()
        self._unreadable: Callable[[], TargetError] | None = None
        self._cancelling: set[asyncio.Task[None]] = set()
        public = {name: value for name, value in config.a2a.headers.items() if not is_secret_name(name)}
        asked = [address_without_secrets(self._transport.card), public, config.a2a.message, config.a2a.stream]
        self.fingerprint = content_hash("a2a", redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the message for `case`, `{parts: […]}`. Raises JSONPathError."""
        return self.request_of(template_context(case))

    async def call(self, request: Any) -> TargetResponse:
        """Send the message, and follow its task until it is over. Raises TargetError."""
        progress = progress_of_call.get(None) or Progress()
        return await self.send(request, Thread(), progress)

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation in one context of the agent. A task that waits for input at its end is not cancelled."""
        thread = Thread()

        async def say(turn: Turn) -> TargetResponse:
            return await self.send(self.request_of(template_context(case, turn)), thread, Progress())

        yield Conversation(say, lambda: {"context_id": thread.context_id} if thread.context_id else {})

    @property
    def conversation_problem(self) -> str | None:
        """Reason why no conversation is possible (all turns would be the same message), or None."""
        if any("$.turn" in path.expression for _, path in self._message.paths):
            return None
        return "each turn would be the same message: put $.turn.input into target.a2a.message"

    def request_of(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return the message, `{parts: […]}`, for the result of `template_context`. Raises JSONPathError."""
        return {"parts": parts_of(self._message.render(context))}

    async def send(self, request: Any, thread: Thread, progress: Progress) -> TargetResponse:
        """Send a message in its thread, and move the thread on. Raises TargetError."""
        agent = await self._agent()
        from fepflow.calls.a2a.agent import Exchange, send_request

        parent = pass_traceparent()
        exchange = Exchange(thread.steps)
        try:
            with agent.errors(self.secrets):
                message = send_request(request, thread.context_id, thread.task_id, parent)
                await self._follow(agent, message, agent.context(parent), exchange, progress)
                return exchange.response(agent.described, self.secrets)
        except BaseException:
            progress.response = TargetResponse(None, exchange.metadata(agent.described, self.secrets))
            if exchange.is_running:
                self._cancel(agent, exchange.task.id)
            raise
        finally:
            thread.context_id = exchange.context_id or thread.context_id
            thread.task_id = exchange.task.id if exchange.state == "input-required" else ""
            thread.steps |= exchange.steps.keys()

    async def _follow(
        self,
        agent: Agent,
        message: SendMessageRequest,
        context: ClientCallContext,
        exchange: Exchange,
        progress: Progress,
    ) -> None:
        """Take events until the task is over; without events, poll it."""
        from a2a.types import GetTaskRequest

        received = 0
        stream = cast("AsyncGenerator[StreamResponse, None]", agent.client.send_message(message, context=context))
        async with aclosing(stream) as events:
            async for event in events:
                received += event.ByteSize()
                if received > self._a2a.max_bytes:  # of gRPC: over HTTP the transport has counted
                    what = f"the answer is larger than {self._a2a.max_bytes:,} bytes (target.a2a.max_bytes)"
                    raise TargetError(what, kind="too_large", retryable=False)
                exchange.take(event)
                progress.place = f"the agent's task is {exchange.state}"
                if exchange.is_over:
                    return
        if not exchange.task.id:
            raise TargetError("the stream of events ended without an answer", kind="connect", retryable=True)
        wait = min(_FIRST_WAIT, self._a2a.poll_interval)
        while not exchange.is_over:
            await asyncio.sleep(wait)
            wait = min(2 * wait, self._a2a.poll_interval)
            exchange.take_task(await agent.client.get_task(GetTaskRequest(id=exchange.task.id), context=context))
            progress.place = f"the agent's task is {exchange.state}"

    async def _agent(self) -> Agent:
        """Return the agent, whose card is read once in a run. Raises TargetError, a permanent one at each call."""
        if self._met is None:
            async with self._meeting:
                if self._unreadable is not None:
                    raise self._unreadable()
                if self._met is None:
                    from fepflow.calls.a2a.agent import meet

                    try:
                        self._met = await meet(self._transport, self._a2a, self.secrets)
                    except TargetError as error:
                        if not error.retryable:  # a new one for each call, which adds its own place
                            words, kind, status = str(error), error.kind, error.status
                            self._unreadable = partial(TargetError, words, kind=kind, retryable=False, status=status)
                        raise
        return self._met

    def _cancel(self, agent: Agent, task_id: str) -> None:
        """Ask the agent to cancel a task, without waiting: the caller has no time left."""

        async def cancel() -> None:
            from a2a.types import CancelTaskRequest

            with suppress(Exception):  # it may have ended meanwhile, or not support the request
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await agent.client.cancel_task(CancelTaskRequest(id=task_id), context=agent.context(None))

        task = asyncio.create_task(cancel())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def aclose(self) -> None:
        """Wait until the agent has cancelled tasks, and close all connections."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=_CANCEL_SECONDS)
        if self._met is not None:
            await self._met.aclose()
        await self._transport.aclose()


@dataclass(slots=True)
class Thread:
    """The place of the next message: the agent's context and its task that waits for input, empty if there are none.

    `steps` are the keys of all earlier messages of the agent, which a task repeats.
    """

    context_id: str = ""
    task_id: str = ""
    steps: set[str] = field(default_factory=set)


_CONTENTS = ("text", "data", "url", "raw")
_OLD_KINDS = ("text", "data", "file")


def parts_of(value: Any) -> list[dict[str, Any]]:
    """Return the parts of a message: a text, parts in the form of protocol 1.0 or 0.3, or other JSON as data.

    Raises TargetError for null, because there is nothing to send.
    """
    if value is None:
        raise TargetError("there is nothing to send: the message is null", kind="request", retryable=False)
    if isinstance(value, str):
        return [{"text": value}]
    if isinstance(value, list) and value and all(isinstance(part, str) or _is_part(part) for part in value):
        return [{"text": part} if isinstance(part, str) else _part(part) for part in value]
    return [{"data": value}]


def _is_part(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return value.get("kind") in _OLD_KINDS or sum(name in value for name in _CONTENTS) == 1


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part in the form of protocol 1.0."""
    if "kind" not in part:
        return part
    file = part.get("file") or {}
    renamed = {"url": "uri", "raw": "bytes", "filename": "name", "mediaType": "mimeType"}
    fields = {new: file[old] for new, old in renamed.items() if old in file}
    return {**{name: part[name] for name in ("text", "data", "metadata") if name in part}, **fields}
