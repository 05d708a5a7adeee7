"""Messages to an A2A agent, and its answers (messages and tasks) as outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast
from uuid import uuid4

from a2a.types import (
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
from google.protobuf.json_format import MessageToDict, ParseDict

from fepflow.calls.base import TargetResponse
from fepflow.calls.json_rpc import malformed
from fepflow.calls.steps import is_number
from fepflow.errors import TargetError
from fepflow.security.redaction import excerpt, redact_json

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

_SHOWN = 500


def send_request(request: Any, context_id: str, task_id: str, traceparent: str | None) -> SendMessageRequest:
    """Return a user's message with `{parts: […]}`. Raises TargetError if they do not fit the protocol."""
    metadata = {"traceparent": traceparent} if traceparent else {}
    fields = {**request, "messageId": str(uuid4()), "role": "ROLE_USER", "metadata": metadata}
    try:
        message = ParseDict(fields, Message())
        message.context_id, message.task_id = context_id, task_id
        return SendMessageRequest(message=message)
    except Exception as error:  # protobuf's errors for invalid Unicode, NaN and unknown fields have no common class
        why = excerpt(str(error), frozenset(), _SHOWN)
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
        return cast("dict[str, Any]", redact_json(known, secrets))

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
        words = "it does not say why" if reason is None else excerpt(str(reason), secrets, _SHOWN)
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
