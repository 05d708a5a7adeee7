"""The check `custom_function`: a Python function decides."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from fepflow.checks.base import BaseCheck, PathText
from fepflow.checks.explanation import ResolvedArguments, redacted, without_reason


class AwaitableResults(dict[str, Any]):
    """The results of a direct call, which may be awaited."""

    def __await__(self) -> Generator[None, None, Self]:
        """Return the results, without waiting."""
        yield from ()
        return self


class CustomFunctionCheck(BaseCheck):
    """Call a Python function that judges the output. Results: the returned dict, usually with `passed: bool`.

    Only Python code can pass the function; a text is never executed. The function may be sync or async. A sync function
    runs in a thread, one call at a time, and times out after a minute. You can await a direct call of the check in both
    cases.
    """

    check_type: ClassVar[str] = "custom_function"

    validation_function: SkipJsonSchema[Callable[..., Any]] = Field(
        description="Sync or async function that returns the results."
    )
    function_args: dict[str, Any] | PathText = Field(
        default={}, description="Keyword arguments of the function, which may contain paths."
    )

    @field_validator("validation_function", mode="before")
    @classmethod
    def _is_function(cls, function: Any) -> Any:
        if not callable(function):
            raise ValueError("must be a Python function, given from code; a text is never run")
        return function

    def __call__(self) -> dict[str, Any]:
        """Call it; an async function's results are still to come."""
        answer = self.validation_function(**self.function_args)  # type: ignore[arg-type]  # paths are resolved
        return AwaitableResults(answer) if isinstance(answer, dict) else answer

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if len(results) > 1:
            return None
        name, arguments = resolved.get("validation_function") or cls.check_type, resolved.get("function_args") or {}
        return without_reason(name, redacted(arguments))
