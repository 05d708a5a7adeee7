"""Properties that hold for whatever Hypothesis thinks of: for some examples in a test, for many in the battery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

EXAMPLES = 50
IN_BATTERY = 40
"""Times as many."""


def holds_for(*strategies: SearchStrategy[Any], examples: int = EXAMPLES) -> Callable[[Callable[..., None]], Any]:
    """Decorator: make a function of values that the strategies draw a test; it may take as long as it likes."""

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("times", [1 / 3, pytest.param(IN_BATTERY, marks=pytest.mark.battery)])
        def test(times: float) -> None:
            settings(max_examples=round(examples * times))(given(*strategies)(check))()

        test.__name__, test.__qualname__ = check.__name__, check.__qualname__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return decorate


def value_or_error(work: Callable[[], T], error: type[E]) -> T | E:
    """What the work returns, or the error that it may raise; any other one is raised."""
    try:
        return work()
    except error as raised:
        return raised
