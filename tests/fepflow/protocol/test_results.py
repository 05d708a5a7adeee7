"""Results as a table of pandas."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from fepflow.checks.contains import ContainsCheck
from fepflow.checks.engine import evaluate
from fepflow.errors import UserError
from fepflow.protocol.results import COLUMNS, EvaluationRunResult
from fepflow.protocol.test_case import Output, TestCase

FOUR = ContainsCheck(id="mentions", text="$.output.value", phrases="4")
ANSWERS = {"type": "exact_match", "id": "answers", "arguments": {"actual": "$.output.value", "expected": "$.nothing"}}


def test_each_check_of_each_output_is_a_row() -> None:
    case = TestCase(id="b", input=1, expected=[1], metadata={"topic": "é"})
    metadata = {"latency_ms": 12.5, "attempts": 2}
    results = evaluate([case, "q"], [Output(value={"a": 5}, metadata=metadata), "4"], [FOUR, ANSWERS])
    frame = results.to_dataframe()
    assert type(frame).__name__ == "DataFrame"
    assert list(frame.columns) == list(COLUMNS)
    assert frame[["case_id", "case_index", "repeat", "check_id"]].values.tolist()[:2] == [
        ["b", 0, 1, "mentions"], ["b", 0, 1, "answers"]
    ]  # fmt: skip
    assert set(frame["run_id"]) == {results.evaluation_id}
    assert frame["case_index"].tolist() == [0, 0, 1, 1]
    assert frame["status"].tolist() == ["error", "error", "completed", "error"]
    assert frame["passed"].isna().tolist() == [True, True, False, True]
    assert bool(frame["passed"][2]) is True
    first = frame.iloc[0]
    assert (first["input"], first["expected"], first["output"]) == ("1", "[1]", '{"a": 5}')
    assert (first["metadata"], first["latency_ms"], first["attempts"]) == ('{"topic": "é"}', 12.5, 2)
    assert first["error_type"] == "validation_error"
    assert "text" in first["error_message"]
    assert (frame["output"][2], json.loads(frame["results"][2])["passed"]) == ("4", True)
    assert frame["evaluated_at"].dt.tz is not None
    assert frame["evaluated_at"].tolist() == [
        check.evaluated_at for result in results.results for check in result.check_results
    ]
    assert frame["expected"].isna().tolist() == [False, False, True, True]


def test_a_case_without_checks_and_results_of_repeats_have_their_rows() -> None:
    results = evaluate(["a", "b"], ["x", Output(value=None, metadata={"error": {"message": "no answer"}})], [])
    repeated = [result.model_copy(update={"metadata": {"repeat": n}}) for result in results.results for n in (1, 2)]
    frame = results.model_copy(update={"results": repeated}).to_dataframe()
    assert frame[["case_index", "repeat"]].values.tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]
    of_checks = ["check_id", "check_type", "status", "passed", "score", "results", "error_message", "evaluated_at"]
    assert frame[of_checks].isna().all(axis=None)
    assert frame["output"].tolist()[:2] == ["x", "x"]
    assert frame["output_error"].isna().tolist() == [True, True, False, False]
    assert frame["output_error"][2] == "no answer"
    none = results.model_copy(update={"results": []}).to_dataframe()
    assert (len(none), list(none.columns)) == (0, list(COLUMNS))
    assert none.dtypes.tolist() == frame.dtypes.tolist()


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

ODD: list[tuple[Any, Any]] = [
    ("half \ud83d", "half \\ud83d"),
    ("nul \x00", "nul \x00"),
    ({"half \ud83d": ["\udc00"]}, {"half \ud83d": ["\udc00"]}),
    ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
    (2**200, 2**200),
    ({"n": -(2**63) - 1}, {"n": -(2**63) - 1}),
    (ENDLESS, "[[[[[[[...]]]]]]]"),
    ({1, 2}, [1, 2]),
    (10**5000, "(int)"),
]


def test_no_answer_is_too_odd_for_a_row() -> None:
    for value, read in ODD:
        base = evaluate(["a"], ["b"], [FOUR])
        result = base.results[0]
        case = TestCase.model_construct(id="a", input=value, expected=value, metadata={"of": value})
        context = result.execution_context.model_copy(
            update={"test_case": case, "output": Output.model_construct(value=value)}
        )
        check = result.check_results[0].model_copy(update={"results": {"passed": True, "score": value}})
        odd = result.model_copy(update={"execution_context": context, "check_results": [check]})
        (row,) = base.model_copy(update={"results": [odd]}).to_dataframe().to_dict("records")
        for name in ("input", "expected", "output"):
            row[name].encode()
            assert (row[name] if isinstance(value, str) else json.loads(row[name])) == read
        assert json.loads(row["results"]) if read != "(int)" else row["results"] == '"(dict)"'
        assert row["passed"] is True


def test_the_score_is_a_number() -> None:
    for results, score in [
        ({"score": 2}, 2.0),
        ({"response": {"score": 0.5, "passed": True}}, 0.5),
        ({"value": 7.5}, 7.5),
        ({"score": True, "value": 3}, 3.0),
        ({"score": 2**64}, float(2**64)),
        ({"score": 10**400}, None),
        ({"score": "2"}, None),
        ({"passed": True}, None),
    ]:
        base = evaluate(["a"], ["b"], [FOUR])
        check = base.results[0].check_results[0].model_copy(update={"results": results})
        changed = base.model_copy(update={"results": [base.results[0].model_copy(update={"check_results": [check]})]})
        (found,) = changed.to_dataframe()["score"].tolist()
        assert (found == score) if score is not None else math.isnan(found)


def test_usage_of_judges_is_shown_where_it_is_known() -> None:
    base = evaluate(["a"], ["b"], [FOUR, FOUR.to_check().model_copy(update={"id": "other"})])
    spent, unknown = base.results[0].check_results
    checks = [
        spent.model_copy(update={"metadata": {"spent": {"requests": 1, "answers": 1, "tokens": 42, "usd": 0.25}}}),
        unknown.model_copy(update={"metadata": {"spent": {"requests": 1, "answers": 1, "tokens": None, "usd": None}}}),
    ]
    results = [base.results[0].model_copy(update={"check_results": checks})]
    frame = base.model_copy(update={"results": results}).to_dataframe()
    assert (frame["judge_tokens"][0], frame["judge_cost_usd"][0]) == (42, 0.25)
    assert frame[["judge_tokens", "judge_cost_usd"]].iloc[1].isna().all()


def test_a_run_that_was_written_and_read_is_the_same_table() -> None:
    results = evaluate(["a", {"x": [1.5, None]}], ["4", 5], [FOUR])
    again = EvaluationRunResult.model_validate_json(results.model_dump_json())
    import pandas

    pandas.testing.assert_frame_equal(again.to_dataframe(), results.to_dataframe())


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UserError, match=r'needs pandas.*: pip install "fepflow\[dataframe\]"'):
        evaluate(["a"], ["b"], [FOUR]).to_dataframe()
