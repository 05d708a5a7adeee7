"""Places in a document."""

from __future__ import annotations

DocumentPath = tuple[str | int, ...]
"""The keys and indices from the top of a document down to a place in it."""


def dotted(path: DocumentPath) -> str:
    """`('checks', 0, 'type')` as `checks[0].type`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
