"""The base of a comparison: a run, or several of the same cases that are pooled, by an id or by a baseline's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fepflow.errors import NotFoundError, UserError
from fepflow.store.records import Baseline, RunRecord
from fepflow.store.store import Store
from fepflow.suite.values import PREVIOUS, is_baseline_name
from fepflow.text import plural


@dataclass(frozen=True, slots=True)
class Base:
    """Runs of the same suite and cases, the values of whose cases are averaged.

    `choice` is a warning if more such runs were there when these were chosen: a base that came out low by chance lets
    a regression pass.
    """

    runs: Sequence[RunRecord]
    choice: str | None = None


def base_of(store: Store, run: RunRecord, named: str) -> Base:
    """Return the runs of a base that `named` stands for: a run's id, a baseline of the run's suite, or `previous`.

    All have an outcome. Raises NotFoundError, UserError.
    """
    if named == PREVIOUS:
        newest = store.runs.before(run, alike=False)
        if newest is None:
            raise NotFoundError("There is no earlier run of the suite.")
        return Base([newest])
    if not is_baseline_name(named):
        base = chosen(store, [with_outcome(store, named)], run.created_at)
    elif (baseline := baseline_of(store, run.name, named)) is not None:
        base = base_of_baseline(store, baseline)
    else:
        raise NotFoundError(
            f"There is no baseline {named} of the suite {run.name} yet: `fepflow baseline set {named} {run.id[:8]}` "
            "makes this run the one that the next ones are compared with."
        )
    if run.rescored_from is not None and run.asked_in in (base_run.asked_in for base_run in base.runs):
        raise UserError(f"Run {run.id[:8]} has the same outputs as {named}, from which nothing can have become worse.")
    return base


def base_of_baseline(store: Store, baseline: Baseline) -> Base:
    """Return the runs of a baseline. Raises NotFoundError, UserError."""
    runs = [with_outcome(store, run_id) for run_id in (baseline.run_id, *baseline.others)]
    return chosen(store, runs, baseline.set_at)


def baseline_of(store: Store, suite: str, name: str) -> Baseline | None:
    """Return the suite's baseline of this name, or None."""
    return next((baseline for baseline in store.runs.baselines(name) if baseline.suite == suite), None)


def chosen(store: Store, runs: Sequence[RunRecord], before: datetime) -> Base:
    """Return runs as a base, with a warning if they were chosen from more runs with an outcome at that time."""
    first, ids = runs[0], {run.id for run in runs}
    candidates = store.runs.equal_to(first, before) | ids if first.target_hash is not None else ids
    if len(candidates) == len(ids):
        return Base(runs)
    of = f"of version {first.version}" if first.version else "on the same target"
    return Base(
        runs,
        f"The base is {len(ids)} of {plural(len(candidates), 'run')} {of}. If it was chosen because it came out low, a "
        "regression passes more often than promised; pool the runs: fepflow baseline set NAME RUN RUN ...",
    )


def require_poolable(runs: Sequence[RunRecord]) -> None:
    """Raise UserError for runs with different suites or cases."""
    first = runs[0]
    if reusing := [run for run in runs if run.reuses_outputs and len(runs) > 1]:
        raise UserError(f"Run {reusing[0].id[:8]} cannot be pooled: outputs of earlier runs would count twice.")
    if len({run.asked_in for run in runs}) < len(runs):
        raise UserError("A run and what was rescored from it cannot be pooled: their outputs are the same.")
    for run in runs[1:]:
        if run.name != first.name or run.suite_hash is None or run.suite_hash != first.suite_hash:
            raise UserError(f"Runs {first.id[:8]} and {run.id[:8]} cannot be pooled: their suites are not the same.")
        # Of the cases that both may take in, two runs that are topped up may have others, and another number.
        if (run.cases_hash, run.n_cases, run.sample) != (first.cases_hash, first.n_cases, first.sample):
            raise UserError(f"Runs {first.id[:8]} and {run.id[:8]} cannot be pooled: they have other test cases.")


def with_outcome(store: Store, run_id: str) -> RunRecord:
    """Return the run with this id, if it has an outcome and no filter chose its cases. Raises NotFoundError or
    UserError."""
    baseline = store.runs.get(run_id)
    if baseline.outcome is None:
        raise UserError(f"The run {baseline.id} has no verdict to compare with: it is {baseline.status}.")
    if baseline.filtered:
        raise UserError(
            f"The run {baseline.id} cannot be a baseline: it has only {baseline.filtered}. Use a run of all cases."
        )
    return baseline
