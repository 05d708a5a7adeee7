"""Which share of a sampled test's results passed, and what that means."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult, StatusText
from fepflow.protocol.test_case import Output
from fepflow.verdict.pass_rule import (
    PassRule,
    SampleOutcome,
    SampleResult,
    chance_of_each_case,
    judge_samples,
    outcome_of,
)

LETTERS: dict[str, SampleOutcome] = {"p": "passed", "f": "failed", "e": "error", "u": "unchecked", "s": "skipped"}


def check(status: StatusText = "completed", **results: Any) -> CheckResult:
    return CheckResult(check_type="contains", status=status, results=results, evaluated_at=utc_now())


def results_of(*cases: str) -> list[SampleResult]:
    """One text a case, one letter a sample."""
    return [
        SampleResult(case_index, sample, Output(value="x"), [], LETTERS[letter])
        for case_index, case in enumerate(cases)
        for sample, letter in enumerate(case)
    ]


def outcome(rule: PassRule, threshold: float, *cases: str) -> str:
    return judge_samples(results_of(*cases), len(cases[0]), rule, threshold).outcome


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ({"passed": True}, True),
        ({"passed": False, "score": 1}, False),
        ({"response": {"passed": True}}, True),
        ({"score": 1}, None),
        ({"passed": "yes"}, None),
        ({"response": "passed"}, None),
        ({}, None),
    ],
)
def test_a_check_passed_where_its_results_say_so(results: dict[str, Any], passed: bool | None) -> None:
    assert check(**results).passed is passed


@pytest.mark.parametrize(
    ("checks", "outcome"),
    [
        ([check(passed=True), check(passed=True)], "passed"),
        ([check(passed=True), check(passed=False)], "failed"),
        ([check("error"), check(passed=False)], "failed"),
        ([check("error"), check(passed=True)], "error"),
        ([check("skip"), check(passed=True)], "skipped"),
        ([check("skip"), check("error")], "error"),
        ([check(score=0.9), check(passed=True)], "error"),
        ([], "unchecked"),
    ],
)
def test_a_result_passes_only_if_all_its_checks_do(checks: list[CheckResult], outcome: SampleOutcome) -> None:
    assert outcome_of(checks) == outcome


@pytest.mark.parametrize(
    ("rule", "threshold", "cases", "expected"),
    [
        ("case", 0.5, ("pf", "fp"), "pass"),
        ("case", 0.51, ("pf", "fp"), "fail"),
        ("case", 0.75, ("pp", "pe"), "pass"),
        ("case", 1.0, ("pp", "pe"), "inconclusive"),
        ("case", 1.0, ("pp", "ps"), "inconclusive"),
        ("case", 0.75, ("ff", "pe"), "fail"),
        ("case", 1.0, ("ee", "ee"), "inconclusive"),
        ("case", 1.0, ("uu", "uu"), "inconclusive"),
        ("sample", 1.0, ("up", "pp"), "inconclusive"),
        ("each_case", 0.6, ("ppp", "puf"), "inconclusive"),
        ("sample", 0.5, ("pf", "pp"), "pass"),
        ("sample", 0.5, ("pf", "fp"), "fail"),
        ("sample", 1.0, ("pe", "pp"), "inconclusive"),
        ("sample", 0.5, ("fe", "ef"), "fail"),
        ("each_case", 0.5, ("pf", "fp"), "pass"),
        ("each_case", 0.6, ("ppp", "pff"), "fail"),
        ("each_case", 0.6, ("ppp", "pef"), "inconclusive"),
        ("each_case", 0.6, ("fff", "pef"), "fail"),
        ("case", 0.0, ("ff", "ff"), "pass"),
    ],
)
def test_the_outcome_by_rule(rule: PassRule, threshold: float, cases: tuple[str, ...], expected: str) -> None:
    assert outcome(rule, threshold, *cases) == expected


@pytest.mark.parametrize("n", [3, 7, 10, 30, 100])
def test_a_rate_that_is_the_threshold_reaches_it(n: int) -> None:
    for passed in range(n + 1):
        assert outcome("case", passed / n, "p" * passed + "f" * (n - passed)) == "pass"


GRIDS = st.integers(1, 3).flatmap(
    lambda samples: st.lists(st.text("pfeus", min_size=samples, max_size=samples), min_size=1, max_size=3)
)


@given(GRIDS, st.sampled_from(["case", "sample", "each_case"]), st.sampled_from([0.3, 0.5, 0.9, 1.0]))
def test_a_verdict_holds_whatever_the_missing_answers_would_have_been(
    cases: list[str], rule: PassRule, threshold: float
) -> None:
    gaps = [(row, column) for row, case in enumerate(cases) for column, letter in enumerate(case) if letter in "eus"]
    possible = set()
    for filling in product("pf", repeat=min(len(gaps), 9)):
        grid = [list(case) for case in cases]
        for (row, column), letter in zip(gaps, filling, strict=True):
            grid[row][column] = letter
        possible.add(outcome(rule, threshold, *map("".join, grid)))
    expected = possible.pop() if len(possible) == 1 else "inconclusive"
    assert outcome(rule, threshold, *cases) == expected


@given(GRIDS, st.sampled_from(["case", "sample", "each_case"]))
def test_the_metric_counts_all_that_was_expected(cases: list[str], rule: PassRule) -> None:
    metric = judge_samples(results_of(*cases), len(cases[0]), rule, 0.5).metrics[0]
    units = {"case": len(cases) * len(cases[0]), "sample": len(cases[0]), "each_case": len(cases)}
    assert metric.n_expected == units[rule]
    assert metric.n_expected == metric.n_completed + metric.n_error + metric.n_skipped
    if metric.low is not None and metric.high is not None:
        passed = Fraction(0 if metric.value is None else metric.value) * metric.n_completed
        assert metric.low - 1e-12 <= passed / metric.n_expected <= metric.high + 1e-12


def test_the_reason_has_counts_rate_interval_and_threshold() -> None:
    verdict = judge_samples(results_of("ppppp", "ppfes"), 5, "case", 0.8)
    assert verdict.outcome == "inconclusive"
    (reason,) = verdict.reasons
    assert reason.startswith("7 of 10 results passed: 0.7 (95 % interval 0.")
    assert reason.endswith(" for these cases), the threshold is 0.8; 1 in error and 1 skipped, which could decide it.")
    assert verdict.metrics[0].outcome == "inconclusive"
    assert verdict.metrics[0].threshold == 0.8


def test_the_reason_says_what_no_check_looked_at_and_calls_it_no_error() -> None:
    (reason,) = judge_samples(results_of("pueu"), 4, "case", 1.0).reasons
    assert reason.endswith("; 1 in error and 2 without any check, which could decide it.")
    assert (
        judge_samples(results_of("u"), 1, "case", 1.0)
        .reasons[0]
        .endswith("; 1 without any check, which could decide it.")
    )


@pytest.mark.parametrize(("passed", "low", "high"), [(9, 0.59585, 0.98212), (6, 0.31267, 0.83182)])
@pytest.mark.parametrize("cases", [1, 2, 5, 10])
def test_the_interval_is_about_these_cases_however_the_results_are_spread(
    passed: int, low: float, high: float, cases: int
) -> None:
    letters = "p" * passed + "f" * (10 - passed)
    rows = [letters[start :: 10 // (10 // cases)] for start in range(cases)]
    metric = judge_samples(results_of(*rows), 10 // cases, "case", 0.8).metrics[0]
    assert [metric.low, metric.high] == pytest.approx([low, high], abs=1e-5)
    assert metric.method == "wilson"


@pytest.mark.battery
def test_a_rate_just_below_is_not_rounded_onto_its_threshold() -> None:
    verdict = judge_samples(results_of("p" * 99_999 + "f"), 100_000, "case", 1.0)
    assert "99999 of 100000 results passed: 0.99999 " in verdict.reasons[0]


@pytest.mark.parametrize(
    ("rule", "sentence", "gate"),
    [
        ("case", "1 of 2 results passed: 0.5 ", "At least 0.5 of the results must pass."),
        (
            "sample",
            "1 of 2 samples passed: 0.5 ",
            "At least 0.5 of the samples must pass, each with all its test cases.",
        ),
        (
            "each_case",
            "1 of 1 test cases passed in at least 0.5 of their samples: 1 ",
            "Every test case must pass in at least 0.5 of its samples.",
        ),
    ],
)
def test_every_rule_has_a_gate_sentence(rule: PassRule, sentence: str, gate: str) -> None:
    verdict = judge_samples(results_of("pf"), 2, rule, 0.5)
    assert verdict.reasons[0].startswith(sentence)
    assert verdict.gate == gate
    assert "at least 1 of" not in str(judge_samples(results_of("pf"), 2, rule, 1.0)).lower()


def test_each_check_has_a_metric_over_the_cases_that_have_it() -> None:
    def result(case_index: int, sample: int, *checks: CheckResult) -> SampleResult:
        return SampleResult(case_index, sample, Output(value="x"), list(checks), outcome_of(checks))

    own = check(passed=False).model_copy(update={"metadata": {"check_id": "own"}})
    results = [result(0, 0, check(passed=True)), result(0, 1, check("error"))]
    results += [result(1, 0, own, check(passed=True)), SampleResult(1, 1, None, [], "skipped")]
    metrics = {metric.id: metric for metric in judge_samples(results, 2, "case", 0.5).metrics}
    assert list(metrics) == ["pass_rate", "contains", "own"]
    contains = metrics["contains"]
    assert (contains.n_expected, contains.n_completed, contains.n_error, contains.n_skipped) == (4, 2, 1, 1)
    assert contains.value == 1
    assert (metrics["own"].n_expected, metrics["own"].n_skipped, metrics["own"].value) == (2, 1, 0)


NEITHER = "0.9, which is neither shown to be reached nor to be missed"


def shown(rule: PassRule, threshold: float, *cases: str) -> tuple[str, bool, str]:
    """The outcome if it has to be shown, whether it fails the test, and the end of its reason."""
    verdict = judge_samples(results_of(*cases), len(cases[0]), rule, threshold, shown=True)
    return verdict.outcome, verdict.blocks, verdict.reasons[0].split("the threshold is ")[-1].split("all have to; ")[-1]


@pytest.mark.parametrize(
    ("rule", "cases", "expected"),
    [
        ("case", ("p" * 26, "p" * 26), ("pass", False, "0.9, which is shown to be reached.")),
        ("case", ("p" * 190 + "f" * 10,), ("inconclusive", False, f"{NEITHER}.")),
        ("case", ("p" * 51,), ("inconclusive", False, f"{NEITHER} (to show it takes 52 passes or more).")),
        ("case", ("p" * 15 + "f" * 15,), ("fail", True, "0.9, which is shown to be missed.")),
        ("case", ("p" * 50 + "eeeee", "p" * 50 + "eeeee"), ("inconclusive", False, f"{NEITHER}; 10 in error.")),
        ("case", ("p" * 15 + "e" * 15,), ("inconclusive", True, f"{NEITHER}; 15 in error, which could decide it.")),
        ("case", ("e" * 10,), ("inconclusive", True, f"{NEITHER}; 10 in error, which could decide it.")),
        ("sample", ("p" * 52, "p" * 52), ("pass", False, "0.9, which is shown to be reached.")),
        ("sample", ("p" * 15 + "f" * 5, "f" * 10 + "p" * 10), ("fail", True, "0.9, which is shown to be missed.")),
        ("each_case", ("p" * 52, "p" * 52), ("pass", False, "2 are shown to, 0 not to, 0 neither.")),
        ("each_case", ("p" * 52, "p" * 51 + "f"), ("inconclusive", False, "1 are shown to, 0 not to, 1 neither.")),
        ("each_case", ("p" * 52, "p" * 12 + "f" * 40), ("fail", True, "1 are shown to, 1 not to, 0 neither.")),
    ],
)
def test_a_verdict_that_has_to_be_shown(
    rule: PassRule, cases: tuple[str, ...], expected: tuple[str, bool, str]
) -> None:
    assert shown(rule, 0.9, *cases) == expected


def test_a_shown_verdict_has_the_interval_that_holds_at_every_look() -> None:
    verdict = judge_samples(results_of("p" * 52), 52, "case", 0.9, shown=True)
    assert verdict.gate == "At least 0.9 of the results must pass; it fails only if fewer are shown."
    assert verdict.metrics[0].method == "sequential-these-cases"
    assert " for these cases, at every look), the threshold is 0.9, which is shown to be reached." in verdict.reasons[0]


def test_the_chance_of_each_case_is_that_of_coins() -> None:
    assert chance_of_each_case(20, 5, 0.8, 0.8) == pytest.approx(0.00225, abs=5e-6)
    assert chance_of_each_case(20, 5, 0.8, 0.9) == pytest.approx(0.18279, abs=5e-6)
    assert chance_of_each_case(3, 2, 1.0, 1.0) == 1.0
    assert chance_of_each_case(3, 2, 0.0, 0.1) == 1.0


@pytest.mark.battery
@pytest.mark.parametrize(("rule", "cases", "samples"), [("case", 1, 10), ("case", 20, 5), ("each_case", 20, 5)])
def test_a_test_at_its_threshold_that_has_to_be_shown_seldom_fails_or_passes(
    rule: PassRule, cases: int, samples: int
) -> None:
    """Topped up as the decorator does. By its value, one case of 10 samples fails 32 times in 100, 20 of 5 99.8."""
    rng, runs, outcomes = Random(f"{rule} {cases}"), 400, []
    for _ in range(runs):
        made = ["".join("p" if rng.random() < 0.8 else "f" for _ in range(samples)) for _ in range(cases)]
        while (verdict := judge_samples(results_of(*made), len(made[0]), rule, 0.8, shown=True)).outcome not in (
            "pass",
            "fail",
        ) and len(made[0]) < 5 * samples:
            more = min(max(len(made[0]) // 4, 1), 5 * samples - len(made[0]))
            made = [row + "".join("p" if rng.random() < 0.8 else "f" for _ in range(more)) for row in made]
        outcomes.append(verdict.outcome)
    most = 0.025 + 2 * math.sqrt(0.025 * 0.975 / runs)
    assert outcomes.count("fail") / runs <= most
    assert outcomes.count("pass") / runs <= most
