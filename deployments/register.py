"""Register deployments: `python -m fepflow.deployments.register` creates the work pool and deploys; repeat it at will.

It takes prefect.yaml of the working directory if there is one, else the one that comes with fepflow, and always that
one's deployment of requested runs. Runs have the working directory as theirs. Schedules that a person has switched on,
switched off, added or edited stay so. Deployments that the file does not name are left alone. The pool is one for
processes, unless it already exists, or `--pool-type` and `--base-job-template` say otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import httpx
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import Automation
from prefect.exceptions import PrefectException
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.prefect_settings import configured_api
from fepflow.services.prefect_api import PREFECT_MODULE, REQUESTED, ensure_pool
from fepflow.suite.reader import allow_below

MARK = "@fepflow-"
"""The part of a schedule's slug between its key in the file, and whether it is active there with a hash of the rest.

So the server remembers what was registered, and an edit by a person differs from a change of the file.
"""


def schedules_of(entry: Mapping[str, Any]) -> dict[str, DeploymentScheduleCreate]:
    """Return the schedules of a deployment in prefect.yaml, by slug or number. Raises UserError."""
    written = entry.get("schedules") or ([entry["schedule"]] if isinstance(entry.get("schedule"), dict) else [])
    schedules = {}
    for number, config in enumerate(written, 1):
        try:
            made = DeploymentScheduleCreate(**_schedule_config_to_deployment_schedule(config))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"deployment {entry['name']!r}: its schedule {number} cannot be used: {reason}") from None
        schedules[made.slug or str(number)] = made
    return schedules


async def put_schedules(
    client: PrefectClient, deployment_id: UUID, wanted: Mapping[str, DeploymentScheduleCreate]
) -> None:
    """Apply to the server what has changed in the file since the last registration."""
    existing = await client.read_deployment_schedules(deployment_id)
    registered = {old.slug.partition(MARK)[0]: old for old in existing if old.slug and MARK in old.slug}
    for key, schedule in wanted.items():
        definition = _definition(schedule)
        active = schedule.active is not False
        state = f"{key}{MARK}{'on' if active else 'off'}-"
        slug = f"{state}{definition}"
        known = registered.pop(key, None)
        if known is None:  # `prefect deploy` may have made it
            known = next((old for old in existing if old.slug in (None, key) and _definition(old) == definition), None)
        if known is None:
            await client.create_deployment_schedules(deployment_id, [schedule.model_copy(update={"slug": slug})])
        elif known.slug != slug:
            is_switched = MARK in (known.slug or "") and not str(known.slug).startswith(state)
            await client.update_deployment_schedule(
                deployment_id,
                known.id,
                active=active if is_switched else None,
                schedule=schedule.schedule,
                parameters=schedule.parameters,
                slug=slug,
            )
    for gone in registered.values():
        await client.delete_deployment_schedule(deployment_id, gone.id)


def _definition(schedule: DeploymentScheduleCreate | DeploymentSchedule) -> str:
    # The anchor of an interval is the moment of its registration, if the file names none.
    document = schedule.schedule.model_dump(mode="json", exclude={"anchor_date"})
    text = json.dumps([document, schedule.parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


SHIPPED = Path(str(files("fepflow.deployments") / "prefect.yaml"))


async def register(folder: Path, pool_type: str | None = None, job_template: dict[str, Any] | None = None) -> Path:
    """Create the pool if needed, deploy everything, and return the file. Raises FepflowError."""
    own = folder / "prefect.yaml"
    file = own if own.is_file() else SHIPPED
    document = _read(file)
    deployments = document["deployments"]
    if not any(entry["name"] == REQUESTED for entry in deployments):  # a file of one's own need not have it
        deployments += [entry for entry in _read(SHIPPED)["deployments"] if entry["name"] == REQUESTED]
    entries = [entry for entry in deployments if not _has_template(entry)]
    try:
        schedules = {entry["name"]: schedules_of(entry) for entry in entries}
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    try:
        async with get_client() as client:
            await ensure_pool(client, pool_type, job_template)
            off = await _switched_off(client, entries)
            await asyncio.to_thread(_deploy, document, file)
            for entry in entries:
                deployment = await _deployment(client, entry)
                if deployment is not None:
                    await put_schedules(client, deployment.id, schedules[entry["name"]])
                    # `prefect deploy` creates all automations of a deployment again.
                    for automation in await _automations(client, deployment) if off.get(entry["name"]) else ():
                        if automation.name in off[entry["name"]]:
                            await client.pause_automation(automation.id)
        suites = [Path(str(entry.get("parameters", {}).get("suite", ""))) for entry in entries]
        allow_below([folder, *(suite.parent for suite in suites if suite.is_absolute())])
    except (httpx.HTTPError, PrefectException) as error:
        raise InfrastructureError(f"{file} was not deployed: {error}") from None
    return file


def _read(file: Path) -> dict[str, Any]:
    try:
        document = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not YAML: {error}") from None
    deployments = document.get("deployments") if isinstance(document, dict) else None
    if not isinstance(deployments, list):
        raise UserError(f"{file} has no list of deployments")
    for entry in deployments:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise UserError(f"{file}: each of its deployments needs a name")
    return dict(document)


def _has_template(entry: Mapping[str, Any]) -> bool:
    """Return whether Prefect fills in the schedules of a deployment, so that they are not registered here."""
    return "{{" in json.dumps([entry["name"], entry.get("schedules")], default=str)


async def _switched_off(client: PrefectClient, entries: Sequence[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the deployments that a person has paused, each with its paused automations."""
    switched_off = {}
    for entry in entries:
        deployment = await _deployment(client, entry)
        if deployment is not None:
            automations = await _automations(client, deployment)
            switched_off[entry["name"]] = {automation.name for automation in automations if not automation.enabled}
            entry.setdefault("paused", deployment.paused)
    return switched_off


async def _automations(client: PrefectClient, deployment: DeploymentResponse) -> list[Automation]:
    return await client.read_resource_related_automations(f"prefect.deployment.{deployment.id}")


async def _deployment(client: PrefectClient, entry: dict[str, Any]) -> DeploymentResponse | None:
    deployments = await client.read_deployments(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[entry["name"]]))
    )
    return next((same for same in deployments if same.entrypoint == entry.get("entrypoint")), None)


def _deploy(document: dict[str, Any], file: Path) -> None:
    """Let Prefect deploy the document, without the schedules that are registered here."""
    for entry in document["deployments"]:
        if not _has_template(entry):
            entry.pop("schedules", None)
            entry.pop("schedule", None)
    with tempfile.TemporaryDirectory(prefix="fepflow-") as folder:
        copy = Path(folder) / "prefect.yaml"
        copy.write_text(json.dumps(document, default=str), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-P", "-m", PREFECT_MODULE, "prefect", "--no-prompt"]
        command += ["deploy", "--all", "--prefect-file", str(copy)]
        # Wide, so that what goes wrong is not broken over lines.
        env = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603  # our own interpreter
    if done.returncode != 0:
        # Without its frames and boxes, and without the traceback that it has for some errors.
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line[:1].isalnum()]
        reasons = [line for line in lines if not line.startswith(("Traceback", "An exception occurred"))]
        raise InfrastructureError("\n".join([f"{file} was not deployed; Prefect says:", *reasons[-4:]]))


def read_job_template(file: Path) -> dict[str, Any]:
    """Return the base job template of a work pool. Raises UserError for an invalid one."""
    try:
        template = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from None
    if not isinstance(template, dict) or not {"job_configuration", "variables"} <= set(template):
        raise UserError(f"{file} is not a base job template: it needs job_configuration and variables")
    return template


def shipped() -> dict[str, str]:
    """Return the values of {{ shipped.… }} in prefect.yaml, whose build step this is.

    They are the folder of the suites that come with fepflow, in a checkout or an installed package.
    """
    return {"suites": str(files("fepflow.deployments") / "suites")}


def main(arguments: list[str] | None = None) -> int:
    """Register, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.register", description=__doc__)
    parser.add_argument("--pool-type", metavar="TYPE", help="type of the work pool, such as kubernetes")
    parser.add_argument("--base-job-template", metavar="FILE", type=Path, help="base job template of that type, JSON")
    options = parser.parse_args(arguments)
    if bool(options.base_job_template) != bool(options.pool_type):
        parser.error("--pool-type and --base-job-template belong together: a template is one for a type of pool")
    try:
        template = read_job_template(options.base_job_template) if options.base_job_template else None
        if configured_api() is None:
            raise InfrastructureError("no Prefect API is named: `fepflow up`, then set PREFECT_API_URL")
        file = asyncio.run(register(Path.cwd(), options.pool_type, template))
    except FepflowError as error:
        click.echo(str(error), err=True)
        return error.exit_code
    click.echo(f"the deployments of {file} are registered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
