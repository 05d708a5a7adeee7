"""Conversations in outputs, turn by turn, for display."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

_ENDINGS = {
    "reached": "the user reached the goal",
    "given_up": "the user gave up",
    "max_turns": "the user had no turns left",
}


class Exchange(NamedTuple):
    """A turn: the user's message, and the step that answered it, or None."""

    message: Any
    step: Mapping[str, Any] | None


def exchanges(value: Any) -> list[Exchange]:
    """Return the turns of a conversation; empty for any other output, which may look similar."""
    steps, messages = (value.get(name) if isinstance(value, dict) else None for name in ("steps", "messages"))
    if not isinstance(steps, list) or not isinstance(messages, list):
        return []
    if not all(isinstance(step, dict) and "public_output" in step for step in steps):
        return []
    contents = [
        message.get("content") for message in messages if isinstance(message, dict) and message.get("role") == "user"
    ]
    if not 0 <= len(contents) - len(steps) <= 1:
        return []
    return [Exchange(content, step) for content, step in zip_longest(contents, steps)]


def ending(metadata: Mapping[str, Any] | None) -> str | None:
    """Return in words how a simulated user ended the conversation, and why, or None."""
    user = (metadata or {}).get("user")
    words = _ENDINGS.get(str(user.get("ended"))) if isinstance(user, dict) else None
    if words is None or not isinstance(user, dict):
        return None
    return f"{words}: {user['reason']}" if isinstance(user.get("reason"), str) and user["reason"] else words
