"""What alerts wait for, and what they say: a Prefect trigger, a subject and a text for each kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from prefect.events import CompoundTrigger, EventTrigger, Posture
from prefect.events.schemas.automations import TriggerTypes

from fepflow.services.prefect_schedule import suite_tag
from fepflow.tasks.events import DRIFT, MISSED, RESOURCE, WORSENED, resource_id

FAILED = "fepflow.verdict.fail"
_EVENTS = {"fail": FAILED, "worsened": WORSENED, "drift": DRIFT}
EVALUATE = {"prefect.resource.role": "flow", "prefect.resource.name": "evaluate"}

NOT_A_VERDICT = "![FI][AN][IC][LO][:N]*"
"""Matches a state's message that begins neither with `FAIL:` nor with `INCONCLUSIVE:`. Prefect takes a list of patterns
as alternatives, so both have to be refused by one."""

BEGUN = ("Pending", "Running", "Paused", "Completed", "Failed", "Crashed", "Cancelling", "Cancelled")


@dataclass(frozen=True)
class Text:
    """Jinja templates, which Prefect fills in from the event."""

    subject: str
    body: str


_RUN = "\nfepflow show {{ event.payload.run_id[:8] }} --failed\n"
_REASONS = "{% for reason in event.payload.reasons %}\n- {{ reason }}{% endfor %}\n"
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
        "{{ event.payload.suite }}: fail",
        "{{ event.payload.suite }} has failed in run {{ event.payload.run_id[:8] }}." + _REASONS + _RUN + _LINKS,
    ),
    "worsened": Text(
        "{{ event.payload.suite }}: {{ event.payload.outcome }}, was {{ event.payload.baseline.outcome }}",
        "{{ event.payload.suite }} has worsened: {{ event.payload.outcome }} in run {{ event.payload.run_id[:8] }}, "
        "{{ event.payload.baseline.outcome }} in run {{ event.payload.baseline.run_id[:8] }}."
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
        "{{ event.payload.deployment or deployment.name }}: a scheduled run did not come",
        "{% if event.payload.due %}The run of {{ event.payload.deployment }} that was due at {{ event.payload.due }} "
        "was never planned: {{ event.payload.reason }}\n"
        "{% else %}The run of {{ deployment.name }} that was due at {{ flow_run.expected_start_time }} has not begun: "
        "is a worker alive (fepflow serve)?\n" + _LINK + "{% endif %}",
    ),
}
KINDS = tuple(TEXTS)


def trigger_of(kind: str, suite: str | None, grace: float) -> TriggerTypes:
    """The trigger of an alert, for one suite or for any; `grace` is in seconds, for missed runs only."""
    if kind == "crashed":
        run = {"prefect.resource.id": "prefect.flow-run.*", "prefect.state-message": NOT_A_VERDICT}
        named = {"prefect.resource.name": [_literal(suite), f"{_literal(suite)} *"]} if suite else {}
        return _event({"prefect.flow-run.Crashed", "prefect.flow-run.Failed"}, {**run, **named}, EVALUATE)
    if kind == "missed":
        return CompoundTrigger(
            require="any",
            within=None,
            triggers=[_event({MISSED}, _suite(suite)), _late(suite, timedelta(seconds=grace))],
        )
    return _event({_EVENTS[kind]}, _suite(suite))


def _suite(suite: str | None) -> dict[str, str | list[str]]:
    return {"prefect.resource.id": resource_id(suite) if suite else f"{RESOURCE}.*"}


def _literal(text: str) -> str:
    """A name as a pattern of Prefect's that matches it alone."""
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
    """A run that Prefect calls late, 15 s after it was due, and that has not begun when the grace is over."""
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
