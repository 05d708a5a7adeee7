"""Everything that flex-evals 0.4 offers is here, or docs/from-flex-evals.md says what takes its place."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fepflow
from fepflow import (
    BaseAsyncCheck,
    BaseCheck,
    CheckError,
    ContainsCheck,
    CustomFunctionCheck,
    ErrorType,
    ExperimentMetadata,
    InputError,
    Output,
    PassMode,
    SimilarityMetric,
    TestCase,
    get_check_class,
)
from fepflow.checks.engine import evaluate, evaluate_async

PAGE = (Path(__file__).parents[2] / "docs" / "from-flex-evals.md").read_text(encoding="utf-8")

FLEX_EVALS = [
    "AttributeExistsCheck",
    "BaseAsyncCheck",
    "BaseCheck",
    "Check",
    "CheckError",
    "CheckExecutionError",
    "CheckResult",
    "CheckType",
    "ContainsCheck",
    "CustomFunctionCheck",
    "DisjointCheck",
    "EqualsCheck",
    "ErrorType",
    "EvaluationContext",
    "EvaluationRunResult",
    "EvaluationSummary",
    "ExactMatchCheck",
    "FlexEvalsError",
    "IsEmptyCheck",
    "JSONPath",
    "JSONPathError",
    "LLMJudgeCheck",
    "Output",
    "PassMode",
    "RegexCheck",
    "RegexFlags",
    "SchemaValidationCheck",
    "SemanticSimilarityCheck",
    "SetEqualCheck",
    "SimilarityMetric",
    "Status",
    "SubsetCheck",
    "SupersetCheck",
    "TestCase",
    "TestCaseResult",
    "TestCaseSummary",
    "ThresholdCheck",
    "ValidationError",
    "evaluate",
    "evaluate_sync",
    "generate_check_schema",
    "generate_checks_schema",
    "get_check_class",
    "list_registered_checks",
    "register",
    "CheckRegistry",
    "get_check_info",
    "is_async_check",
    "get_latest_version",
    "list_versions",
    "get_version_for_class",
    "get_check_type_for_class",
    "clear_registry",
    "get_registry_state",
    "restore_registry_state",
    "JSONPathBehavior",
    "get_jsonpath_behavior",
    "CheckTypes",
    "ExecutionContext",
    "FlexEvalsJSONEncoder",
    "is_jsonpath",
    "parse_jsonpath_cached",
    "validate_jsonpath",
    "resolve_argument",
    "validate_json_schema",
    "to_dict_list",
    "serialize",
    "to_dict",
    "to_arguments",
    "execute",
    "resolve_fields",
    "default_results",
    "max_async_concurrent",
    "max_parallel_workers",
    "metadata",
]

CASE = TestCase(id="a", input="?", metadata={"topic": "cities"})
PARIS = Output(value="Paris", metadata={"tokens": 2})
CHECK = ContainsCheck(text="$.output.value", phrases=["Paris"])


def test_a_name_of_flex_evals_is_here_or_on_the_page() -> None:
    for name in FLEX_EVALS:
        code = " ".join(re.findall(r"`([^`]+)`", PAGE))
        assert name in fepflow.__all__ or re.search(rf"\b{name}\b", code), name


def test_the_imports_that_the_page_shows_work() -> None:
    shown = re.findall(r"from fepflow import ([\w, ]+)`", PAGE)
    assert len(shown) >= 2
    for names in shown:
        exec(f"from fepflow import {names}", {})


def test_constants_equal_their_texts() -> None:
    assert CheckError(type=ErrorType.JSONPATH_ERROR, message="x").type == "jsonpath_error"
    assert (str(PassMode.SAMPLE), str(SimilarityMetric.DOT)) == ("sample", "dot")
    assert get_check_class("contains", "1.0.0") is ContainsCheck


class TestMetadata:
    def test_any_dict_is_kept_in_the_result(self) -> None:
        given = {"experiment_name": "baseline", "lr": 0.1}
        assert evaluate([CASE], [PARIS], [CHECK], given).metadata == given
        assert evaluate([CASE], [PARIS], [CHECK], metadata=given).metadata == given

    @pytest.mark.parametrize(
        "experiment", [{"name": "x", "metadata": {"a": 1}}, ExperimentMetadata(name="x", metadata={"a": 1})]
    )
    def test_an_experiment_is_a_dict_or_an_object(self, experiment: Any) -> None:
        result = evaluate([CASE], [PARIS], [CHECK], experiment_metadata=experiment)
        assert result.experiment == ExperimentMetadata(name="x", metadata={"a": 1})
        assert result.metadata is None

    def test_an_experiment_may_stand_where_the_metadata_do(self) -> None:
        assert evaluate([CASE], [PARIS], [CHECK], ExperimentMetadata(name="x")).experiment.name == "x"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"metadata": "baseline"}, "metadata: must be a dict, not str"),
            ({"metadata": ["a"]}, "metadata: must be a dict, not list"),
            ({"metadata": {1: "a"}}, "metadata: 1 is not a name"),
            ({"metadata": {"when": object()}}, "metadata.when: has no JSON form: object"),
            (
                {"experiment_metadata": {"experiment_name": "x"}},
                "experiment_metadata.experiment_name: experiment_name is not known",
            ),
            ({"experiment_metadata": {"name": 3}}, "experiment_metadata.name: must be a text"),
            ({"experiment_metadata": {"metadata": "x"}}, "experiment_metadata.metadata: must be a mapping"),
            ({"experiment_metadata": 3}, "experiment_metadata: must be a dict, not int"),
            (
                {"metadata": ExperimentMetadata(), "experiment_metadata": ExperimentMetadata()},
                "metadata: the experiment is given twice",
            ),
            ({"max_async_concurrent": 0}, "max_async_concurrent: 0 is not a number of checks"),
            ({"max_async_concurrent": True}, "max_async_concurrent: True is not a number of checks"),
            ({"max_async_concurrent": "4"}, "max_async_concurrent: '4' is not a number of checks"),
        ],
    )
    def test_what_is_wrong_is_refused_before_any_check_runs(self, arguments: dict[str, Any], message: str) -> None:
        called: list[bool] = []
        check = CustomFunctionCheck(validation_function=lambda: called.append(True))
        with pytest.raises(InputError) as refused:
            evaluate([CASE], [PARIS], [check], **arguments)
        assert str(refused.value).startswith(message)
        assert called == []


class Counting(BaseAsyncCheck):
    check_type = "counting"
    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0

    async def __call__(self) -> dict[str, Any]:
        cls = type(self)
        cls.under_way += 1
        cls.most = max(cls.most, cls.under_way)
        await asyncio.sleep(0.001)
        cls.under_way -= 1
        return {"passed": True}


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (None, 10)])
def test_the_number_of_async_checks_at_once_is_bounded(
    limit: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "most", 0)
    cases = [TestCase(id=str(index), input="") for index in range(5)]
    outputs = [Output(value="")] * 5
    result = evaluate(cases, outputs, [Counting(id="one"), Counting(id="two")], None, limit)
    assert Counting.most == most
    assert result.pass_rate == 1


async def test_a_bounded_evaluation_can_be_cancelled() -> None:
    class Endless(BaseAsyncCheck):
        check_type = "endless"

        async def __call__(self) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    checks = [Endless(id=str(number)) for number in range(3)]
    task = asyncio.create_task(evaluate_async([CASE], [PARIS], checks, max_async_concurrent=1))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Broken(BaseCheck):
    check_type = "broken"

    def __call__(self) -> dict[str, Any]:
        raise ValueError("no")


def test_results_are_a_list_of_flat_dicts() -> None:
    rows = evaluate([CASE], [PARIS], [CHECK, Broken()], {"experiment_name": "x"}).to_dict_list()
    contains, broken = rows
    assert contains["test_case_id"] == "a"
    assert (contains["input_data"], contains["expected_output"], contains["actual_output"]) == ("?", None, "Paris")
    assert (contains["check_type"], contains["check_version"], contains["check_status"]) == (
        "contains",
        "1.0.0",
        "completed",
    )
    assert contains["check_results"] == {"passed": True}
    assert contains["check_results_passed"] is True
    assert contains["resolved_arguments"]["phrases"] == {"value": ["Paris"]}
    assert isinstance(contains["started_at"], datetime)
    assert (contains["total_checks"], contains["completed_checks"], contains["error_checks"]) == (2, 1, 1)
    assert contains["test_case_metadata"] == {"topic": "cities"}
    assert contains["output_metadata"] == {"tokens": 2}
    assert contains["evaluation_metadata"] == {"experiment_name": "x"}
    assert "error_type" not in contains
    assert (broken["check_results_passed"], broken["error_type"]) == (None, "unknown_error")
    assert "ValueError: no" in broken["error_message"]
    json.dumps(rows, default=str)


def test_a_result_has_the_version_of_its_check() -> None:
    (result,) = evaluate([CASE], [PARIS], [CHECK]).results[0].check_results
    assert result.check_version == "1.0.0"
    (result,) = evaluate([CASE], [PARIS], [{"type": "unheard_of"}]).results[0].check_results
    assert result.check_version is None


def sync_function(text: str) -> dict[str, Any]:
    return {"passed": text == "Paris"}


async def async_function(text: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"passed": text == "Paris"}


@pytest.mark.parametrize("function", [sync_function, async_function])
class TestCustomFunction:
    async def test_a_direct_call_is_awaited(self, function: Any) -> None:
        check = CustomFunctionCheck(validation_function=function, function_args={"text": "Paris"})
        assert await check() == {"passed": True}  # type: ignore[misc]  # a dict for those who do not wait

    def test_or_it_is_not(self, function: Any) -> None:
        check = CustomFunctionCheck(validation_function=function, function_args={"text": "Paris"})
        assert check()["passed"] is True

    def test_its_results_are_plain_in_an_evaluation(self, function: Any) -> None:
        check = CustomFunctionCheck(validation_function=function, function_args={"text": "$.output.value"})
        (result,) = evaluate([CASE], [PARIS], [check]).results[0].check_results
        assert type(result.results) is dict
        assert result.results == {"passed": True}


async def test_an_async_function_runs_in_the_loop_of_its_caller() -> None:
    async def look() -> dict[str, Any]:
        return {"passed": asyncio.get_running_loop() is here}

    here = asyncio.get_running_loop()
    assert await CustomFunctionCheck(validation_function=look)() == {"passed": True}  # type: ignore[misc]
