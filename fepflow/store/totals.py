"""Totals of what all runs have done, for metrics: numbers that only grow.

They are counted in the transaction that stores what they count, so they are exact: a run that is resumed, a commit that
is tried again and a process that is killed count nothing twice and lose nothing. They are kept apart from the rows that
they count: a scrape reads hundreds of rows whatever the store holds, and deleting runs makes no counter go backwards.

PostgreSQL locks a row from its update to the commit, and all runs share these rows: they are updated last, in the order
of their keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Text, case, func, select, type_coerce

from fepflow.json.values import finite
from fepflow.protocol.results import USAGE
from fepflow.protocol.test_case import REUSED_FROM
from fepflow.store.database import Repository, now_of, upserting
from fepflow.store.records import METRIC_TOTAL, REUSE_OUTPUTS, RUN, RUN_REQUEST, UNDER_WAY, NewCheckResult, NewOutput
from fepflow.text import printable, shortened

RUNS, LAST_VERDICT = "runs", "last_verdict"
CALLS, CALL_ERRORS, RETRIES = "calls", "call_errors", "retries"
CHECKS, CHECK_ERRORS = "checks", "check_errors"
MODEL_REQUESTS, TOKENS, USD = "model_requests", "tokens", "usd"
LOOKUPS = "lookups"

CALL_SECONDS: Final = "call_seconds"
WRITE_SECONDS: Final = "write_seconds"
BUCKETS: Final[Mapping[str, Sequence[float]]] = {
    CALL_SECONDS: (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
    WRITE_SECONDS: (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
}
"""Upper bounds of the buckets of histograms, in seconds. Stores hold counts by these bounds, so none may go."""
SUM, INFINITE = "sum", "+Inf"

_SCALES = {USD: 10**9, LAST_VERDICT: 10**6}
"""Parts of a unit that a total is stored in: all are whole numbers, which are exact, and never NaN."""
_PARTS_OF_SECONDS = 10**6
_MOST_REPORTED = 10**8
"""Largest number of tokens or dollars of one answer that is believed."""
_MOST = 2**63 - 1
"""Largest total that a row has room for. It stays at that: an overflow would keep all later results of the suite out,
and a hundred answers are enough for it whose agent reports its cost in another unit."""

MAX_SUITES = 500
"""Suites that have totals of their own. Those of all further ones are counted together."""
OTHER_SUITES, REQUESTED_SUITES = "(other)", "(requested)"
"""The first is for suites beyond the limit, the second for all that callers over the network name as they like."""
_LONGEST_NAME = 200
_SUITE = "suite"

TARGET, MODELS = "target", "models"

Increments = defaultdict[tuple[str, str], float]
"""Amounts to add, by metric and label."""


class Total(NamedTuple):
    """A total, as it is read."""

    metric: str
    suite: str
    label: str
    value: float


class WaitingRuns(NamedTuple):
    """Runs without an end: their number by status; the requested ones of which Prefect has not been told; and the age
    in seconds of the oldest that has not begun."""

    by_status: Mapping[str, int]
    undispatched: int
    oldest_age: float


class Totals(Repository):
    """The totals, and the runs that wait."""

    def read(self) -> list[Total]:
        """Return all totals, by metric, suite and label."""
        rows = self._rows(select(METRIC_TOTAL).where(METRIC_TOTAL.c.metric != _SUITE))
        return sorted(
            Total(metric, suite, label, value / _scale(metric, label)) for metric, suite, label, value in rows
        )

    def waiting_runs(self) -> WaitingRuns:
        """Count the runs that are pending or running; an index holds these."""
        by_status = (
            select(RUN.c.status, func.count(), func.min(RUN.c.created_at))
            .where(RUN.c.status.in_(UNDER_WAY))
            .group_by(RUN.c.status)
        )
        undispatched = (
            select(func.count())
            .select_from(RUN.join(RUN_REQUEST, RUN.c.id == RUN_REQUEST.c.run_id))
            .where(RUN.c.status == "pending", RUN_REQUEST.c.dispatched_at.is_(None))
        )
        with self._database.reading() as connection:
            rows = {status: (count, oldest) for status, count, oldest in connection.execute(by_status)}
            oldest: datetime | None = rows.get("pending", (0, None))[1]
            age = (now_of(connection) - oldest).total_seconds() if oldest else 0.0
            counts = {status: rows[status][0] if status in rows else 0 for status in UNDER_WAY}
            return WaitingRuns(counts, connection.scalar(undispatched) or 0, max(age, 0.0))


_OUTCOMES = {"failed": "error", "completed": "none"}
"""Outcomes of runs without a verdict, where the status would be misread: a run that failed could not be evaluated."""


def count_end(connection: Connection, run_id: str) -> None:
    """Count the end of a run, as its row has it now. A run that is resumed ends more than once, and each end counts."""
    run = connection.execute(select(RUN.c.status, RUN.c.outcome, RUN.c.completed_at).where(RUN.c.id == run_id)).one()
    outcome = run.outcome or _OUTCOMES.get(run.status, run.status)
    suite = _suite_of(connection, run_id)
    if suite is None:
        return
    _add(connection, suite, {(RUNS, outcome): 1.0})
    if run.outcome is not None:
        _put_time(connection, suite, run.completed_at)


_REUSES_OUTPUTS = select(type_coerce(RUN.c.options, Text).contains(f'"{REUSE_OUTPUTS}"'))


def count_results(
    connection: Connection,
    run_id: str,
    outputs: Iterable[NewOutput],
    checks: Iterable[NewCheckResult],
    *,
    are_calls: bool,
    write_seconds: Sequence[float] = (),
) -> None:
    """Count new results of a run, and the seconds that earlier writes took.

    `are_calls`: the outputs are answers of the run's target, and not of a file, an earlier run or a caller.
    """
    suite = _suite_of(connection, run_id)
    if suite is None:
        return
    increments: Increments = defaultdict(float)
    for output in outputs:
        _count_output(increments, output, is_call=are_calls)
    if are_calls and increments and connection.scalar(_REUSES_OUTPUTS.where(RUN.c.id == run_id)):
        increments[LOOKUPS, "outputs miss"] += sum(increments.get((CALLS, word), 0) for word in ("answered", "failed"))
    for check in checks:
        _count_check(increments, check)
    for seconds in write_seconds:
        observe(increments, WRITE_SECONDS, seconds)
    _add(connection, suite, increments)


def observe(increments: Increments, histogram: str, value: float) -> None:
    """Count a value in its bucket of a histogram."""
    bounds = BUCKETS[histogram]
    place = bisect_left(bounds, value)
    increments[histogram, f"{bounds[place]:g}" if place < len(bounds) else INFINITE] += 1
    increments[histogram, SUM] += value


def _suite_of(connection: Connection, run_id: str) -> str | None:
    """Return the suite that a run counts for; None for an imported run, which is another tool's."""
    run = connection.execute(select(RUN.c.name, RUN.c.cause).where(RUN.c.id == run_id)).one_or_none()
    if run is None or run.cause == "import":
        return None
    if run.cause in ("network", "evaluate"):
        return REQUESTED_SUITES
    name = shortened(printable(run.name), _LONGEST_NAME)
    known = METRIC_TOTAL.c.metric == _SUITE
    if connection.scalar(select(METRIC_TOTAL.c.suite).where(known, METRIC_TOTAL.c.suite == name)) is None:
        if (connection.scalar(select(func.count()).select_from(METRIC_TOTAL).where(known)) or 0) >= MAX_SUITES:
            return OTHER_SUITES
        noted = upserting(connection, METRIC_TOTAL).values(metric=_SUITE, suite=name, label="", value=1)
        connection.execute(noted.on_conflict_do_nothing())
    return name


def _count_output(increments: Increments, new: NewOutput, *, is_call: bool) -> None:
    metadata = new.output.metadata or {}
    if REUSED_FROM in metadata:
        increments[CALLS, "reused"] += 1
        increments[LOOKUPS, "outputs hit"] += 1
        return
    if not is_call:
        increments[CALLS, "recorded"] += 1
        return
    error = new.output.failure
    increments[CALLS, "answered" if error is None else "failed"] += 1
    if error is not None:
        details = metadata.get("error")
        kind = details.get("kind") if isinstance(details, dict) else None
        increments[CALL_ERRORS, str(kind or "other")[:64]] += 1
    attempts = metadata.get("attempts")
    if isinstance(attempts, int) and attempts > 1:
        increments[RETRIES, ""] += attempts - 1
    if (milliseconds := finite(metadata.get("latency_ms"))) is not None:
        observe(increments, CALL_SECONDS, milliseconds / 1000)
    _count_cost(increments, TARGET, metadata)
    user = metadata.get("user")
    if isinstance(user, dict):
        _count_usage(increments, user.get("usage"))


def _count_check(increments: Increments, new: NewCheckResult) -> None:
    status = new.result.status
    if status == "completed":
        outcome = "unjudged" if new.passed is None else "passed" if new.passed else "failed"
    else:
        outcome = "error" if status == "error" else "skipped"
    increments[CHECKS, outcome] += 1
    if new.result.error is not None:
        increments[CHECK_ERRORS, str(new.result.error.type)[:64]] += 1
    _count_usage(increments, (new.result.metadata or {}).get(USAGE))
    of_model = new.result.results.get("metadata")
    if isinstance(of_model, dict) and isinstance(cached := of_model.get("cached"), bool):
        increments[LOOKUPS, "models hit" if cached else "models miss"] += 1


def _count_usage(increments: Increments, usage: Any) -> None:
    if isinstance(usage, dict):
        _increase(increments, (MODEL_REQUESTS, ""), usage.get("requests"))
        _count_cost(increments, MODELS, usage)


def _count_cost(increments: Increments, source: str, cost: Mapping[str, Any]) -> None:
    _increase(increments, (TOKENS, source), cost.get("tokens"))
    _increase(increments, (USD, source), cost.get("usd"))


def _increase(increments: Increments, key: tuple[str, str], value: Any) -> None:
    """Add a number that an agent or a model has reported, if one can believe it."""
    number = None if isinstance(value, bool) else finite(value)
    if number is not None and 0 < number <= _MOST_REPORTED:
        increments[key] += number


def _scale(metric: str, label: str) -> int:
    return _PARTS_OF_SECONDS if label == SUM else _SCALES.get(metric, 1)


_OF_ALL_SUITES = frozenset({CALL_SECONDS, WRITE_SECONDS, CHECK_ERRORS, LOOKUPS})
"""Metrics that no suite has of its own: most of all series would be theirs."""


def _add(connection: Connection, suite: str, increments: Mapping[tuple[str, str], float]) -> None:
    rows = [
        {
            "metric": metric,
            "suite": "" if metric in _OF_ALL_SUITES else suite,
            "label": label,
            "value": min(round(value * _scale(metric, label)), _MOST),
        }
        for (metric, label), value in increments.items()
    ]
    if rows:
        adding = upserting(connection, METRIC_TOTAL)
        new = adding.excluded.value
        total = case((METRIC_TOTAL.c.value > _MOST - new, _MOST), else_=METRIC_TOTAL.c.value + new)
        keys = METRIC_TOTAL.primary_key.columns
        rows.sort(key=lambda row: (row["metric"], row["suite"], row["label"]))
        connection.execute(adding.on_conflict_do_update(index_elements=list(keys), set_={"value": total}), rows)


def _put_time(connection: Connection, suite: str, moment: datetime) -> None:
    """Note when a suite last got a verdict."""
    noting = upserting(connection, METRIC_TOTAL).values(
        metric=LAST_VERDICT, suite=suite, label="", value=round(moment.timestamp() * _SCALES[LAST_VERDICT])
    )
    later = case((noting.excluded.value > METRIC_TOTAL.c.value, noting.excluded.value), else_=METRIC_TOTAL.c.value)
    keys = METRIC_TOTAL.primary_key.columns
    connection.execute(noting.on_conflict_do_update(index_elements=list(keys), set_={"value": later}))
