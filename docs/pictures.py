"""The pictures in the text of docs/verdict.md, from what the code computes: `python docs/pictures.py` writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fepflow.statistics.drift import RUNS, cusum
from fepflow.statistics.estimate import PROPORTION, Counts
from fepflow.statistics.judges import JudgeLabels, corrected
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.paired import tango_interval
from fepflow.statistics.proportions import wilson_interval
from fepflow.statistics.sequential import Values, confidence_sequence

PAGE = Path(__file__).parent / "verdict.md"
WIDTH = 50

Row = tuple[str, tuple[float, float, float], str]
"""A line: its name; its low end, value and high end; and the words at its end, in which `{}` is the outcome."""


def scale(ends: tuple[float, float], limit: float, marks: Sequence[float], rows: Iterable[Row]) -> str:
    """Return intervals, one below the other, over an axis with a `limit`."""
    rows = list(rows)
    first = max(len(row[0]) for row in rows) + 2

    def place(value: float) -> int:
        share = (value - ends[0]) / (ends[1] - ends[0])
        return min(max(round(share * WIDTH), 0), WIDTH)

    axis = [" "] * (WIDTH + 6)
    for mark in marks:
        text = f"{mark:g}"
        start = max(place(mark) - len(text) // 2, 0)
        axis[start : start + len(text)] = text
    lines = [" " * first + "".join(axis).rstrip()]
    for name, (low, value, high), words in rows:
        cells = [" "] * (WIDTH + 1)
        cells[place(limit)] = "┊"
        for index in range(place(low), place(high) + 1):
            cells[index] = "─"
        cells[place(low)], cells[place(high)] = "├", "┤"
        if low <= limit <= high:
            cells[place(limit)] = "┼"
        cells[place(value)] = "●"
        outcome = "pass" if low >= limit else "fail" if high < limit else "inconclusive"
        lines.append(f"{name:<{first}}{''.join(cells)}  {words.format(outcome)}".rstrip())
    return "\n".join(lines)


def share(passed: int, n: int) -> tuple[float, float, float]:
    """Return the interval of a share, with its value in the middle."""
    low, high = wilson_interval(passed / n, n)
    return low, passed / n, high


def interval() -> str:
    """Draw three agents against a minimum."""
    rows: list[Row] = [(f"{passed} of 100", share(passed, 100), "{}") for passed in (96, 85, 66)]
    return scale((0.5, 1.0), 0.8, (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), rows)


def missing() -> str:
    """Draw ten missing answers."""
    rows: list[Row] = [
        ("only the 90 that came", share(90, 90), "not what counts"),
        ("the 10 as failed", share(90, 100), "the worst"),
        ("the 10 as passed", share(100, 100), "the best"),
    ]
    low, high = rows[1][1][0], rows[2][1][2]
    rows.append(("what counts", (low, 1.0, high), "{}"))
    return scale((0.75, 1.0), 0.9, (0.75, 0.8, 0.85, 0.9, 0.95, 1.0), rows)


def repeats() -> str:
    """Draw repeats of the same cases."""
    cases = [[1.0] * 4] * 13 + [[0.0] * 4] * 3 + [[1.0, 1.0, 1.0, 0.0]] * 4
    n, passed = sum(map(len, cases)), int(sum(map(sum, cases)))
    estimate = mean_estimate(cases, Counts(n, n), scale=PROPORTION)
    dots = "\n".join(
        f"case {name}  {'●' * int(sum(values))}{'○' * (4 - int(sum(values)))}"
        for name, values in zip(("1", "2", "3", "4"), (cases[0], cases[1], cases[13], cases[16]), strict=True)
    )
    rows: list[Row] = [
        (f"{passed} of {n}, as {n} cases", share(passed, n), "{}, but too sure"),
        (f"{passed} of {n}, as {len(cases)} cases", (estimate.low or 0, passed / n, estimate.high or 0), "{}"),
    ]
    return f"{dots}\n...\n\n{scale((0.5, 1.0), 0.65, (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), rows)}"


def clusters() -> str:
    """Draw questions about the same documents."""
    documents = [[1.0] * 10] * 19 + [[0.0] * 10]
    n, passed = sum(map(len, documents)), int(sum(map(sum, documents)))
    estimate = mean_estimate(documents, Counts(n, n), scale=PROPORTION)
    rows: list[Row] = [
        (f"{passed} of {n}, as {n} questions", share(passed, n), "{}, but too sure"),
        (f"{passed} of {n}, as {len(documents)} documents", (estimate.low or 0, passed / n, estimate.high or 0), "{}"),
    ]
    lines = "\n".join(f"document {name:<3} {mark * 10}" for name, mark in (("1", "●"), ("2", "●"), ("3", "○")))
    return f"{lines}\n...\n\n{scale((0.7, 1.0), 0.9, (0.7, 0.8, 0.9, 1.0), rows)}"


def matched() -> str:
    """Draw two runs of the same cases."""
    base, new = "●●●●○●●●●●●●○●●●●●●●", "●●○●●●●●○●●●●●●○●●●●"
    marks = "".join(" " if a == b else "↓" if b == "○" else "↑" for a, b in zip(base, new, strict=True))
    low, high = tango_interval(3, 12, 100)
    rows: list[Row] = [("difference", (low, -0.09, high), "{}")]
    figures = scale((-0.2, 0.05), -0.02, (-0.2, -0.1, -0.02, 0.05), rows)
    return f"base  {base}  and 80 cases more\nnew   {new}\n      {marks}  3 better, 12 worse\n\n{figures}"


def drift() -> str:
    """Draw evidence that grows from night to night."""
    passes = (47, 46, 46, 41, 40, 42)
    lines = []
    for number, (passed, log) in enumerate(
        zip(passes, cusum([(float(passed), 50.0) for passed in passes], 0.92), strict=True), 1
    ):
        bar = "█" * round(max(log, 0) / math.log(RUNS) * 30)
        alarm = f"  ALARM, from {RUNS} on" if log >= math.log(RUNS) else ""
        evidence = f"evidence {math.exp(max(log, 0)):>5.3g}"
        lines.append(f"night {number}  {passed / 50:.2f}  {evidence}  {bar}{alarm}".rstrip())
    return "\n".join(lines)


def judge() -> str:
    """Draw a judge that passes half of the wrong answers."""
    raw = mean_estimate([[1.0]] * 920 + [[0.0]] * 80, Counts(1_000, 1_000), scale=PROPORTION)
    right = corrected(raw, JudgeLabels(82, 82, 18, 10, "by_verdict", of_run=True, share=0.92))
    assert right is not None
    assert None not in (raw.value, raw.low, raw.high, right.value, right.low, right.high)
    rows: list[Row] = [
        ("what the judge says", (raw.low or 0, raw.value or 0, raw.high or 0), "{}, but wrong"),
        ("corrected by 100 labels", (right.low or 0, right.value or 0, right.high or 0), "{}"),
    ]
    flow = (
        f"840 right  {'█' * 42}  840 passed\n"
        f"160 wrong  {'█' * 4}{'░' * 4}{' ' * 34}   80 passed, 80 failed\n"
        "                                                        the judge says 920 of 1,000"
    )
    return f"{flow}\n\n{scale((0.75, 1.0), 0.9, (0.75, 0.8, 0.85, 0.9, 0.95, 1.0), rows)}"


def looks() -> str:
    """Draw an agent that is tested until its verdict is clear."""
    rows: list[Row] = []
    for passed, n in ((51, 52), (79, 82), (125, 129), (158, 162)):
        low, high = confidence_sequence(Values.of_passes(passed, n - passed))
        rows.append((f"{passed} of {n}", (low, passed / n, high), "{}"))
    return scale((0.75, 1.0), 0.9, (0.75, 0.8, 0.85, 0.9, 0.95, 1.0), rows)


PICTURES: tuple[Callable[[], str], ...] = (clusters, interval, missing, repeats, looks, matched, drift, judge)


def rewritten(page: str) -> str:
    """Return the page with each picture below its mark. Raises ValueError if a mark is missing."""
    for picture in PICTURES:
        mark = f"<!-- picture: {picture.__name__} -->\n"
        if mark not in page:
            raise ValueError(f"the page has no mark for the picture {picture.__name__}")
        block = f"{mark}```text\n{picture()}\n```\n"
        page = re.sub(rf"{re.escape(mark)}(```text\n.*?\n```\n)?", lambda _, block=block: block, page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
