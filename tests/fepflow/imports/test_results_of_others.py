"""Results of promptfoo, deepeval, pydantic-evals and OpenAI's evals become runs: what failed there fails here, and
what could not be evaluated is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.imports.imported import Imported
from fepflow.services.imports import read_import


def imported(tmp_path: Path, name: str, *documents: Any, format_name: str | None = None) -> Imported:
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(document) for document in documents))
    return read_import(path, name, format_name).imported


def marks(found: Imported, run: int = 0) -> list[dict[str, Any]]:
    """Each output's scores: passed, or else the score; `error` for an error; of a failed call only that."""
    return [
        {"call": output.error}
        if output.error is not None
        else {
            name: "error" if "error" in (data := score.data()) else data.get("passed", data.get("score"))
            for name, score in output.scores.items()
        }
        for output in found.runs[run].outputs
    ]


def left(found: Imported) -> str:
    return "\n".join(str(problem) for problem in found.notes.problems())


def row(prompt: int = 0, test: int = 0, **changes: Any) -> dict[str, Any]:
    asserted = [{"type": "contains", "value": "Paris"}, {"type": "regex", "value": "P", "metric": "has P"}]
    parts = [{"pass": True, "score": 1, "reason": "fine", "assertion": assertion} for assertion in asserted]
    return {
        "promptIdx": prompt,
        "testIdx": test,
        "provider": {"id": "echo", "label": ""},
        "prompt": {"raw": "Where? France", "label": "Where? {{country}}"},
        "vars": {"country": f"France {test}"},
        "response": {"output": "Paris", "tokenUsage": {"total": 12}, "cached": False},
        "success": True,
        "failureReason": 0,
        "score": 1,
        "namedScores": {"has P": 1},
        "latencyMs": 34,
        "cost": 0.01,
        "testCase": {"description": "same", "vars": {"country": f"France {test}"}, "assert": asserted},
        "gradingResult": {"pass": True, "score": 1, "reason": "All assertions passed", "componentResults": parts},
        **changes,
    }


def promptfoo(*rows: dict[str, Any], version: Any = 3, **more: Any) -> dict[str, Any]:
    return {
        "evalId": "eval-1",
        "results": {"version": version, "timestamp": "2026-03-01T10:00:00.000Z", "prompts": [], "results": list(rows)},
        "config": {"description": "Capitals", **more},
    }


def test_a_row_of_promptfoo_is_an_output_with_a_score_for_each_assertion(tmp_path: Path) -> None:
    found = imported(tmp_path, "out.json", promptfoo(row(), row(test=1)))
    assert (found.format, found.version, found.name) == ("promptfoo", "results 3", "Capitals")
    assert marks(found) == [{"contains": True, "has P": True}] * 2
    assert found.cases[1] == {"input": {"country": "France 1"}, "metadata": {"description": "same"}}
    output = found.runs[0].outputs[0]
    assert output.value == "Paris"
    assert output.metadata == {
        "latency_ms": 34.0,
        "usd": 0.01,
        "tokens": 12.0,
        "cached": False,
        "prompt": "Where? France",
    }
    assert found.runs[0].started_at is not None
    assert found.notes.is_complete


def test_a_row_that_could_not_be_evaluated_is_an_error_of_its_assertions_and_not_a_zero(tmp_path: Path) -> None:
    errored = row(success=False, score=0, failureReason=2, error="429", response=None, gradingResult=None)
    older = {name: value for name, value in errored.items() if name != "failureReason"}
    found = imported(tmp_path, "out.json", promptfoo(errored, {**older, "testIdx": 1, "vars": {}, "testCase": {}}))
    assert marks(found) == [{"call": "429"}, {"call": "429"}]
    assert list(found.runs[0].outputs[0].scores) == ["contains", "has P"]
    assert "error" in found.runs[0].outputs[0].scores["contains"].data()


def test_a_failed_assertion_is_a_fail_although_promptfoo_writes_it_as_error(tmp_path: Path) -> None:
    asserted = {"type": "contains", "value": "Rome"}
    part = {"pass": False, "score": 0, "reason": "no Rome", "assertion": asserted}
    grading = {"pass": False, "score": 0, "reason": "no Rome", "componentResults": [part]}
    failed = row(success=False, score=0, failureReason=1, error="no Rome", gradingResult=grading)
    assert marks(imported(tmp_path, "out.json", promptfoo(failed))) == [{"contains": False}]


def test_a_grader_that_failed_is_an_error(tmp_path: Path) -> None:
    part = {
        "pass": False,
        "score": 0,
        "reason": "no JSON",
        "metadata": {"graderError": True},
        "assertion": {"type": "g"},
    }
    grading = {"pass": False, "score": 0, "reason": "no JSON", "componentResults": [part]}
    failed = row(success=False, failureReason=1, gradingResult=grading)
    assert marks(imported(tmp_path, "out.json", promptfoo(failed))) == [{"g": "error"}]


@pytest.mark.parametrize(("success", "score"), [(True, 0.5), (False, 0.9)])
def test_where_a_threshold_decides_the_test_is_judged_and_not_its_assertions(
    tmp_path: Path, success: bool, score: float
) -> None:
    parts = [
        {"pass": True, "score": 1, "reason": "", "assertion": {"type": "contains"}},
        {"pass": not success, "score": 0, "reason": "", "assertion": {"type": "regex"}},
    ]
    grading = {"pass": success, "score": score, "reason": "threshold", "componentResults": parts}
    found = imported(tmp_path, "out.json", promptfoo(row(success=success, score=score, gradingResult=grading)))
    assert marks(found) == [{"contains": 1.0, "regex": 0.0, "overall": success}]
    assert "threshold" in left(found)


def test_each_prompt_with_each_provider_is_a_run_of_the_same_cases(tmp_path: Path) -> None:
    other = {"provider": {"id": "openai:gpt-5", "label": "five"}}
    found = imported(tmp_path, "out.json", promptfoo(row(), row(test=1), row(1, 0, **other), row(1, 1, **other)))
    assert [run.variant for run in found.runs] == [{"provider": "echo"}, {"provider": "five"}]
    assert len(found.cases) == 2
    assert [output.case for output in found.runs[1].outputs] == [0, 1]


def test_repeats_of_promptfoo_are_repeats(tmp_path: Path) -> None:
    again = [row(), {**row(), "testIdx": 1}]
    found = imported(tmp_path, "out.json", promptfoo(*again))
    assert (len(found.cases), found.runs[0].repeats) == (1, 2)
    assert [output.repeat for output in found.runs[0].outputs] == [0, 1]
    other = {**row(test=1), "vars": {"q": "other"}, "testCase": {**row()["testCase"], "vars": {"q": "other"}}}
    found = imported(tmp_path, "out.json", promptfoo(*[row()] * 4, *[other] * 2))
    assert (len(found.cases), found.runs[0].repeats) == (3, 2), "the first test appears twice"
    assert [(output.case, output.repeat) for output in found.runs[0].outputs] == [
        (0, 0),
        (0, 1),
        (2, 0),
        (2, 1),
        (1, 0),
        (1, 1),
    ]


def test_lines_of_promptfoo_are_read(tmp_path: Path) -> None:
    assert marks(imported(tmp_path, "out.jsonl", row(), row(test=1))) == [{"contains": True, "has P": True}] * 2


def test_a_test_without_assertions_passes_for_nothing(tmp_path: Path) -> None:
    grading = {"pass": True, "score": 1, "reason": "No assertions"}
    found = imported(tmp_path, "out.json", promptfoo(row(gradingResult=grading, testCase={"vars": {"a": 1}})))
    assert marks(found) == [{}]
    assert "test 0: a test asserts nothing" in "".join(map(str, found.notes.problems()))


@pytest.mark.parametrize("version", [1, 4, "3", None])
def test_an_unknown_version_of_promptfoo_is_refused_by_name(tmp_path: Path, version: Any) -> None:
    with pytest.raises(InputError, match=rf"version {version!r}.*known are 2 and 3"):
        imported(tmp_path, "out.json", promptfoo(row(), version=version))


def test_a_test_run_of_deepeval_is_a_run_and_a_metric_that_raised_an_error(tmp_path: Path) -> None:
    metrics = [
        {"name": "Faithfulness", "threshold": 0.5, "success": True, "score": 0.9, "reason": "grounded"},
        {"name": "Faithfulness", "success": False, "error": "judge down"},
        {"name": "Bias", "success": False, "score": 0.1},
    ]
    case = {"name": "fr", "input": "France", "actualOutput": "Paris", "expectedOutput": "Paris", "metricsData": metrics}
    tools = {"toolsCalled": [{"name": "search", "inputParameters": {"q": 1}}], "completionTime": 0.5}
    run = {"testCases": [{**case, **tools}], "conversationalTestCases": [], "testPassed": 0, "testFailed": 1}
    found = imported(tmp_path, "latest.json", {"testRunData": run})
    assert marks(found) == [{"Faithfulness": True, "Faithfulness-2": "error", "Bias": False}]
    assert found.runs[0].outputs[0].metadata == {
        "latency_ms": 500.0,
        "tool_calls": [{"name": "search", "arguments": {"q": 1}}],
    }


def test_goldens_of_deepeval_are_test_cases(tmp_path: Path) -> None:
    golden = {"input": "France", "expected_output": "Paris", "context": ["a", "b"], "additional_metadata": {"k": 1}}
    found = imported(
        tmp_path, "g.json", [golden, {"input": "Spain", "expected_output": None}, {"expected_output": "x"}]
    )
    assert found.cases == [
        {"input": "France", "expected": "Paris", "metadata": {"context": ["a", "b"], "k": 1}},
        {"input": "Spain"},
    ]
    assert "g.json:1: a record without input is left out" in left(found)


def test_goldens_in_csv_have_their_lists_and_objects_back(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text(
        "\ufeffinput,expected_output,context,expected_tools,actual_output\r\n"
        'France,Paris,a|b,"[{""name"": ""search""}]",\r\n',
        encoding="utf-8",
        newline="",
    )
    found = read_import(path, "g.csv").imported
    metadata = {"context": ["a", "b"], "expected_tools": [{"name": "search"}]}
    assert found.cases == [{"input": "France", "expected": "Paris", "metadata": metadata}]
    assert not found.runs


def test_a_golden_of_a_conversation_has_a_simulated_user(tmp_path: Path) -> None:
    golden = {"scenario": "wants a refund", "expected_outcome": "refunded", "user_description": "angry"}
    found = imported(tmp_path, "g.json", [golden])
    (case,) = found.cases
    assert found.suite["user"] == {"model_config": {"model": "openai/gpt-5-mini"}}
    assert case == {"expected": "refunded", "user": {"goal": "wants a refund", "persona": "angry"}}


def report(**more: Any) -> dict[str, Any]:
    case = {
        "name": "fr",
        "inputs": "France",
        "metadata": None,
        "expected_output": "Paris",
        "output": "Paris",
        "metrics": {},
        "attributes": {},
        "scores": {"length": {"name": "length", "value": 5, "reason": None}},
        "labels": {"tone": {"value": "warm"}},
        "assertions": {"Equals": {"name": "Equals", "value": True, "reason": "same"}},
        "task_duration": 0.25,
        "evaluator_failures": [{"name": "Judge", "error_message": "down"}],
    }
    failure = {"name": "bad", "inputs": "x", "metadata": None, "expected_output": None, "error_message": "boom"}
    return {"name": "task", "cases": [case], "failures": [failure], **more}


def test_a_report_of_pydantic_evals_is_a_run_with_its_failures(tmp_path: Path) -> None:
    found = imported(tmp_path, "report.json", report(dataset_name="caps"))
    assert found.name == "caps"
    assert marks(found) == [{"Equals": True, "length": 5.0, "Judge": "error"}, {"call": "boom"}]
    assert found.runs[0].outputs[0].metadata == {"latency_ms": 250.0, "labels": {"tone": "warm"}}
    assert [case.get("id") for case in found.cases] == ["fr", "bad"]


def event(sample: str, kind: str, **data: Any) -> dict[str, Any]:
    number = {"run_id": "r", "event_id": 1, "created_by": "", "created_at": "2026-03-01 10:00:00.5+00:00"}
    return {**number, "sample_id": sample, "type": kind, "data": data}


def test_a_log_of_openai_evals_is_a_run(tmp_path: Path) -> None:
    spec = {"run_id": "r", "eval_name": "capitals.v0", "completion_fns": ["gpt-4"], "created_at": "2026-03-01 09:59"}
    found = imported(
        tmp_path,
        "log.jsonl",
        {"spec": spec},
        event("cap.dev.10", "sampling", prompt="Spain?", sampled=["Madrid"]),
        event("cap.dev.10", "match", correct=True, expected="Madrid", picked="Madrid"),
        event("cap.dev.2", "sampling", prompt="France?", sampled=["Lyon"]),
        event("cap.dev.2", "match", correct=False, expected="Paris", picked=None),
        event("cap.dev.3", "error", type="RateLimit", message="slow down"),
        {"final_report": {"accuracy": 0.5}},
    )
    assert found.name == "capitals.v0"
    assert [case["id"] for case in found.cases] == ["cap.dev.2", "cap.dev.3", "cap.dev.10"]
    assert marks(found) == [{"match": False}, {"call": "slow down"}, {"match": True}]
    assert found.cases[2] == {"id": "cap.dev.10", "input": "Spain?", "expected": "Madrid"}
    assert found.runs[0].outputs[0].metadata == {"model": "gpt-4"}
    assert found.notes.is_complete


def test_a_log_that_ended_early_says_so(tmp_path: Path) -> None:
    spec = {"run_id": "r", "eval_name": "e"}
    found = imported(tmp_path, "log.jsonl", {"spec": spec}, event("a.1", "match", correct=True))
    assert "samples may be missing" in left(found)


def test_samples_and_items_of_openai_are_test_cases(tmp_path: Path) -> None:
    found = imported(tmp_path, "s.jsonl", {"input": "France?", "ideal": ["Paris", "paris"]})
    assert found.cases == [{"input": "France?", "expected": ["Paris", "paris"]}]
    found = imported(tmp_path, "i.jsonl", {"item": {"question": "France?", "ground_truth": "Paris"}})
    assert found.cases == [{"input": "France?", "expected": "Paris"}]


def test_output_items_of_the_evals_api_are_a_run(tmp_path: Path) -> None:
    def item(number: int, **more: Any) -> dict[str, Any]:
        sample = {"output": [{"role": "assistant", "content": "Paris"}], "error": None, "usage": {"total_tokens": 9}}
        results = [{"name": "grade", "passed": True, "score": 1.0}]
        base = {"object": "eval.run.output_item", "datasource_item_id": number, "created_at": 1_772_000_000}
        asked = {"datasource_item": {"question": "France?", "answer": "Paris"}}
        return {**base, **asked, "sample": sample, "results": results, "status": "pass", **more}

    broken = {"output": [], "error": {"code": "rate_limit", "message": "slow down"}}
    found = imported(tmp_path, "out.json", {"object": "list", "data": [item(0), item(1, sample=broken, results=[])]})
    assert marks(found) == [{"grade": True}, {"call": "slow down"}]
    assert found.cases[0] == {"input": "France?", "expected": "Paris"}


@pytest.mark.parametrize("score", [float("nan"), 10**400])
def test_a_score_that_is_no_number_is_an_error(tmp_path: Path, score: float) -> None:
    found = imported(
        tmp_path,
        "r.json",
        {
            "testCases": [{"input": "a", "actualOutput": "b", "metricsData": [{"name": "m", "score": score}]}],
            "testPassed": 0,
        },
    )
    assert marks(found) == [{"m": "error"}]


def test_a_file_in_no_format_names_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in no format.*promptfoo.*deepeval.*--as"):
        imported(tmp_path, "x.json", {"hello": 1})


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"results": 1, "results": 2}')
    with pytest.raises(InputError, match="appears twice"):
        read_import(path)
