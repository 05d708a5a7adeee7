"""The number of test cases that a suite's gate needs, using the agreement of repeats and clusters in earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.dependence import Dependence
from fepflow.checks.registry import JUDGES
from fepflow.errors import UserError
from fepflow.statistics.estimate import Clusters
from fepflow.statistics.planning import (
    MOST_CASES,
    cases_for_power,
    cases_with_repeats,
    intraclass_correlation,
    simulated_power,
)
from fepflow.statistics.planning import power as power_of
from fepflow.statistics.variance import VarianceParts, variance_parts
from fepflow.suite.models import Gate, Suite
from fepflow.text import listed, number, percent, plural

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store


EARLIER_RUNS = 20
"""Runs that are looked at to find one with repeats."""

MOST_RUNS = 5
"""Runs of the same cases whose variance is taken apart."""


@dataclass(frozen=True)
class PlanOptions:
    """The goal of a plan: a minimum, the share of answers expected to pass, and the wanted chance of a pass."""

    minimum: float
    expected: float
    power: float = 0.8
    repeats: int = 1


@dataclass(frozen=True)
class Spending:
    """The parts of a result's variance in earlier `runs` with this number of `repeats`, and the use of more calls."""

    parts: VarianceParts
    repeats: int
    runs: list[str]

    def data(self) -> dict[str, Any]:
        """Return the same as JSON."""
        return {**asdict(self), "narrowing": self.parts.narrowing(self.repeats)}

    @property
    def sentence(self) -> str:
        """Advice on what to spend the next calls, and the reason, in words."""
        parts, narrowing = self.parts, self.parts.narrowing(self.repeats)
        shares = {"between test cases": parts.case, "between answers to the same case": parts.repeat}
        if parts.run is not None:
            shares["between runs"] = parts.run
        shown = listed([f"{percent(round(part / parts.total, 2))} lies {where}" for where, part in shares.items()])
        words = {"cases": "test cases", "repeats": "repeats", "judge_samples": "samples of the judge"}
        told = listed(
            [f"{percent(round(part, 2))} with twice as many {words[name]}" for name, part in narrowing.items()]
        )
        best = "cases" if narrowing["cases"] > narrowing["repeats"] + 0.01 else "repeats"
        advice = (
            "the next call is best spent on another test case"
            if best == "cases"
            else "another repeat tells as much as another test case"
        )
        return f"Of the variance, {shown} ({listed(self.runs)}): the interval narrows by {told}, so {advice}."


@dataclass(frozen=True)
class Plan:
    """The number of cases that is needed (None if unattainable), and the chance of a pass with the existing ones.

    `clusters` are those of the suite, if its cases are not independent; of these it needs `clusters_needed`.
    `correlation` is how far repeats of a case, or the results of a cluster, agree, by the run `learned_from`; None if
    nothing is known, and they are taken to agree fully.
    """

    metric: str
    options: PlanOptions
    confidence: float
    cases: int | None
    has: int
    power_of_these: float
    correlation: float | None = None
    learned_from: str | None = None
    one_sided: bool = False
    spending: Spending | None = None
    clusters: Clusters | None = None
    clusters_needed: int | None = None

    def data(self) -> dict[str, Any]:
        """Return the same as JSON."""
        rest = {name: value for name, value in asdict(self).items() if name not in ("options", "spending")}
        return {**rest, **asdict(self.options), "spending": self.spending.data() if self.spending else None}

    def sentences(self) -> list[str]:
        """Return the plan in words, one sentence a line."""
        options = self.options
        one_sided = " one-sided" if self.one_sided else ""
        wanted = (
            f"{self.metric} of at least {number(options.minimum)} with {percent(self.confidence)}{one_sided} confidence"
        )
        if self.cases is None:
            takes = f"To show {wanted} takes more than {MOST_CASES:,} test cases"
        else:
            takes = f"To show {wanted} takes {plural(self.cases, 'test case')}{self._calls()}"
        lines = [
            f"{takes}, if {number(options.expected)} of all answers pass: then {percent(options.power)} of runs do."
        ]
        has = "1 has" if self.has == 1 else f"{self.has:,} have"
        if self.clusters is not None:
            has = f"{self.has:,} in {plural(self.clusters.number, self.clusters.noun)} have"
        lines.append(f"The suite's {has} a chance of {percent(round(self.power_of_these, 3))}.")
        if options.repeats > 1 or self.clusters is not None:
            lines.append(self._on_agreement())
        if self.spending is not None:
            lines.append(self.spending.sentence)
        return lines

    def _calls(self) -> str:
        if self.cases is None:
            return ""
        in_clusters = (
            f" in {plural(self.clusters_needed, self.clusters.noun)}" if self.clusters_needed and self.clusters else ""
        )
        repeats = self.options.repeats
        calls = "" if repeats == 1 else f" with {repeats} repeats ({self.cases * repeats:,} calls)"
        return f"{in_clusters}{calls}"

    def _on_agreement(self) -> str:
        of = "Repeats of a case" if self.clusters is None else f"Results of one {self.clusters.noun}"
        if self.correlation is not None:
            return f"{of} agree to {self.correlation:.2f} (intraclass correlation, run {self.learned_from})."
        first = "run the suite once with repeats" if self.clusters is None else "run the suite once"
        return (
            f"No earlier run tells how far {of[0].lower()}{of[1:]} agree, so they are taken to agree fully, and to add "
            f"nothing: {first}."
        )


def plan(
    store: Store | None,
    suite: Suite,
    metric: str,
    check: str,
    gate: Gate,
    options: PlanOptions,
    has: int,
    clusters: Clusters | None = None,
) -> Plan:
    """Plan for a metric that is the share of a check's results that passed.

    The suite `has` that many cases, in `clusters` if they are not independent. Raises UserError for a minimum that
    nothing can show.
    """
    if not 0 <= options.minimum < options.expected <= 1:
        raise UserError(
            f"The expected rate ({number(options.expected)}) must be above the minimum "
            f"({number(options.minimum)}), both from 0 to 1: no number of test cases can show a minimum itself."
        )
    size = 1 if clusters is None else max(round(has / clusters.number), 1)
    units, results = has if clusters is None else int(clusters.worth), options.repeats * size
    correlation, learned_from = None, None
    if results > 1 and store is not None:
        correlation, learned_from = _correlation(store, suite, check, by_cluster=clusters is not None)
    common = (gate.pass_confidence, gate.interval)
    if correlation is None:
        needed = cases_for_power(options.minimum, options.expected, options.power, *common)
        chance = power_of(units, options.minimum, options.expected, *common)
    else:
        of_results = (results, correlation, *common)
        needed = cases_with_repeats(options.minimum, options.expected, options.power, *of_results)
        chance = simulated_power(units, options.minimum, options.expected, *of_results)
    spending = None if store is None else _spending(store, suite.name, check)
    return Plan(
        metric,
        options,
        gate.confidence,
        None if needed is None else needed * size,
        has,
        chance,
        correlation,
        learned_from,
        gate.sides == "one",
        spending,
        clusters,
        None if clusters is None else needed,
    )


def _spending(store: Store, name: str, check: str) -> Spending | None:
    """Return the parts of the variance of a check's passes in the newest run of the suite and the newest others of the
    same cases; None if neither repeats nor other runs tell."""
    newest = next((run for run in store.runs.newest(1, name)), None)
    if newest is None:
        return None
    alike = ("suite_hash", "cases_hash", "repeats", "n_cases")
    runs = [
        run
        for run in store.runs.newest(EARLIER_RUNS, name)
        if all(getattr(run, field) == getattr(newest, field) for field in alike)
    ]
    runs = runs[:MOST_RUNS] if newest.suite_hash is not None and newest.cases_hash is not None else [newest]
    by_run = []
    for run in runs:  # by the cases' ids: the same cases may stand in another order
        passes = _passes_by_case(store, run, check)
        by_run.append({case.id: passes.get(index, []) for index, case in enumerate(cases_of(store, run))})
    complete = [
        case_id for case_id in by_run[0] if all(len(passes.get(case_id, ())) == newest.repeats for passes in by_run)
    ]
    parts = variance_parts([[passes[case_id] for case_id in complete] for passes in by_run],
                           votes_of(store, newest, check))  # fmt: skip
    if parts is None or parts.total == 0:
        return None
    return Spending(parts, newest.repeats, [f"run {run.id[:8]}" for run in runs])


def votes_of(store: Store, run: RunRecord, check: str) -> list[list[float]]:
    """Return the votes of a judge's samples, or of a jury's members, on each answer."""
    votes = []
    for row in store.results.check_rows(run.id, types=JUDGES):
        details = ((row.result or {}).get("results") or {}).get("metadata")
        samples = details.get("jury") or details.get("samples") if isinstance(details, dict) else None
        if row.check_id == check and isinstance(samples, dict):
            sample_votes = [vote_of_sample.get("passed") for vote_of_sample in samples.get("said", ())]
            votes.append([float(vote) for vote in sample_votes if isinstance(vote, bool)])
    return votes


def _correlation(store: Store, suite: Suite, check: str, *, by_cluster: bool) -> tuple[float | None, str | None]:
    """Return how far results of a case, or of a cluster, agree in the newest run of the suite that tells, with the
    first part of its id."""
    for run in store.runs.newest(EARLIER_RUNS, suite.name):
        if run.repeats > 1 or by_cluster:
            numbers = _numbers(store, run, suite) if by_cluster else range(run.n_cases)
            correlation = intraclass_correlation(_passes(store, run, check, numbers))
            if correlation is not None:
                return correlation, run.id[:8]
    return None, None


def _numbers(store: Store, run: RunRecord, suite: Suite) -> Sequence[int]:
    """Return the number of each case's cluster, as the suite has them now."""
    dependence = Dependence(run.suite, suite.cluster, Gate())
    for case in cases_of(store, run):
        dependence.add(case)
    return range(run.n_cases) if dependence.clusters is None else dependence.clusters.numbers


def _passes(store: Store, run: RunRecord, check: str, numbers: Sequence[int]) -> list[list[float]]:
    by_unit: dict[int, list[float]] = {}
    for case_index, passes in _passes_by_case(store, run, check).items():
        by_unit.setdefault(numbers[case_index], []).extend(passes)
    return list(by_unit.values())


def _passes_by_case(store: Store, run: RunRecord, check: str) -> dict[int, list[float]]:
    by_case: dict[int, list[float]] = {}
    for row in store.results.check_rows(run.id, results=False):
        if row.check_id == check and row.passed is not None:
            by_case.setdefault(row.case_index, []).append(float(row.passed))
    return by_case
