"""What the published document says is what is served: requests made from it, thousands of them in the battery."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

EXAMPLES = pytest.mark.parametrize("examples", [15, pytest.param(400, marks=pytest.mark.battery)])
EXCLUDED = [positive_data_acceptance, ignored_auth]
"""A schema cannot say that ids are unique, or that each test case has an output; nobody is asked for a key here."""


def examples_of(count: int, **options: Any) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None, **options)


@pytest.fixture
def schema(client: httpx.Client) -> BaseSchema:
    return schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


@EXAMPLES
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_is_answered_in_another_way_than_the_document_says(
    schema: BaseSchema, mode: GenerationMode, examples: int
) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    if mode == GenerationMode.NEGATIVE:  # of what takes nothing, nothing is wrong
        operations = [each for each in operations if each.body or list(each.iter_parameters())]
    assert operations
    for operation in operations:
        _try(operation, mode, examples)


def _try(operation: APIOperation, mode: GenerationMode, examples: int) -> None:
    """Send requests that are as the document has them, or are not; those that are not have to be refused."""
    strategy = operation.as_strategy(mode)

    @examples_of(examples, phases=[Phase.generate])
    @given(case=strategy)
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=EXCLUDED)

    send()


@EXAMPLES
def test_no_series_of_requests_is_a_fault_of_the_server(schema: BaseSchema, examples: int) -> None:
    class Machine(schema.as_state_machine()):  # type: ignore[misc]  # a class made from the document
        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            case.validate_response(response, excluded_checks=EXCLUDED)

    run_state_machine_as_test(Machine, settings=examples_of(examples // 3, stateful_step_count=10))
