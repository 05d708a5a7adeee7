"""The run that another one is compared with. Values, differences and outcomes only: nothing is tested here.

Like is compared with like: the same suite (what it asks, checks and requires) and the same test cases. `previous` is
the newest such run that was begun by the same cause, so that a run by hand is never the baseline of a nightly one.
"""

from __future__ import annotations

import math

from fepflow.analysis.comparability import why_not
from fepflow.errors import NotFoundError, UserError
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.baseline_names import PREVIOUS, is_name
from fepflow.verdict.verdict import Comparison, MetricChange, Verdict

_BEGUN: dict[str | None, str] = {
    "command": "by hand",
    "schedule": "by a schedule",
    "automation": "by an automation",
    "api": "through Prefect's API or UI",
    "pytest": "by pytest",
    "network": "over the network",
}


def find_baseline(store: Store, run: RunRecord, named: str) -> RunRecord | None:
    """The run that a suite's `baseline` names; None if it is `previous` and there is none that can be compared.

    Raises NotFoundError for an id that is not there, UserError for a run that cannot be compared with.
    """
    if named == PREVIOUS:
        return store.runs.before(run)
    baseline = with_outcome(store, _run_id(store, run, named))
    if baseline.id == run.id:
        raise UserError(f"The run {run.id} is its own baseline.")
    if reason := why_not(store, run, baseline):
        raise UserError(f"Not compared with {_named(baseline)}: {reason}.")
    return baseline


def regression_baseline(store: Store, run: RunRecord, named: str) -> RunRecord:
    """The run with an outcome that a gate's `regression` names. It need not be of the very same suite and cases: what
    is not the same is not compared. Raises NotFoundError, or UserError."""
    if named == PREVIOUS:
        found = store.runs.before(run, alike=False)
        if found is None:
            raise NotFoundError("There is no earlier run of the suite.")
        return found
    return with_outcome(store, _run_id(store, run, named))


def baseline_of(store: Store, suite: str, name: str) -> str | None:
    """The id of the run that is the baseline of this name; None if there is none."""
    return next((each.run_id for each in store.runs.baselines(name) if each.suite == suite), None)


def _run_id(store: Store, run: RunRecord, named: str) -> str:
    if not is_name(named):
        return named
    found = baseline_of(store, run.name, named)
    if found is None:
        raise NotFoundError(
            f"There is no baseline {named} of the suite {run.name} yet: `fepflow baseline set {named} {run.id[:8]}` "
            "makes this run the one that the next ones are compared with."
        )
    return found


def why_none(store: Store, run: RunRecord) -> str:
    """Why there is no `previous` run to compare with."""
    newest = store.runs.before(run, alike=False)
    if newest is None:
        return "There is no earlier run of the suite to compare with."
    begun = f"it was begun {_BEGUN.get(newest.cause, 'in another way')}, this one {_BEGUN.get(run.cause, 'in another')}"
    return (
        f"No earlier run can be compared with. The newest is {_named(newest)}: {why_not(store, run, newest) or begun}."
    )


def with_outcome(store: Store, run_id: str) -> RunRecord:
    """The run with this id, if it has an outcome. Raises NotFoundError or UserError."""
    baseline = store.runs.get(run_id)
    if baseline.outcome is None:
        raise UserError(f"The run {baseline.id} has no verdict to compare with: it is {baseline.status}.")
    return baseline


def compare(verdict: Verdict, baseline: RunRecord) -> Comparison:
    """A verdict beside that of a run with an outcome, which has the same cases.

    Only a fail is worse than what was before: between pass and inconclusive an agent wanders by chance.
    """
    assert baseline.outcome is not None
    then = {metric["id"]: metric.get("value") for metric in baseline.metrics or ()}
    cases = f"{baseline.n_cases} of {baseline.n_cases} cases"
    return Comparison(
        run_id=baseline.id,
        outcome=baseline.outcome,
        worsened=verdict.outcome == "fail" and baseline.outcome != "fail",
        summary=f"compared with {_named(baseline)}, same suite, {cases}",
        metrics=[_change(metric.id, metric.value, then.get(metric.id)) for metric in verdict.metrics],
    )


def _named(run: RunRecord) -> str:
    return f"run {run.id[:8]} of {run.created_at:%Y-%m-%d}"


def _change(name: str, value: float | None, then: float | None) -> MetricChange:
    difference = None if value is None or then is None else value - then
    finite = difference if difference is not None and math.isfinite(difference) else None
    return MetricChange(id=name, value=value, baseline=then, difference=finite)
