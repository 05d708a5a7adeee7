"""Conversations as outputs hold them, turn by turn, for those who show them."""

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
    """A turn: what the user said, and the step that answered it, None if none did."""

    said: Any
    step: Mapping[str, Any] | None


def exchanges(value: Any) -> list[Exchange]:
    """Return the turns of a conversation; none of another output, which may look like one in part."""
    steps, messages = (value.get(name) if isinstance(value, dict) else None for name in ("steps", "messages"))
    if not isinstance(steps, list) or not isinstance(messages, list):
        return []
    if not all(isinstance(step, dict) and "public_output" in step for step in steps):
        return []
    said = [
        message.get("content") for message in messages if isinstance(message, dict) and message.get("role") == "user"
    ]
    if not 0 <= len(said) - len(steps) <= 1:
        return []
    return [Exchange(text, step) for text, step in zip_longest(said, steps)]


def ending(metadata: Mapping[str, Any] | None) -> str | None:
    """Return in words how a simulated user ended the conversation, and why; None if none did."""
    user = (metadata or {}).get("user")
    words = _ENDINGS.get(str(user.get("ended"))) if isinstance(user, dict) else None
    if words is None or not isinstance(user, dict):
        return None
    return f"{words}: {user['reason']}" if isinstance(user.get("reason"), str) and user["reason"] else words
