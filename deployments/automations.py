"""Automations as code: `python -m deployments.automations --block TYPE/NAME` creates or updates the shipped one.

It sends a notification when a verdict is worse than the one it was compared with. Prints one JSON object on stdout; a
failure is a sentence on stderr, with the exit code of its kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument
from prefect.events import AutomationCore, EventTrigger, Posture, SendNotification

from fepflow.errors import FepflowError, InfrastructureError, NotFoundError, UserError
from tasks.events import RESOURCE, WORSENED, resource_id

NAME = "fepflow: verdict worsened"

SUBJECT = "{{ event.payload.suite }}: {{ event.payload.outcome }}, was {{ event.payload.baseline.outcome }}"

BODY = """\
{{ event.payload.suite }} has worsened: {{ event.payload.outcome }} in run {{ event.payload.run_id[:8] }}, \
{{ event.payload.baseline.outcome }} in run {{ event.payload.baseline.run_id[:8] }}.
{% for reason in event.payload.reasons %}
- {{ reason }}{% endfor %}

fepflow show {{ event.payload.run_id[:8] }} --failed
{{ (flow_run | ui_url) or "" }}
"""


def verdict_worsened(name: str, suite: str | None, block: UUID, *, enabled: bool = True) -> AutomationCore:
    """The automation: for each worsened verdict, of one suite or of any, one notification through the block."""
    return AutomationCore(
        name=name,
        description=f"Notifies when a verdict of {suite or 'any suite'} is worse than its baseline's.",
        enabled=enabled,
        tags=["fepflow"],
        trigger=EventTrigger(
            type="event",
            expect={WORSENED},
            match={"prefect.resource.id": resource_id(suite) if suite else f"{RESOURCE}.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[SendNotification(type="send-notification", block_document_id=block, subject=SUBJECT, body=BODY)],
    )


async def put(name: str, suite: str | None, block: str | None) -> bool:
    """Create the automation, or update the one of this name; whether it is new.

    One that somebody has paused stays paused. Raises UserError or NotFoundError for a block that cannot be used,
    InfrastructureError when Prefect's API is in the way.
    """
    try:
        async with get_client() as client:
            document = await _find_block(client, block)
            there = await client.read_automations_by_name(name)
            if not there:
                await client.create_automation(verdict_worsened(name, suite, document.id))
                return True
            automation = verdict_worsened(name, suite, document.id, enabled=there[0].enabled)
            await client.update_automation(there[0].id, automation)
            return False
    except httpx.HTTPError as error:
        raise InfrastructureError(f"Prefect's API could not be used: {error}") from None


async def _find_block(client: PrefectClient, wanted: str | None) -> BlockDocument:
    blocks = {
        f"{document.block_type.slug}/{document.name}": document
        for document in await client.read_block_documents(include_secrets=False)
        if document.block_type and document.block_schema and "notify" in document.block_schema.capabilities
    }
    known = f"the server has {', '.join(sorted(blocks))}" if blocks else "the server has none; create one in its UI"
    if wanted is None:
        raise UserError(f"Name a notification block with --block: {known}.")
    if wanted not in blocks:
        raise NotFoundError(f"There is no notification block {wanted!r}: {known}.")
    return blocks[wanted]


def main(arguments: list[str] | None = None) -> int:
    """Put the automation in place and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m deployments.automations", description=__doc__)
    parser.add_argument("--name", default=None)
    parser.add_argument("--suite", default=None)
    parser.add_argument("--block", default=None)
    options = parser.parse_args(arguments)
    name = options.name or (f"{NAME} ({options.suite})" if options.suite else NAME)
    try:
        created = asyncio.run(put(name, options.suite, options.block))
    except FepflowError as error:
        print(error, file=sys.stderr)  # noqa: T201  # this module is a command
        return error.exit_code
    print(json.dumps({"name": name, "created": created}))  # noqa: T201  # this module is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
