"""Comparison of an agent's calls with expected ones: the largest number of pairs that match."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Literal

from fepflow.json.values import json_key
from fepflow.protocol.tool_calls import ToolCall

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
