"""`json_diff`: JSON as it was expected, field by field, by rules for some of the fields.

A field is a value that holds no other one: a text, a number, true, false, null, an empty object or list. The library
deepdiff finds differences, too, but has one tolerance for a whole document, no share of fields that agree, and takes
`true` and `1.0` for other types of `1`. It compares all pairs of lists in any order, however long an answer is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, StrictBool
from typing_extensions import TypedDict

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath
from fepflow.checks.explanation import MAX_PART, MOST_DIFFERENCES, ResolvedArguments, first_errors, shown
from fepflow.checks.number import Tolerance, as_decimal, is_close
from fepflow.checks.tool_usage import largest_matching
from fepflow.errors import CheckArgumentsError, JSONPathError
from fepflow.json.values import finite, is_deep, json_equal, json_key, parse
from fepflow.jsonpath.path import outside_quotes
from fepflow.jsonpath.queries import Rfc9535Path
from fepflow.text import cut, plural, printable

MOST_NODES = 200_000
"""Values inside of both documents together, and values that the paths of all rules lead to."""

MOST_PAIRS = 40_000
"""Pairs of elements that are compared in lists in any order; equal elements are paired without a comparison."""

MOST_STEPS = 200_000
"""Values that are compared to pair elements of lists in any order."""

MOST_NAMED = 20

Location = tuple[str | int, ...]
"""Names and indices from the top of a document."""


class Rule(NamedTuple):
    """A rule for comparing a value and everything inside of it. `order`: the order of a list matters."""

    ignore: bool = False
    tolerance: float = 0.0
    percent: float = 0.0
    order: bool = True


EQUAL = Rule()


class Comparison(NamedTuple):
    """Result of a comparison: how many fields were compared, how many differ, and the first of those in words."""

    fields: int
    differing: int
    differences: list[str]


def compare(actual: Any, expected: Any, rules: Sequence[tuple[Rfc9535Path, Rule]]) -> Comparison:
    """Compare two JSON values. If two rules are about the same place, the last one counts.

    Raises CheckArgumentsError for values that are too large or too deep.
    """
    if is_deep(actual) or is_deep(expected):
        raise CheckArgumentsError("a value has more than 100 levels")
    if _size(actual) + _size(expected) > MOST_NODES:
        raise CheckArgumentsError(f"both values together have more than {MOST_NODES:,} parts")
    places: dict[Location, Rule] = {}
    for path, rule in rules:
        for document in (actual, expected):
            places.update(dict.fromkeys(path.locations(document, MOST_NODES), rule))
    comparing, counts = _Comparing(places), _Counts()
    comparing.nodes(counts, actual, expected, places.get((), EQUAL), ())
    return Comparison(counts.fields, counts.differing, counts.differences)


@dataclass(slots=True)
class _Counts:
    """Counts of fields, and the first `most` that differ in words."""

    most: int = MOST_NAMED
    fields: int = 0
    differing: int = 0
    differences: list[str] = field(default_factory=list)

    def differ(self, fields: int, location: Location, words: str, *values: Any) -> None:
        """Count fields that differ; `words` have a placeholder for each of the values."""
        self.fields += fields
        self.differing += fields
        if len(self.differences) < self.most:
            place = printable(cut("$" + "".join(map(_step, location)), 2 * MAX_PART))
            self.differences.append(f"{place}{words.format(*(shown(value, MAX_PART) for value in values))}")


class _Comparing:
    """A comparison by rules, each at the places that its path leads to."""

    def __init__(self, places: Mapping[Location, Rule]) -> None:
        self._places = places
        self._deepest = max(map(len, places), default=0)
        self._steps = 0

    def nodes(self, counts: _Counts, actual: Any, expected: Any, rule: Rule, location: Location) -> None:
        """Compare the values at the same place of both documents."""
        self._steps += 1
        if isinstance(actual, dict) and isinstance(expected, dict) and (actual or expected):
            for key in {**expected, **actual}:
                self._either(counts, actual.get(key, _ABSENT), expected.get(key, _ABSENT), rule, (*location, key))
        elif isinstance(actual, list) and isinstance(expected, list) and (actual or expected):
            for index, other in self._paired(actual, expected, rule, location):
                one = _ABSENT if index is None else actual[index]
                wanted = _ABSENT if other is None else expected[other]
                place = index if other is None else other
                self._either(counts, one, wanted, rule, (*location, place or 0))
        elif fields := max(self._fields(actual, rule, location), self._fields(expected, rule, location)):
            if _agree(actual, expected, rule):
                counts.fields += fields
            else:
                counts.differ(fields, location, ": got {}, wanted {}", actual, expected)

    def _either(self, counts: _Counts, actual: Any, expected: Any, rule: Rule, location: Location) -> None:
        """Compare members or elements, one of which may be absent."""
        rule = self._places.get(location, rule)
        if actual is not _ABSENT and expected is not _ABSENT:
            self.nodes(counts, actual, expected, rule, location)
        elif actual is _ABSENT:
            if fields := self._fields(expected, rule, location):
                counts.differ(fields, location, " is missing, wanted {}", expected)
        elif fields := self._fields(actual, rule, location):
            counts.differ(fields, location, " is not wanted, got {}", actual)

    def _fields(self, value: Any, rule: Rule, location: Location) -> int:
        """Return how many fields are in a value, without those that are ignored."""
        if isinstance(value, dict | list) and value:
            return sum(self._fields(item, *self._inside(rule, location, key)) for key, item in _items(value))
        return 0 if rule.ignore else 1

    def _inside(self, rule: Rule, location: Location, key: str | int) -> tuple[Rule, Location]:
        """Return the rule for a member or an element, and its location."""
        place = (*location, key)
        return self._places.get(place, rule), place

    def _paired(self, actual: list[Any], expected: list[Any], rule: Rule, location: Location) -> _Pairs:
        """Return pairs of elements, with None for an element that is left over.

        In any order, equal ones are paired first, then those of which most fields agree, then the rest as they stand.
        """
        if rule.order:
            return list(zip_longest(range(len(actual)), range(len(expected))))
        waiting = defaultdict(list)
        for index in reversed(range(len(actual))):
            waiting[self._key(actual[index], rule, location, index)].append(index)
        partners: dict[int, int] = {}
        for other, value in enumerate(expected):
            if likes := waiting.get(self._key(value, rule, location, other)):
                partners[other] = likes.pop()
        rest, left = _others(actual, partners.values()), _others(expected, partners)
        partners |= self._alike(actual, expected, rest, left, rule, location)
        rest, left = _others(actual, partners.values()), _others(expected, partners)
        pairs: _Pairs = [(index, other) for other, index in partners.items()]
        pairs += zip_longest(rest, left)
        return sorted(pairs, key=lambda pair: (pair[1] is None, pair[0] if pair[1] is None else pair[1]))

    def _key(self, value: Any, rule: Rule, location: Location, key: int) -> Any:
        """Return a key that is the same for elements that are equal but for ignored members."""
        return json_key(self._without_ignored(value, *self._inside(rule, location, key)))

    def _without_ignored(self, value: Any, rule: Rule, location: Location) -> Any:
        if not rule.ignore and self._deepest <= len(location):
            return value
        if not isinstance(value, dict | list):
            return None if rule.ignore else value
        inside = {key: (item, *self._inside(rule, location, key)) for key, item in _items(value)}
        kept = {key: self._without_ignored(*item) for key, item in inside.items() if self._fields(*item)}
        return kept if isinstance(value, dict) else list(kept.items())

    def _alike(
        self, actual: list[Any], expected: list[Any], rest: list[int], left: list[int], rule: Rule, location: Location
    ) -> dict[int, int]:
        """Return pairs: as many as possible without a difference, then those whose largest share of fields agrees."""
        containers = [index for index in rest if isinstance(actual[index], dict | list)]
        likes = {}
        for other in left:
            own, _ = self._inside(rule, location, other)
            if own.ignore or own.tolerance or own.percent:
                likes[other] = rest
            elif isinstance(expected[other], dict | list):  # of values that hold no others, only equal ones agree
                likes[other] = containers
        tries = sum(map(len, likes.values()))
        scores = []
        agreeing = dict.fromkeys(likes, 0)  # bits of the elements that agree with an expected one
        for other, indices in likes.items():
            for index in indices:
                if self._steps > MOST_STEPS or tries > MOST_PAIRS:
                    raise CheckArgumentsError("lists in any order have too many elements that differ")
                counts = _Counts(most=0)
                self.nodes(counts, actual[index], expected[other], *self._inside(rule, location, other))
                if not counts.differing:
                    agreeing[other] |= 1 << index
                elif counts.differing < counts.fields:
                    scores.append((counts.differing / counts.fields, index != other, other, index))
        matched = largest_matching(list(agreeing.values()))
        partners = {list(agreeing)[number]: index for number, index in matched.items()}
        taken = set(partners.values())
        for _, _, other, index in sorted(scores):
            if other not in partners and index not in taken:
                partners[other] = index
                taken.add(index)
        return partners


_ABSENT = object()
_Pairs = list[tuple[int | None, int | None]]


def _items(value: dict[str, Any] | list[Any]) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _others(values: list[Any], taken: Iterable[int]) -> list[int]:
    """Return the indices that are not taken, in their order."""
    return sorted(set(range(len(values))).difference(taken))


def _agree(actual: Any, expected: Any, rule: Rule) -> bool:
    if rule.tolerance or rule.percent:
        one, other = (None if isinstance(value, bool) else finite(value) for value in (actual, expected))
        if one is not None and other is not None:
            return is_close(as_decimal(actual), as_decimal(expected), rule.tolerance, rule.percent)
    return json_equal(actual, expected)


def _size(value: Any) -> int:
    """Return how many values there are, stopping once there are too many."""
    size, waiting = 0, [value]
    while waiting and size <= MOST_NODES:
        item = waiting.pop()
        size += 1
        if isinstance(item, dict | list):
            size += len(item) if len(item) > MOST_NODES else 0
            waiting.extend(item.values() if isinstance(item, Mapping) else item)
    return size


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f"[{shown(key, MAX_PART)}]"


class FieldRule(TypedDict, total=False):
    """Options for fields that need not be equal."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # pydantic's way to close a TypedDict

    tolerance: Annotated[Tolerance, Field(description="Largest difference of two numbers.")]
    percent: Annotated[Tolerance, Field(description="Largest difference, in percent of the expected number.")]
    order: Annotated[StrictBool, Field(description="Whether the order of a list matters.")]


def _compiled(path: str) -> Rfc9535Path:
    """Return the path of a rule, which may leave out `$`. Raises ValueError."""
    text = path if path.startswith("$") else f"${'' if path.startswith('[') else '.'}{path}"
    try:
        compiled = Rfc9535Path(text)
    except JSONPathError as error:
        raise ValueError(str(error)) from None
    if any(sign in outside_quotes(text) for sign in "?-"):  # from the end, the answer's length would choose the fields
        raise ValueError("only names, indices and slices from 0 on, * and .. can be used here")
    return compiled


def _checked_path(path: str) -> str:
    _compiled(path)
    return path


FieldPath = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_checked_path)]
_WORDS = {"equal": EQUAL, "ignore": Rule(ignore=True), "unordered": Rule(order=False)}


class JSONDiffCheck(BaseCheck):
    """Pass if two JSON values agree, field by field. Results:
    `{score: number, passed: bool, fields: int, differing: list}`.

    A field is a value that contains no other one. The score is the share of the fields of both values that agree. By
    default all must agree. `differing` lists the first 20 fields that differ. A text is read as JSON if the expected
    value is JSON, and fails if it is not JSON. Values are compared as JSON: `1` equals `1.0` but not `true`.

    `rules` allow differences, by path: `equal`, `ignore`, `unordered` (a list in any order), or
    `{tolerance: 0.01, percent: 5, order: false}`. A path consists of names, indices, slices, `*` and `..`, and
    counts from the start of a list (no `[-1]`). A rule applies to everything below its path that has no rule of its
    own: `{$: ignore, $.total: equal}` compares one field. If two rules match the same field, the last one counts. If no
    field is left, the check ends in an error.

    In a list in any order, elements that differ in a compared field are paired so that most of their fields agree. With
    more than 40,000 possible pairs (200 elements in each of two lists), the check ends in an error.
    """

    check_type: ClassVar[str] = "json_diff"
    check_range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    check_pass_at: ClassVar[float | None] = 1.0

    actual: Any = Field(default=OUTPUT, description="Value to check; a text is read as JSON.")
    expected: Any = Field(default=EXPECTED, description="Value to compare with; a text may be JSON.")
    rules: dict[FieldPath, Literal["equal", "ignore", "unordered"] | FieldRule] | JSONPath = Field(
        default={}, description="Rules of comparison, by path: `{$.total: {tolerance: 0.01}, $.id: ignore}`."
    )

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        expected = _expected(self.expected)
        actual = self.actual
        if isinstance(actual, str) and not isinstance(expected, str):
            try:
                actual = parse(actual)
            except ValueError as error:
                return {"score": 0.0, "fields": 0, "differing": [f"$ is not valid JSON: {error}"]}
        assert isinstance(self.rules, dict)
        rules = [(_compiled(path), _rule(rule)) for path, rule in self.rules.items()]
        comparison = compare(actual, expected, rules)
        if not comparison.fields:
            raise CheckArgumentsError("the rules ignore every field, so there is nothing to compare")
        score = (comparison.fields - comparison.differing) / comparison.fields
        return {"score": score, "fields": comparison.fields, "differing": comparison.differences}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        differences = results["differing"]
        fields = results["fields"]
        if not fields:
            return first_errors([differences[0].removeprefix("$ ")], resolved["actual"])
        differing = round(fields * (1 - results["score"]))
        counted = f" ({differing} of {plural(fields, 'field')} differ)" if fields > 1 else ""
        more = "; and more" * (len(differences) > MOST_DIFFERENCES)
        return "; ".join(differences[:MOST_DIFFERENCES]) + more + counted


def _expected(value: Any) -> Any:
    """Return the expected value; of a text that is an object or a list in JSON, that."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return parse(value)
    except ValueError as error:
        raise CheckArgumentsError(f"expected begins like JSON, but is not valid JSON: {error}") from None


def _rule(rule: str | FieldRule) -> Rule:
    return _WORDS[rule] if isinstance(rule, str) else Rule(**dict(rule))  # type: ignore[arg-type]  # its members are those of a FieldRule
