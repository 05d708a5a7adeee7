"""An A2A agent as its card describes it: the SDK's client, messages to the agent, its answers, and its errors."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import (
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError
from google.protobuf.json_format import Error as ProtoJsonError
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import ValidationError

from fepflow.calls.a2a.target import AgentTransport, headers_withheld
from fepflow.calls.base import TargetResponse, is_number
from fepflow.calls.responses import A2A, malformed, misfit
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.security.addresses import is_loopback
from fepflow.security.redaction import excerpt, redact_json
from fepflow.suite.target import A2aTarget

_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]
_MAX_REDIRECTS = 5
_SHOWN = 300
_STATUS = {
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
}
"""HTTP statuses with the meaning of gRPC statuses."""


class Agent:
    """The agent behind a card: its `client`, and the context of its calls.

    Raises TargetError for an interface that must not be called, ValueError for a card without a known interface.
    """

    def __init__(self, card: AgentCard, http: httpx.AsyncClient, transport: AgentTransport, config: A2aTarget) -> None:
        self.described = {"name": card.name, "version": card.version}
        self._transport = transport
        self._http = http
        self._metadata: dict[str, str] = {}
        """The headers of the suite, for calls over gRPC. Over HTTP the transport adds them."""
        self._withheld = ""
        streams = card.capabilities.streaming and config.stream is not False
        self._max_bytes = config.max_bytes
        factory = ClientFactory(
            ClientConfig(
                streaming=streams,
                polling=not streams,
                httpx_client=http,
                grpc_channel_factory=self._channel,
                supported_protocol_bindings=list(_BINDINGS),
            )
        )
        self.client: Client = factory.create(card)

    def _channel(self, address: str) -> grpc.aio.Channel:
        """Open a channel to the address of a card's interface for gRPC: `host:port`, with a scheme or without."""
        url = httpx.URL(address if "://" in address else f"//{address}")
        hosts = self._transport.hosts
        is_plain = hosts.is_plain(url)
        place = url.copy_with(scheme="http" if is_plain else "https", path="/", query=None)
        if hosts.gets_headers(place):
            self._metadata = {name.lower(): value for name, value in self._transport.headers.items()}
        elif self._transport.headers:
            self._withheld = headers_withheld(place)
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.enable_http_proxy", int(not is_loopback(place.host))),
            ("grpc.enable_retries", 0),  # each attempt is recorded, so the library must not retry
            ("grpc.primary_user_agent", "fepflow"),
        ]
        port = place.port or (80 if is_plain else 443)
        name = f"[{place.host}]:{port}" if ":" in place.host else f"{place.host}:{port}"
        if is_plain:
            return grpc.aio.insecure_channel(name, options)
        return grpc.aio.secure_channel(name, grpc.ssl_channel_credentials(_trusted()), options)

    def context(self, traceparent: str | None) -> ClientCallContext:
        """Return the context of a call, with its trace as a header."""
        traced = {"traceparent": traceparent} if traceparent else {}
        return ClientCallContext(service_parameters={**self._metadata, **traced})

    @contextmanager
    def errors(self, secrets: frozenset[str]) -> Iterator[None]:
        """Turn all exceptions of the SDK into TargetErrors."""
        try:
            yield
        except TargetError:
            raise
        except Exception as error:
            target_error = _target_error(error, secrets)
            if target_error.status in (401, 403) and self._withheld:
                target_error.args = (f"{target_error}; {self._withheld}",)
            raise target_error from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self.client.close()
        await self._http.aclose()


async def meet(transport: AgentTransport, config: A2aTarget, secrets: frozenset[str]) -> Agent:
    """Read the card, and return the agent. Raises TargetError."""
    http = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=True, max_redirects=_MAX_REDIRECTS)
    address = transport.card
    base = f"{address.scheme}://{address.netloc.decode('ascii')}"
    try:
        card = await A2ACardResolver(http, base, address.raw_path.decode("ascii")).get_agent_card()
    except TargetError as error:
        error.args = (f"the agent's card: {error}",)
        raise
    except Exception as error:
        raise _card_error(error, secrets) from None
    try:
        return Agent(card, http, transport, config)
    except TargetError:
        raise
    except Exception as error:
        raise _card_error(error, secrets) from None


def _card_error(error: Exception, secrets: frozenset[str]) -> TargetError:
    if isinstance(error, httpx.InvalidURL):
        return _unreadable(error, secrets)
    if isinstance(error.__cause__, httpx.TooManyRedirects):
        return _redirects()
    if isinstance(error, AgentCardResolutionError | ProtoJsonError):
        why = error.__cause__ or error  # without the address that the SDK puts before it
        return malformed(f"the agent's card is not valid: {excerpt(str(why), secrets, _SHOWN)}")
    if isinstance(error, ValueError) and str(error).startswith("no "):
        return TargetError(
            "the agent's card names no supported interface: JSONRPC, HTTP+JSON or GRPC, of protocol 0.3 or 1.0",
            kind="incompatible",
            retryable=False,
        )
    return malformed(
        f"the agent's card cannot be read ({type(error).__name__}): {excerpt(str(error), secrets, _SHOWN)}"
    )


def _unreadable(error: httpx.InvalidURL, secrets: frozenset[str]) -> TargetError:
    return malformed(f"the agent's card names an address that cannot be read: {excerpt(str(error), secrets, _SHOWN)}")


def _redirects() -> TargetError:
    return TargetError(f"more than {_MAX_REDIRECTS} redirects", kind="redirect", retryable=False)


def _target_error(error: Exception, secrets: frozenset[str]) -> TargetError:
    words = excerpt(str(error), secrets, _SHOWN)
    cause = error.__cause__
    if isinstance(cause, grpc.aio.AioRpcError):
        return _grpc_error(cause, words, secrets)
    if isinstance(cause, httpx.TooManyRedirects):
        return _redirects()
    if isinstance(error, httpx.InvalidURL):  # httpx reads it with the first call
        return _unreadable(error, secrets)
    if isinstance(error, A2AClientTimeoutError):
        return TargetTimeoutError("the agent did not answer in time")
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        return TargetError(f"the agent answered with an error: {words}", kind="agent_error", retryable=False)
    if isinstance(error, ValidationError):
        return misfit("answer", error, secrets)
    return malformed(f"the answer cannot be read ({type(error).__name__}): {words}")


def _grpc_error(error: grpc.aio.AioRpcError, words: str, secrets: frozenset[str]) -> TargetError:
    code, details = error.code(), excerpt(error.details() or "", secrets, _SHOWN)
    message = f"gRPC {code.name}: {details or words}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TargetTimeoutError(message)
    if "larger than max" in details:
        return TargetError(f"{message} (target.a2a.max_bytes)", kind="too_large", retryable=False)
    status = _STATUS.get(code)
    if status is None:
        return TargetError(message, kind="agent_error", retryable=False)
    advice = f": {A2A.advice(status)}" if status < 429 else ""
    return TargetError(f"{message}{advice}", kind="http_status", retryable=status >= 429, status=status)


def _trusted() -> bytes | None:
    """Return the certificates in SSL_CERT_FILE, or None for those of the library."""
    path = os.environ.get("SSL_CERT_FILE")
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        message = f"SSL_CERT_FILE cannot be read: {error.strerror}"
        raise TargetError(message, kind="request", retryable=False) from None


# --- messages and answers --------------------------------------------------------------------------------------------


_FAILED = {
    "failed": "failed",
    "rejected": "was rejected",
    "canceled": "was canceled",
    "auth-required": "needs an authorization (auth-required)",
}
"""States of a task without an answer, in words. In the last one the task waits; the others are final."""
_OVER = {"completed", "input-required", *_FAILED}
ENDED = _OVER - {"input-required", "auth-required"}
"""Final states of a task."""

MAX_WHOLE = 2**53
"""Largest whole number up to which floats hold every whole number."""

_SHOWN_WORDS = 500


def send_request(request: Any, context_id: str, task_id: str, traceparent: str | None) -> SendMessageRequest:
    """Return a user's message with `{parts: […]}`. Raises TargetError if they do not fit the protocol."""
    metadata = {"traceparent": traceparent} if traceparent else {}
    fields = {**request, "messageId": str(uuid4()), "role": "ROLE_USER", "metadata": metadata}
    try:
        message = ParseDict(fields, Message())
        message.context_id, message.task_id = context_id, task_id
        return SendMessageRequest(message=message)
    except Exception as error:  # protobuf's errors for invalid Unicode, NaN and unknown fields have no common class
        why = excerpt(str(error), frozenset(), _SHOWN_WORDS)
        message_text = f"the request for this test case is not an A2A message: {why}"
        raise TargetError(message_text, kind="request", retryable=False) from None


class Exchange:
    """The answer to one message as it arrives: a message, or a task that runs until it is over.

    `known` are the keys of earlier steps. Raises TargetError `malformed` for an event that belongs to another task, or
    has no content.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self.task = Task()
        self._message: Message | None = None
        self.steps: dict[str, dict[str, Any]] = {}
        """Intermediate messages of the agent, in ECP's form; `status` is null if unknown."""

    @property
    def state(self) -> str:
        """The state of the task, for example `working`; `completed` for a message."""
        if self._message is not None:
            return "completed"
        return TaskState.Name(self.task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")

    @property
    def context_id(self) -> str:
        """The context that the agent keeps for a conversation; empty if it names none."""
        return self._message.context_id if self._message is not None else self.task.context_id

    @property
    def is_over(self) -> bool:
        """True once the agent will send nothing more without another message."""
        return self.state in _OVER

    @property
    def is_running(self) -> bool:
        """True while there is a task that is not in a final state."""
        return bool(self.task.id) and self.state not in ENDED

    def take(self, event: StreamResponse) -> None:
        """Add an event."""
        match event.WhichOneof("payload"):
            case "message":
                self._message = event.message
            case "task":
                self.take_task(event.task)
            case "status_update":
                self._take_status(event.status_update)
            case "artifact_update":
                self._take_artifact(event.artifact_update)
            case _:
                raise malformed("the answer has neither a message, nor a task, nor an update of one")

    def take_task(self, task: Task) -> None:
        """Replace the task by its present state."""
        if not task.id:
            raise malformed("the answer is a task without an id")
        self._belongs(task.id, task.context_id)
        self.task.CopyFrom(task)
        for message in task.history:
            self._add_step(None, message)
        self._check_state(task.status)

    def _take_status(self, event: TaskStatusUpdateEvent) -> None:
        self._belongs(event.task_id, event.context_id)
        self.task.status.CopyFrom(event.status)
        self.task.metadata.MergeFrom(event.metadata)
        self._check_state(event.status)

    def _take_artifact(self, event: TaskArtifactUpdateEvent) -> None:
        self._belongs(event.task_id, event.context_id)
        artifact = event.artifact
        known = next((known for known in self.task.artifacts if known.artifact_id == artifact.artifact_id), None)
        if event.append and known is None:
            raise malformed("the answer continues an artifact that was never started")
        if known is None:
            self.task.artifacts.append(artifact)
        elif event.append:
            known.parts.extend(artifact.parts)
        else:
            known.CopyFrom(artifact)

    def _belongs(self, task_id: str, context_id: str) -> None:
        """Keep the task of the first event. Raises TargetError for an event of another task."""
        if self.task.id and task_id != self.task.id:
            raise malformed("the answer is about another task than the one that was started")
        self.task.id, self.task.context_id = task_id, context_id or self.task.context_id

    def _check_state(self, status: TaskStatus) -> None:
        if self.state == "unspecified":
            raise malformed("the answer has a task in an unknown state")
        if status.HasField("message"):
            self._add_step(self.state, status.message)

    def _add_step(self, state: str | None, message: Message) -> None:
        """Add a message of the agent once: it comes again as a status, in the history, and with each poll."""
        if message.role == Role.ROLE_USER:
            return
        output, _ = value_of([message.parts], "\n")
        key = message.message_id or str(output)
        if key not in self._known:
            step = self.steps.setdefault(key, {"status": state, "public_output": output})
            step["status"] = step["status"] or state

    def response(self, agent: dict[str, str], secrets: frozenset[str]) -> TargetResponse:
        """Return the output without `secrets`. Raises TargetError if the task failed, or has no content."""
        if self.state in _FAILED:
            raise self._failure(secrets)
        value, metadata = self._answer()
        if value is None:
            what = "the agent's message is empty" if self._message else f"the agent's task is {self.state}"
            message = f"{what}, and there is no text, data or file that could be the output"
            raise TargetError(message, kind="missing_output", retryable=False)
        known = {**self.metadata(agent, secrets), **redact_json(metadata, secrets)}
        return TargetResponse(redact_json(value, secrets), known)

    def metadata(self, agent: dict[str, str], secrets: frozenset[str]) -> dict[str, Any]:
        """Return the metadata of the output: `state`, ids, and intermediate messages as `steps`."""
        task_id, told = self.task.id, self.task.metadata
        if self._message is not None:
            task_id, told = self._message.task_id, self._message.metadata
        ids = {"task_id": task_id, "context_id": self.context_id}
        steps = {"steps": list(self.steps.values())} if self.steps else {}
        ids = {name: text for name, text in ids.items() if text}
        state = {"state": self.state} if self._message is not None or self.task.id else {}
        known = {**state, "agent": agent, **ids, **steps, **_usage(told)}
        return redact_json(known, secrets)

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        """Return the value and its metadata: of the artifacts, a waiting task's question, or the last message."""
        if self._message is not None:
            return _value_and_parts([self._message.parts], "\n")
        asked = [self.task.status.message.parts] if self.task.status.HasField("message") else []
        artifacts = self.task.artifacts
        if self.state == "input-required" and asked and asked[0]:
            return _value_and_parts(asked, "\n")
        if any(artifact.parts for artifact in artifacts):
            value, metadata = _value_and_parts([artifact.parts for artifact in artifacts], "")
            if len(artifacts) > 1:
                metadata["artifacts"] = [
                    {"artifact_id": artifact.artifact_id, "name": artifact.name, "value": value_of([artifact.parts])[0]}
                    for artifact in artifacts
                ]
            return value, metadata
        words = [message.parts for message in self.task.history if message.role == Role.ROLE_AGENT][-1:]
        return _value_and_parts(asked or words, "\n")

    def _failure(self, secrets: frozenset[str]) -> TargetError:
        reason, _ = value_of([self.task.status.message.parts], "\n")
        words = "it does not say why" if reason is None else excerpt(str(reason), secrets, _SHOWN_WORDS)
        message = f"the agent's task {_FAILED[self.state]}: {words}"
        return TargetError(message, kind="agent_error", retryable=False)


def _value_and_parts(groups: Iterable[Sequence[Part]], separator: str) -> tuple[Any, dict[str, Any]]:
    value, parts = value_of(groups, separator)
    return value, {"parts": parts} if parts else {}


def value_of(groups: Iterable[Sequence[Part]], separator: str = "") -> tuple[Any, list[Any]]:
    """Return the value of groups of parts, and the parts as JSON if the value does not show all of them.

    The value is the text: parts of a group are joined by the separator, groups by line breaks. Without text, it is the
    data of the only part, or a list; files are references. It is None if there is nothing.
    """
    groups = [list(group) for group in groups]
    parts = [part for group in groups for part in group if part.WhichOneof("content")]
    shown = [_shown(part) for part in parts]
    texts = [separator.join(part.text for part in group if part.WhichOneof("content") == "text") for group in groups]
    if text := "\n".join(text for text in texts if text):
        return text, [] if all(part.WhichOneof("content") == "text" for part in parts) else shown
    values = [value for value in shown if value != ""]
    return values[0] if len(values) == 1 else values or None, []


def _shown(part: Part) -> Any:
    """Return a part as JSON: text, data, or a reference to a file with the number of its bytes."""
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return _json(part.data)
        case "url":
            source: dict[str, Any] = {"url": part.url}
        case _:
            source = {"bytes": len(part.raw)}
    described = {"name": part.filename, "media_type": part.media_type}
    return {"file": {**{name: text for name, text in described.items() if text}, **source}}


def _json(message: Any) -> Any:
    """Return a protobuf value as JSON. Protobuf has only floats: whole numbers become integers again."""
    return _with_whole_numbers(MessageToDict(message))


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_WHOLE:
        return int(value)
    if isinstance(value, dict):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    return [_with_whole_numbers(item) for item in value] if isinstance(value, list) else value


def _usage(struct: Any) -> dict[str, Any]:
    """Return the usage in an agent's metadata, under the names that budgets count or common other ones."""
    told = _json(struct)
    inner = told.get("usage")
    usage: dict[str, Any] = inner if isinstance(inner, dict) else {}
    names = {"tokens": ("tokens", "total_tokens"), "usd": ("usd", "cost_usd")}
    result: dict[str, Any] = {"agent_metadata": told} if told else {}
    for name, aliases in names.items():
        numbers = [place[alias] for place in (told, usage) for alias in aliases if alias in place]
        numbers = [number for number in numbers if is_number(number)]
        result |= {name: numbers[0]} if numbers and numbers[0] >= 0 else {}
    return result
