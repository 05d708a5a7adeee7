"""The same answer in the shapes of three families of providers: OpenAI, Anthropic, Ollama."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

StopReason = Literal["done", "cut_off", "refused", "filtered"]

_OPENAI = {"done": "stop", "cut_off": "length", "refused": "stop", "filtered": "content_filter"}
_ANTHROPIC = {"done": "end_turn", "cut_off": "max_tokens", "refused": "refusal", "filtered": "refusal"}
_OLLAMA = {"done": "stop", "cut_off": "length", "refused": "stop", "filtered": "stop"}


@dataclass(frozen=True)
class FakeReply:
    """A simulated response; `usage` is prompt and completion tokens, None if it is not reported."""

    model: str
    text: str
    stop_reason: StopReason = "done"
    usage: tuple[int, int] | None = None


def openai_chat(reply: FakeReply) -> dict[str, Any]:
    """An answer of `POST /v1/chat/completions`."""
    refused = reply.stop_reason == "refused"
    message = {"role": "assistant", "content": None if refused else reply.text}
    if refused:
        message["refusal"] = reply.text
    body: dict[str, Any] = {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _OPENAI[reply.stop_reason]}],
    }
    if reply.usage:
        prompt_tokens, completion_tokens = reply.usage
        body["usage"] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    return body


def openai_embeddings(model: str, vectors: list[tuple[int, list[float]]], tokens: int | None) -> dict[str, Any]:
    """An answer of `POST /v1/embeddings`; each vector comes with its index."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
    body: dict[str, Any] = {"object": "list", "model": model, "data": data}
    if tokens is not None:
        body["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return body


def anthropic_messages(reply: FakeReply, tool: str | None) -> dict[str, Any]:
    """An answer of `POST /v1/messages`; with a tool that must be used, an object is that tool's input."""
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    stop_reason = _ANTHROPIC[reply.stop_reason]
    given = _as_object(reply.text)
    if tool is not None and reply.stop_reason == "done" and given is not None:
        content = [{"type": "tool_use", "id": "toolu_stand_in", "name": tool, "input": given}]
        stop_reason = "tool_use"
    body: dict[str, Any] = {
        "id": "msg_stand_in",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }
    if reply.usage:
        body["usage"] = {"input_tokens": reply.usage[0], "output_tokens": reply.usage[1]}
    return body


def ollama_chat(reply: FakeReply) -> dict[str, Any]:
    """An answer of `POST /api/chat`."""
    body: dict[str, Any] = {
        "model": reply.model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": reply.text},
        "done": True,
        "done_reason": _OLLAMA[reply.stop_reason],
    }
    if reply.usage:
        body["prompt_eval_count"], body["eval_count"] = reply.usage
    return body


def ollama_embeddings(model: str, vectors: list[list[float]], tokens: int | None) -> dict[str, Any]:
    """An answer of `POST /api/embed`, whose vectors stand in the order of the texts."""
    body: dict[str, Any] = {"model": model, "embeddings": vectors}
    return body if tokens is None else {**body, "prompt_eval_count": tokens}


def _as_object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else None
