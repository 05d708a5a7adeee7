"""Requests and results as messages say the same as their JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.messages import read_message, request_data, result_message
from fepflow.checks.engine import evaluate
from fepflow.errors import InputError
from fepflow.json.values import json_equal
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult, EvaluationRunResult, ExperimentMetadata
from tests.fepflow.api.grpc.conftest import request_of
from tests.fepflow.api.grpc.forms import request_message, result_data
from tests.fepflow.api.grpc.test_values import sent
from tests.fepflow.conftest import BROKE_OFF, NASTY, NO_ANSWER
from tests.hostile.strategies import JSON_VALUES, TEXTS_OF_JSON
from tests.properties import holds_for

IDS = st.text(min_size=1)
OBJECTS = st.dictionaries(TEXTS_OF_JSON, JSON_VALUES, max_size=3)
CHECKS = st.fixed_dictionaries(
    {"type": IDS, "arguments": OBJECTS}, optional={"version": st.just("1.0.0"), "id": st.just("check-1")}
)
CASES = st.fixed_dictionaries(
    {"id": IDS, "input": JSON_VALUES},
    optional={"expected": JSON_VALUES, "metadata": OBJECTS, "checks": st.lists(CHECKS, max_size=2)},
)
OUTPUTS = st.fixed_dictionaries({"value": JSON_VALUES}, optional={"id": st.text(), "metadata": OBJECTS})
REQUESTS = st.fixed_dictionaries(
    {"test_cases": st.lists(CASES, max_size=3), "outputs": st.lists(OUTPUTS, max_size=3)},
    optional={
        "checks": st.lists(CHECKS, max_size=3) | st.lists(st.lists(CHECKS, max_size=2), min_size=1, max_size=3),
        "experiment_metadata": st.fixed_dictionaries({}, optional={"name": st.text(), "metadata": OBJECTS}),
    },
)


@holds_for(REQUESTS, examples=100)
def test_a_request_is_read_as_it_was_written(data: dict[str, Any]) -> None:
    assert json_equal(request_data(sent(request_message(data))), data)


def told(result: EvaluationRunResult) -> tuple[dict[str, Any], dict[str, Any]]:
    """A result as JSON, and as it comes out of its message."""
    return json.loads(result.model_dump_json()), result_data(sent(result_message(result)))


def same(left: Any, right: Any) -> bool:
    """Whether they are the same but for the way in which a moment is written."""
    return json_equal(_without_times(left), _without_times(right))


def _without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_times(item) for name, item in data.items() if not name.endswith("_at")}
    return [_without_times(item) for item in data] if isinstance(data, list) else data


CHECK = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}}


@holds_for(st.lists(st.tuples(JSON_VALUES, JSON_VALUES, JSON_VALUES, OBJECTS), min_size=1, max_size=3))
def test_a_result_says_the_same_as_its_json(rows: list[tuple[Any, Any, Any, dict[str, Any]]]) -> None:
    cases = [
        {"id": f"case {index}", "input": given, "expected": expected, "metadata": metadata}
        for index, (given, expected, _, metadata) in enumerate(rows)
    ]
    outputs = [{"value": value, "metadata": metadata} for _, _, value, metadata in rows]
    equality = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
    result = evaluate(cases, outputs, [CHECK, equality, {"type": "unheard_of", "arguments": {}}])
    assert same(*told(result))


@pytest.mark.parametrize("output", [NO_ANSWER, BROKE_OFF, {"value": NASTY, "id": "one"}])
def test_outputs_of_all_kinds_are_in_results(output: Any) -> None:
    result = evaluate([{"id": "a", "input": NASTY}], [output], [CHECK], ExperimentMetadata(name="x", metadata={"n": 1}))
    assert same(*told(result))


def test_an_expected_null_is_there_and_one_that_was_not_given_is_not() -> None:
    result = evaluate([{"id": "a", "input": 1, "expected": None}, {"id": "b", "input": 1}], [1, 2], [])
    cases = [one.execution_context.test_case for one in result_message(result).results]
    assert [case.HasField("expected") for case in cases] == [True, False]


def test_moments_are_the_same() -> None:
    result = evaluate(["a"], ["a"], [CHECK])
    message = result_message(result)
    assert message.started_at.ToDatetime(result.started_at.tzinfo) == result.started_at
    one = result.results[0].check_results[0]
    assert message.results[0].check_results[0].evaluated_at.ToDatetime(one.evaluated_at.tzinfo) == one.evaluated_at


def test_metadata_of_a_check_without_a_field_is_additional() -> None:
    metadata = {"check_version": "1.2.0", "execution_time_ms": 0.5, "check_id": "mine", "seed": 2**60}
    check = CheckResult(
        check_type="contains", status="error", results={}, evaluated_at=utc_now(), metadata=metadata,
        error=CheckError(type="timeout_error", message="half \ud83d", recoverable=True),
    )  # fmt: skip
    result = evaluate([{"id": "a", "input": 1}], [1], [])
    one = result.results[0].model_copy(update={"check_results": [check]})
    message = result_message(result.model_copy(update={"results": [one]})).results[0].check_results[0]
    assert (message.metadata.test_case_id, message.metadata.check_version) == ("a", "1.2.0")
    assert json.loads(message.metadata.additional_metadata_json)["seed"] == 2**60
    assert message.error.message == "half \\ud83d"
    assert message.error.type == fep_pb2.CHECK_ERROR_TYPE_TIMEOUT_ERROR


def wrong(change: Any) -> str:
    request = request_of()
    change(request)
    with pytest.raises(InputError) as error:
        read_message(request.SerializeToString())
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda request: request.test_cases[0].ClearField("id"), "test_cases[0].id"),
        (lambda request: request.test_cases[0].ClearField("input"), "test_cases[0].input"),
        (lambda request: request.test_cases[0].expected.SetInParent(), "test_cases[0].expected: there is no value"),
        (lambda request: request.outputs[0].ClearField("value"), "outputs[0].value"),
        (lambda request: request.ClearField("outputs"), "outputs"),
        (lambda request: request.ClearField("test_cases"), "test_cases"),
        (lambda request: request.ClearField("checks"), "checks: is missing"),
        (lambda request: request.checks.ClearField("shared_checks"), "checks: is missing"),
        (lambda request: request.checks.per_test_case_checks.SetInParent(), "check_lists: there are no lists"),
        (lambda request: request.checks.shared_checks.checks[0].ClearField("arguments"), "checks[0].arguments"),
        (lambda request: request.checks.shared_checks.checks[0].ClearField("type"), "checks[0].type"),
        (lambda request: setattr(request.checks.shared_checks.checks[0], "version", "1.0"), "checks[0].version"),
        (lambda request: setattr(request.checks.shared_checks.checks[0], "version", ""), "checks[0].version"),
    ],
)  # fmt: skip
def test_a_request_is_judged_as_strictly_as_json(change: Any, where: str) -> None:
    assert where in wrong(change)


def test_no_shared_checks_is_a_configuration() -> None:
    request = request_of()
    del request.checks.shared_checks.checks[:]
    assert read_message(request.SerializeToString()).checks == []
