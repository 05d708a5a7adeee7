"""Scheduled runs that Prefect never planned: the scheduler failed, or the server was down. Nothing else would notice.

A run that was planned and not begun is late in Prefect's own terms, and alerts wait for that. Here, each schedule says
itself when its last run was due.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo

from prefect._vendor.croniter import croniter
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.events import emit_event

from fepflow.deployments.schedule import evaluations
from fepflow.suite.reader import name_of
from fepflow.tasks.events import MISSED, resource_id

SETTLED = timedelta(minutes=2)
"""After a change of a schedule, and before a run was missed: Prefect plans runs once a minute."""
TOLERANCE = timedelta(seconds=1)

_emitted: set[tuple[str, datetime]] = set()


async def report_missed_runs(settled: timedelta = SETTLED) -> list[str]:
    """Emit `fepflow.schedule.missed` for each schedule whose last run was never planned; what is missed, in words."""
    async with get_client() as client:
        missed = [
            (deployment, due)
            for deployment in await evaluations(client)
            for due in _due(deployment, datetime.now(UTC) - settled, settled)
            if (deployment.name, due) not in _emitted and not await _was_planned(client, deployment, due)
        ]
    return [_emit_event(deployment, due) for deployment, due in missed]


def _due(deployment: DeploymentResponse, now: datetime, settled: timedelta) -> Iterator[datetime]:
    """When the last run of each active schedule was due, if that was after its last change."""
    if deployment.paused:
        return
    for one in deployment.schedules:
        due = _last(one, now) if one.active else None
        changed = max(moment for moment in (deployment.updated, one.updated, one.created) if moment is not None)
        if due is not None and due > changed + settled:
            yield due


def _last(schedule: DeploymentSchedule, now: datetime) -> datetime | None:
    clock = schedule.schedule
    if isinstance(clock, CronSchedule):
        previous: datetime = croniter(clock.cron, now.astimezone(ZoneInfo(clock.timezone or "UTC"))).get_prev(datetime)
        return previous.astimezone(UTC)
    if isinstance(clock, IntervalSchedule):
        # By numbers: Prefect's own kinds of times cannot be divided by an interval.
        anchor, interval = clock.anchor_date.timestamp(), clock.interval.total_seconds()
        return datetime.fromtimestamp(anchor + (now.timestamp() - anchor) // interval * interval, UTC)
    return None  # an RRule, made in the UI: late runs are still noticed


async def _was_planned(client: PrefectClient, deployment: DeploymentResponse, due: datetime) -> bool:
    runs = await client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id])),
        flow_run_filter=FlowRunFilter(
            expected_start_time=FlowRunFilterExpectedStartTime(after_=due - TOLERANCE, before_=due + TOLERANCE)
        ),
        limit=1,
    )
    return bool(runs)


def _emit_event(deployment: DeploymentResponse, due: datetime) -> str:
    _emitted.add((deployment.name, due))
    suite = name_of(str(deployment.parameters.get("suite", deployment.name)))
    name = f"evaluate/{deployment.name}"
    emit_event(
        MISSED,
        {"prefect.resource.id": resource_id(suite), "prefect.resource.name": suite},
        payload={
            "deployment": deployment.name,
            "suite": suite,
            "due": due.isoformat(),
            "reason": "Prefect's server did not plan it; `fepflow status` says what failed there.",
        },
        id=uuid5(NAMESPACE_URL, f"{deployment.id} {due.isoformat()}"),  # the same after a restart: emitted once
    )
    return f"the run of {name} that was due at {due.isoformat()} was never planned by Prefect's server"
