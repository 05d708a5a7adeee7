"""Checks that give scores only: a metric by itself, and the score wherever results are shown."""

import io

import pytest

from fepflow.analysis.accumulation import suite_of
from fepflow.analysis.metrics import compute_verdict
from fepflow.checks.base import BaseCheck
from fepflow.checks.engine import evaluate
from fepflow.checks.registry import register
from fepflow.cli.run_view import _check
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.pages.rendering import score_of_mark, states_of
from fepflow.reports.junit import write_junit
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.tasks.create_run import create_run

SUITE = "name: a\ntarget: {recorded: {path: out.jsonl}}\ntest_cases: cases.jsonl\n"


@register("brevity")
class Brevity(BaseCheck):
    """A score without a range, and neither pass nor fail."""

    def __call__(self, text: str):
        return {"score": 1 / len(text)}


@register("limited_brevity")
class LimitedBrevity(BaseCheck):
    check_range = (0.0, 1.0)

    def __call__(self, text: str):
        return {"response": {"score": 1 / len(text)}}


@pytest.fixture
def judged(store, tmp_path, monkeypatch):
    """Return the run of a suite with these checks over the outputs, and its verdict."""

    def judged(checks, outputs=("a", "ab", "abcd"), more=""):
        lines = [f'{{"value": "{output}"}}\n' for output in outputs]
        (tmp_path / "out.jsonl").write_text("".join(lines))
        (tmp_path / "cases.jsonl").write_text("".join(f'{{"id": "{i}", "input": {i}}}\n' for i in range(len(lines))))
        (tmp_path / "suite.yaml").write_text(f"{SUITE}checks: [{checks}]\n{more}")
        validation = validate_suite(tmp_path / "suite.yaml")
        run, suite = create_run(store, validation).run, validation.require()
        found = evaluate(list(validation.cases), list(outputs), suite.checks)
        rows = [
            NewCheckResult(index, 0, check.check_id, f"{index}{check.check_id}", check, check.passed)
            for index, case in enumerate(found.results)
            for check in case.check_results
        ]
        answers = [
            NewOutput(index, 0, "a" * 64, case.execution_context.output) for index, case in enumerate(found.results)
        ]
        store.results.write(run.id, answers, rows)
        return run, compute_verdict(store, run, suite_of(run))

    return judged


@pytest.mark.parametrize("check_type", ["brevity", "limited_brevity"])
def test_the_mean_of_the_score_is_the_metric_of_a_check_with_scores_only(judged, check_type):
    _, verdict = judged(f"{{type: {check_type}, text: $.output.value}}")
    (metric,) = verdict.metrics
    assert (metric.id, metric.value) == (check_type, pytest.approx((1 + 0.5 + 0.25) / 3))
    assert (metric.n_completed, metric.n_expected) == (3, 3)
    assert metric.low is not None
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons == [
        f"Nothing was judged: no check gave a pass or a fail. Give {check_type} pass_at, or a metric a minimum."
    ]


def test_the_default_gate_says_that_scores_are_not_judged(judged):
    _, verdict = judged("{type: brevity, text: $.output.value}, {type: is_empty, negate: true}")
    assert (verdict.outcome, verdict.not_judged) == ("pass", ["brevity"])
    (warning,) = [text for text in verdict.warnings if text.startswith("NOT JUDGED")]
    assert "brevity (scores only)" in warning
    assert "pass_at" in warning


def test_a_mean_without_a_range_never_passes_a_gate_and_one_with_a_range_may(judged):
    gate = "gate: {min: {%s: 0.01}, verdict: interval}\n"
    short = ["a"] * 100
    _, without = judged("{type: brevity, text: $.output.value}", short, gate % "brevity")
    _, within = judged("{type: limited_brevity, text: $.output.value}", short, gate % "limited_brevity")
    assert (without.outcome, within.outcome) == ("inconclusive", "pass")


def test_pass_at_makes_it_a_share_that_passed_and_the_gate_judges_it(judged):
    _, verdict = judged("{type: brevity, text: $.output.value, pass_at: 0.5}")
    assert (verdict.metrics[0].value, verdict.outcome) == (pytest.approx(2 / 3), "fail")


def test_an_error_among_scores_is_missing_and_no_zero(judged):
    _, verdict = judged("{type: brevity, text: $.output.value}", ["a", "", "ab"])
    (metric,) = verdict.metrics
    assert (metric.value, metric.n_completed, metric.n_error) == (0.75, 2, 1)
    assert verdict.outcome == "inconclusive"


def test_grid_show_and_junit_have_the_score(judged, store):
    judging = "{type: brevity, text: $.output.value}, {type: is_empty, negate: true}"
    run, _ = judged(f"{judging}, {{type: brevity, id: short, pass_at: 0.4, text: $.output.value}}")
    row = store.results.grid_rows(run.id, [1], scores=True)[0]
    assert (states_of(row, 1, "short"), score_of_mark(row, 0, "short")) == (["passed"], "0.5")
    assert (states_of(row, 1, "brevity"), score_of_mark(row, 0, "brevity")) == (["no verdict"], "0.5")
    assert score_of_mark(row, 0, "is_empty") is None
    (case,) = store.results.by_case(run.id, case_indices=[1])
    assert next(_check(case.checks[0])).split()[0] == "[dim]0.5"
    file = io.StringIO()
    write_junit(store, run, file)
    assert "score 0.5: neither pass nor fail" in file.getvalue()
