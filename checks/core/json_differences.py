"""The fields in which two JSON values differ, by rules for some of the fields.

A field is a value that holds no other one: a text, a number, true, false, null, an empty object or list. The library
deepdiff finds differences, too, but has one tolerance for a whole document, no share of fields that agree, and takes
`true` and `1.0` for other types of `1`; with lists in any order it compares all pairs, however many a stranger's answer
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fepflow.checks.core.numbers import as_decimal, is_close
from fepflow.checks.core.sentences import MAX_PART, shown
from fepflow.errors import CheckArgumentsError, JSONPathError
from fepflow.json.values import finite, is_deep, json_equal, json_key
from fepflow.text import cut, printable

MOST_NODES = 200_000
"""Values inside of both documents together."""

MOST_PAIRS = 40_000
"""Pairs of elements that are tried to find the likes in lists in any order; those that are equal need none of that."""

MOST_STEPS = 200_000
"""Values that are compared to pair elements of lists in any order."""

MOST_NAMED = 20

_MISSING = " is missing, wanted {}"
_UNWANTED = " is not wanted, got {}"
_OTHER = ": got {}, wanted {}"

Key = str | int


class Rule(NamedTuple):
    """Rules for comparing a field and all inside of it. `order` says whether that of a list matters."""

    ignore: bool = False
    tolerance: float = 0.0
    percent: float = 0.0
    order: bool = True


EQUAL = Rule()


class Step(NamedTuple):
    """A step of a path: the name or index, None for any; with `anywhere`, at any depth below."""

    key: Key | None
    anywhere: bool = False

    def fits(self, key: Key) -> bool:
        """Return whether the step leads to this member or element."""
        return self.key is None or (self.key == key and type(self.key) is type(key))


class PathRule(NamedTuple):
    """A rule for the fields that a path leads to."""

    steps: tuple[Step, ...]
    rule: Rule


class Comparison(NamedTuple):
    """Result of a comparison: how many fields were compared, how many differ, and the first of those in words."""

    fields: int
    differing: int
    differences: list[str]


def path_steps(expression: str) -> tuple[Step, ...]:
    """Return the steps of a path of names, indices, `*` and `..`, with or without `$` in front; `$` has none.

    Raises ValueError for any other path.
    """
    text = expression if expression.startswith("$") else f"${'' if expression.startswith('[') else '.'}{expression}"
    if text == "$":
        return ()
    from fepflow.jsonpath.queries import Rfc9535Path

    try:
        return tuple(Step(key, anywhere) for key, anywhere in Rfc9535Path(text).plain_steps())
    except JSONPathError as error:
        raise ValueError(str(error)) from None


def compare(actual: Any, expected: Any, rules: Sequence[PathRule]) -> Comparison:
    """Compare two JSON values. Raises CheckArgumentsError for values that are too large or too deep."""
    if is_deep(actual) or is_deep(expected):
        raise CheckArgumentsError("a value has more than 100 levels")
    if _size(actual) + _size(expected) > MOST_NODES:
        raise CheckArgumentsError(f"both values together have more than {MOST_NODES:,} parts")
    comparing = _Comparing(rules)
    found = _Found()
    comparing.nodes(found, actual, expected, comparing.start(), "$")
    return Comparison(found.fields, found.differing, found.named)


class _Reached(NamedTuple):
    """The rule that holds at a place, and how far the paths of rules have got there: their numbers and steps."""

    rule: Rule
    open: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Found:
    """Counts of fields, and words for the first `most` that differ."""

    most: int = MOST_NAMED
    fields: int = 0
    differing: int = 0
    named: list[str] = field(default_factory=list)

    def differ(self, fields: int, path: str, words: str, *values: Any) -> None:
        """Count fields that differ; `words` have a place for each of the values."""
        self.fields += fields
        self.differing += fields
        if len(self.named) < self.most:
            place = printable(cut(path, 2 * MAX_PART))
            self.named.append(f"{place}{words.format(*(shown(value, MAX_PART) for value in values))}")


class _Comparing:
    def __init__(self, rules: Sequence[PathRule]) -> None:
        self._rules = rules
        self._steps = 0

    def start(self) -> _Reached:
        """Return where all paths begin."""
        return self._settled(EQUAL, [(number, 0) for number in range(len(self._rules))])

    def _settled(self, rule: Rule, places: Sequence[tuple[int, int]]) -> _Reached:
        """Apply the rules whose path has ended: of several the last one counts."""
        going = []
        for number, step in places:
            if step == len(self._rules[number].steps):
                rule = self._rules[number].rule
            else:
                going.append((number, step))
        return _Reached(rule, tuple(going))

    def _inside(self, at: _Reached, key: Key) -> _Reached:
        """Return what holds for a member or an element."""
        if not at.open:
            return at
        places: dict[tuple[int, int], None] = {}
        for number, step in at.open:
            wanted = self._rules[number].steps[step]
            if wanted.fits(key):
                places[number, step + 1] = None
            if wanted.anywhere:
                places[number, step] = None
        return self._settled(at.rule, list(places))

    def nodes(self, found: _Found, actual: Any, expected: Any, at: _Reached, path: str) -> None:
        """Compare what is at the same place of both."""
        self._steps += 1
        if at.rule.ignore and not at.open:
            return
        if isinstance(actual, dict) and isinstance(expected, dict) and (actual or expected):
            for key in {**expected, **actual}:
                inside, place = self._inside(at, key), _member(path, key)
                if key not in actual:
                    self._alone(found, expected[key], inside, place, _MISSING)
                elif key not in expected:
                    self._alone(found, actual[key], inside, place, _UNWANTED)
                else:
                    self.nodes(found, actual[key], expected[key], inside, place)
        elif isinstance(actual, list) and isinstance(expected, list) and (actual or expected):
            self._lists(found, actual, expected, at, path)
        else:
            fields = max(self._fields(actual, at), self._fields(expected, at))
            if fields and _agree(actual, expected, at.rule):
                found.fields += fields
            elif fields:
                found.differ(fields, path, _OTHER, actual, expected)

    def _alone(self, found: _Found, value: Any, at: _Reached, path: str, words: str) -> None:
        """Count what only one of both has."""
        if fields := self._fields(value, at):
            found.differ(fields, path, words, value)

    def _fields(self, value: Any, at: _Reached) -> int:
        """Return how many fields are in a value, but for those that are ignored."""
        if isinstance(value, dict | list) and value and (at.open or not at.rule.ignore):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return sum(self._fields(item, self._inside(at, key)) for key, item in items)
        return 0 if at.rule.ignore else 1

    def _lists(self, found: _Found, actual: list[Any], expected: list[Any], at: _Reached, path: str) -> None:
        pairs = self._paired(actual, expected, at) if not at.rule.order else _in_order(actual, expected)
        for index, other in pairs:
            place = f"{path}[{index if other is None else other}]"
            inside = self._inside(at, other if other is not None else index or 0)
            if index is None and other is not None:
                self._alone(found, expected[other], inside, place, _MISSING)
            elif other is None and index is not None:
                self._alone(found, actual[index], inside, place, _UNWANTED)
            elif index is not None and other is not None:
                self.nodes(found, actual[index], expected[other], inside, place)

    def _paired(self, actual: list[Any], expected: list[Any], at: _Reached) -> list[tuple[int | None, int | None]]:
        """Pair the elements of lists in any order: equal ones, then those of which most fields agree, then the rest."""
        waiting: dict[Any, list[int]] = {}
        reached = {self._inside(at, index) for index in range(max(len(actual), len(expected)))}
        rules = reached.pop() if len(reached) == 1 else _Reached(EQUAL, ())  # else a rule is about one index

        def key(value: Any) -> Any:
            return json_key(self._without_ignored(value, rules))

        for index in reversed(range(len(actual))):
            waiting.setdefault(key(actual[index]), []).append(index)
        pairs: list[tuple[int | None, int | None]] = []
        left = []
        for other, value in enumerate(expected):
            if likes := waiting.get(key(value)):
                pairs.append((likes.pop(), other))
            else:
                left.append(other)
        rest = sorted(index for likes in waiting.values() for index in likes)
        pairs += self._alike(actual, expected, rest, left, at)
        taken = {index for index, _ in pairs}, {other for _, other in pairs}
        rest, left = [index for index in rest if index not in taken[0]], [one for one in left if one not in taken[1]]
        pairs += _in_order(rest, left, lambda index: rest[index], lambda index: left[index])
        return sorted(pairs, key=lambda pair: (pair[1] is None, pair[1] if pair[1] is not None else pair[0]))

    def _without_ignored(self, value: Any, at: _Reached) -> Any:
        """Return a value without the members that are ignored; ignored elements of lists become null."""
        if at == (EQUAL, ()) or not isinstance(value, dict | list):
            return None if at.rule.ignore else value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inside = {key: (item, self._inside(at, key)) for key, item in items}
        if isinstance(value, list):
            return [self._without_ignored(item, reached) for item, reached in inside.values()]
        return {
            key: self._without_ignored(item, reached)
            for key, (item, reached) in inside.items()
            if reached.open or not reached.rule.ignore
        }

    def _alike(
        self, actual: list[Any], expected: list[Any], rest: list[int], left: list[int], at: _Reached
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs: as many as possible without a difference, then those whose largest share of fields agrees."""
        containers = [index for index in rest if isinstance(actual[index], dict | list)]
        likes = {}
        for other in left:
            rule = self._inside(at, other).rule
            if rule.ignore or rule.tolerance or rule.percent:
                likes[other] = rest
            elif isinstance(expected[other], dict | list):  # of values that hold no others, only equal ones agree
                likes[other] = containers
        tries = sum(map(len, likes.values()))
        scores = []
        agreeing: dict[int, list[int]] = {other: [] for other in likes}
        for other, indices in likes.items():
            inside = self._inside(at, other)
            for index in indices:
                if self._steps > MOST_STEPS or tries > MOST_PAIRS:
                    raise CheckArgumentsError("lists in any order have too many elements that differ")
                found = _Found(most=0)
                self.nodes(found, actual[index], expected[other], inside, "$")
                if not found.differing:
                    agreeing[other].append(index)
                elif found.differing < found.fields:
                    scores.append((found.differing / found.fields, index != other, other, index))
        matched = _matched(agreeing)
        yield from matched.items()
        taken = {("actual", index) for index in matched} | {("expected", other) for other in matched.values()}
        for _, _, other, index in sorted(scores):
            if ("actual", index) not in taken and ("expected", other) not in taken:
                taken |= {("actual", index), ("expected", other)}
                yield index, other


def _matched(agreeing: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the most pairs of elements that agree: one that was paired gives way if there is another for its partner.

    The keys of `agreeing` are expected elements, those of what is returned actual ones.
    """
    matched: dict[int, int] = {}

    def pair(other: int, tried: set[int]) -> bool:
        for index in sorted(agreeing[other], key=lambda index: index != other):
            if index not in tried:
                tried.add(index)
                if index not in matched or pair(matched[index], tried):
                    matched[index] = other
                    return True
        return False

    for other in agreeing:
        pair(other, set())
    return matched


def _in_order(
    actual: Sequence[Any],
    expected: Sequence[Any],
    of_actual: Callable[[int], int] = int,
    of_expected: Callable[[int], int] = int,
) -> list[tuple[int | None, int | None]]:
    both, longest = min(len(actual), len(expected)), max(len(actual), len(expected))
    return [
        (
            of_actual(index) if index < both or len(actual) > both else None,
            of_expected(index) if index < both or len(expected) > both else None,
        )
        for index in range(longest)
    ]


def _agree(actual: Any, expected: Any, rule: Rule) -> bool:
    if rule.tolerance or rule.percent:
        one, other = (None if isinstance(each, bool) else finite(each) for each in (actual, expected))
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


def _member(path: str, key: Any) -> str:
    name = str(key)
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{shown(name, MAX_PART)}]"
