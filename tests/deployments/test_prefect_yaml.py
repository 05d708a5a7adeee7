"""prefect.yaml as Prefect reads it: every flow loads, every reference is resolved, every limit and schedule holds."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from prefect import Flow
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.schedules import construct_schedule
from prefect.events import DeploymentEventTrigger, Event, Resource, ResourceSpecification
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from prefect.utilities.importtools import import_object
from prefect.utilities.schema_tools.validation import validate
from prefect.utilities.templating import apply_values, find_placeholders
from prefect.workers.process import ProcessJobConfiguration, ProcessVariables
from ruamel.yaml import YAML

from fepflow.deployments.register import shipped

ROOT = Path(__file__).parents[2]
DOCUMENT = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
NAMES = [deployment["name"] for deployment in DOCUMENT["deployments"]]


@pytest.fixture(scope="module")
def outputs() -> dict[str, Any]:
    """What the build steps hand to the templates, by the step's id."""
    steps = [item for step in DOCUMENT["build"] for item in step.items()]
    return {inputs["id"]: import_object(function)() for function, inputs in steps}


@pytest.fixture(params=NAMES)
def written(request) -> dict[str, Any]:
    """A deployment as it stands in the file."""
    return copy.deepcopy(DOCUMENT["deployments"][NAMES.index(request.param)])


@pytest.fixture
def deployment(written, outputs) -> dict[str, Any]:
    """A deployment as it is registered."""
    return apply_values(written, outputs)


def test_the_checkouts_file_is_the_packages() -> None:
    assert (ROOT / "prefect.yaml").resolve() == ROOT / "deployments" / "prefect.yaml"


def test_prefect_accepts_the_file() -> None:
    read = PrefectYamlModel.model_validate(DOCUMENT)
    assert [deployment.name for deployment in read.deployments] == NAMES
    assert len(set(NAMES)) == len(NAMES)
    known = set(type(read.deployments[0]).model_fields)
    assert all(set(deployment) <= known for deployment in DOCUMENT["deployments"])  # Prefect would ignore it silently


def test_nothing_is_left_to_fill_in(written, deployment, outputs) -> None:
    for placeholder in find_placeholders(json.dumps(written)):
        step, _, name = placeholder.name.partition(".")
        assert outputs[step][name], placeholder.full_match
    assert "{{" not in json.dumps(deployment)
    assert set(deployment.get("parameters", {})) == set(written.get("parameters", {}))


def test_the_entrypoint_is_a_flow_that_takes_the_parameters(deployment) -> None:
    assert ":" not in deployment["entrypoint"]  # a file would be loaded twice, under another name
    flow: Flow[..., Any] = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
    given = deployment.get("parameters", {})
    schema = parameter_schema(flow).model_dump_for_openapi()
    assert set(given) <= set(schema["properties"])
    validate(given, schema, raise_on_error=True, ignore_required=True)


def test_the_shipped_suites_are_where_the_step_says() -> None:
    assert Path(shipped()["suites"], "demo", "suite.yaml").is_file()


def test_the_suite_is_there(deployment) -> None:
    suite = deployment.get("parameters", {}).get("suite")
    assert suite is None or Path(suite).is_file()


def test_it_has_a_description(deployment) -> None:
    assert deployment["description"].endswith(".")
    assert {"fepflow"} < set(deployment["tags"])


def test_no_run_overlaps_with_one_of_the_same_deployment(deployment) -> None:
    if deployment["name"] == "evaluate-shard":
        assert "concurrency_limit" not in deployment  # its siblings are to run beside it
        return
    if queue := {"requested": "requested", "suite": "suites"}.get(deployment["name"]):
        assert "concurrency_limit" not in deployment  # its queue has one, over which runs wait in their order
        assert deployment["work_pool"]["work_queue_name"] == queue
        return
    assert ConcurrencyLimitConfig.model_validate(deployment["concurrency_limit"]).limit == 1
    assert "collision_strategy" in deployment["concurrency_limit"]


def test_schedules_are_shipped_paused(deployment) -> None:
    for schedule in deployment.get("schedules", []):
        assert schedule["active"] is False
        construct_schedule(cron=schedule["cron"], timezone=schedule["timezone"])


def test_a_process_worker_takes_the_job_variables(deployment) -> None:
    pool = deployment["work_pool"]
    assert set(pool["job_variables"]) <= set(ProcessVariables.model_fields)
    ProcessJobConfiguration.model_validate(pool["job_variables"])


@pytest.mark.parametrize(
    ("event", "resource", "fires"),
    [
        ("agent.deployed", "agent.refund-bot", True),
        ("agent.deployed", "fepflow.suite.refunds", False),
        ("agent.removed", "agent.refund-bot", False),
    ],
)
def test_the_gate_waits_for_agents_that_were_deployed(event: str, resource: str, fires: bool) -> None:
    (written,) = DOCUMENT["deployments"][NAMES.index("gate")]["triggers"]
    trigger = DeploymentEventTrigger.model_validate(written)
    assert isinstance(trigger.match, ResourceSpecification)
    happened = Event(event=event, resource=Resource({"prefect.resource.id": resource}))
    assert (happened.event in trigger.expect and trigger.match.matches(happened.resource)) is fires
