"""A test case of a run as a page shows it: input, output, check results, and earlier runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from fepflow.errors import NotFoundError
from fepflow.pages.charts import attempts_chart
from fepflow.pages.rendering import State, state, state_of
from fepflow.pages.text import Span, differences, shown
from fepflow.pages.trace_tree import TraceView, trace_view
from fepflow.protocol.conversations import Exchange, ending, exchanges
from fepflow.protocol.results import CheckResult
from fepflow.store.check_order import shared_check_ids
from fepflow.store.records import CaseResult, GridRow, RunRecord, StoredLabel
from fepflow.store.store import Store

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
    bars = [
        {
            "number": attempt.number,
            "start": attempt.start,
            "end": attempt.start + attempt.seconds,
            "failed": attempt.cause is not None,
        }
        for attempt in attempts
    ]
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
