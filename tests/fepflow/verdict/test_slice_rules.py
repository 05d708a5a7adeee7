import pytest

from fepflow.statistics.estimate import PROPORTION, Counts, Scale
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.quantiles import quantile_estimate
from fepflow.suite.models import Gate
from fepflow.verdict.gate import SliceEstimate, cases_needed, decide
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, Verdict

SHARED: tuple[CheckTotals, ...] = (CheckTotals("contains", 500, 450, 50),)


def topic(name: str, passed: int, failed: int = 0, error: int = 0, metric: str = "acc") -> SliceEstimate:
    values = [[1.0]] * passed + [[0.0]] * failed + [[]] * error
    estimate = mean_estimate(values, Counts(len(values), passed + failed, error), scale=PROPORTION)
    return SliceEstimate(MetricEstimate(metric, "contains", estimate), "topic", name, len(values), PROPORTION)


def judged(
    *slices: SliceEstimate, gate: Gate | None = None, minimum: float = 0.8, ignore_small: bool = False
) -> Verdict:
    metric = MetricEstimate("acc", "contains", mean_estimate([[1.0]], Counts(1, 1), scale=PROPORTION))
    return decide([metric], gate, None, SHARED, slices, {"acc": minimum}, ignore_small_slices=ignore_small)


def outcomes(verdict: Verdict) -> dict[str, str | None]:
    return {each.slice: each.outcome for each in verdict.slices}


def test_it_passes_when_all_slices_do() -> None:
    verdict = judged(topic("a", 50), topic("b", 48, 2))
    assert verdict.outcome == "pass"
    assert verdict.gate == "acc must be at least 0.8 in each topic (95 % intervals)."
    assert verdict.reasons == [
        "acc by topic: all 2 slices reach the minimum of 0.8; the least is b 0.96 "
        "(95 % interval 0.8654 to 0.989, n = 50)."
    ]
    assert verdict.not_judged == [], "the check is judged by its slices, and need not pass everywhere"


def test_one_slice_that_is_below_fails_all() -> None:
    verdict = judged(topic("a", 50), topic("b", 20, 30), topic("c", 42, 8))
    assert (verdict.outcome, outcomes(verdict)) == ("fail", {"b": "fail", "c": "inconclusive", "a": "pass"})
    assert verdict.reasons == [
        "acc by topic: 1 of 3 slices is below the minimum of 0.8: b 0.4 (95 % interval 0.2761 to 0.5382, n = 50)."
    ]


def test_a_slice_that_does_not_show_it_is_inconclusive() -> None:
    verdict = judged(topic("a", 50), topic("b", 42, 8))
    assert verdict.outcome == "inconclusive"
    assert "1 of 2 slices is not shown to reach the minimum of 0.8: b 0.84" in verdict.reasons[0]


def test_values_of_small_slices_are_drawn_in_for_reading_only() -> None:
    """Nothing is judged by them: the raw share of the small slice fails, as before."""
    verdict = judged(topic("a", 95, 5), topic("b", 85, 15), topic("small", 2, 8))
    shrunk = {each.slice: each.shrunk for each in verdict.slices}
    assert shrunk["a"] == pytest.approx(0.95, abs=0.01)
    assert 0.22 < shrunk["small"] < 0.5
    assert outcomes(verdict)["small"] == "fail"
    assert [each.shrunk for each in judged(topic("a", 9), topic("b", 9)).slices] == [None, None]


def test_a_slice_fails_by_its_p_value_among_all_slices() -> None:
    suspicious = topic("b", 33, 17)  # mid-p 0.0105
    alone, among = judged(suspicious), judged(suspicious, *(topic(str(n), 50) for n in range(5)))
    assert outcomes(alone)["b"] == "fail"
    assert outcomes(among)["b"] == "inconclusive"
    (p, adjusted) = (next(each.p for each in of.slices if each.slice == "b") for of in (alone, among))
    assert p == pytest.approx(0.0105, abs=5e-4)
    assert adjusted == pytest.approx(6 * p)


def test_what_is_missing_counts_as_passed_for_a_fail_and_as_failed_for_a_pass() -> None:
    assert outcomes(judged(topic("a", 20, 30))) == {"a": "fail"}
    assert outcomes(judged(topic("a", 20, 10, 20))) == {"a": "inconclusive"}
    assert outcomes(judged(topic("a", 45))) == {"a": "pass"}
    assert outcomes(judged(topic("a", 45, 0, 5))) == {"a": "inconclusive"}
    assert outcomes(judged(topic("a", 0, 0, 50))) == {"a": "inconclusive"}


def test_a_slice_without_any_value_keeps_the_others_from_passing() -> None:
    verdict = judged(topic("a", 50), topic("b", 0, 0, 50))
    assert verdict.outcome == "inconclusive"
    assert (
        "1 of 2 slices is not shown to reach the minimum of 0.8: b no value (n = 0 of 50: 50 errors)"
        in verdict.reasons[0]
    )


def test_a_small_slice_can_fail_and_cannot_pass() -> None:
    assert cases_needed(0.8, PROPORTION, Gate()) == 17
    for ignore_small in (False, True):
        verdict = judged(topic("a", 50), topic("b", 0, 15), topic("c", 17), ignore_small=ignore_small)
        assert (verdict.outcome, outcomes(verdict)) == ("fail", {"a": "pass", "b": "fail", "c": "pass"})
        p = next(each.p for each in verdict.slices if each.slice == "b")
        assert p == pytest.approx(3 * 0.2**15 / 2, rel=1e-6), "among three slices"
    verdict = judged(topic("a", 50), topic("b", 15))
    assert (verdict.outcome, outcomes(verdict)) == ("inconclusive", {"a": "pass", "b": "inconclusive"})
    assert verdict.reasons == [
        "acc by topic: 1 of 2 slices is not shown to reach the minimum of 0.8: b 1 "
        "(95 % interval 0.782 to 1, n = 15); so few cases cannot show it even if all pass: b."
    ]


def test_small_slices_can_be_ignored_unless_they_fail() -> None:
    verdict = judged(topic("a", 50), topic("b", 14, 1), ignore_small=True)
    assert (verdict.outcome, outcomes(verdict)) == ("pass", {"a": "pass", "b": None})
    assert "the only slice with enough cases reaches the minimum of 0.8" in verdict.reasons[0]
    assert "NOT JUDGED (small: ignore), as so few cases" in verdict.warnings[0]
    assert verdict.warnings[0].endswith("acc of topic b.")


def test_slices_that_are_all_too_small_decide_nothing() -> None:
    verdict = judged(*(topic(str(n), 10) for n in range(7)), ignore_small=True)
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons == ["acc by topic: no slice has enough cases to be compared with the minimum of 0.8."]
    assert "0, 1, 2, 3, 4 and 2 more" in verdict.warnings[0]
    assert judged().outcome == "inconclusive", "no slices at all"


def test_a_minimum_of_all_can_fail_and_not_pass() -> None:
    assert outcomes(judged(topic("a", 50), topic("b", 49, 1), minimum=1.0)) == {"a": "inconclusive", "b": "fail"}


def test_point_values_decide_if_the_gate_says_so() -> None:
    slices = topic("a", 41, 9), topic("b", 39, 11), topic("c", 39, 0, 11)
    assert outcomes(judged(*slices, gate=Gate(verdict="point"))) == {"b": "fail", "c": "inconclusive", "a": "pass"}
    by_value = judged(topic("a", 41, 9), topic("b", 39, 11), gate=Gate(fail="value"))
    assert outcomes(by_value) == {"b": "fail", "a": "inconclusive"}


def test_slices_go_with_the_other_rules() -> None:
    metric = MetricEstimate(
        "acc", "contains", mean_estimate([[1.0]] * 90 + [[0.0]] * 10, Counts(100, 100), scale=PROPORTION)
    )
    gate = Gate(min={"acc": 0.92})
    verdict = decide([metric], gate, None, SHARED, [topic("a", 50)], {"acc": 0.8})
    assert [(rule.rule, rule.outcome) for rule in verdict.rules] == [
        ("acc: at least 0.92", "inconclusive"),
        ("acc: at least 0.8 in each topic", "pass"),
    ]
    described = decide([metric], gate, None, SHARED, [topic("a", 0, 50)], {})
    assert [rule.rule for rule in described.rules] == ["acc: at least 0.92"]
    assert outcomes(described) == {"a": None}


def test_scores_with_a_range_are_judged_and_others_are_not() -> None:
    def scored(values: list[float], scale: Scale | None) -> SliceEstimate:
        estimate = mean_estimate([[value] for value in values], Counts(len(values), len(values)), scale=scale)
        return SliceEstimate(MetricEstimate("acc", "c", estimate, of_passes=False), "topic", "a", len(values), scale)

    stars = Scale(1, 5)
    assert outcomes(judged(scored([4.0, 4.5, 5.0] * 20, stars), minimum=4.0)) == {"a": "pass"}
    assert outcomes(judged(scored([3.0, 4.0, 3.5] * 20, stars), minimum=4.0)) == {"a": "fail"}
    assert outcomes(judged(scored([3.0, 5.0] * 20, stars), minimum=4.0)) == {"a": "inconclusive"}
    assert judged(scored([4.0, 4.5, 5.0] * 20, None), minimum=4.0).outcome == "inconclusive"
    values = [[float(value)] for value in range(100)]
    quantile = MetricEstimate("acc", "c", quantile_estimate(values, Counts(100, 100), 0.5))
    assert judged(SliceEstimate(quantile, "topic", "a", 100, Scale(0, 99)), minimum=4.0).outcome == "inconclusive"
