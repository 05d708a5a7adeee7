"""The schedules of prefect.yaml, registered again and again without undoing what a person has changed since.

A schedule stays as it was last changed. `prefect deploy` would set all of a deployment's schedules to what the
file says; here, only what has changed in the file since the last time is changed on the server:

    file then (in a Prefect variable) ─┐
    file now ──────────────────────────┼─► what to create, change and delete
    server now ────────────────────────┘
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, VariableCreate, VariableUpdate
from prefect.client.schemas.objects import DeploymentSchedule

from fepflow.errors import UserError


@dataclass(frozen=True)
class Registered:
    """A schedule as it was registered from the file: its id on the server, a hash of its definition, and whether on."""

    id: str
    definition: str
    active: bool


def schedules_of(entry: Mapping[str, Any]) -> dict[str, DeploymentScheduleCreate]:
    """The schedules of a deployment in prefect.yaml, each by its slug or else its number. Raises UserError."""
    written = entry.get("schedules") or ([entry["schedule"]] if isinstance(entry.get("schedule"), dict) else [])
    found = {}
    for number, config in enumerate(written, 1):
        try:
            made = DeploymentScheduleCreate(**_schedule_config_to_deployment_schedule(config))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"deployment {entry['name']!r}: its schedule {number} cannot be used: {reason}") from None
        found[made.slug or str(number)] = made
    return found


async def put_schedules(
    client: PrefectClient, deployment_id: UUID, wanted: Mapping[str, DeploymentScheduleCreate]
) -> None:
    """Bring to the server what has changed in the file since it was registered last."""
    name = f"fepflow_schedules_{deployment_id.hex}"
    variable = await client.read_variable_by_name(name)
    there = {str(schedule.id): schedule for schedule in await client.read_deployment_schedules(deployment_id)}
    before = _read(variable.value) if variable else None
    if before is None:
        before = _adopted(wanted, list(there.values())) if there else {}
    after = {
        key: await _put(client, deployment_id, schedule, before.get(key), there) for key, schedule in wanted.items()
    }
    for key, old in before.items():
        if key not in wanted and old.id in there:
            await client.delete_deployment_schedule(deployment_id, UUID(old.id))
    value: Any = {key: asdict(registered) for key, registered in after.items()}
    if variable is not None:
        await client.update_variable(VariableUpdate(name=name, value=value))
    elif value:
        await client.create_variable(VariableCreate(name=name, value=value, tags=["fepflow"]))


async def _put(
    client: PrefectClient,
    deployment_id: UUID,
    wanted: DeploymentScheduleCreate,
    before: Registered | None,
    there: Mapping[str, DeploymentSchedule],
) -> Registered:
    definition = _definition(wanted)
    known = there.get(before.id) if before else None
    if before is not None and known is None:  # `prefect deploy` makes all of them anew, with other ids
        known = next((one for one in there.values() if _definition(one) == before.definition), None)
    if before is None or (known is None and definition != before.definition):
        (created,) = await client.create_deployment_schedules(deployment_id, [wanted])
        return Registered(str(created.id), definition, wanted.active)
    if known is None:  # a person has removed it
        return Registered(before.id, definition, wanted.active)
    changed: dict[str, Any] = {}
    if definition != before.definition:
        changed |= {"schedule": wanted.schedule, "parameters": wanted.parameters}
    if wanted.active != before.active:
        changed["active"] = wanted.active
    if changed:
        await client.update_deployment_schedule(deployment_id, known.id, **changed)
    return Registered(str(known.id), definition, wanted.active)


def _read(value: Any) -> dict[str, Registered] | None:
    try:
        return {str(key): Registered(**registered) for key, registered in value.items()}
    except (AttributeError, TypeError):  # a foreign one
        return None


def _adopted(
    wanted: Mapping[str, DeploymentScheduleCreate], there: Sequence[DeploymentSchedule]
) -> dict[str, Registered]:
    """What a deployment has that `prefect deploy` registered: as if it had come from the file as it is now."""
    found: dict[str, Registered] = {}
    for key, schedule in wanted.items():
        definition = _definition(schedule)
        same = [one for one in there if _definition(one) == definition]
        found[key] = Registered(str(same[0].id) if same else "", definition, schedule.active)
    return found


def _definition(schedule: DeploymentScheduleCreate | DeploymentSchedule) -> str:
    # The anchor of an interval is the moment of its registration, if the file names none.
    document = schedule.schedule.model_dump(mode="json", exclude={"anchor_date"})
    text = json.dumps([document, schedule.parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
