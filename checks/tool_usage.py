"""`tool_usage`: an agent called its tools as it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StrictBool, ValidationInfo, model_validator

from fepflow.checks.base import RESOLVED, BaseCheck, JSONPath, PathText
from fepflow.checks.core.sentences import MAX_PART, ResolvedArguments, shown
from fepflow.json.values import json_equal, parse
from fepflow.protocol.tool_calls import tool_arguments, tool_name
from fepflow.text import cut, printable

_MOST_NAMES = 12
_MOST_ALIKE = 3
"""Tools, and calls with their arguments, in a sentence."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    name: str
    arguments: dict[str, Any]


Count = Annotated[int, Field(ge=0, strict=True)]
# A path such as $.output.value.calls[*] finds a list, or the one call that there is.
Calls = Annotated[list[dict[str, Any]], BeforeValidator(lambda calls: [calls] if isinstance(calls, dict) else calls)]


class ToolUsageCheck(BaseCheck):
    """Test which tools an agent called. Results: `{passed: bool, count: int, missing: list}`.

    A call counts if it has the `name` and all of the `arguments`, each with exactly that value; it may have more
    arguments. There must be `min_count` to `max_count` such calls; without both, at least one. `order` names tools
    that must be called in this order, with any calls between them. `missing` lists the tools of `order` that were
    not. `calls: null`
    counts as no calls. If a call was required, the check fails; if calls were forbidden, it is an error, because the
    agent may not report calls at all. An assistant's message in the form of chat APIs (`role: assistant`) does report
    them: without `tool_calls`, or with null, it made none.
    """

    check_type: ClassVar[str] = "tool_usage"
    check_tool_calls: ClassVar[frozenset[str]] = frozenset({"calls"})

    calls: Calls | PathText | None = Field(
        description="What was called: a list of `{name, arguments}`. "
        "`{tool, args}` is understood, too, as are `{function: {name, arguments}}` (OpenAI), `{type: tool_use, name, "
        "input}` (Anthropic), and arguments that are JSON text."
    )
    name: str | JSONPath | None = Field(default=None, description="Tool whose calls count; default: any.")
    arguments: dict[str, Any] | PathText | None = Field(
        default=None, description="Arguments that a call must have to count."
    )
    min_count: Count | PathText | None = Field(
        default=None, description="Fewest calls; default: 1, or 0 with `max_count`."
    )
    max_count: Count | PathText | None = Field(default=None, description="Most calls.")
    order: Annotated[list[str], Field(min_length=1)] | PathText | None = Field(
        default=None, description="Names of tools, in the order of their calls."
    )
    negate: StrictBool | PathText = Field(default=False, description="Pass when it is not so.")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> ToolUsageCheck:
        if isinstance(self.min_count, int) and isinstance(self.max_count, int) and self.min_count > self.max_count:
            raise ValueError("min_count must be at most max_count")
        if info.context is RESOLVED and self.calls is None and self._results([])["passed"]:
            raise ValueError("calls: must be a list: null does not tell that no tool was called")
        if isinstance(self.calls, list) and info.context is RESOLVED:
            _read(self.calls)
        return self

    def __call__(self) -> dict[str, Any]:
        """Count, and follow the order."""
        return self._results(_read(self.calls or []))

    def _results(self, calls: list[ToolCall]) -> dict[str, Any]:
        count = sum(self._counts(call) for call in calls)
        least = self.min_count if self.min_count is not None else 1 if self.max_count is None else 0
        enough = count >= least and (self.max_count is None or count <= self.max_count)  # type: ignore[operator]  # resolved: no path is left
        missing = _missing(list(self.order or ()), calls)
        return {"passed": (enough and not missing) is not self.negate, "count": count, "missing": missing}

    def _counts(self, call: ToolCall) -> bool:
        wanted: dict[str, Any] = self.arguments or {}  # type: ignore[assignment]  # resolved: no path is left
        has_name = self.name is None or call.name == self.name
        return has_name and all(
            name in call.arguments and json_equal(call.arguments[name], value) for name, value in wanted.items()
        )

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        calls, order = _read(resolved["calls"] or []), resolved.get("order") or []
        names = [call.name for call in calls]
        if resolved.get("negate"):
            return f"called {_named(names)}, which is not wanted"
        if results["missing"]:
            in_order = ", in this order" if set(names).issuperset(order) else ""
            return f"called {_named(names)}; wanted {_named(order)}{in_order}"
        name, arguments = resolved.get("name"), resolved.get("arguments")
        least, most = resolved.get("min_count") or 1, resolved.get("max_count")
        wanted = f"{_named([name]) if name else 'any tool'}{_with(arguments)}"
        if most is not None and results["count"] > most:
            return (
                f"called {wanted} {_times(results['count'])}; wanted {f'at most {_times(most)}' if most else 'never'}"
            )
        if results["count"]:
            return f"called {wanted} {_times(results['count'])}; wanted at least {_times(least)}"
        alike = [f"{_named([call.name])}{_with(call.arguments)}" for call in calls if call.name == name]
        called = ", ".join(alike[:_MOST_ALIKE]) if arguments and alike else _named(names)
        return f"called {called}; wanted {wanted}{f' at least {_times(least)}' if least > 1 else ''}"


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(printable(cut(name, MAX_PART)) for name in names[:_MOST_NAMES]) + more or "nothing"


def _with(arguments: dict[str, Any] | None) -> str:
    return f" with {shown(arguments)}" if arguments else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _read(calls: Any) -> list[ToolCall]:
    return [_read_call(call, f"calls[{index}]") for index, call in enumerate(calls)]


def _read_call(call: dict[str, Any], location: str) -> ToolCall:
    """Read a call; raises ValueError for what is none."""
    name = tool_name(call)
    if not isinstance(name, str):
        raise ValueError(f"{location} must have a name, a text")
    arguments = tool_arguments(call)
    if arguments == "":  # a call without any, as some models write it
        arguments = None
    if isinstance(arguments, str):
        try:
            arguments = parse(arguments)
        except ValueError as error:
            raise ValueError(f"{location}.arguments is not valid JSON: {error}") from None
    if not isinstance(arguments, dict | None):
        raise ValueError(f"{location}.arguments must be an object")
    return ToolCall(name, arguments or {})


def _missing(order: list[str], calls: list[ToolCall]) -> list[str]:
    for call in calls:
        if order and call.name == order[0]:
            order = order[1:]
    return order
