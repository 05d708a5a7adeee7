"""The number of test cases that a suite's gate needs.

For a minimum it takes the agreement of repeats and clusters in earlier runs, for "not worse than a baseline" the
differences between earlier runs and the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fepflow.analysis.accumulation import cases_of, is_share_that_passed
from fepflow.analysis.dependence import Dependence
from fepflow.checks.registry import JUDGES
from fepflow.errors import NotFoundError, UserError
from fepflow.statistics.estimate import Clusters
from fepflow.statistics.planning import (
    MOST_CASES,
    MOST_PAIRS,
    VarianceParts,
    approximate_pairs,
    cases_for_power,
    cases_with_repeats,
    intraclass_correlation,
    pairs_for_power,
    power_of_pairs,
    simulated_power,
    simulated_power_of_pairs,
    variance_parts,
)
from fepflow.statistics.planning import power as power_of
from fepflow.suite.models import Gate, Suite
from fepflow.suite.values import PREVIOUS, is_baseline_name
from fepflow.text import known_names, listed, number, percent, plural
from fepflow.verdict.gate import at_look

if TYPE_CHECKING:
    from fepflow.analysis.comparison import Contents, RunResults
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store

# Comparisons need the store: they are imported where a baseline is named, as a plan without one works in the base.

EARLIER_RUNS = 20
"""Runs that are looked at to find one with repeats, or some to compare a base with."""

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
    runs = _runs_with_own_outputs(store, name)
    if not runs:
        return None
    newest = runs[0]
    alike = ("suite_hash", "cases_hash", "repeats", "n_cases")
    runs = [run for run in runs if all(getattr(run, field) == getattr(newest, field) for field in alike)]
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


def _runs_with_own_outputs(store: Store, name: str) -> list[RunRecord]:
    """Return the newest runs of the suite, without those that judge outputs of others: they tell nothing of how far
    answers differ from run to run."""
    runs = store.runs.newest(EARLIER_RUNS, name)
    return [run for run in runs if run.rescored_from is None and not run.reuses_outputs]


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


MOST_COMPARED = 5

ASSUMED_DISCORDANT = 0.1


@dataclass(frozen=True)
class PairedPlan:
    """The number of matched cases that is needed (None if unattainable), and the chance of a pass with the existing
    ones.

    `discordant` is the share of cases that differ between two runs: of `pairs` in the runs `learned_from`; stated by
    the user, or assumed, without them.
    """

    metric: str
    base: str
    margin: float
    power: float
    confidence: float
    discordant: float
    is_stated: bool
    pairs: int
    learned_from: list[str]
    matched: int
    repeats: int
    one_sided: bool
    cases: int | None
    power_of_these: float

    def data(self) -> dict[str, Any]:
        """Return the same as JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return the plan in words, one sentence a line."""
        wanted = (
            f"{self.metric} is not worse than {self.base} by more than {number(self.margin)}, "
            f"with {percent(self.confidence)}{' one-sided' if self.one_sided else ''} confidence,"
        )
        takes = (
            f"more than {MOST_PAIRS:,} test cases" if self.cases is None else f"{plural(self.cases, 'test case')}"
        ) + (f" with {self.repeats} repeats" if self.repeats > 1 else "")
        has = "case in both has" if self.matched == 1 else "cases in both have"
        chance = f"The {self.matched:,} test {has} a chance of {percent(round(self.power_of_these, 3))}."
        return [
            f"To show that {wanted} takes {takes}, if both are equally good: then {percent(self.power)} of "
            "comparisons do.",
            chance if self.matched else f"The suite has no test case in common with {self.base}.",
            self._on_discordance(),
        ]

    def _on_discordance(self) -> str:
        share = f"{self.discordant:.3g}"
        if self.is_stated:
            return f"Stated: {share} of the cases differ between two runs (--discordant)."
        if not self.pairs:
            return (
                f"Assumed: {share} of the cases differ between two runs, as no other run tells "
                "(--discordant states it)."
            )
        return (
            f"{share} of the cases differed between {self.base} and {listed(self.learned_from)} ({self.pairs} pairs)."
        )


def plan_against(
    store: Store,
    suite: Suite,
    cases: Contents,
    named: str,
    margin: float | None,
    margins: Mapping[str, float],
    power: float,
    discordant: float | None,
) -> list[PairedPlan]:
    """Plan for the suite's `cases` and each share that passed with a margin, against the run that is `named`.

    Raises NotFoundError, UserError where there is nothing to plan for.
    """
    from fepflow.analysis.comparison import match_cases, results_with_verdict

    base = _base(store, suite.name, named)
    gate = at_look(suite.gate or Gate(), 1)
    then = results_with_verdict(store, base)
    shares = {
        name: accumulator for name, accumulator in then.metrics.items() if is_share_that_passed(accumulator.metric)
    }
    asked = gate.regression.margin if gate.regression and margin is None and not margins else margin
    wanted = dict(asked) if isinstance(asked, dict) else {} if asked is None else dict.fromkeys(shares, asked)
    wanted |= margins
    if unknown := [name for name in wanted if name not in shares]:
        raise UserError(
            f"{unknown[0]} is not a share that passed in run {base.id[:8]}: name one of {known_names(shares)}."
        )
    if not wanted or min(wanted.values()) <= 0:
        raise UserError("How much worse is still accepted? Give a margin above 0, such as --margin 0.02.")
    matched = len(match_cases(then.cases, cases).pairs)
    others = [run for run in _runs_with_own_outputs(store, suite.name) if run.outcome and run.id != base.asked_in]
    called = f"{named} (run {base.id[:8]})" if is_baseline_name(named) or named == PREVIOUS else f"run {base.id[:8]}"
    plans = []
    learned = _differences(store, then, others, wanted) if discordant is None else {}
    for name, accepted in wanted.items():
        learned_from, differences = learned.get(name, ([], []))
        share = discordant
        if share is None:
            # One more than none: that none of a few pairs differed does not say that none ever will.
            differing = max(sum(value != 0 for value in differences), 1)
            share = differing / len(differences) if differences else ASSUMED_DISCORDANT
        power_of = _power_of(accepted, share, differences, base.repeats, gate.pass_confidence)
        plans.append(
            PairedPlan(
                metric=name,
                base=called,
                margin=accepted,
                power=power,
                confidence=gate.confidence,
                discordant=share,
                is_stated=discordant is not None,
                pairs=len(differences),
                learned_from=learned_from,
                matched=matched,
                repeats=base.repeats,
                one_sided=gate.sides == "one",
                cases=pairs_for_power(power_of, power, approximate_pairs(share, accepted, power, gate.pass_confidence)),
                power_of_these=power_of(matched) if matched else 0.0,
            )
        )
    return plans


def _power_of(
    margin: float, discordant: float, differences: Sequence[float], repeats: int, confidence: float
) -> Callable[[int], float]:
    """Return the function from a number of cases to its power. Without differences that were seen between repeated
    cases, a case differs in all repeats or in none."""
    if repeats == 1:
        return lambda cases: power_of_pairs(cases, margin, discordant, confidence)
    differing = round(1000 * discordant)
    seen = differences if any(differences) else [*[1.0] * differing, *[0.0] * (1000 - differing)]
    return lambda cases: simulated_power_of_pairs(cases, margin, seen, confidence=confidence)


def _base(store: Store, suite: str, named: str) -> RunRecord:
    from fepflow.analysis.comparison import baseline_of, with_outcome

    if named == PREVIOUS:
        newest = next((run for run in _runs_with_own_outputs(store, suite) if run.outcome), None)
        if newest is None:
            raise NotFoundError(f"There is no run of the suite {suite} with a verdict to plan against yet.")
        return newest
    if not is_baseline_name(named):
        return with_outcome(store, named)
    baseline = baseline_of(store, suite, named)
    if baseline is None:
        raise NotFoundError(f"There is no baseline {named} of the suite {suite}: `fepflow baseline set {named} RUN`.")
    return with_outcome(store, baseline.run_id)


def _differences(
    store: Store, then: RunResults, others: list[RunRecord], names: Collection[str]
) -> dict[str, tuple[list[str], list[float]]]:
    """Return the differences of each metric between the base and a few other runs, case by case, and the runs' ids."""
    from fepflow.analysis.comparison import case_values, compare_results, results_of

    learned: dict[str, tuple[list[str], list[float]]] = {name: ([], []) for name in names}
    for run in others:
        wanting = [name for name, (learned_from, _) in learned.items() if len(learned_from) < MOST_COMPARED]
        if not wanting:
            break
        now = results_of(store, run)
        try:
            comparison = compare_results(then, now)
        except UserError:  # nothing in common
            continue
        comparable = {metric.id for metric in comparison.metrics if metric.why_not is None}
        for name in wanting:
            earlier, later = then.metrics[name], now.metrics.get(name)
            if later is None or name not in comparable or earlier.repeats != later.repeats:
                continue
            values = case_values(earlier, later, comparison.matched)
            learned_from, differences = learned[name]
            learned_from.append(run.id[:8])
            differences += [
                new.value - base.value for base, new in values if base.value is not None and new.value is not None
            ]
    return learned
