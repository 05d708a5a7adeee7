"""Numbers and estimates in the words of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from fepflow.statistics.estimate import Counts, Estimate, Method

_CORRECTED: tuple[Method, ...] = ("rogan-gladen", "mover", "paired-rogan-gladen")
_DIFFERENCES: tuple[Method, ...] = ("tango", "paired-t", "paired-bounded", "paired-rogan-gladen")


def number(value: float, unlike: float | None = None) -> str:
    """Four digits; all of them where four would make `value` look the same as another number, `unlike`."""
    short = f"{value:.4g}"
    return repr(value) if unlike is not None and value != unlike and short == f"{unlike:.4g}" else short


def percent(share: float) -> str:
    """`95 %`."""
    return f"{share * 100:.5g} %"


def plural(count: int, noun: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def describe(estimate: Estimate, limit: float | None = None) -> str:
    """`0.93 (95 % interval 0.8625 to 0.9657, n = 100)`; never rounded onto `limit`, which it is compared with.

    A difference between two runs is called so.
    """
    is_unknown = estimate.value is not None and estimate.counts.completed == 0
    size = "n not known" if is_unknown else _size(estimate.counts)
    if estimate.value is None:
        return f"no value ({size})"
    width = percent(estimate.confidence)
    value = number(estimate.value, limit)
    value = f"a difference of {value}" if estimate.method in _DIFFERENCES else value
    ends = [(word, bound) for word, bound in (("from", estimate.low), ("to", estimate.high)) if bound is not None]
    if not ends:
        return f"{value} (no {width} interval, {size})"
    interval = " ".join(f"{word} {number(bound, limit)}" for word, bound in ends)
    interval = interval if len(ends) == 1 else interval.removeprefix("from ")
    interval = f"{interval}, corrected for its judge's errors" if estimate.method in _CORRECTED else interval
    return f"{value} ({width} interval {interval}, {size})"


def _size(counts: Counts) -> str:
    if not counts.missing:
        return f"n = {counts.completed}"
    never_came = counts.missing - counts.error - counts.skipped
    parts = [(plural(counts.error, "error"), counts.error), (f"{counts.skipped} skipped", counts.skipped)]
    parts.append((f"{never_came} never came", never_came))
    return f"n = {counts.completed} of {counts.expected}: {', '.join(text for text, count in parts if count)}"
