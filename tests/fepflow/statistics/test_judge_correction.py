import math
from random import Random

import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale, describe
from fepflow.statistics.judges import (
    CorrectedSample,
    JudgeLabels,
    corrected,
    doubt_of_labels,
    lang_reiczigel_interval,
    youden_index,
)
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.sequential import group_sequential_estimate, nominal_confidence

RUNS = 4_000
MOST = 0.03 + 2.5 * math.sqrt(0.03 * 0.97 / RUNS)


def raw(passed: int, n: int, missing: int = 0) -> Estimate:
    values = [[1.0]] * passed + [[0.0]] * (n - passed) + [[]] * missing
    return mean_estimate(values, Counts(n + missing, n, missing), scale=PROPORTION)


def drawn(right_passed: int, passed: int, right_failed: int, failed: int) -> JudgeLabels:
    """Labels by what the judge said: so many right of those that it passed, and of those that it failed."""
    wrong_failed = failed - right_failed
    return JudgeLabels(
        right_passed + right_failed,
        right_passed,
        passed - right_passed + wrong_failed,
        wrong_failed,
        "random",
        of_run=True,
    )


def figures(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def test_golden_values() -> None:
    elsewhere = corrected(raw(400, 500), JudgeLabels(100, 95, 100, 80))
    assert figures(elsewhere) == pytest.approx((0.8, 0.73368, 0.87801), abs=5e-6)
    assert elsewhere.method == "rogan-gladen"
    here = corrected(raw(460, 500), drawn(85, 92, 1, 8))
    assert figures(here) == pytest.approx((0.86, 0.78920, 0.90806), abs=5e-6)
    assert here.method == "mover"


def test_labels_drawn_by_verdict_count_by_the_shares_of_the_run() -> None:
    """Half of the labels are of each kind; the judge passed 0.92 of the run."""
    labels = JudgeLabels(46, 46, 54, 50, "by_verdict", of_run=True, share=0.92)
    here = corrected(raw(920, 1_000), labels)
    assert here.value == pytest.approx(0.92 * 46 / 50)
    assert here.low < 0.84 < here.high < 0.9
    weighted = labels.weighted
    assert weighted.passed / weighted.n == pytest.approx(0.92)
    assert weighted.right_passed == pytest.approx(46), "no label counts for more than one"
    assert weighted.wrong_failed == pytest.approx(50 * 0.08 / 0.92)
    youden = youden_index(labels)
    assert youden is not None
    assert youden[0] == pytest.approx(0.08 / (0.08 + 0.92 * 4 / 50))
    unweighted = youden_index(JudgeLabels(46, 46, 54, 50))
    assert unweighted is not None
    assert unweighted[0] > 0.9, "what a hand that picked them would make it"
    elsewhere = JudgeLabels(46, 46, 54, 50, "by_verdict", share=0.92)
    assert corrected(raw(920, 1_000), elsewhere).value == pytest.approx(0.92 * 46 / 50)


def test_labels_of_other_outputs_have_to_fit_the_run() -> None:
    labels = JudgeLabels(100, 95, 100, 80)
    assert doubt_of_labels(labels, 0.575, 500) is None
    assert doubt_of_labels(labels, 0.8, 500) == (
        "the labels do not fit this run: the judge passed 0.575 of the labelled outputs, and 0.8 of this run's, which "
        "chance does not explain"
    )
    for passed in range(240, 400, 7):
        failed = 500 - passed
        chi2 = 700 * (115 * failed - 85 * passed) ** 2 / (200 * 500 * (115 + passed) * (85 + failed))
        assert (doubt_of_labels(labels, passed / 500, 500) is None) == (scipy.special.chdtrc(1, chi2) >= 0.05)
    assert doubt_of_labels(JudgeLabels(9, 9, 0, 0), 1.0, 50) is None
    weighted = JudgeLabels(46, 46, 54, 50, "by_verdict", share=0.92)
    assert doubt_of_labels(weighted, 0.92, 1_000) is None, "by the share that they were drawn from"
    assert doubt_of_labels(JudgeLabels(46, 46, 54, 50), 0.92, 1_000) is not None


def test_labels_that_somebody_picked_from_the_run_tell_nothing_of_it() -> None:
    counts = (46, 46, 54, 50)
    assert "picked and not drawn" in (doubt_of_labels(JudgeLabels(*counts, of_run=True), 0.5, 100) or "")
    for of_run in (True, False):
        assert "most disputed" in (doubt_of_labels(JudgeLabels(*counts, "disputed", of_run), 0.5, 100) or "")
    for design in ("all", "by_verdict", "random"):
        assert doubt_of_labels(JudgeLabels(*counts, design, of_run=True), 0.92, 100) is None


def test_more_than_all_is_said_and_not_only_cut_off() -> None:
    labels = JudgeLabels(67, 49, 33, 32)
    estimate = corrected(raw(772, 1_000), labels)
    assert estimate.value == 1
    assert estimate.warning == (
        "by the judge's errors among the labels 1.058 of all outputs would be right, which cannot be"
    )
    assert corrected(raw(500, 1_000), labels).warning is None
    assert "which cannot be" in (corrected(raw(0, 1_000), JudgeLabels(50, 50, 50, 40)).warning or "")


def test_a_judge_that_is_no_better_than_chance_tells_nothing() -> None:
    for labels in (
        JudgeLabels(10, 5, 10, 5),
        JudgeLabels(10, 1, 10, 1),
        JudgeLabels(0, 0, 50, 50),
        JudgeLabels(0, 0, 0, 0),
    ):
        estimate = corrected(raw(400, 500), labels)
        assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
        assert "as often as right ones" in estimate.problem
    unlucky = corrected(raw(400, 500), JudgeLabels(2, 2, 2, 1))
    assert unlucky.value is not None
    assert unlucky.low < 0.5


def test_labels_of_only_what_was_passed_leave_what_was_failed_open() -> None:
    estimate = corrected(raw(99, 100), drawn(50, 50, 0, 0))
    assert estimate.low < 0.95 < estimate.high <= 1
    mostly_failed = corrected(raw(10, 100), drawn(5, 5, 0, 0))
    assert mostly_failed.low < 0.1
    assert mostly_failed.high > 0.95
    assert corrected(raw(80, 100), drawn(0, 0, 0, 0)).value is None


def test_at_a_planned_look_a_corrected_share_holds_at_all_of_them() -> None:
    plain, labels = raw(460, 500), drawn(85, 92, 1, 8)
    once = corrected(plain, labels)
    first, last = (corrected(group_sequential_estimate(plain, look, 4), labels) for look in (1, 4))
    assert (last.value, last.method, last.confidence) == (once.value, once.method, once.confidence)
    assert first.low < last.low < once.low < once.high < last.high < first.high
    assert (first.low, first.high) == figures(once.at(nominal_confidence(1, 4, 0.95)))[1:]
    assert "corrected for its judge's errors" in describe(first)


def test_only_a_share_is_corrected() -> None:
    score = mean_estimate([[0.5]] * 9, Counts(9, 9), scale=Scale(0, 1))
    assert corrected(score, JudgeLabels(10, 9, 10, 9)) is None
    assert corrected(raw(0, 0, 5), JudgeLabels(10, 9, 10, 9)) is None


@pytest.mark.parametrize("counts", [(1, 2, 1, 1), (1, 1, 1, 2), (1, -1, 1, 1)])
def test_labels_that_cannot_be_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        JudgeLabels(*counts)


LABELS = st.builds(
    lambda right, wrong, a, b, of_run: JudgeLabels(
        right, round(a * right), wrong, round(b * wrong), "random", of_run=of_run
    ),
    st.integers(0, 200), st.integers(0, 200), st.floats(0, 1), st.floats(0, 1), st.booleans(),
)  # fmt: skip


@given(st.integers(1, 500), st.floats(0, 1), LABELS, st.integers(0, 50))
def test_the_interval_holds_the_value_and_is_wider_with_what_is_missing(
    n: int, share: float, labels: JudgeLabels, missing: int
) -> None:
    whole = corrected(raw(round(share * n), n), labels)
    part = corrected(raw(round(share * n), n, missing), labels)
    if whole.value is not None:
        assert 0 <= whole.low <= whole.value <= whole.high <= 1
        assert part.low <= whole.low
        assert part.high >= whole.high
        assert part.point_range[0] <= whole.value <= part.point_range[1] + 1e-12
        if labels.of_run or min(labels.right, labels.wrong) >= 10:  # of fewer the formula's centre moves too far
            wider = whole.at(0.99)
            assert wider.low <= whole.low
            assert wider.high >= whole.high


def test_more_outputs_narrow_the_interval_only_as_far_as_the_labels_go() -> None:
    sample = corrected(raw(400, 500), JudgeLabels(100, 95, 100, 80)).sample
    assert isinstance(sample, CorrectedSample)
    few, many = sample.with_cases(500, 0.95), sample.with_cases(500_000, 0.95)
    assert few[0] < many[0] < many[1] < few[1]
    assert many[1] - many[0] > 0.05


def test_a_judge_that_never_failed_a_right_output_lifts_no_low_bound() -> None:
    """Two more labels, one of them an error, would lift it above that of a judge that did fail one."""
    never, once = (JudgeLabels(75, passed, 75, 38) for passed in (75, 74))
    low, high = lang_reiczigel_interval(0.92, 1_000, never, 0.95)
    assert low < lang_reiczigel_interval(0.92, 1_000, once, 0.95)[0]
    # The same of the other side, as wrong outputs are to it what right ones are to this.
    mirrored = lang_reiczigel_interval(0.08, 1_000, JudgeLabels(75, 38, 75, 75), 0.95)
    assert mirrored == pytest.approx((1 - high, 1 - low))


@pytest.mark.battery
@pytest.mark.parametrize("of_run", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.03])
@pytest.mark.parametrize(("tpr", "tnr"), [(0.95, 0.9), (1.0, 0.5), (0.8, 0.8)])
@pytest.mark.parametrize("n", [200, 1_000])
def test_a_corrected_share_at_the_boundary_seldom_passes(
    n: int, tpr: float, tnr: float, missing: float, of_run: bool
) -> None:
    """The truth is 0.84, and so is the minimum; 150 labels."""
    rng, passed, truth = Random(f"{n} {tpr} {tnr} {missing} {of_run}"), 0, 0.84
    for _ in range(RUNS):
        outputs = [_judged(rng, truth, tpr, tnr) for _ in range(n)]
        labelled = rng.sample(outputs, 150) if of_run else [_judged(rng, 0.5, tpr, tnr) for _ in range(150)]
        kept = [said for _, said in outputs if rng.random() >= missing]
        labels = JudgeLabels(
            sum(is_right for is_right, _ in labelled),
            sum(is_right and said for is_right, said in labelled),
            sum(not is_right for is_right, _ in labelled),
            sum(not is_right and not said for is_right, said in labelled),
            "random",
            of_run,
        )
        estimate = corrected(raw(sum(kept), len(kept), n - len(kept)), labels)
        passed += estimate.low is not None and estimate.low >= truth
    assert passed / RUNS <= MOST


def _judged(rng: Random, truth: float, tpr: float, tnr: float) -> tuple[bool, bool]:
    is_right = rng.random() < truth
    return is_right, rng.random() < (tpr if is_right else 1 - tnr)
