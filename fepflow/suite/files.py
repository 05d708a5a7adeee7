"""The files that a suite names, and where they may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fepflow.documents.loader import reason


def resolve_inside(loaded_folder: Path, path: str, roots: Sequence[Path]) -> Path:
    """`path` as a suite in `loaded_folder` names it, links resolved; raises ValueError when it leads elsewhere.

    A suite may read below its own folder and below `roots` (the operator's FEPFLOW_DATA_ROOTS).
    """
    folder = loaded_folder.resolve()
    try:
        resolved = (folder / path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ValueError(f"is no path that can be followed: {reason(error)}") from None
    if not any(resolved.is_relative_to(root) for root in (folder, *roots)):
        raise ValueError("leads out of the suite's folder; move the file, or list its folder in FEPFLOW_DATA_ROOTS")
    return resolved
