"""Verdicts of a judge beside labels, and what is said of it from then on; no model is asked."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fepflow.analysis.calibration import calibrate
from fepflow.analysis.judge_reliability import calibration_data, judges_of_run, reliability_of_judges, warnings_of
from fepflow.analysis.labels import LabelSet
from fepflow.analysis.verdict_page import verdict_page
from fepflow.checks.models.judge_spec import judges_of
from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.check import Check
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.verdict.verdict import Verdict

SCHEMA = {
    "type": "object",
    "properties": {
        "passed": {"type": "boolean"},
        "score": {"type": "integer"},
        "tone": {"enum": ["rude", "plain", "kind"]},
    },
}
CHECK: dict[str, Any] = {
    "type": "llm_judge",
    "arguments": {"prompt": "?", "response_format": SCHEMA, "model_config": {"model": "openai/any"}},
}
_numbers = count()


SAID = Output(value="x")


def stored(store: Store, responses, check=CHECK, repeats=1, samples=None, topics=None, output=SAID, **sections):
    """A run whose judge gave these responses, to cases named c0, c1, … of these topics; None is no verdict."""
    run_id = f"{next(_numbers):08x}"
    store.runs.create(
        RunRecord(id=run_id, name="judged", suite={"name": "judged", "checks": [check], **sections}, repeats=repeats),
        [
            TestCase(id=f"c{number}", input=number, metadata={"topic": topics[number]} if topics else None)
            for number in range(len(responses))
        ],
    )
    rows = []
    for case_index, response in enumerate(responses):
        metadata = {} if samples is None else {"samples": samples[case_index]}
        result = CheckResult(
            check_type="llm_judge",
            status="completed",
            results={"response": response, "metadata": metadata},
            evaluated_at=utc_now(),
            metadata={"check_id": "llm_judge"},
        )
        if response is not None:
            rows.append(NewCheckResult(case_index, 0, "llm_judge", "a" * 64, result, response.get("passed")))
    store.results.write(run_id, [NewOutput(p, 0, "b" * 64, output) for p in range(len(responses))], rows)
    return store.runs.get(run_id)


def compared(store, labels, verdicts, field="passed"):
    run = stored(store, [None if verdict is None else {field: verdict} for verdict in verdicts])
    (judge,) = judges_of_run(run)
    labelled = LabelSet(judge, field, {f"c{number}": label for number, label in enumerate(labels)})
    return calibrate(store, run, labelled)


class TestFigures:
    def test_of_yes_and_no(self, store: Store):
        labels = [True] * 25 + [False] * 25
        verdicts = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
        made = compared(store, labels, verdicts)
        statistics = made.statistics
        assert statistics["kappa"]["value"] == pytest.approx(0.4)
        assert statistics["matrix"] == [[20, 5], [10, 15]]
        assert statistics["agreement"]["value"] == 0.7
        assert (statistics["tpr"]["value"], statistics["tpr"]["n"]) == (0.8, 25)
        assert statistics["tnr"]["value"] == 0.6
        assert statistics["tnr"]["low"] == pytest.approx(0.407, abs=1e-3)  # Wilson's interval of 15 of 25
        assert statistics["tnr"]["high"] == pytest.approx(0.766, abs=1e-3)
        assert (made.n, made.missing, made.model) == (50, 0, "openai/any")

    def test_of_numbers_are_weighted_and_have_no_rates(self, store: Store):
        made = compared(store, [1.0, 2.0, 3.0, 4.0, 5.0], [2, 1, 3, 4, 5], "score")
        assert made.statistics["kappa"]["value"] == pytest.approx(0.9)
        assert made.statistics["kappa"]["weights"] == "quadratic"
        assert made.statistics["categories"] == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert "tpr" not in made.statistics

    def test_of_words_are_not_weighted(self, store: Store):
        made = compared(store, ["rude", "kind", "kind", "kind"], ["rude", "kind", "kind", "rude"], "tone")
        assert made.statistics["kappa"]["weights"] == "none"
        assert made.statistics["categories"] == ["rude", "plain", "kind"]
        assert made.statistics["agreement"]["value"] == 0.75

    def test_what_has_no_verdict_is_missing_and_no_disagreement(self, store: Store):
        made = compared(store, [True, False, True], [True, False, None])
        assert (made.n, made.missing) == (2, 1)
        assert made.statistics["agreement"]["value"] == 1.0
        assert any("1 labelled case without a verdict" in warning for warning in warnings_of(made))

    def test_cases_without_a_label_are_left_out(self, store: Store):
        run = stored(store, [{"passed": True}, {"passed": False}, {"passed": False}])
        labelled = LabelSet(judges_of_run(run)[0], "passed", {"c2": False})
        assert calibrate(store, run, labelled).n == 1

    def test_a_run_without_verdicts_or_with_repeats_cannot_be_compared(self, store: Store):
        with pytest.raises(InfrastructureError, match="None of the 2 labelled cases has a verdict of llm_judge"):
            compared(store, [True, False], [None, None])
        run = stored(store, [{"passed": True}], repeats=3)
        with pytest.raises(UserError, match="has 3 outputs for each case, and a label is about one"):
            calibrate(store, run, LabelSet(judges_of_run(run)[0], "passed", {"c0": True}))

    def test_numbers_that_are_no_scale_are_refused(self, store: Store):
        values = [number / 60 for number in range(60)]
        with pytest.raises(UserError, match="60 different values, and kappa is for scales"):
            compared(store, values, values, "score")

    @settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(st.booleans(), st.booleans() | st.none()), min_size=1, max_size=12))
    def test_statistics_are_json_without_nan(self, store: Store, pairs):
        labels, verdicts = zip(*pairs, strict=True)
        if all(verdict is None for verdict in verdicts):
            return
        data = calibration_data(compared(store, labels, verdicts))
        json.dumps(data, allow_nan=False)
        assert data["n"] + data["missing"] == len(pairs)
        assert sum(map(sum, data["matrix"])) == data["n"]
        compared_labels = {label for label, verdict in pairs if verdict is not None}
        assert (data["kappa"]["value"] is None) == (len(compared_labels) == 1)
        assert any("small" in warning for warning in data["warnings"])


class TestWarnings:
    def warnings(self, store, agreeing, n):
        """Of n labels, half of them yes, of which the judge gets so many right of each kind."""
        half = n // 2
        verdicts = [True] * agreeing + [False] * (half - agreeing) + [False] * agreeing + [True] * (half - agreeing)
        return warnings_of(compared(store, [True] * half + [False] * half, verdicts))

    def test_a_judge_that_agrees_well_on_many_needs_none(self, store: Store):
        assert self.warnings(store, 95, 200) == []

    def test_a_j_below_the_bound_is_warned_of(self, store: Store):
        (warning,) = self.warnings(store, 70, 200)
        assert warning == (
            "J is below 0.6: it passes 30 % of what people fail, and fails 30 % of what they pass. "
            "Change its prompt or model."
        )
        assert "it may be 0.69" in self.warnings(store, 23, 60)[0]

    def test_an_interval_that_reaches_below_is_warned_of(self, store: Store):
        (warning,) = self.warnings(store, 26, 60)
        assert "interval reaches below 0.6: n = 60 labels are too few to tell" in warning

    def test_few_labels_are_warned_of(self, store: Store):
        told = self.warnings(store, 4, 8)
        assert "n = 8 is small" in told[1]
        assert told[2] == "TPR rests on 4 cases that should pass and TNR rests on 4 cases that should fail."

    def test_constant_labels_give_no_kappa_and_a_warning(self, store: Store):
        made = compared(store, [True] * 40, [True] * 40)
        assert made.statistics["kappa"]["value"] is None
        assert warnings_of(made)[0].startswith("kappa is not defined: all labels are the same")


class TestWhatIsSaidOfAJudge:
    def test_it_is_not_calibrated_until_it_is_and_not_when_it_changes(self, store: Store):
        run = stored(store, [{"passed": True}])
        (reliability,) = reliability_of_judges(store, run)
        assert reliability.sentence() == "judge llm_judge (openai/any): not calibrated"
        assert reliability.data()["calibration"] is None
        made = compared(store, [True, False] * 20, [True, False] * 20)
        (reliability,) = reliability_of_judges(store, run)
        assert reliability.calibration == made
        assert reliability.sentence() == (
            "judge llm_judge (openai/any): TPR 1 and TNR 1 by people's labels (n = 40 of all judged outputs, "
            f"{made.created_at:%Y-%m-%d}), "
            "J 1 (95 % interval 0.7721 to 1), kappa 1"
        )
        for change in ({"prompt": "??"}, {"model_config": {"model": "openai/other"}}, {"samples": 3}):
            other = {"type": "llm_judge", "arguments": {**CHECK["arguments"], **change}}
            (reliability,) = reliability_of_judges(store, stored(store, [{"passed": True}], other))
            assert reliability.sentence().endswith(": not calibrated")

    def test_a_bad_judge_is_not_shown_as_a_good_one(self, store: Store):
        compared(store, [True, False] * 20, [True] * 40)
        (reliability,) = reliability_of_judges(store, stored(store, [{"passed": True}]))
        assert reliability.sentence().endswith("kappa 0, J below 0.6: not to be relied on")

    def test_the_newest_calibration_counts_and_names_what_it_is_of(self, store: Store):
        compared(store, [True, False] * 20, [True, False] * 20)
        compared(store, [1.0, 5.0] * 20, [1, 5] * 20, "score")
        (reliability,) = reliability_of_judges(store, stored(store, [{"passed": True}]))
        assert "kappa of score 1 with people" in reliability.sentence()

    def test_agreement_of_samples_is_reported(self, store: Store):
        thrice = {"type": "llm_judge", "arguments": {**CHECK["arguments"], "samples": 3}}
        agreement = [{"passed": 1.0, "tone": 0.6667}, {"passed": 0.6667}, {"tone": 0.5}]
        told = [{"agreement": each} for each in agreement]
        run = stored(store, [{"passed": True}] * 3, thrice, samples=told)
        (reliability,) = reliability_of_judges(store, run)
        assert reliability.sentence().endswith("not calibrated; its samples agree to 0.72, 2 of 3 verdicts disputed")
        assert (reliability.data()["samples"], reliability.data()["disputed"]) == (3, 2)

    def test_a_judge_that_cases_carry_themselves_is_not_calibrated(self, store: Store):
        run = stored(store, [{"passed": True}], {"type": "contains", "arguments": {"text": "a", "phrases": ["a"]}})
        (reliability,) = reliability_of_judges(store, run)
        assert reliability.sentence() == "judge llm_judge: not calibrated"

    def test_shared_judge_settings_of_the_suite_apply(self, store: Store):
        bare: dict[str, Any] = {"type": "llm_judge", "arguments": {"prompt": "?", "response_format": SCHEMA}}
        said = {"model_config": {"model": "openai/any"}, "samples": 3}
        suite = {"name": "judged", "checks": [bare], "judge": said}
        own = {**suite, "checks": [{**bare, "arguments": {**bare["arguments"], **said}}]}
        for run_id, document in (("aaaa0001", suite), ("aaaa0002", own)):
            store.runs.create(
                RunRecord(id=run_id, name="judged", suite=document, repeats=1), [TestCase(id="c", input=1)]
            )
        (of_suite,), (of_check,) = judges_of_run(store.runs.get("aaaa0001")), judges_of_run(store.runs.get("aaaa0002"))
        assert (of_suite.model, of_suite.samples) == ("openai/any", 3)
        assert of_suite == of_check

    def test_the_verdict_page_has_the_calibration(self, store: Store):
        run = stored(store, [{"passed": True}])
        verdict = Verdict(outcome="pass", gate="g", reasons=[], metrics=[])
        line = r"- judge llm\_judge \(openai\/any\)\: not calibrated"
        assert line in verdict_page(run, verdict, reliability_of_judges(store, run)).splitlines()
        assert line not in verdict_page(run, verdict)

    def test_a_suite_without_judges_says_nothing(self, store: Store):
        assert judges_of([Check(type="contains", arguments={})]) == []
