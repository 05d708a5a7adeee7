"""References inside of a JSON Schema."""

from __future__ import annotations

from typing import Any


def referred(root: Any, reference: str) -> Any:
    """What `#/$defs/name` refers to in the schema `root`; None where nothing is."""
    for step in reference.removeprefix("#/").split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root
