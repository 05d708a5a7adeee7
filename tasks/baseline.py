"""The run that another one is compared with. Values, differences and outcomes only: nothing is tested here."""

from __future__ import annotations

from typing import get_args

from fepflow.errors import UserError
from fepflow.evalguard.verdict import Comparison, MetricChange, Outcome, Verdict
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite import PREVIOUS

_FROM_BEST: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")
assert set(_FROM_BEST) == set(get_args(Outcome))


def find_baseline(store: Store, run: RunRecord, named: str) -> RunRecord | None:
    """The run that a suite's `baseline` names; None if it is `previous` and there is none.

    Raises NotFoundError for an id that is not there, UserError for a run that cannot be compared with.
    """
    if named == PREVIOUS:
        return store.run_before(run)
    baseline = with_outcome(store, named)
    if baseline.id == run.id:
        raise UserError(f"The run {run.id} is its own baseline.")
    return baseline


def with_outcome(store: Store, run_id: str) -> RunRecord:
    """The run with this id, if it has an outcome. Raises NotFoundError or UserError."""
    baseline = store.run(run_id)
    if baseline.outcome is None:
        raise UserError(f"The run {baseline.id} has no verdict to compare with: it is {baseline.status}.")
    return baseline


def compare(verdict: Verdict, baseline: RunRecord) -> Comparison:
    """A verdict beside that of a run with an outcome."""
    assert baseline.outcome is not None
    then = {metric["id"]: metric.get("value") for metric in baseline.metrics or ()}
    return Comparison(
        run_id=baseline.id,
        outcome=baseline.outcome,
        worsened=_FROM_BEST.index(verdict.outcome) > _FROM_BEST.index(baseline.outcome),
        metrics=[_change(metric.id, metric.value, then.get(metric.id)) for metric in verdict.metrics],
    )


def _change(name: str, value: float | None, then: float | None) -> MetricChange:
    difference = None if value is None or then is None else value - then
    return MetricChange(id=name, value=value, baseline=then, difference=difference)
