"""Service functions for comparisons of runs, of the store or of files of results; baselines, trends, paired plans."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fepflow.analysis.comparison import (
    Base,
    base_of_baseline,
    chosen,
    compare_results,
    contents_of,
    require_poolable,
    results_of_base,
    results_with_verdict,
    with_outcome,
)
from fepflow.analysis.drift import MOST_RUNS, Series, series_of
from fepflow.analysis.planning import PairedPlan
from fepflow.analysis.preferences import Preferences
from fepflow.analysis.regressions import JudgedComparisons, judge_comparisons
from fepflow.analysis.result_files import FileRun, is_result_file, read_result_file, run_of_document
from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.model import utc_now
from fepflow.reports.fep import run_parts
from fepflow.services.run_service import EXIT_CODES, open_store, validate
from fepflow.store.records import Baseline, RunFigures, RunRecord
from fepflow.store.store import Store
from fepflow.suite.values import is_baseline_name
from fepflow.text import known_names


@dataclass(frozen=True, slots=True)
class RunsToCompare:
    """A store with all runs, the names by which they are found in it, and what files do not tell about them."""

    store: Store
    names: Sequence[str]
    notes: Sequence[str] = ()


Source = str | dict[str, Any]
"""A run: its id, a baseline's name, a file of results, or the JSON data of an EvaluationRunResult."""


@contextmanager
def runs_to_compare(sources: Sequence[Source]) -> Iterator[RunsToCompare]:
    """Yield the user's store, or, if some runs are in files, a temporary store with all of them.

    Raises InputError for a file without results, NotFoundError.
    """
    if all(isinstance(source, str) and not is_result_file(source) for source in sources):
        with open_store() as store:
            yield RunsToCompare(store, [str(source) for source in sources])
        return
    read = [_read(source, number) for number, source in enumerate(sources, 1)]
    with (
        TemporaryDirectory(prefix="fepflow-compare-") as folder,
        Store.open(f"sqlite:///{Path(folder) / 'runs.db'}", with_blobs=False) as store,
    ):
        names = [run.add_to(store) for run in read]
        yield RunsToCompare(store, names, [note for run in read for note in run.notes])


def _read(source: Source, number: int) -> FileRun:
    if not isinstance(source, str):
        return run_of_document(f"results {number}", source)
    return read_result_file(Path(source)) if is_result_file(source) else _exported(source)


def _exported(name: str) -> FileRun:
    """Return a run of the user's store in the form of its report."""
    with open_store() as store:
        if is_baseline_name(name):
            baselines = store.runs.baselines(name)
            if not baselines:
                raise NotFoundError(f"There is no file and no baseline {name!r}: give a file, or the id of a run.")
            if len(baselines) > 1:
                raise UserError(f"{name} names {len(baselines)} baselines: beside a file, give the id of a run.")
            name = baselines[0].run_id
        run = store.runs.get(name)
        if run.outcome is None:
            raise UserError(f"Run {run.id[:8]} has no verdict to compare: it is {run.status}.")
        return run_of_document(run.id[:8], json.loads("".join(run_parts(store, run))))


MOST_NAMED = 5
"""Variants that a message names."""


def compare(
    store: Store,
    base: str,
    new: Sequence[str],
    margin: float | None,
    margins: Mapping[str, float],
    *,
    metrics_needed: bool = True,
) -> JudgedComparisons:
    """Compare runs with a base. A run is an id, the beginning of one, `latest`, or a baseline's name.

    A baseline may be of a suite of the other runs. Without `metrics_needed`, runs without a common metric are compared,
    too. Raises NotFoundError, UserError if nothing can be compared, and for a name that several suites have.
    """
    runs = {name: store.runs.get(name) for name in (base, *new) if not is_baseline_name(name)}
    suites = {run.name for run in runs.values()}
    others = [runs.get(name) or store.runs.get(_baseline(store, name, suites).run_id) for name in new]
    if base in runs:
        then = results_of_base(store, chosen(store, [runs[base]], min(run.created_at for run in others)))
    else:
        then = results_of_base(store, base_of_baseline(store, _baseline(store, base, suites)))
    compared = [
        compare_results(then, results_with_verdict(store, other), metrics_needed=metrics_needed) for other in others
    ]
    return judge_comparisons(compared, margin, margins)


def exit_code_with(code: int, preferred: Preferences) -> int:
    """Return the exit code of a comparison with a judge.

    It is also 1 if the first run is shown to be preferred to another. It is the code of an inconclusive run, instead of
    0, if the judge answered about no pair of some runs: a wrong key shows nothing.
    """
    if any(preference.shown < 0 for preference in preferred.of_first):
        return EXIT_CODES["fail"]
    unknown = any(preference.rate.value is None for preference in preferred.of_first)
    return EXIT_CODES["inconclusive"] if unknown and code == 0 else code


def _baseline(store: Store, name: str, suites: Collection[str]) -> Baseline:
    """Return the baseline of this name of one of the suites, or of any if there are none."""
    baselines = [baseline for baseline in store.runs.baselines(name) if not suites or baseline.suite in suites]
    if not baselines:
        of = f" of the suite {' or '.join(sorted(suites))}" if suites else ""
        raise NotFoundError(f"There is no baseline {name}{of}: `fepflow baseline list` shows all baselines.")
    if len(baselines) > 1:
        names = " and ".join(baseline.suite for baseline in baselines)
        raise UserError(f"{names} have a baseline {name}: give its run's id.")
    return baselines[0]


def plan_against(
    path: Path, base: str, margin: float | None, margins: Mapping[str, float], power: float, discordant: float | None
) -> list[PairedPlan]:
    """Return how many test cases show that shares are not worse than in a base by more than a margin.

    Raises InputError for a suite that is not valid, NotFoundError, and UserError if there is nothing to plan for.
    """
    from fepflow.analysis.planning import plan_against

    validation = validate(path)
    suite = validation.require()
    with open_store() as store:
        return plan_against(store, suite, contents_of(validation.cases), base, margin, margins, power, discordant)


def set_baseline(name: str, run_ids: Sequence[str]) -> tuple[Base, str | None]:
    """Make runs with a verdict a baseline of their suite. Returns the base, and the id of the run that had the name.

    Several runs are pooled. Raises NotFoundError, UserError.
    """
    if not is_baseline_name(name):
        raise UserError(
            f"{name!r} cannot name a baseline: use a letter, then letters, digits and . _ -, and no run's id."
        )
    with open_store() as store:
        runs = list({run.id: run for run in (with_outcome(store, run_id) for run_id in run_ids)}.values())
        require_poolable(runs)
        first, *others = runs
        before = store.runs.set_baseline(first.name, name, first.id, [run.id for run in others])
        return chosen(store, runs, utc_now()), before


def remove_baseline(name: str, suite: str | None) -> str:
    """Remove a baseline's name, and return its suite. Raises NotFoundError, UserError."""
    with open_store() as store:
        suites = [baseline.suite for baseline in store.runs.baselines(name) if suite in (None, baseline.suite)]
        if not suites:
            raise NotFoundError(f"There is no baseline {name!r}: `fepflow baseline list` shows all baselines.")
        if len(suites) > 1:
            raise UserError(f"{' and '.join(suites)} have a baseline {name}: name the suite (--suite).")
        store.runs.remove_baseline(suites[0], name)
        return suites[0]


def trends_of(store: Store, suite: str, metric: str | None, *, all_causes: bool = False) -> tuple[list[Series], int]:
    """Return the metrics of a suite, or one of them, over the runs like its newest one with a verdict.

    Also returns how many other runs of the suite have a verdict. With `all_causes`, runs count whatever started them.
    Raises NotFoundError.
    """
    judged = [
        run
        for run in store.runs.newest(MOST_RUNS, suite)
        if run.outcome is not None and not run.filtered and not run.rescored_from
    ]
    if not judged:
        if variants := [name for name in store.runs.suite_names() if name.startswith(f"{suite} [")]:
            names = ", ".join(repr(name) for name in variants[:MOST_NAMED])
            raise NotFoundError(f"{suite} has variants, and each has its own trends: name one, for example {names}.")
        raise NotFoundError(f"There is no run of a suite {suite!r} with a verdict: `fepflow list` shows the runs.")
    alike = store.runs.alike(judged[0], MOST_RUNS, all_causes=all_causes)
    return _series(judged[0], alike, metric), len(judged) - len(alike)


def trend_up_to(store: Store, run: RunRecord, metric: str) -> Series:
    """Return a metric over the runs like this one, up to it. Raises NotFoundError, UserError without a verdict."""
    if run.outcome is None:
        raise UserError(
            f"Run {run.id[:8]} is {run.status} and has no verdict: ask for the trend of a run with a verdict."
        )
    if run.filtered:
        raise UserError(f"Run {run.id[:8]} has only {run.filtered}, so it cannot be compared with earlier runs.")
    if run.rescored_from is not None:
        raise UserError(
            f"Run {run.id[:8]} judged the outputs of run {run.asked_in[:8]} again: ask for the trend of that run."
        )
    return _series(run, store.runs.alike(run, MOST_RUNS), metric)[0]


def _series(run: RunRecord, alike: Sequence[RunFigures], metric: str | None) -> list[Series]:
    all_series = series_of(run, alike)
    if not all_series:
        raise NotFoundError(f"No metric of {run.name} has a value in run {run.id[:8]} or in runs like it.")
    wanted = [series for series in all_series if metric in (None, series.metric)]
    if not wanted:
        raise NotFoundError(
            f"{run.name} has no metric {metric!r}: it has {known_names(series.metric for series in all_series)}."
        )
    return wanted
