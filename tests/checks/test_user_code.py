"""What somebody's own objects and functions may do, and what comes of it: a truthful result, and no harm to others."""

from __future__ import annotations

import asyncio
import collections
import enum
import json
import logging
import sys
from typing import Any

import pytest
from pydantic import field_validator

from fepflow import (
    AttributeExistsCheck,
    BaseCheck,
    Check,
    ContainsCheck,
    CustomFunctionCheck,
    EqualsCheck,
    IsEmptyCheck,
    JSONPath,
    Output,
    RegexCheck,
    TestCase,
    ThresholdCheck,
    evaluate,
    evaluate_async,
)
from fepflow.errors import CheckArgumentsError, InputError
from fepflow.protocol.results import CheckResult, EvaluationRunResult

VALUE = "$.output.value"
FINE = IsEmptyCheck(value="")


def results_of(output: Any, *checks: Any, expected: Any = None) -> list[CheckResult]:
    """The results of the checks about one output, after the one that a neighbour of theirs had."""
    case = TestCase(id="a", input=1, expected=expected)
    run = evaluate([case], [Output(value=output)], [*checks, FINE])
    *results, neighbour = run.results[0].check_results
    assert neighbour.results == {"passed": True}
    return results


def passed(results: list[CheckResult]) -> list[Any]:
    return [result.results.get("passed", result.error and result.error.type) for result in results]


async def lose_a_task() -> dict[str, Any]:
    waiting = asyncio.create_task(asyncio.sleep(9))
    waiting.cancel()
    await waiting
    return {"passed": True}


async def cancelled() -> dict[str, Any]:
    raise asyncio.CancelledError


async def leaves() -> dict[str, Any]:
    sys.exit(7)


async def fails_in_a_group() -> dict[str, Any]:
    raise BaseExceptionGroup("several", [asyncio.CancelledError()])


async def closes() -> dict[str, Any]:
    raise GeneratorExit


def test_an_async_function_that_is_cancelled_or_leaves_is_an_error_of_its_check() -> None:
    for function in [lose_a_task, cancelled, leaves, fails_in_a_group, closes]:
        (result,) = results_of(1, CustomFunctionCheck(validation_function=function))
        assert result.error is not None
        assert result.error.type == "unknown_error"


async def test_cancelling_an_evaluation_cancels_its_checks() -> None:
    begun = asyncio.Event()

    async def waits() -> dict[str, Any]:
        begun.set()
        await asyncio.sleep(30)
        return {"passed": True}

    check = CustomFunctionCheck(validation_function=waits)
    work = asyncio.create_task(evaluate_async([TestCase(id="a", input=1)], [Output(value=1)], [check]))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


class Odd(dict[str, Any]):
    def items(self) -> Any:
        raise ZeroDivisionError


DEEP = json.loads("[" * 300 + "]" * 300)
ODD_VALUES = [json.loads('{"\\ud800": 1}'), b"\xff", DEEP]


def test_an_argument_without_a_json_form_is_still_compared() -> None:
    for value in ODD_VALUES:
        (same, other) = results_of(
            value, EqualsCheck(actual=VALUE, expected=value), EqualsCheck(actual=1, expected=value)
        )
        assert (same.results, other.results) == ({"passed": True}, {"passed": False})


def test_an_argument_whose_own_code_fails_is_an_error_of_its_check() -> None:
    (result,) = results_of(1, EqualsCheck(actual=VALUE, expected=Odd(a=1)))
    assert result.results == {"passed": False} or result.status == "error"


def test_odd_values_can_be_checked_and_are_shown_somehow() -> None:
    for value in ODD_VALUES:
        (result,) = results_of(value, AttributeExistsCheck(path=VALUE))
        assert result.results == {"passed": True}
        shown = result.resolved_arguments["path"]["value"]
        assert shown == value if isinstance(value, dict) else isinstance(shown, str)


def test_a_path_makes_up_nothing_that_an_output_has_not() -> None:
    made_up: dict[str, Any] = collections.defaultdict(list)
    empty = EqualsCheck(actual=VALUE, expected={})
    assert passed(results_of(made_up, empty, AttributeExistsCheck(path=VALUE + ".x", negate=True), empty)) == [True] * 3
    assert not made_up
    assert passed(results_of(collections.Counter(), ThresholdCheck(value=VALUE + ".x", max_value=0))) == [
        "jsonpath_error"
    ]


class Colour(str, enum.Enum):  # noqa: UP042  # a StrEnum prints as its text; many have these
    RED = "red"


def test_an_enumerations_member_is_its_text() -> None:
    checks = [
        ContainsCheck(text=VALUE, phrases=["red"]),
        ContainsCheck(text=VALUE, phrases="$.test_case.expected"),
        RegexCheck(text=VALUE, pattern="^red$"),
        RegexCheck(text=VALUE, pattern="$.test_case.expected"),
    ]
    assert passed(results_of(Colour.RED, *checks, expected="red")) == [True] * 4


class Inner(BaseCheck):
    def __call__(self) -> dict[str, Any]:
        return {"passed": True}


class Outer(BaseCheck):
    def __call__(self) -> dict[str, Any]:
        run = evaluate([TestCase(id="a", input=1)], [Output(value=1)], [Inner()])
        return {"passed": run.results[0].check_results[0].results["passed"]}


def test_a_check_may_evaluate_others() -> None:
    assert passed(results_of(1, Outer())) == [True]


class WithValidator(BaseCheck):
    """As flex-evals' readme has one: it knows paths itself."""

    text: str | JSONPath

    @field_validator("text", mode="before")
    @classmethod
    def convert_jsonpath(cls, value: Any) -> Any:
        return JSONPath(expression=value) if isinstance(value, str) and value.startswith("$.") else value

    def __call__(self) -> dict[str, Any]:
        return {"passed": str(self.text).startswith("$.99")}


def test_a_users_validator_gets_escaped_text_as_a_literal() -> None:
    assert WithValidator(text="\\$.99 price")() == {"passed": True}
    assert passed(results_of("$.99", WithValidator(text="\\$.99 price"), WithValidator(text=VALUE))) == [True, True]


def test_a_check_called_directly_answers_directly() -> None:
    text = "Code flows like stream\nBugs dance in morning sunlight\nCommit, push, deploy"
    assert RegexCheck(text=text, pattern=r"(.+\n){2}.+")() == {"passed": True}


async def test_a_check_called_directly_in_an_event_loop_answers_directly() -> None:
    assert RegexCheck(text="a\nb\nc", pattern=r"(.+\n){2}.+")() == {"passed": True}


def test_ids_that_stand_twice_are_refused() -> None:
    twice = [Check(type="is_empty", arguments={"value": ""}, id="q")] * 2
    cases = [TestCase(id="a", input=1, checks=twice[:1])]
    with pytest.raises(InputError, match="the check id q appears twice"):
        evaluate([TestCase(id="a", input=1)], [Output(value=1)], twice)
    with pytest.raises(InputError, match="the check id q appears twice"):
        evaluate(cases, [Output(value=1)], twice[:1])


@pytest.mark.parametrize("check", [42, "is_empty", None])
def test_an_object_that_is_not_a_check_is_refused(check: Any) -> None:
    with pytest.raises(InputError, match="is not a check"):
        evaluate([TestCase(id="a", input=1)], [Output(value=1)], [check])


def test_an_unknown_argument_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fepflow.checks"):
        typed = ContainsCheck(text=VALUE, phrases=["a"], case_sensitve=False)
        declared = Check(type="contains", arguments={"text": VALUE, "phrases": ["a"], "case_sensitve": False})
        results = results_of("a", typed, declared)
    assert [record.getMessage() for record in caplog.records] == [
        "contains does not know the argument case_sensitve; it is ignored"
    ] * 2
    assert [set(result.resolved_arguments or {}) for result in results] == [
        {"text", "phrases", "negate", "case_sensitive", "match_all"}
    ] * 2
    with pytest.raises(ValueError, match=r"no argument phrase \(did you mean phrases\?\), and phrases would be"):
        ContainsCheck(text=VALUE, phrase="b")


def test_a_word_for_a_truth_value_is_not_bent_to_one() -> None:
    (result,) = results_of("a", Check(type="contains", arguments={"text": VALUE, "phrases": "a", "negate": "yes"}))
    assert result.error is not None
    assert result.error.type == "validation_error"


def test_a_check_never_changes() -> None:
    check = Check(type="contains")
    with pytest.raises(ValueError, match="frozen"):
        check.type = "regex"  # type: ignore[misc]  # that is it


def test_a_run_with_an_odd_output_is_written_and_read_again() -> None:
    for output in [{"\ud800": 1}, ["\ud800", float("inf")], "\ud800", DEEP, json.loads("[" * 220 + "]" * 220)]:
        case = TestCase(id="a", input=1, checks=[ContainsCheck(text="$.test_case.id", phrases="a")])
        run = evaluate([case], [Output(value=output)], [FINE])
        text = run.model_dump_json()
        json.loads(text, parse_constant=pytest.fail)
        again = EvaluationRunResult.model_validate_json(text)
        assert again.model_dump_json() == text
        assert again.results[0].check_results == run.results[0].check_results


def test_a_run_whose_cases_carry_typed_checks_is_the_same_after_a_trip_through_json() -> None:
    checks = [ContainsCheck(text=VALUE, phrases=["a"]), ContainsCheck(text="\\$.99", phrases="9")]
    run = evaluate([TestCase(id="a", input=1, checks=checks)], [Output(value="a")])
    again = EvaluationRunResult.model_validate_json(run.model_dump_json())
    assert again == run
    assert run == again
    assert checks[0] != checks[1]


def test_a_direct_call_with_a_path_is_refused() -> None:
    with pytest.raises(CheckArgumentsError, match="holds a path"):
        ContainsCheck(text=VALUE, phrases=["a"])()
