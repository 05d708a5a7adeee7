"""Schedules of suites, which `fepflow schedule` creates, lists, pauses and removes.

A scheduled suite has its own deployment and its own limit: suites do not wait for each other, and a run that is due
while the previous one still runs is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter as Deployments
from prefect.client.schemas.filters import (
    DeploymentFilterId,
    DeploymentFilterTags,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions, FlowRun, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import SCHEDULE_TYPES, CronSchedule, IntervalSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from fepflow.errors import NotFoundError, UserError
from fepflow.services.prefect_api import POOL, ensure_pool, is_worked, suite_tag
from fepflow.suite.reader import allow_below

FLOW = "evaluate"
TAG = "scheduled"
"""Tag of each deployment that `fepflow schedule` has made, and so of its runs."""
REMOVED = "schedule-removed"
"""Tag of a deployment whose schedule was removed while a run was under way."""
UNDER_WAY = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
SLUG = "fepflow"
"""Slug of the schedule that `fepflow schedule` sets; others of the same deployment are left alone."""


def schedule_of(cron: str | None, every: float | None, timezone: str) -> SCHEDULE_TYPES:
    """Return a schedule by cron expression or by seconds; `require_schedule` has checked it. Raises UserError."""
    if cron is None:
        assert every is not None
        return IntervalSchedule(interval=timedelta(seconds=every), timezone=timezone)
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValueError:
        raise UserError(f"Prefect has no random times: give {cron!r} without R and H.") from None


async def put(
    client: PrefectClient, name: str, parameters: dict[str, Any], schedule: SCHEDULE_TYPES, folder: str, suite_name: str
) -> dict[str, Any]:
    """Create the deployment with its schedule, or change the one of this name, which stays paused if it is."""
    from fepflow.flows.evaluate import evaluate  # a second, which nothing else here costs

    allow_below([(Path(folder) / parameters["suite"]).parent])
    await ensure_pool(client)
    existing = next((deployment for deployment in await evaluations(client) if deployment.name == name), None)
    ours = [DeploymentScheduleCreate(schedule=schedule, slug=SLUG)]
    if existing is not None:
        _require_same(existing, parameters["suite"])
        deployment_id = existing.id
        tags = [tag for tag in existing.tags if tag != REMOVED]
        await client.update_deployment(deployment_id, DeploymentUpdate(parameters=parameters, tags=tags))
        if before := next((before for before in existing.schedules if before.slug == SLUG), None):
            await client.update_deployment_schedule(deployment_id, before.id, schedule=schedule)
        else:
            await client.create_deployment_schedules(deployment_id, ours)
    else:
        deployment_id = await client.create_deployment(
            flow_id=await client.create_flow_from_name(FLOW),
            name=name,
            description=f"Run {parameters['suite']} by the clock, as `fepflow schedule` has set it.",
            entrypoint="fepflow.flows.evaluate.evaluate",
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": folder}}],
            parameters=parameters,
            tags=["fepflow", TAG, suite_tag(suite_name)],
            work_pool_name=POOL,
            job_variables={"env": {"PREFECT_CLIENT_MAX_RETRIES": "8"}},
            concurrency_limit=1,
            concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
            schedules=ours,
            parameter_openapi_schema=parameter_schema(evaluate).model_dump_for_openapi(),
        )
    return {"created": existing is None, **await _described(client, await client.read_deployment(deployment_id))}


def _require_same(existing: DeploymentResponse, suite: str) -> None:
    if TAG not in existing.tags:
        raise UserError(f"{FLOW}/{existing.name} is a deployment of prefect.yaml: choose another name with --name.")
    if (other := existing.parameters.get("suite")) != suite:
        raise UserError(f"{FLOW}/{existing.name} runs {other}: choose another name with --name.")


async def switch(client: PrefectClient, which: str, *, on: bool) -> dict[str, Any]:
    """Pause or resume all schedules of a deployment."""
    deployment = await _find(client, which)
    if not deployment.schedules:
        raise UserError(f"{FLOW}/{deployment.name} has no schedule.")
    for schedule in deployment.schedules:
        await client.update_deployment_schedule(deployment.id, schedule.id, active=on)
    if on and deployment.paused:
        await client.resume_deployment(deployment.id)
    return await _described(client, await client.read_deployment(deployment.id))


async def remove(client: PrefectClient, which: str) -> dict[str, Any]:
    """Remove a deployment that was created here. Its runs stay: those under way continue, waiting ones are dropped.

    With the deployment, Prefect deletes its limit, breaks off the runs that hold a place under it, and can never record
    their end. So the deployment stays, without its schedule, while a run is under way, and `delete_removed` deletes it.
    """
    deployment = await _find(client, which)
    if TAG not in deployment.tags:
        raise UserError(f"{FLOW}/{deployment.name} is a deployment of prefect.yaml: --pause it, or remove it there.")
    for schedule in deployment.schedules:  # with the runs that Prefect has planned
        await client.delete_deployment_schedule(deployment.id, schedule.id)
    scheduled = await _runs_in(client, deployment, [StateType.SCHEDULED])
    waiting = [run for run in scheduled if not run.run_count]
    for run in waiting:
        await client.delete_flow_run(run.id)
    # One that has begun, and waits now, is taken over by a worker: its results are in the store.
    under_way = [run for run in scheduled if run.run_count] + await _runs_in(client, deployment, UNDER_WAY)
    if under_way:
        await client.update_deployment(deployment.id, DeploymentUpdate(tags=[*{*deployment.tags, REMOVED}]))
    else:
        await client.delete_deployment(deployment.id)
    return {
        "name": f"{FLOW}/{deployment.name}",
        "under_way": [run.name for run in under_way],
        "dropped": len(waiting),
    }


async def delete_removed(client: PrefectClient) -> None:
    """Delete the deployments that `remove` has left, as soon as none of their runs is under way or waits.

    One that got a schedule again meanwhile, in Prefect's UI for example, stays.
    """
    removed = Deployments(tags=DeploymentFilterTags(all_=[TAG, REMOVED]))
    for deployment in await client.read_deployments(deployment_filter=removed):
        # A run that waits is taken over, or was started manually: it needs the deployment.
        if not deployment.schedules and not await _runs_in(client, deployment, [*UNDER_WAY, StateType.SCHEDULED]):
            with contextlib.suppress(ObjectNotFound):  # another reaper was faster
                await client.delete_deployment(deployment.id)


async def _runs_in(client: PrefectClient, deployment: DeploymentResponse, states: Sequence[StateType]) -> list[FlowRun]:
    return await client.read_flow_runs(
        deployment_filter=Deployments(id=DeploymentFilterId(any_=[deployment.id])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states)))),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        limit=100,
    )


async def listed(client: PrefectClient) -> dict[str, Any]:
    """Return all deployments of suites that have a schedule."""
    schedules = [
        await _described(client, deployment) for deployment in await evaluations(client) if deployment.schedules
    ]
    return {"schedules": schedules, "worked": await is_worked(client)}


async def _find(client: PrefectClient, which: str) -> DeploymentResponse:
    """Return a deployment by its name, or by the suite at this path. Raises NotFoundError or UserError."""
    name, path = which.removeprefix(f"{FLOW}/"), await asyncio.to_thread(os.path.realpath, which)
    deployments = await evaluations(client)
    matches = [deployment for deployment in deployments if deployment.name == name] or [
        deployment for deployment in deployments if deployment.parameters.get("suite") == path and deployment.schedules
    ]
    if len(matches) > 1:
        names = ", ".join(deployment.name for deployment in matches)
        raise UserError(f"{which} has several schedules: name one of {names}.")
    if not matches:
        raise NotFoundError(f"There is no schedule {which!r}: `fepflow schedule --list` shows all schedules.")
    return matches[0]


async def evaluations(client: PrefectClient) -> list[DeploymentResponse]:
    """Return all deployments of the flow that evaluates a suite, by name."""
    deployments: list[DeploymentResponse] = []
    while page := await client.read_deployments(
        flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])), limit=200, offset=len(deployments)
    ):
        deployments += page
    return sorted(deployments, key=lambda deployment: deployment.name)


async def _described(client: PrefectClient, deployment: DeploymentResponse) -> dict[str, Any]:
    active = [schedule for schedule in deployment.schedules if schedule.active and not deployment.paused]
    return {
        "name": f"{FLOW}/{deployment.name}",
        "suite": deployment.parameters.get("suite"),
        "when": [_words(schedule.schedule) for schedule in active or deployment.schedules],
        "paused": not active,
        "next": await _next_run(client, deployment) if active else None,
        "worked": await is_worked(client),
    }


async def _next_run(client: PrefectClient, deployment: DeploymentResponse) -> str | None:
    """Return the time of the next run. This request makes Prefect plan it now, not some seconds later."""
    await client.request("POST", "/deployments/{id}/schedule", path_params={"id": deployment.id}, json={})
    runs = await _runs_in(client, deployment, [StateType.SCHEDULED])
    now = datetime.now(UTC)
    return next(
        (str(run.expected_start_time) for run in runs if run.expected_start_time and run.expected_start_time > now),
        None,
    )


def _words(schedule: SCHEDULE_TYPES) -> str:
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} ({schedule.timezone or 'UTC'})"
    if isinstance(schedule, IntervalSchedule):
        return f"every {schedule.interval}"
    return str(getattr(schedule, "rrule", "never"))
