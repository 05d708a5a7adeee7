"""A call that failed at a later step: checks of the steps before are run, the others end in error with its cause."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.checks.engine import evaluate
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output

CAUSE = "step 3 of 4: the agent exited with code 1"
OUTPUT = Output(
    value={"steps": [{"public_output": "a", "calls": [{"name": "x"}]}, {"public_output": "b"}]},
    metadata={
        "steps": 4,
        "error": {"type": "unknown_error", "kind": "crashed", "message": CAUSE, "recoverable": True, "partial": True},
    },
)
CASE = {"id": "c", "input": ["1", "2", "3", "4"], "expected": "b"}


def checked(output: Output = OUTPUT, **arguments: Any) -> Any:
    check = Check(type="exact_match", arguments=arguments)
    return evaluate([CASE], [output], [check]).results[0].check_results[0]


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        ("$.output.value.steps[1].public_output", "$.test_case.expected", True),
        ("$.output.value.steps[0].public_output", "$.test_case.expected", False),
        ("$.output.value['steps'][0]['calls'][*].name", "x", True),
        ("$.output.value.steps[0].public_output", "$.output.value.steps[1].public_output", False),
    ],
)
def test_a_check_that_reads_completed_steps_is_run(actual: str, expected: str, passed: bool) -> None:
    assert checked(actual=actual, expected=expected).passed is passed


def test_a_check_that_may_read_more_ends_in_error_with_the_cause() -> None:
    for path in [
        "$.output.value.steps[2].public_output",
        "$.output.value.steps[-1].public_output",
        "$.output.value.steps[*].public_output",
        "$.output.value.steps[0,1].public_output",
        "$.output.value.steps[:2]",
        "$.output.value..public_output",
        "$.output.value.steps",
        "$.output.value",
        "$.output.metadata.steps",
        "$.output.metadata.completed",
        "$.test_case.expected",
    ]:
        for arguments in ({"actual": path, "expected": "b"}, {"actual": path, "expected": "b", "negate": True}):
            result = checked(**arguments)
            assert (result.status, result.passed) == ("error", None)
            assert result.error.message == f"the target gave only a part of the output: {CAUSE}"


def test_one_path_to_a_missing_step_is_enough() -> None:
    result = checked(actual="$.output.value.steps[0].public_output", expected="$.output.value.steps[2].public_output")
    assert CAUSE in result.error.message


def test_a_prompt_of_a_judge_is_read_for_paths_too() -> None:
    prompt = "Compare {{$.output.value.steps[0].public_output}} with {{$.output.value.steps[3].public_output}}"
    schema = {"type": "object", "properties": {"passed": {"type": "boolean"}}}
    check = Check(
        type="llm_judge",
        arguments={"prompt": prompt, "response_format": schema, "model_config": {"model": "openai/none"}},
    )
    (result,) = evaluate([CASE], [OUTPUT], [check]).results[0].check_results
    assert CAUSE in result.error.message


def test_an_output_with_an_error_of_the_users_own_is_a_whole_one() -> None:
    whole = Output(value={"steps": []}, metadata={"error": {"message": "handled"}})
    assert checked(whole, actual="$.output.value.steps", expected="x").passed is False
