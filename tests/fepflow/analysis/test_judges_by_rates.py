"""A judge is warned of by the rates at which it errs, whatever the mix of the labels."""

from __future__ import annotations

import pytest

from fepflow.analysis.judge_reliability import calibration_data, calibration_words, warnings_of
from fepflow.protocol.model import utc_now
from fepflow.statistics.judges import JudgeLabels, cohen_kappa, tabulate, youden_index
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import Calibration


def calibration(right: int, right_passed: int, wrong: int, wrong_failed: int) -> Calibration:
    pairs = [(True, True)] * right_passed + [(True, False)] * (right - right_passed)
    pairs += [(False, False)] * wrong_failed + [(False, True)] * (wrong - wrong_failed)
    table = tabulate(pairs, [True, False])
    kappa = cohen_kappa(table, quadratic=False, confidence=0.95)
    return Calibration(
        judge="j", rubric="r", model="m", parameters={}, check_id="c", field="passed", run_id="r", n=len(pairs),
        missing=0, created_at=utc_now(),
        statistics={
            "design": "by_hand",
            "kappa": {"value": kappa.value, "low": kappa.low, "high": kappa.high, "why": kappa.why},
            "tpr": {"value": right_passed / right, "n": right},
            "tnr": {"value": wrong_failed / wrong, "n": wrong},
            "matrix": [list(row) for row in table.counts],
        },
    )  # fmt: skip


@pytest.mark.parametrize(("wrong", "kappa"), [(1000, 0.80), (200, 0.59), (100, 0.43)])
def test_the_same_judge_is_no_worse_where_few_answers_are_wrong(wrong: int, kappa: float) -> None:
    """TPR = TNR = 0.9, of 2,000 labels; kappa alone falls below the bound of 0.6 with the mix."""
    right = 2000 - wrong
    made = calibration(right, round(right * 0.9), wrong, round(wrong * 0.9))
    assert made.statistics["kappa"]["value"] == pytest.approx(kappa, abs=0.005)
    assert calibration_data(made)["youden_j"]["value"] == pytest.approx(0.8)
    assert warnings_of(made) == []
    assert "not to be relied on" not in calibration_words(made)


def test_a_judge_that_passes_half_of_what_is_wrong_is_warned_of_in_spite_of_its_kappa() -> None:
    made = calibration(840, 840, 160, 80)
    assert made.statistics["kappa"]["value"] == pytest.approx(0.62, abs=0.01)
    assert warnings_of(made) == [
        "J is below 0.6: it passes 50 % of what people fail, and fails 0 % of what they pass. "
        "Change its prompt or model."
    ]
    assert calibration_words(made).endswith("kappa 0.6269, J below 0.6: not to be relied on")


def test_few_labels_of_a_kind_leave_j_open() -> None:
    made = calibration(90, 86, 10, 8)
    assert "J's interval reaches below 0.6: n = 100 labels are too few to tell. Label more cases." in warnings_of(made)
    assert calibration_words(made).endswith(", J may be below 0.6")


def test_j_has_the_bounds_of_both_rates_joined() -> None:
    value, low, high = youden_index(JudgeLabels(100, 95, 100, 80)) or (0, 0, 0)
    (s_low, s_high), (c_low, c_high) = wilson_interval(0.95, 100), wilson_interval(0.8, 100)
    assert value == pytest.approx(0.75)
    assert low == pytest.approx(0.75 - ((0.95 - s_low) ** 2 + (0.8 - c_low) ** 2) ** 0.5)
    assert high == pytest.approx(0.75 + ((s_high - 0.95) ** 2 + (c_high - 0.8) ** 2) ** 0.5)
    assert youden_index(JudgeLabels(100, 95, 0, 0)) is None
    value, low, high = youden_index(JudgeLabels(5, 0, 5, 0)) or (0, 0, 0)
    assert (value, low) == (-1.0, -1.0)
    assert high == pytest.approx(-0.386, abs=0.01)
