"""What a judge's errors, as people's labels tell them, make of its metrics."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from fepflow.analysis.calibration import calibrate
from fepflow.analysis.judge_reliability import calibrated_since, judges_of_run
from fepflow.analysis.labels import Label, LabelSet, draw_for_labels
from fepflow.analysis.metrics import compute_verdict, metrics_corrected_now
from fepflow.analysis.verdict_page import verdict_page
from fepflow.errors import UserError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output
from fepflow.statistics.estimate import PROPORTION, Counts
from fepflow.statistics.judges import JudgeLabels, corrected
from fepflow.statistics.means import mean_estimate
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite
from fepflow.verdict.verdict import Verdict

from .test_calibration import CHECK, stored


def run_of(store: Store, passed: int, n: int) -> RunRecord:
    return stored(store, [{"passed": number < passed} for number in range(n)])


def calibrated(store: Store, right: int, right_passed: int, wrong: int, wrong_failed: int) -> None:
    """Compare the judge with people, in another run."""
    verdicts = [True] * right_passed + [False] * (right - right_passed) + [False] * wrong_failed
    verdicts += [True] * (wrong - wrong_failed)
    run = stored(store, [{"passed": verdict} for verdict in verdicts])
    labels: dict[str, Label] = {f"c{number}": number < right for number in range(right + wrong)}
    calibrate(store, run, LabelSet(judges_of_run(run)[0], "passed", labels))


def calibrated_like(
    store: Store, share: float, sensitivity: float = 0.95, specificity: float = 0.8, n: int = 200
) -> None:
    """Compare the judge with people in another run, in which it passes about this share, too."""
    right = round(n * (share + specificity - 1) / (sensitivity + specificity - 1))
    calibrated(store, right, round(right * sensitivity), n - right, round((n - right) * specificity))


def judged(store: Store, run: RunRecord, **sections: Any) -> Verdict:
    target = {"http": {"url": "http://127.0.0.1:9/"}}
    suite = {"name": "judged", "target": target, "test_cases": [], "checks": [CHECK], **sections}
    return compute_verdict(store, run, Suite.model_validate(suite))


RAW: dict[str, Any] = {"min": {"llm_judge": 0.75}}
CORRECTED: dict[str, Any] = {**RAW, "judge": "corrected"}
LABELS = JudgeLabels(160, 152, 40, 32)


def test_a_judge_that_is_not_calibrated_is_warned_of(store: Store) -> None:
    verdict = judged(store, run_of(store, 450, 500), gate=RAW)
    assert verdict.outcome == "pass"
    assert verdict.metrics[0].corrected is None
    assert verdict.warnings == [
        "llm_judge: its judge is not calibrated, so its errors are not known (fepflow calibrate)."
    ]


def test_a_corrected_gate_does_not_pass_by_a_judge_that_is_not_calibrated(store: Store) -> None:
    verdict = judged(store, run_of(store, 500, 500), gate=CORRECTED)
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons == [
        "llm_judge: no value (n = 500) cannot be computed: its judge is not calibrated, so its errors are not known "
        "(fepflow calibrate)."
    ]


def test_a_raw_pass_that_would_be_none_when_corrected_is_open_and_both_are_shown(store: Store) -> None:
    calibrated(store, 160, 152, 40, 32)
    run = run_of(store, 400, 500)
    verdict = judged(store, run, gate={**RAW, "judge": "raw"})
    (metric,) = verdict.metrics
    assert (metric.value, metric.outcome) == (0.8, "inconclusive")
    assert metric.corrected.value == pytest.approx(0.8)
    expected = corrected(mean_estimate([[1.0]] * 400 + [[0.0]] * 100, Counts(500, 500), scale=PROPORTION), LABELS)
    assert expected is not None
    assert (metric.corrected.low, metric.corrected.high) == (expected.low, expected.high)
    assert metric.corrected.method == "rogan-gladen"
    assert metric.reason is not None
    assert metric.reason.startswith(
        "llm_judge: 0.8 (95 % interval 0.7627 to 0.8327, n = 500) reaches the minimum of 0.75, but that is what "
        "its judge says, and corrected for the judge's errors it is not shown: 0.8 (95 % interval 0.7"
    )
    assert verdict.warnings == []
    page = verdict_page(run, verdict)
    assert "| corrected for the judge |" in page
    assert f"| 0.8 ({expected.low:.4g} to {expected.high:.4g}) |" in page


@pytest.mark.parametrize(("passed", "outcome"), [(450, "pass"), (400, "inconclusive"), (320, "fail")])
def test_the_corrected_share_of_a_calibrated_judge_decides(store: Store, passed: int, outcome: str) -> None:
    calibrated_like(store, passed / 500)
    run = run_of(store, passed, 500)
    for gate in (RAW, CORRECTED):
        verdict = judged(store, run, gate=gate)
        assert verdict.outcome == outcome
        assert verdict.warnings == []
        assert verdict.gate == "llm_judge must be at least 0.75 (95 % intervals; judges corrected for their errors)."
        assert "corrected for its judge's errors" in verdict.reasons[0]
        assert verdict.metrics[0].value == passed / 500, "the raw share is shown"


def test_looks_at_a_judges_share_pass_only_what_passes_when_corrected(store: Store, subtests: pytest.Subtests) -> None:
    calibrated_like(store, 0.86, specificity=0.5)
    run = run_of(store, 430, 500)
    for top_up, (minimum, outcome), judge in product(
        ({"max_cases": 500, "looks": 2}, {"max_cases": 500}), ((0.6, "pass"), (0.75, "inconclusive")), (None, "raw")
    ):
        with subtests.test(top_up=top_up, minimum=minimum, judge=judge):
            gate = {"min": {"llm_judge": minimum}, "top_up": top_up, "judge": judge}
            (metric,) = (verdict := judged(store, run, gate=gate)).metrics
            assert verdict.outcome == outcome
            assert metric.method.startswith("sequential"), "the raw share is judged"
            assert metric.low > 0.75
            assert (metric.corrected.method, metric.corrected.low >= minimum) == ("rogan-gladen", outcome == "pass")
            is_doubted = "corrected for the judge's errors it is not shown" in verdict.reasons[0]
            assert is_doubted is (outcome == "inconclusive")


def test_a_useless_judge_passes_nothing(store: Store) -> None:
    calibrated(store, 50, 50, 50, 0)
    run = run_of(store, 500, 500)
    for judge in (None, "raw", "corrected"):
        verdict = judged(store, run, gate={**RAW, "judge": judge})
        assert verdict.outcome == "inconclusive"
        assert "as far as its labels tell, the judge passes wrong outputs as often as right ones" in verdict.reasons[0]


def test_only_shares_that_a_judge_passed_are_corrected(store: Store) -> None:
    calibrated(store, 160, 152, 40, 32)
    metrics = [
        {"id": "passed", "check": "llm_judge"},
        {"id": "path", "check": "llm_judge", "value": "$.response.passed"},
        {"id": "errors", "check": "llm_judge", "aggregate": "error_rate"},
        {"id": "worst", "check": "llm_judge", "aggregate": "worst"},
    ]
    verdict = judged(store, run_of(store, 80, 100), metrics=metrics)
    assert {metric.id for metric in verdict.metrics if metric.corrected} == {"passed", "path"}


def test_labels_of_another_field_tell_nothing_of_passes(store: Store) -> None:
    run = stored(store, [{"passed": True, "score": 1}, {"passed": False, "score": 2}])
    calibrate(store, run, LabelSet(judges_of_run(run)[0], "score", {"c0": 1.0, "c1": 2.0}))
    assert judged(store, run_of(store, 40, 50)).metrics[0].corrected is None


def test_what_is_shown_of_an_ended_run_is_corrected_by_what_is_known_now(store: Store) -> None:
    run = run_of(store, 400, 500)
    ended = store.runs.get(run.id).replaced(
        completed_at=utc_now() - timedelta(seconds=1),
        suite={**run.suite, "target": {"http": {"url": "http://127.0.0.1:9/"}}, "test_cases": []},
        metrics=[{"id": "llm_judge", "value": 0.8}],
    )
    assert not calibrated_since(store, ended)
    calibrated(store, 160, 152, 40, 32)
    assert calibrated_since(store, ended)
    assert not calibrated_since(store, ended.replaced(completed_at=utc_now() + timedelta(seconds=5)))
    assert not calibrated_since(store, ended.replaced(completed_at=None))
    (metric,) = metrics_corrected_now(store, ended)
    assert (metric["value"], metric["corrected"]["value"]) == (0.8, pytest.approx(0.8))


def test_labels_drawn_from_the_run_itself_come_before_all_others(store: Store) -> None:
    run = run_of(store, 460, 500)
    (judge,) = judges_of_run(run)
    drawn = draw_for_labels(store, run, judge, 100, seed=3)
    passed = [case_id for case_id in drawn.case_ids if int(case_id[1:]) < 460]
    failed = [case_id for case_id in drawn.case_ids if int(case_id[1:]) >= 460]
    labels: dict[str, Label] = {
        **dict.fromkeys(passed[:-7], True),
        **dict.fromkeys(passed[-7:], False),
        **dict.fromkeys(failed, False),
        failed[0]: True,
        "c499": True,  # labelled, but not drawn, unless by chance
        "c498": True,
    }
    made = calibrate(store, run, LabelSet(judge, "passed", labels))
    assert (len(passed), len(failed)) == (90, 10), "at least ten of either"
    assert (made.n, made.statistics["design"], made.statistics["draw"]["share"]) == (100, "by_verdict", 0.92)
    calibrated_like(store, 0.92)
    (metric,) = judged(store, run).metrics
    expected = corrected(
        mean_estimate([[1.0]] * 460 + [[0.0]] * 40, Counts(500, 500), scale=PROPORTION),
        JudgeLabels(
            right=len(passed) - 7 + sum(labels[case_id] is True for case_id in failed),
            right_passed=len(passed) - 7,
            wrong=7 + sum(labels[case_id] is False for case_id in failed),
            wrong_failed=sum(labels[case_id] is False for case_id in failed),
            design="by_verdict",
            of_run=True,
        ),
    )
    assert (metric.corrected.method, metric.corrected.value) == ("mover", expected.value)
    assert (metric.corrected.low, metric.corrected.high) == (expected.low, expected.high)
    (other,) = judged(store, run_of(store, 460, 500)).metrics
    assert other.corrected.method == "rogan-gladen"


def test_a_draw_is_of_what_was_judged(store: Store) -> None:
    run = stored(store, [{"passed": True}, None, {"passed": None}, {"passed": False}])
    (judge,) = judges_of_run(run)
    assert sorted(draw_for_labels(store, run, judge, 10, seed=1).case_ids) == ["c0", "c3"]
    with pytest.raises(UserError, match="has judged nothing"):
        draw_for_labels(store, stored(store, [None]), judge, 10, seed=1)
    with pytest.raises(UserError, match="3 outputs for each case"):
        draw_for_labels(store, stored(store, [{"passed": True}], repeats=3), judge, 10, seed=1)
    with pytest.raises(UserError, match="gives no passed"):
        draw_for_labels(store, run, replace(judge, fields={"score": ("number", ())}), 10, seed=1)


def test_labels_that_were_picked_from_the_run_correct_nothing_and_say_what_does(store: Store) -> None:
    """Fifty that the judge passed and fifty that it failed; the hand chose those on which it was right."""
    run = run_of(store, 460, 500)
    labels: dict[str, Label] = {f"c{number}": number < 460 for number in [*range(50), *range(450, 500)]}
    made = calibrate(store, run, LabelSet(judges_of_run(run)[0], "passed", labels))
    assert made.statistics["design"] == "by_hand"
    for judge, outcome in ((None, "inconclusive"), ("corrected", "inconclusive"), ("raw", "pass")):
        verdict = judged(store, run, gate={**RAW, "judge": judge})
        assert (verdict.outcome, verdict.metrics[0].corrected) == (outcome, None)
        messages = " ".join([*verdict.reasons, *verdict.warnings])
        assert "the labelled outputs of this run were picked and not drawn, so they are not a sample of it" in messages
        assert (
            f"`fepflow calibrate SUITE --run {run.id[:8]} --sample 100 --labels FILE` draws outputs to label"
            in messages
        )
    bad = judged(store, run, gate={"min": {"llm_judge": 0.97}})
    assert bad.outcome == "fail", "what the judge fails still fails"
    assert "not a sample of it" in bad.warnings[0]


def test_labels_of_another_run_have_to_fit(store: Store) -> None:
    calibrated(store, 100, 95, 100, 80)
    run = run_of(store, 460, 500)
    verdict = judged(store, run, gate=RAW)
    assert verdict.outcome == "inconclusive"
    assert (
        "the labels do not fit this run: the judge passed 0.575 of the labelled outputs, and 0.92 of this run's, which "
        "chance does not explain" in verdict.reasons[0]
    )


def test_disputed_outputs_are_no_sample_of_any_run(store: Store) -> None:
    first = run_of(store, 90, 100)
    labels: dict[str, Label] = {f"c{number}": number < 90 for number in range(5, 100)}
    made = calibrate(store, first, LabelSet(judges_of_run(first)[0], "passed", labels, disputed=True))
    assert made.statistics["design"] == "disputed"
    verdict = judged(store, run_of(store, 90, 100), gate=RAW)
    assert verdict.outcome == "inconclusive"
    assert "the most disputed outputs, which are not a sample of the others" in verdict.reasons[0]


def test_a_correction_beyond_all_outputs_is_said_and_passes_nothing(store: Store) -> None:
    """The judge passes nine of ten right outputs: 0.9 would be all, 0.91 is more than all."""
    calibrated(store, 196, 176, 4, 4)
    verdict = judged(store, run_of(store, 455, 500), gate=RAW)
    assert verdict.outcome == "inconclusive"
    assert "by the judge's errors among the labels 1.01" in verdict.reasons[0]
    assert "of all outputs would be right, which cannot be" in verdict.reasons[0]
    assert verdict.metrics[0].corrected.value == 1


def test_a_judge_that_is_the_agents_own_model_is_warned_of(store: Store) -> None:
    output = Output(value="x", metadata={"model": "any-2026-01-31"})
    run = stored(store, [{"passed": True}] * 5, output=output, target={"http": {"url": "http://127.0.0.1:9/"}})
    assert (
        "llm_judge: its judge is the agent's own model (any-2026-01-31), and models tend to favour their own answers: "
        "let another model judge, or see by people's labels how far it errs (fepflow calibrate)."
        in judged(store, run).warnings
    )
    other = stored(store, [{"passed": True}] * 5, output=Output(value="x", metadata={"model": "any-mini"}))
    assert not any("own model" in warning for warning in judged(store, other).warnings)
