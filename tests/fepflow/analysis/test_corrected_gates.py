"""`gate: {judge: corrected}` in slices and against a baseline; by raw verdicts, what is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.analysis.comparison import compare_results, results_of
from fepflow.analysis.regressions import judge_comparisons
from fepflow.analysis.verdict_page import verdict_page
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.verdict.verdict import Verdict

from .test_calibration import stored
from .test_judge_errors import calibrated, calibrated_like, judged

LENIENT = (1.0, 0.6)
"""The judge passes all right outputs, and four of ten wrong ones."""


def run_of(store: Store, passed: dict[str, int], each: int = 100) -> RunRecord:
    """A run of so many cases of each topic, of which the judge has passed so many."""
    verdicts = [{"passed": number < count} for count in passed.values() for number in range(each)]
    topics = [topic for topic in passed for _ in range(each)]
    return stored(store, verdicts, topics=topics)


def sliced(store: Store, run: RunRecord, judge: str = "corrected", minimum: float = 0.8) -> Verdict:
    return judged(store, run, slices={"by": "topic", "min": minimum}, gate={"judge": judge})


def outcomes(verdict: Verdict) -> dict[str, str | None]:
    return {each.slice: each.outcome for each in verdict.slices}


def test_a_slice_is_judged_by_what_is_right_and_shows_what_was_passed(store: Store) -> None:
    calibrated_like(store, 260 / 300, *LENIENT, n=600)
    run = run_of(store, {"a": 100, "b": 90, "c": 70})
    verdict = sliced(store, run)
    assert outcomes(verdict) == {"a": "pass", "b": "inconclusive", "c": "fail"}
    assert verdict.outcome == "fail"
    by_slice = {each.slice: each for each in verdict.slices}
    assert by_slice["b"].value == 0.9
    assert by_slice["b"].corrected is not None
    assert by_slice["b"].corrected.value == pytest.approx((0.9 - 0.4) / 0.6, abs=0.005)
    assert by_slice["c"].p is not None
    assert by_slice["c"].p < 0.025
    assert "1 of 3 slices is below the minimum of 0.8: c 0.5" in verdict.reasons[0]
    assert "corrected for its judge's errors" in verdict.reasons[0]
    page = verdict_page(run, verdict)
    assert "| corrected for the judge |" in page
    assert "| 0.5012 (" in page


def test_raw_slices_that_pass_by_the_judges_errors_are_open(store: Store) -> None:
    calibrated_like(store, 0.95, *LENIENT, n=600)
    verdict = sliced(store, run_of(store, {"a": 100, "b": 90}), "raw")
    assert outcomes(verdict) == {"a": "pass", "b": "inconclusive"}
    assert "b 0.9 (95 % interval 0.8256 to 0.9448, n = 100), but that is what its judge says" in verdict.reasons[0]
    assert verdict.warnings == []


def test_slices_by_a_judge_that_is_not_calibrated_show_nothing(store: Store) -> None:
    run = run_of(store, {"a": 100, "b": 100})
    verdict = sliced(store, run)
    assert outcomes(verdict) == {"a": "inconclusive", "b": "inconclusive"}
    assert "its judge is not calibrated" in verdict.reasons[0]
    raw = sliced(store, run, "raw")
    assert raw.outcome == "pass"
    assert raw.warnings == ["llm_judge: its judge is not calibrated, so its errors are not known (fepflow calibrate)."]


def test_a_useless_judge_shows_nothing_of_a_slice(store: Store) -> None:
    calibrated(store, 50, 50, 50, 0)
    assert outcomes(sliced(store, run_of(store, {"a": 100}))) == {"a": "inconclusive"}


def of_400(store: Store, passed: int, **sections: Any) -> RunRecord:
    return stored(store, [{"passed": number < passed} for number in range(400)], **sections)


def against_base(store: Store, run: RunRecord, judge: str | None = None) -> Verdict:
    return judged(store, run, gate={"regression": {"margin": 0.1}, "judge": judge})


def test_a_regression_is_larger_than_a_lenient_judge_sees(store: Store, subtests: pytest.Subtests) -> None:
    base = of_400(store, 392)
    store.leases.acquire(base.id, "me", 30)
    store.leases.finish(base.id, "me", "completed", outcome="pass", verdict={}, metrics=[])
    store.runs.set_baseline("judged", "main", base.id)
    runs = {passed: of_400(store, passed) for passed in (392, 372, 320)}

    verdict = against_base(store, runs[392], "corrected")
    assert verdict.outcome == "inconclusive"
    assert "its judge is not calibrated" in verdict.reasons[0]
    unknown = "llm_judge: its judge is not calibrated, so its errors are not known (fepflow calibrate)."
    for (passed, run), outcome in zip(runs.items(), ("pass", "pass", "fail"), strict=True):
        with subtests.test(passed=passed, outcome=outcome):
            verdict = against_base(store, run)
            assert verdict.outcome == outcome
            assert verdict.warnings == [unknown]

    for (passed, run), outcome in zip(runs.items(), ("pass", "inconclusive", "fail"), strict=True):
        calibrated_like(store, passed / 400, *LENIENT, n=700)
        for judge in ("raw", None, "corrected"):
            with subtests.test(passed=passed, outcome=outcome, judge=judge):
                verdict = against_base(store, run, judge)
                assert (verdict.outcome, verdict.warnings) == (outcome, [])
                assert verdict.regression is not None
                (metric,) = verdict.regression.metrics
                assert metric.difference == (passed - 392) / 400, "the raw difference is shown"
                assert metric.corrected is not None
                assert metric.corrected.value == pytest.approx(metric.difference / 0.6, rel=0.02)
                if (passed, judge) == (372, "raw"):
                    (reason,) = verdict.reasons
                    assert "that is what its judge says, and corrected for the judge's errors it is not shown" in reason
                    assert "a difference of -0.083" in reason


def test_compare_goes_by_the_gate_of_the_new_run(store: Store) -> None:
    first, raw, corrected, default = (
        of_400(store, count, gate={"judge": judge} if judge else {})
        for count, judge in ((392, "raw"), (372, "raw"), (372, "corrected"), (372, None))
    )
    base = results_of(store, first)
    assert judge_comparisons([compare_results(base, results_of(store, raw))], 0.1, {}).outcome == "pass"
    calibrated_like(store, 0.93, *LENIENT, n=700)
    for run in (raw, corrected, default):
        judged = judge_comparisons([compare_results(base, results_of(store, run))], 0.1, {})
        assert (judged.outcome, judged.comparisons[0].warnings) == ("inconclusive", [])


def test_what_is_corrected_is_judged_by_one_run_at_the_confidence_of_its_look(store: Store) -> None:
    calibrated_like(store, 0.95, *LENIENT, n=700)
    run = run_of(store, {"a": 95})
    (metric,) = judged(store, run, gate={"min": {"llm_judge": 0.8}, "looks": "pooled"}).metrics
    (alone,) = judged(store, run, gate={"min": {"llm_judge": 0.8}}).metrics
    assert (metric.value, metric.low, metric.pooled) == (alone.value, alone.low, None)
    assert metric.corrected is not None
    assert alone.corrected is not None
    assert metric.corrected.low is not None
    assert alone.corrected.low is not None
    assert metric.corrected.low < alone.corrected.low, "96.96 % instead of 95 %"
    assert "96.96 % interval" in (metric.reason or "")
