"""The public names of the pytest plugin, loaded on first use: `evaluate`, and the warning of an open verdict.

from fepflow.pytest import evaluate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fepflow.pytest.decorator import InconclusiveWarning as InconclusiveWarning
    from fepflow.pytest.decorator import evaluate as evaluate

__all__ = ["InconclusiveWarning", "evaluate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fepflow.pytest' has no attribute {name!r}")
    return getattr(import_module("fepflow.pytest.decorator"), name)
