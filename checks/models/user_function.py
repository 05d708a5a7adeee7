"""Functions of the user's that reach a model, sync or async."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from fepflow.calls.thread_pool import OTHERS_CALLS


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; one that is not async runs in a thread, many at a time."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # an object's method may be async
        return await function(*arguments)
    answer = await OTHERS_CALLS.run(partial(function, *arguments))
    return await answer if isawaitable(answer) else answer
