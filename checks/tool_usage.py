"""`tool_usage`: an agent called its tools as it should; calls are compared by the most pairs that match."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, StrictBool, ValidationInfo, ValidatorFunctionWrapHandler, model_validator
from pydantic.functional_validators import WrapValidator

from fepflow.checks.base import RESOLVED, BaseCheck, JSONPath, PathText
from fepflow.checks.explanation import MAX_PART, ResolvedArguments, shown
from fepflow.json.values import json_equal, json_key
from fepflow.protocol.tool_calls import ToolCall, flat_items, read_call, read_calls, tool_arguments
from fepflow.text import cut, printable

Match = Literal["exact", "in_order", "any_order", "subset"]
ArgumentMode = Literal["equal", "subset", "ignore"]


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """An expected call, and how the arguments of a call must agree with its own."""

    call: ToolCall
    arguments: ArgumentMode


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A comparison: indices of missing and of unexpected calls, as far as the way of matching forbids them.

    `score` is from 0 to 1, and 1 only for a match.
    """

    missing: list[int]
    unexpected: list[int]
    score: float


def compare(calls: Sequence[ToolCall], expected: Sequence[ExpectedCall], match: Match) -> Trajectory:
    """Pair expected calls with calls that meet them, as many as possible, and count the rest.

    The score of `exact` is F1, that of `in_order` and `any_order` the share of the expected calls that were made, that
    of `subset` the share of the calls made that were expected.
    """
    masks = _masks(calls, expected)
    in_order = match in ("exact", "in_order")
    pairs = _longest_common(masks, len(expected)) if in_order else _largest_matching(masks, len(expected))
    made = set(pairs.values())
    missing = [] if match == "subset" else [index for index in range(len(expected)) if index not in pairs]
    closed = match in ("exact", "subset")
    unexpected = [index for index in range(len(calls)) if index not in made] if closed else []
    counted = {"exact": len(calls) + len(expected), "subset": len(calls)}.get(match, len(expected))
    score = (2 if match == "exact" else 1) * len(pairs) / counted if counted else 1.0
    return Trajectory(missing, unexpected, score)


def _masks(calls: Sequence[ToolCall], expected: Sequence[ExpectedCall]) -> list[int]:
    """Return the expected calls that each call meets, as bits."""
    wanted: dict[str, list[tuple[int, ArgumentMode, frozenset[Hashable]]]] = {}
    for index, item in enumerate(expected):
        wanted.setdefault(item.call.name, []).append((1 << index, item.arguments, _items(item.call)))
    known: dict[tuple[str, frozenset[Hashable]], int] = {}
    masks = []
    for call in calls:
        items = _items(call) if call.name in wanted else frozenset()
        key = call.name, items
        if key not in known:
            known[key] = sum(bit for bit, mode, own in wanted.get(call.name, ()) if _meets(items, own, mode))
        masks.append(known[key])
    return masks


def _items(call: ToolCall) -> frozenset[Hashable]:
    return frozenset((name, json_key(value)) for name, value in (call.arguments or {}).items())


def _meets(items: frozenset[Hashable], own: frozenset[Hashable], mode: ArgumentMode) -> bool:
    return mode == "ignore" or (items == own if mode == "equal" else own <= items)


def _longest_common(masks: Sequence[int], width: int) -> dict[int, int]:
    """Return the longest pairing in which both sides keep their order: index of expected call to index of call.

    A row of the usual table of lengths is one number: a bit is 0 where the length grows (Crochemore et al., Hyyrö).
    """
    full = (1 << width) - 1
    rows = [full]
    for mask in masks:
        row = rows[-1]
        shared = row & mask
        rows.append(((row + shared) | (row - shared)) & full)
    pairs: dict[int, int] = {}
    column = width
    for index in range(len(masks), 0, -1):
        # The lengths up to this column are the same without the call: it is not needed.
        while column and _length(rows[index], column) == _length(rows[index], column - 1):
            column -= 1
        if column and _length(rows[index - 1], column) < _length(rows[index], column):
            column -= 1
            pairs[column] = index - 1
    return pairs


def _length(row: int, column: int) -> int:
    return column - (row & ((1 << column) - 1)).bit_count()


def _largest_matching(masks: Sequence[int], width: int) -> dict[int, int]:
    """Return the largest pairing in any order: index of expected call to index of call."""
    alike: dict[int, int] = {}
    for index, mask in enumerate(masks):
        alike[mask] = alike.get(mask, 0) | 1 << index
    meeting = [0] * width
    for mask, same in alike.items():
        for expected in _bits(mask):
            meeting[expected] |= same
    return largest_matching(meeting)


def largest_matching(partners: Sequence[int]) -> dict[int, int]:
    """Return the most pairs of an index of `partners` and one of its partners, which are the bits of its number.

    Taking for each index its first free partner is not enough: it may be the only one for another. So a pair is given
    up for two where that can be (augmenting paths, by breadth).
    """
    free = reduce(or_, partners, 0)
    pairs: dict[int, int] = {}
    holder: dict[int, int] = {}
    for start in range(len(partners)):
        reached_from: dict[int, int] = {}
        unseen, waiting = -1, [start]
        while waiting:
            index = waiting.pop(0)
            fresh = partners[index] & unseen
            unseen &= ~fresh
            if fresh & free:
                partner = next(_bits(fresh & free))
                free ^= 1 << partner
                # Each index on the way hands its partner to the one that it was reached from.
                while True:
                    before = pairs.get(index)
                    pairs[index], holder[partner] = partner, index
                    if before is None:
                        break
                    partner, index = before, reached_from[index]
                break
            others = [holder[partner] for partner in _bits(fresh)]
            reached_from.update(dict.fromkeys(others, index))
            waiting += others
    return pairs


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


_MOST_NAMES = 12
_MOST_ALIKE = 3
"""Tools, and calls with their arguments, in a sentence."""


MAX_EXPECTED = 1_000
"""Expected calls of a check."""


class CallList(list[dict[str, Any]]):
    """Calls of all steps. `steps_without` counts steps with null for their calls, which may have made some."""

    steps_without: int = 0


def _flat(value: Any, validate: ValidatorFunctionWrapHandler) -> CallList:
    if not isinstance(value, dict | list):
        return CallList(validate(value))  # it is refused
    items = list(flat_items([value] if isinstance(value, dict) else value))
    is_by_step = isinstance(value, list) and all(isinstance(item, list | None) for item in value)
    calls = CallList(validate([item for item in items if item is not None] if is_by_step else items))
    calls.steps_without = len(items) - len(calls)
    return calls


Count = Annotated[int, Field(ge=0, strict=True)]
# A path such as $.output.value.calls[*] finds a list, or the one call that there is; over steps, a list of lists.
Calls = Annotated[list[dict[str, Any]], WrapValidator(_flat)]
Expected = Annotated[
    list[str | dict[str, Any]],
    BeforeValidator(lambda calls: [calls] if isinstance(calls, dict) else calls),
    Field(max_length=MAX_EXPECTED),
]


class ToolUsageCheck(BaseCheck):
    """Pass if an agent called the right tools. Results: `{passed: bool, count: int, missing: list}`, with `expected`
    also `unexpected: list` and `score: float`.

    A call counts if it has the `name` and all of the `arguments`, each with exactly that value; it may have more
    arguments. There must be `min_count` to `max_count` such calls; without both, at least one. `order` lists tools that
    must be called in this order, with any calls between them. `missing` lists the tools of `order` that were not
    called.

    `expected` lists the calls of a whole trajectory, and `match` says how the agent's calls must agree with them. Each
    call can match only one expected call, and each expected call only one call.

    - `exact`: the same calls in the same order, and no other. `score` is F1 of the longest common sequence.
    - `in_order`: all expected calls, in this order, with any calls between them. `score` is the share of the expected
      calls that were made in order.
    - `any_order`: all expected calls, in any order, and any other calls. `score` is the share of the expected calls
      that were made.
    - `subset`: only expected calls, in any order; some may be left out. `score` is the share of the calls made that
      were expected, and 1 without any call.

    A call matches an expected call if it has the same name, and arguments as `match_arguments` says: `equal` ones, the
    expected ones and perhaps more (`subset`), or any (`ignore`). An expected call without `arguments` is matched by any
    arguments. `missing` and `unexpected` list the calls without a match.

    `calls: null` counts as no calls, and so does null in a step. If a call was required, the check fails. If the check
    would pass only because there are no more calls, it is an error, because the agent may not report calls at all. An
    assistant's message in the form of chat APIs (`role: assistant`) does report them: without `tool_calls`, or with
    null, there were none. If a trace does not have the arguments of a call, comparing them is an error.
    """

    check_type: ClassVar[str] = "tool_usage"
    check_tool_calls: ClassVar[frozenset[str]] = frozenset({"calls"})

    calls: Calls | PathText | None = Field(
        description="Calls of the agent: a list of `{name, arguments}`, or one such list for each step. Also read: "
        "`{tool, args}`, `{function: {name, arguments}}`, `{custom: {name}}` and `{type: function_call}` (OpenAI), "
        "`{type: tool_use, name, input}` (Anthropic), `{method: tools/call, params: {name, arguments}}` (MCP), and "
        "arguments that are JSON text. Other items of a message's content, such as texts, are left out."
    )
    name: str | JSONPath | None = Field(default=None, description="Tool whose calls count; default: any.")
    arguments: dict[str, Any] | PathText | None = Field(
        default=None, description="Arguments that a call must have to count."
    )
    min_count: Count | PathText | None = Field(
        default=None, description="Smallest number of calls; default: 1, or 0 with `max_count` or `expected`."
    )
    max_count: Count | PathText | None = Field(default=None, description="Largest number of calls.")
    order: Annotated[list[str], Field(min_length=1)] | PathText | None = Field(
        default=None, description="Names of tools, in the order of their calls."
    )
    expected: Expected | PathText | None = Field(
        default=None,
        description="Calls that the agent should make: names, or calls in any of the forms of `calls`. An expected "
        "call may have its own `match_arguments`.",
    )
    match: Match | PathText = Field(default="exact", description="How the calls must agree with `expected`.")
    match_arguments: ArgumentMode | PathText = Field(
        default="equal", description="How the arguments of a call must agree with those of an expected call."
    )
    negate: StrictBool | PathText = Field(default=False, description="Pass if the calls do not meet the conditions.")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> ToolUsageCheck:
        if isinstance(self.min_count, int) and isinstance(self.max_count, int) and self.min_count > self.max_count:
            raise ValueError("min_count must be at most max_count")
        self._require_expected(is_resolved=info.context is RESOLVED)
        if info.context is RESOLVED:  # also where arguments that are still paths are validated beforehand
            calls = read_calls(self.calls) if isinstance(self.calls, list) else []
            if not any(isinstance(value, JSONPath) for value in self.__dict__.values()):
                self._require_known(calls)
        return self

    def _require_expected(self, *, is_resolved: bool) -> None:
        if self.expected is None:
            if is_resolved and "expected" in self.model_fields_set:
                raise ValueError("expected: must be a list: null does not tell which calls are expected")
            if unused := sorted({"match", "match_arguments"} & self.model_fields_set):
                raise ValueError(f"{unused[0]}: says how calls agree with `expected`, which is missing")
        elif self.order is not None:
            raise ValueError("order: give `expected` or `order`, not both; `match: in_order` is an order, too")
        if isinstance(self.expected, list):
            _read_expected(self.expected, "equal")

    def _require_known(self, calls: Sequence[ToolCall]) -> None:
        """Raise ValueError if arguments are compared that are not known, or a pass needs calls that are not."""
        if self._leaves_doubt():
            what = "a list" if self.calls is None else "lists in all steps"
            raise ValueError(f"calls: must be {what}: null does not tell that no tool was called")
        expected = _read_expected(self.expected or [], self.match_arguments)
        compared = {item.call.name for item in expected if item.arguments != "ignore"}
        for index, call in enumerate(calls):
            counts = bool(self.arguments) and self.name in (None, call.name)
            if call.arguments is None and (counts or call.name in compared):
                raise ValueError(f"calls[{index}].arguments are not known: {_UNTOLD}")

    def _leaves_doubt(self) -> bool:
        """Return whether the check passes, but would not if calls were made that the agent does not report."""
        is_known = isinstance(self.calls, CallList) and not self.calls.steps_without
        if is_known or not self._results()["passed"]:
            return False
        closed = self.expected is not None and self.match in ("exact", "subset")
        return not self.calls or self.max_count is not None or closed or self.negate is True

    def __call__(self) -> dict[str, Any]:
        """Count, follow the order, and compare with what is expected."""
        return self._results()

    def _results(self) -> dict[str, Any]:
        calls = read_calls(self.calls or [])  # type: ignore[arg-type]  # resolved: no path is left
        count = sum(self._counts(call) for call in calls)
        counts_any = self.max_count is None and (self.expected is None or bool(self.name or self.arguments))
        least = self.min_count if self.min_count is not None else int(counts_any)
        enough = count >= least and (self.max_count is None or count <= self.max_count)  # type: ignore[operator]  # resolved: no path is left
        if self.expected is None:
            missing = _missing(list(self.order or ()), calls)
            return {"passed": (enough and not missing) is not self.negate, "count": count, "missing": missing}
        expected = _read_expected(self.expected, self.match_arguments)
        trajectory = compare(calls, expected, self.match)  # type: ignore[arg-type]  # resolved: no path is left
        matches = not trajectory.missing and not trajectory.unexpected
        return {
            "passed": (enough and matches) is not self.negate,
            "count": count,
            "missing": [expected[index].call.name for index in trajectory.missing],
            "unexpected": [calls[index].name for index in trajectory.unexpected],
            "score": trajectory.score,
        }

    def _counts(self, call: ToolCall) -> bool:
        wanted: dict[str, Any] = self.arguments or {}  # type: ignore[assignment]  # resolved: no path is left
        own = call.arguments or {}
        has_name = self.name is None or call.name == self.name
        return has_name and all(name in own and json_equal(own[name], value) for name, value in wanted.items())

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        value = resolved["calls"]
        calls = read_calls(item for item in flat_items([value] if isinstance(value, dict) else value or []) if item)
        names, order = [call.name for call in calls], resolved.get("order") or []
        if resolved.get("negate"):
            return f"called {_named(names)}, which is not wanted"
        if resolved.get("expected") is not None and results["score"] < 1:
            expected = _read_expected(resolved["expected"], resolved.get("match_arguments"))
            match = resolved.get("match", "exact")
            return _compared(calls, expected, match, compare(calls, expected, match))
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
        called = (_alike(calls, name) if arguments and name else "") or _named(names)
        return f"called {called}; wanted {wanted}{f' at least {_times(least)}' if least > 1 else ''}"


_UNTOLD = (
    "the spans do not tell them: let the agent's instrumentation capture content, often by "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, or compare names only (match_arguments: ignore)"
)


_WANTED = {
    "exact": ("wanted ", ", then ", ", and nothing else"),
    "in_order": ("wanted ", ", then ", ""),
    "any_order": ("wanted ", ", ", ", in any order"),
    "subset": ("wanted nothing but ", ", ", ""),
}


def _compared(calls: list[ToolCall], expected: list[ExpectedCall], match: Match, trajectory: Trajectory) -> str:
    """Return the sentence about unexpected or missing calls, with arguments if only these differ."""
    wanted, link, end = _WANTED[match]
    names = [item.call.name for item in expected]
    by_name = compare(calls, [replace(item, arguments="ignore") for item in expected], match)
    if by_name.missing or by_name.unexpected:
        return f"called {_named([call.name for call in calls])}; {wanted}{_named(names, link)}{end if names else ''}"
    first = expected[trajectory.missing[0]].call if trajectory.missing else calls[trajectory.unexpected[0]]
    made = [calls[index] for index in trajectory.unexpected] or calls
    return f"called {_alike(made, first.name)}; {wanted}{_alike([item.call for item in expected], first.name)}"


def _alike(calls: Sequence[ToolCall], name: str) -> str:
    """Return the first calls of this tool, with their arguments."""
    alike = [f"{_named([call.name])}{_with(call.arguments)}" for call in calls if call.name == name]
    return ", ".join(alike[:_MOST_ALIKE])


def _named(names: Sequence[str], link: str = ", ") -> str:
    rest = len(names) - _MOST_NAMES
    more = f" and {rest} more" if rest > 0 else ""
    return link.join(printable(cut(name, MAX_PART)) for name in names[:_MOST_NAMES]) + more or "nothing"


def _with(arguments: dict[str, Any] | None) -> str:
    return f" with {shown(arguments)}" if arguments else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _read_expected(items: Any, mode: Any) -> list[ExpectedCall]:
    return [_read_expected_call(item, mode, f"expected[{index}]") for index, item in enumerate(items)]


def _read_expected_call(item: str | dict[str, Any], mode: ArgumentMode, location: str) -> ExpectedCall:
    if isinstance(item, str):
        return ExpectedCall(ToolCall(item, {}), "ignore")
    own = item.get("match_arguments", mode)
    if own not in get_args(ArgumentMode):
        raise ValueError(f"{location}.match_arguments: must be {' or '.join(get_args(ArgumentMode))}")
    return ExpectedCall(read_call(item, location), own if tool_arguments(item) is not None else "ignore")


def _missing(order: list[str], calls: list[ToolCall]) -> list[str]:
    for call in calls:
        if order and call.name == order[0]:
            order = order[1:]
    return order
