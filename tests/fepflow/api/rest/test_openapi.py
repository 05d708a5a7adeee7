"""What the published document says is what is served: requests made from it, thousands of them in the battery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.api_process import api_process

EXAMPLES = pytest.mark.parametrize("examples", [2, pytest.param(200, marks=pytest.mark.battery)])
EXCLUDED: list[Any] = [positive_data_acceptance, ignored_auth]
"""A schema cannot say that ids are unique, or that each test case has an output. Beside a key that is valid, a header
Authorization is not looked at."""


MAX_URL = 65_536
"""The server cuts off a longer one; percent-encoding makes up to twelve characters of one."""


REFUSALS = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 413, 415, 429]}}}
)
"""With 413 for more than is taken, and with no fault of the server."""


def examples_of(count: int, **options: Any) -> settings:
    """So many, which are the same ones each time if they are few."""
    same = count < 50
    return settings(
        max_examples=count, derandomize=same, suppress_health_check=list(HealthCheck), database=None, **options
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BaseSchema, dict[str, str]]]:
    """The document of a process that asks for keys, and the header with one."""
    env = {"FEPFLOW_REQUESTS_PER_MINUTE": "1000000", "FEPFLOW_STARTS_PER_MINUTE": "1000000"}
    with api_process(tmp_path_factory.mktemp("home"), **env) as api:
        key = api.new_key("admin")
        yield schemathesis.openapi.from_url(f"{api.rest}/openapi.json", config=REFUSALS), {"X-API-Key": key}


@EXAMPLES
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_is_answered_in_another_way_than_the_document_says(
    served: tuple[BaseSchema, dict[str, str]], mode: GenerationMode, examples: int
) -> None:
    schema, key = served
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]  # raises an error
    if mode == GenerationMode.NEGATIVE:  # of what takes nothing, nothing is wrong
        operations = [each for each in operations if each.body or list(each.iter_parameters())]
    assert operations
    for operation in operations:
        _try(operation, key, mode, examples)


def _try(operation: APIOperation[Any, Any, Any, Any], key: dict[str, str], mode: GenerationMode, examples: int) -> None:
    """Send requests that are as the document has them, or are not; those that are not have to be refused."""

    @examples_of(examples, phases=[Phase.generate])
    @given(case=operation.as_strategy(mode))
    def send(case: schemathesis.Case[Any]) -> None:
        assume(len(str(case.query)) < MAX_URL // 12)
        case.call_and_validate(headers=key, excluded_checks=EXCLUDED)

    send()


@EXAMPLES
def test_no_series_of_requests_is_a_fault_of_the_server(
    served: tuple[BaseSchema, dict[str, str]], examples: int
) -> None:
    schema, key = served

    class Machine(schema.as_state_machine()):  # type: ignore[misc]  # a class made from the document
        def get_call_kwargs(self, case: schemathesis.Case[Any]) -> dict[str, Any]:
            return {"headers": key}

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **_: Any) -> None:
            case.validate_response(response, headers=key, excluded_checks=EXCLUDED)

    few = examples_of(max(examples // 3, 2), stateful_step_count=10 if examples > 2 else 6)
    run_state_machine_as_test(Machine, settings=few)
