"""Alerts as code, for `fepflow alert`.

An alert is a Prefect automation, one for each kind, and the block that it sends through. The address is a secret: it is
kept in a secret field of the block, and is never printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit
from uuid import UUID

from apprise import Apprise
from prefect.blocks.notifications import SlackWebhook
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import BlockDocument
from prefect.events import AutomationCore, CallWebhook, EventTrigger, Posture, SendNotification
from prefect.types import SecretDict
from pydantic import SecretStr

from fepflow.errors import NotFoundError, UserError
from fepflow.security.addresses import address_problem
from fepflow.services.prefect_api import suite_tag
from fepflow.settings import settings
from fepflow.tasks.events import CHANGE, DRIFT, RESOURCE, WORSENED, resource_id
from fepflow.text import slug

FAILED, PASSED = "fepflow.verdict.fail", "fepflow.verdict.pass"
_EVENTS = {"fail": {FAILED, PASSED}, "worsened": {WORSENED}, "drift": {DRIFT}}
_NEWS: dict[str, list[str]] = {"fail": ["failed", "recovered"], "worsened": ["failed"]}
"""Changes of the outcome that an alert is about; what stays as it was is news only if every run is asked for."""
EVALUATE = {"prefect.resource.role": "flow", "prefect.resource.name": "evaluate"}

NOT_A_VERDICT = "![FIH][AN][ICN][LOD][:NE]*"
"""Matches a state's message that begins with neither `FAIL:` nor `INCONCLUSIVE:` nor `HANDED OVER:`, after which
another executor resumes the run. Prefect takes a list of patterns as alternatives, so one has to refuse all."""

BEGUN = ("Pending", "Running", "Paused", "Completed", "Failed", "Crashed", "Cancelling", "Cancelled")


@dataclass(frozen=True)
class Text:
    """Jinja templates, which Prefect fills in from the event."""

    subject: str
    body: str


_RUN = "\nfepflow show {{ event.payload.run_id[:8] }} --failed\n"
_REASONS = "{% for reason in event.payload.reasons %}\n- {{ reason }}{% endfor %}\n"
_PLACE = (
    "{% if event.payload.machine %} ({% if event.payload.deployment %}deployment {{ event.payload.deployment }}, "
    "{% endif %}on {{ event.payload.machine }}){% endif %}"
)
_LINK = '{{ (flow_run | ui_url) or "" }}\n'
_LINKS = "{% if event.payload.page %}{{ event.payload.page }}\n{% endif %}" + _LINK

# The name of a flow run that has not begun is one of Prefect's, such as zealous-otter.
SUITE = (
    "{% for tag in flow_run.tags if tag.startswith('suite:') %}{{ tag[6:] }}{% else %}"
    "{% if flow_run.run_count or not flow_run.parameters.suite %}{{ flow_run.name.split(' · ')[0] }}"
    "{% else %}{{ flow_run.parameters.suite.split('/')[-2:] | join('/') }}{% endif %}{% endfor %}"
)

TEXTS = {
    "fail": Text(
        "{{ event.payload.suite }}: {% if event.payload.outcome == 'pass' %}recovered{% else %}fail{% endif %}",
        "{{ event.payload.suite }} {% if event.payload.outcome == 'pass' %}has recovered, and passes again,"
        "{% elif event.payload.change == 'still failing' %}still fails{% else %}has failed{% endif %}"
        " in run {{ event.payload.run_id[:8] }}" + _PLACE + "." + _REASONS + _RUN + _LINKS,
    ),
    "worsened": Text(
        "{{ event.payload.suite }}: {{ event.payload.outcome }}, was {{ event.payload.baseline.outcome }}",
        "{{ event.payload.suite }} has worsened: {{ event.payload.outcome }} in run {{ event.payload.run_id[:8] }}"
        + _PLACE
        + ", {{ event.payload.baseline.outcome }} in run {{ event.payload.baseline.run_id[:8] }}."
        + _REASONS
        + _RUN
        + _LINKS,
    ),
    "drift": Text(
        "{{ event.payload.suite }}: a metric drifts",
        "{{ event.payload.suite }} drifts, in run {{ event.payload.run_id[:8] }}."
        + _REASONS
        + """\nfepflow trends '{{ event.payload.suite | replace("'", "'\\\\''") }}'\n"""
        + _LINKS,
    ),
    "crashed": Text(
        SUITE + "{% if deployment.name %} ({{ deployment.name }}){% endif %}: could not be evaluated",
        SUITE + " has no verdict: {{ event.resource['prefect.state-message'] }}\n"
        "{% if deployment.name %}Deployment: evaluate/{{ deployment.name }}\n{% endif %}" + _LINK,
    ),
    "missed": Text(
        "{{ deployment.name }}: a scheduled run did not come",
        "The run of {{ deployment.name }} that was due at {{ flow_run.expected_start_time }} has not begun: "
        "is a worker alive (fepflow serve)?\n" + _LINK,
    ),
}
KINDS = tuple(TEXTS)


def trigger_of(kind: str, suite: str | None, grace: float, *, every: bool = False) -> EventTrigger:
    """Return the trigger of an alert, for one suite or for any; `grace` is in seconds, for missed runs only.

    An alert about verdicts reports changes of the outcome, unless `every` is set.
    """
    if kind == "crashed":
        run = {"prefect.resource.id": "prefect.flow-run.*", "prefect.state-message": NOT_A_VERDICT}
        named = {"prefect.resource.name": [_literal(suite), f"{_literal(suite)} *"]} if suite else {}
        return _event({"prefect.flow-run.Crashed", "prefect.flow-run.Failed"}, {**run, **named}, EVALUATE)
    if kind == "missed":
        return _late(suite, timedelta(seconds=grace))
    changes = [*_NEWS.get(kind, ()), *(["still failing"] if every else [])]
    of_suite = {"prefect.resource.id": resource_id(suite) if suite else f"{RESOURCE}.*"}
    return _event(_EVENTS[kind], {**of_suite, **({CHANGE: changes} if kind in _NEWS else {})})


def _literal(text: str) -> str:
    """Return a name as a pattern of Prefect that matches only this name."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _event(names: set[str], match: dict[str, str | list[str]], related: dict[str, str] | None = None) -> EventTrigger:
    return EventTrigger(
        type="event",
        expect=names,
        match=match,
        match_related=related or {},
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
        threshold=1,
    )


def _late(suite: str | None, grace: timedelta) -> EventTrigger:
    """Return the trigger for a run that Prefect calls late, 15 s after it was due, and that has not started after the
    grace.
    """
    tag = {"prefect.resource.id": f"prefect.tag.{_literal(suite_tag(suite))}"} if suite else None
    return EventTrigger(
        type="event",
        after={"prefect.flow-run.Late"},
        expect={f"prefect.flow-run.{name}" for name in BEGUN},
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related=[EVALUATE, tag] if tag else EVALUATE,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=grace,
    )


TAG = "fepflow-alert"


async def put(
    client: PrefectClient,
    kind: str,
    channel: str,
    address: str,
    suite: str | None,
    name: str,
    grace: float,
    *,
    every: bool,
) -> dict[str, Any]:
    """Create the alert, or update the one of this name. A paused alert stays paused."""
    existing = await client.read_automations_by_name(name)
    automation = AutomationCore(
        name=name,
        description=f"Notifies by {channel}: {kind} of {suite or 'any suite'}.",
        enabled=existing[0].enabled if existing else True,
        tags=["fepflow", TAG],
        trigger=trigger_of(kind, suite, grace, every=every),
        actions=[await _action(client, kind, channel, address, name)],
    )
    if existing:
        await client.update_automation(existing[0].id, automation)
    else:
        await client.create_automation(automation)
    return {"name": name, "created": not existing, "enabled": automation.enabled}


async def _action(
    client: PrefectClient, kind: str, channel: str, address: str, name: str
) -> CallWebhook | SendNotification:
    text = TEXTS[kind]
    if channel in ("webhook", "slack"):
        if problem := address_problem(address):
            raise UserError(f"The address to notify cannot be used: {problem[0]} ({problem[1]}).")
        block = Webhook(url=SecretStr(address), headers=SecretDict({"Content-Type": "application/json"}))
        saved = await block.save(slug(name), overwrite=True, client=client)
        return CallWebhook(block_document_id=saved, payload=_slack(kind) if channel == "slack" else _payload(kind))
    if channel == "email":
        # Prefect has no block for SMTP. This one hands its address to Apprise, which speaks it for mailto://.
        mail = SlackWebhook(url=SecretStr(_mail_address(address)))
        document: UUID = await mail.save(slug(name), overwrite=True, client=client)
    else:
        document = (await _find_block(client, address)).id
    return SendNotification(block_document_id=document, subject=text.subject, body=text.body)


def _payload(kind: str) -> str:
    """Return JSON with a text for chats and fields for programs."""
    fields = '"suite": event.payload.suite, "run_id": event.payload.run_id, "outcome": event.payload.outcome'
    if kind in _NEWS:
        fields += ', "change": event.payload.change or "", "deployment": event.payload.deployment or ""'
        fields += ', "machine": event.payload.machine or ""'
    page = '**({"page": event.payload.page} if event.payload.page else {})'
    if kind in ("crashed", "missed"):
        fields = '"flow_run": flow_run.name or "", "deployment": deployment.name or ""'
    if kind == "crashed":
        fields += ', "suite": suite'
    document = "{" + f'"kind": "{kind}", "subject": subject, "body": body, {fields}' + "}"
    return _rendered(kind) + "{{ dict(" + f"{document}, {page}" + ") | tojson }}"


def _slack(kind: str) -> str:
    """Return the body that incoming webhooks of Slack, Mattermost and Rocket.Chat take."""
    return _rendered(kind) + '{{ {"text": "*" ~ subject ~ "*\\n" ~ body} | tojson }}'


def _rendered(kind: str) -> str:
    text = TEXTS[kind]
    parts = {"subject": text.subject, "body": text.body} | ({"suite": SUITE} if kind == "crashed" else {})
    return "".join(f"{{% set {name} %}}{template}{{% endset %}}" for name, template in parts.items())


def _mail_address(recipient: str) -> str:
    """Return Apprise's URL for a mail through the server in FEPFLOW_SMTP_URL."""
    if "@" not in recipient.strip("@") or any(char in recipient for char in " ,\n\r"):
        raise UserError(f"{recipient!r} is not an e-mail address: give one such as team@example.com.")
    try:
        server = urlsplit(settings().smtp_url or "")
        usable = server.scheme in ("smtp", "smtps") and bool(server.hostname) and server.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UserError(
            "--email needs a mail server: set FEPFLOW_SMTP_URL, such as smtps://user:password@smtp.example.com:465, "
            "or smtp://127.0.0.1:25 for one without encryption or smtp://user:password@… for STARTTLS."
        )
    login = f"{server.username}:{server.password or ''}@" if server.username else ""
    plain = server.scheme == "smtp" and not login
    port = server.port or (465 if server.scheme == "smtps" else 587 if login else 25)
    user = unquote(server.username or "")
    query = {
        "to": recipient,
        "from": user if "@" in user else f"fepflow@{recipient.rpartition('@')[2]}",
        "smtp": server.hostname,
        "mode": "insecure" if plain else "ssl" if server.scheme == "smtps" else "starttls",
        "format": "text",
    }
    address = (
        f"{'mailto' if plain else 'mailtos'}://{login}{server.hostname}:{port}?{urlencode(query, quote_via=quote)}"
    )
    if not Apprise().add(address):
        raise UserError(f"A mail to {recipient!r} cannot be sent: look at the address, and at FEPFLOW_SMTP_URL.")
    return address


async def _find_block(client: PrefectClient, wanted: str) -> BlockDocument:
    blocks = {
        f"{document.block_type.slug}/{document.name}": document
        for document in await client.read_block_documents(include_secrets=False)
        if document.block_type and document.block_schema and "notify" in document.block_schema.capabilities
    }
    known = f"the server has {', '.join(sorted(blocks))}" if blocks else "the server has none; create one in its UI"
    if wanted not in blocks:
        raise NotFoundError(f"There is no notification block {wanted!r}: {known}.")
    return blocks[wanted]


async def listed(client: PrefectClient) -> list[dict[str, Any]]:
    """Return all alerts, by name."""
    alerts = [
        {"name": automation.name, "enabled": automation.enabled}
        for automation in await client.read_automations()
        if TAG in automation.tags
    ]
    return sorted(alerts, key=lambda alert: alert["name"])


async def remove(client: PrefectClient, name: str) -> None:
    """Delete an alert, and the block that was made for it. Raises NotFoundError."""
    automations = [alert for alert in await client.read_automations_by_name(name) if TAG in alert.tags]
    if not automations:
        raise NotFoundError(f"There is no alert {name!r}: `fepflow alert --list` shows all alerts.")
    for automation in automations:
        await client.delete_automation(automation.id)
    for document in await client.read_block_documents(include_secrets=False):
        if document.name == slug(name):
            await client.delete_block_document(document.id)


async def put_all(
    client: PrefectClient,
    kinds: Iterable[str],
    addresses: Mapping[str, str],
    suite: str | None,
    name: str | None,
    grace: float,
    *,
    every: bool,
) -> list[dict[str, Any]]:
    """Create or update an alert of each kind by each channel, whose addresses are secrets. Raises UserError."""
    wanted = list(product(kinds, addresses.items()))
    alerts = []
    for kind, (channel, address) in wanted:
        of = f" of {suite}" if suite else ""
        own = name and (f"{name} ({kind}, {channel})" if len(wanted) > 1 else name)
        own = own or f"fepflow: {kind}{of}, by {channel}"
        alerts.append(await put(client, kind, channel, address, suite, own, grace, every=every))
    return alerts
