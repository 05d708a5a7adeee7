"""Agents of which one step goes wrong."""

from __future__ import annotations

BAD = 'if request["params"]["input"] != "bad":\n        return answer(request, done("fine"))\n    '


def at_bad(body: str) -> str:
    """An agent that does this at a step whose input is `bad`."""
    return f"def step(request):\n    {BAD}{body}\n"
