"""The public name of the pytest plugin, `evaluate`, loaded on first use.

from fepflow.pytest import evaluate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fepflow.pytest.decorator import evaluate as evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fepflow.pytest' has no attribute {name!r}")
    return getattr(import_module("fepflow.pytest.decorator"), name)
