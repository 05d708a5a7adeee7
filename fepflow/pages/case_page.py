"""A test case of a run as a page shows it: input, output, check results, and earlier runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from fepflow.errors import NotFoundError
from fepflow.json.values import finite
from fepflow.pages.charts import attempts_chart
from fepflow.pages.rendering import Span, State, differences, shown, state, state_of
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Exchange, ending, exchanges
from fepflow.store.records import CaseResult, GridRow, RunRecord, StoredLabel
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store
from fepflow.traces.conventions import summary_of

EARLIER_RUNS = 10

_ORDER = ("failed", "error", "skipped", "no verdict", "passed", "absent")

_OWN_METADATA = frozenset({"error", "attempt_log", "attempts", "latency_ms", "last_attempt_ms", "trace"})


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One call: its start, duration and the pause before it in seconds, and its error."""

    number: int
    start: float
    seconds: float
    pause: float
    cause: str | None


@dataclass(frozen=True, slots=True)
class RepeatView:
    """One repeat of a case. `expected` and `output` are spans that mark differences; None: unmarked."""

    result: CaseResult
    expected: list[Span] | None
    output: list[Span] | None
    attempts: list[AttemptView]
    chart: Markup | None
    steps: Sequence[Mapping[str, Any]]
    turns: Sequence[Exchange]
    ending: str | None
    trace: TraceView | None
    metadata: Mapping[str, Any]

    @property
    def checks(self) -> list[CheckResult]:
        """The checks, those first that keep the case from passing."""
        return sorted(self.result.checks, key=lambda check: _ORDER.index(state(check)))

    def checks_of(self, turn: int) -> list[CheckResult]:
        """Return the checks of one turn, by its number from 1."""
        return [check for check in self.result.checks if (check.metadata or {}).get("turn") == turn]


class EarlierView(NamedTuple):
    """The same case in an earlier run."""

    run_id: str
    created_at: datetime
    row: GridRow
    repeats: int


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case with its repeats, and the same case in earlier runs."""

    run: RunRecord
    repeats: list[RepeatView]
    earlier: list[EarlierView]
    checks: list[str]
    state: State
    labels: list[StoredLabel]
    before: str | None
    after: str | None
    """The ids of the failed cases before and after this one."""

    def labels_of(self, check: CheckResult, repeat: RepeatView) -> list[StoredLabel]:
        """Return what people say of a check of one output."""
        wanted = check.check_id, repeat.result.repeat
        return [label for label in self.labels if (label.check_id, label.repeat) == wanted]


def case_view(store: Store, run_id: str, case_id: str) -> CaseView:
    """Return a case of a run. Raises NotFoundError."""
    run = store.runs.get(run_id)
    index = store.runs.index_of_case(run.id, case_id)
    if index is None:
        raise NotFoundError(f"Run {run.id[:8]} has no test case {case_id!r}.")
    repeats = [repeat_view(result) for result in store.results.by_case(run.id, case_indices=[index])]
    earlier = [
        EarlierView(earlier_id, created_at, row, repeats)
        for earlier_id, created_at, repeats, earlier_index in store.runs.earlier_indices(run, case_id, EARLIER_RUNS)
        for row in store.results.grid_rows(earlier_id, [earlier_index])
    ]
    ids = [check.check_id for repeat in repeats for check in repeat.result.checks]
    ids += [check_id for view in earlier for _, check_id in view.row.marks]
    labels = [label for label in store.labels.of_case(run.id, index) if label.label is not None]
    (row,) = store.results.grid_rows(run.id, [index])
    state = state_of(row, run.repeats, shared_check_ids(run.suite))
    before, after = _failed_neighbours(store, run.id, index)
    return CaseView(run, repeats, earlier, list(dict.fromkeys(ids)), state, labels, before, after)


def _failed_neighbours(store: Store, run_id: str, index: int) -> tuple[str | None, str | None]:
    """Return the ids of the cases before and after this one that did not pass."""
    failed = store.results.failed_case_indices(run_id)
    place = bisect_left(failed, index)
    behind = place + (failed[place : place + 1] == [index])
    wanted = [*failed[max(0, place - 1) : place], *failed[behind : behind + 1]]
    ids = {row.case_index: row.case.id for row in store.results.grid_rows(run_id, wanted)}
    before = next((ids[number] for number in wanted if number < index), None)
    return before, next((ids[number] for number in wanted if number > index), None)


def repeat_view(result: CaseResult) -> RepeatView:
    """Return one repeat of a case."""
    value = None if result.output is None else result.output.value
    marked = None
    if isinstance(value, str) is isinstance(result.case.expected, str) and None not in (value, result.case.expected):
        marked = differences(shown(result.case.expected), shown(value))
    expected, output = marked or (None, None)
    metadata = (result.output.metadata if result.output else None) or {}
    attempts = _attempts(metadata)
    bars = [(one.number, one.start, one.start + one.seconds, one.cause is not None) for one in attempts]
    rest = {name: value for name, value in metadata.items() if name not in _OWN_METADATA}
    chart, turns, trace = attempts_chart(bars), exchanges(value), trace_view(metadata.get("trace"))
    return RepeatView(result, expected, output, attempts, chart, _steps(value), turns, ending(metadata), trace, rest)


def _steps(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the steps of an agent that takes several (ECP)."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or not all(isinstance(step, dict) and "public_output" in step for step in steps):
        return ()
    return steps


def _attempts(metadata: Mapping[str, Any]) -> list[AttemptView]:
    log = metadata.get("attempt_log")
    attempts: list[AttemptView] = []
    first: datetime | None = None
    for entry in log if isinstance(log, list) else ():
        try:
            began = datetime.fromisoformat(entry["started_at"])
            seconds = float(entry["latency_ms"]) / 1_000
            cause = entry["error"]["message"] if entry["error"] else None
            number = int(entry["attempt"])
        except (KeyError, TypeError, ValueError):
            return []  # an output that was handed to us says what it likes
        first = first or began
        start = (began - first).total_seconds()
        before = attempts[-1].start + attempts[-1].seconds if attempts else 0.0
        attempts.append(AttemptView(number, start, seconds, max(0.0, start - before), cause))
    return attempts


MOST_SPANS = 200
"""Spans that a page shows; JSON has all of them."""

DEEPEST = 12
"""Levels that are indented."""


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span: how deep it is, its times in milliseconds, and its bar in hundredths of the time line."""

    name: str
    depth: int
    start_ms: float
    ms: float
    left: float
    width: float
    failed: str | None
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceView:
    """A trace in a sentence, and the rows of its tree; `hidden` spans are left out."""

    summary: str
    rows: Sequence[SpanRow]
    hidden: int


def trace_view(trace: Any) -> TraceView | None:
    """Return the trace of an output's metadata; None if there is none. Outputs that were handed to us say what they
    like.
    """
    if not isinstance(trace, dict):
        return None
    listed = trace.get("spans")
    spans = [span for span in listed if _is_span(span)] if isinstance(listed, list) else []
    length = max((span["start_ms"] + span["ms"] for span in spans), default=0) or 1.0
    rows = [_row(span, depth, length) for span, depth in _in_order(spans)]
    return TraceView(summary_of(trace), rows[:MOST_SPANS], max(0, len(rows) - MOST_SPANS))


def _is_span(span: Any) -> bool:
    if not isinstance(span, dict):
        return False
    times = [finite(span.get(name)) for name in ("start_ms", "ms")]
    return all(isinstance(span.get(name), str) for name in ("name", "span_id")) and None not in times


def _in_order(spans: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Return the spans with their depths, each after the one that it is in; a circle of parents is cut."""
    known = {span["span_id"] for span in spans}
    children: dict[Any, list[Mapping[str, Any]]] = {}
    for span in spans:
        parent = span.get("parent_id")
        children.setdefault(parent if isinstance(parent, str) else None, []).append(span)
    placed: dict[str, tuple[Mapping[str, Any], int]] = {}
    tops = [span for span in spans if not isinstance(span.get("parent_id"), str) or span["parent_id"] not in known]
    for top in (*tops, *spans):
        waiting = [(top, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span["span_id"] not in placed:
                placed[span["span_id"]] = span, depth
                waiting += [(child, depth + 1) for child in reversed(children.get(span["span_id"], ()))]
    return list(placed.values())


def _row(span: Mapping[str, Any], depth: int, length: float) -> SpanRow:
    start, lasted = max(0.0, float(span["start_ms"])), max(0.0, float(span["ms"]))
    attributes = span.get("attributes")
    return SpanRow(
        span["name"],
        min(depth, DEEPEST),
        start,
        lasted,
        round(100 * start / length, 2),
        max(0.5, round(100 * lasted / length, 2)),
        str(span.get("status_message") or "error") if span.get("status") == "error" else None,
        attributes if isinstance(attributes, dict) else {},
    )
