"""The verdict of a suite without thresholds: every check has to pass."""

import pytest

from fepflow.suite.models import Gate
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import CheckTotals, Outcome

from .metrics import checked, mean, proportion


class TestChecks:
    @pytest.mark.parametrize(
        ("totals", "outcome", "reason"),
        [
            (checked(passed=5), "pass", "c: 5 of 5 results passed."),
            (checked(passed=4, failed=1), "fail", "c: 1 of 5 results failed."),
            (checked(passed=4, failed=1, error=2), "fail", "c: 1 of 5 results failed, and 2 ended in an error."),
            (
                checked(passed=4, error=1, skipped=2),
                "inconclusive",
                "c: 4 of 7 passed, but 1 ended in an error and 2 were skipped.",
            ),
            (checked(passed=4, unjudged=2), "inconclusive", "c: 4 of 6 passed, but 2 gave neither pass nor fail."),
            (checked(12, passed=4), "inconclusive", "c: 4 of 12 passed, but 8 never came."),
            (checked(error=3), "inconclusive", "c: no result passed or failed: 3 ended in an error."),
            (checked(3), "inconclusive", "c: no result passed or failed: 3 never came."),
            (
                checked(4, unjudged=3),
                "inconclusive",
                "c: no result passed or failed: 3 gave neither pass nor fail and 1",
            ),
            (checked(unjudged=3), "inconclusive", "Nothing was judged: no check gave a pass or a fail."),
        ],
    )
    def test_every_check_must_pass(self, totals: CheckTotals, outcome: Outcome, reason: str) -> None:
        verdict = decide([], None, None, [totals])
        assert (verdict.outcome, verdict.gate) == (outcome, "Every check must pass.")
        assert verdict.reasons[0].startswith(reason)

    def test_a_suite_without_results_does_not_pass(self) -> None:
        assert decide([], None, None, []).outcome == "inconclusive"

    def test_each_check_is_a_rule_and_the_worst_comes_first(self) -> None:
        checks = [checked(passed=5, name="a"), checked(passed=4, error=1, name="b"), checked(failed=1, name="c")]
        verdict = decide([], None, None, checks)
        assert [(rule.rule, rule.check, rule.outcome) for rule in verdict.rules] == [
            ("c: every case passes", "c", "fail"),
            ("b: every case passes", "b", "inconclusive"),
            ("a: every case passes", "a", "pass"),
        ]
        assert verdict.reasons == [rule.reason for rule in verdict.rules]

    def test_a_check_without_a_metric_is_gated_too(self) -> None:
        verdict = decide([proportion(30)], None, None, [checked(passed=30, name="contains"), checked(30, name="judge")])
        assert verdict.outcome == "inconclusive"
        assert verdict.rules[0].check == "judge"

    def test_a_check_that_only_scores_is_named_as_not_judged(self) -> None:
        verdict = decide([], None, None, [checked(passed=5), checked(unjudged=5, name="tone")])
        assert (verdict.outcome, verdict.not_judged) == ("pass", ["tone"])
        assert "tone" in verdict.warnings[0]

    def test_metrics_are_shown_but_do_not_decide(self) -> None:
        verdict = decide([mean([0.1, 0.2], name="score")], Gate(), None, [checked(passed=1)])
        assert verdict.outcome == "pass"
        assert verdict.metrics[0].outcome is None
        assert verdict.not_judged == ["score"]

    def test_a_gate_on_some_metrics_names_all_others_loudly(self) -> None:
        checks = [checked(passed=100, name="contains"), checked(30, passed=14, failed=2, name="judge")]
        verdict = decide([proportion(100)], Gate(min={"acc": 0.9}), None, checks)
        assert (verdict.outcome, verdict.not_judged) == ("pass", ["judge"])
        assert verdict.warnings == [
            "NOT JUDGED, as no rule of the gate is about them: judge (2 failed and 14 never came) "
            "(gate: {checks: all} judges every check, too)."
        ]

    @pytest.mark.parametrize(
        ("judge", "outcome"),
        [(checked(30, passed=16), "inconclusive"), (checked(passed=29, failed=1), "fail"), (checked(passed=9), "pass")],
    )
    def test_a_gate_may_judge_all_checks_besides(self, judge: CheckTotals, outcome: Outcome) -> None:
        gate = Gate(min={"acc": 0.9}, checks="all")
        verdict = decide([proportion(100)], gate, None, [checked(passed=100, name="contains"), judge])
        assert (verdict.outcome, verdict.not_judged) == (outcome, [])
        assert verdict.gate == "acc must be at least 0.9 and every check must pass (95 % intervals)."
        assert {rule.rule for rule in verdict.rules} == {
            "acc: at least 0.9",
            "contains: every case passes",
            "c: every case passes",
        }
