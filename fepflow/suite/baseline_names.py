"""How baselines are called: by names that no run's id can be."""

from __future__ import annotations

import re

PREVIOUS = "previous"
"""The baseline that is the run before."""

_RESERVED = (PREVIOUS, "latest")


def is_name(text: str) -> bool:
    """Whether a baseline can have this name."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,99}", text) is not None
    return plain and text not in _RESERVED and not re.fullmatch(r"[0-9a-f]{4,64}", text)
