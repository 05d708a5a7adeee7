"""Outputs of a function that is called with test cases: its return values and exceptions."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from inspect import isawaitable, signature
from pathlib import Path
from time import perf_counter
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.protocol.test_case import Output, TestCase

CONCURRENCY = 16
"""Calls of an async function that are under way at once."""

CASE_PARAMETER = "test_case"
"""Name of the parameter of a function that gets the whole test case."""


async def outputs_of(
    function: Callable[..., Any], cases: Sequence[TestCase], repeats: int
) -> list[tuple[TestCase, Output]]:
    """Call the function for each repeat of each case, and return the cases with their outputs.

    It gets the input, or the test case if it has a parameter `test_case`. An exception becomes a failed output. Calls
    of an async function run side by side; those of a sync one run one after another, in this thread.
    """
    wants_case = _wants_case(function)
    places = asyncio.Semaphore(CONCURRENCY)

    async def output_of_call(case: TestCase) -> Output:
        async with places:
            started = perf_counter()
            try:
                # A function that changes its input would change it for the next repeat, and in the result.
                answer = function(**{CASE_PARAMETER: case}) if wants_case else function(as_it_is_now(case.input))
                return output_of(await answer if isawaitable(answer) else answer, started)
            except Exception as error:
                return failed_output(error, described(error, type(error).__name__), started)

    units = [case for case in cases for _ in range(repeats)]
    return list(zip(units, await asyncio.gather(*map(output_of_call, units)), strict=True))


def _wants_case(function: Callable[..., Any]) -> bool:
    try:
        return CASE_PARAMETER in signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False


def require_count(value: Any, noun: str, path: str) -> int:
    """Return a whole number of at least 1. Raises InputError for other values."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(Problem(f"{value!r} is not a number of {noun}", path=path, advice="give 1 or more"))
    return value


def require_repeats(repeats: Any, *, calls: bool) -> int:
    """Return the number of repeats. Raises InputError for none, and for several of existing outputs."""
    require_count(repeats, "repeats", "repeats")
    if repeats > 1 and not calls:
        advice = "give the function that makes them, in place of outputs"
        raise InputError(Problem("outputs that are there cannot be repeated", path="repeats", advice=advice))
    return int(repeats)


def output_of(value: Any, started: float) -> Output:
    """Return a function's return value as an output, with its duration."""
    return value if isinstance(value, Output) else Output(value=as_it_is_now(value), metadata=_latency(started))


def failed_output(error: BaseException, message: str, started: float) -> Output:
    """Return the output of a call that raised; `message` describes the exception."""
    cause = {
        "type": "timeout_error" if isinstance(error, TimeoutError) else "unknown_error",
        "kind": "exception",
        "message": message,
        "recoverable": False,
    }
    return Output(value=None, metadata={"error": cause, **_latency(started)})


def described(error: BaseException, name: str) -> str:
    """Return an exception on one line: its name, its message, and the user's line that raised it."""
    return f"{name}: {one_line(str(error))}{_location(error)}"


def one_line(text: str) -> str:
    """Return a text in one line."""
    return " ".join(text.split()) or "no message"


def as_it_is_now(value: Any) -> Any:
    """Copy a value that a later call might change: fixtures and returned lists may be shared."""
    if not isinstance(value, list | dict):
        return value
    try:
        return deepcopy(value)
    except Exception:  # an object inside that cannot be copied
        return value


def _location(error: BaseException) -> str:
    """Return the line that raised it: the innermost one outside of fepflow and installed packages."""
    ours = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(ours)]
    own = [frame for frame in others if "site-packages" not in frame.filename] or others
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _latency(started: float) -> dict[str, Any]:
    return {"latency_ms": round((perf_counter() - started) * 1000, 1)}
