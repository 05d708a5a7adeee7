"""The number of test cases that it takes to show that a new version is not worse than a baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fepflow.analysis.accumulation import is_share_that_passed
from fepflow.analysis.baselines import baseline_of, with_outcome
from fepflow.analysis.comparison import (
    Contents,
    RunResults,
    case_values,
    compare_results,
    match_cases,
    results_of,
    results_with_verdict,
)
from fepflow.errors import NotFoundError, UserError
from fepflow.statistics.paired_planning import (
    MOST_CASES,
    approximate_pairs,
    pairs_for_power,
    power_of_pairs,
    simulated_power_of_pairs,
)
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Suite
from fepflow.suite.values import PREVIOUS, is_baseline_name
from fepflow.text import known_names, listed, number, percent, plural
from fepflow.verdict.gate import at_look

EARLIER_RUNS = 20
"""Runs that are looked at to find some to compare the base with."""

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
            f"more than {MOST_CASES:,} test cases" if self.cases is None else f"{plural(self.cases, 'test case')}"
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
    others = [run for run in store.runs.newest(EARLIER_RUNS, suite.name) if run.outcome and run.id != base.id]
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
    if named == PREVIOUS:
        newest = next((run for run in store.runs.newest(EARLIER_RUNS, suite) if run.outcome), None)
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
