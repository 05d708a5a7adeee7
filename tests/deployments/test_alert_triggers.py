"""What alerts wait for."""

from __future__ import annotations

import pytest
from prefect.events import EventTrigger

from deployments.alert_triggers import KINDS, TEXTS, trigger_of
from surfaces.cli.alert import KINDS as OFFERED
from tasks.run.events import DRIFT, WORSENED


def test_the_command_offers_all_kinds() -> None:
    assert OFFERED == KINDS


@pytest.mark.parametrize(
    ("kind", "event"), [("fail", "fepflow.verdict.fail"), ("worsened", WORSENED), ("drift", DRIFT)]
)
def test_an_alert_of_a_verdict_waits_for_its_event_of_the_suite(kind: str, event: str) -> None:
    trigger = trigger_of(kind, "Refund Bot", 60)
    assert isinstance(trigger, EventTrigger)
    assert trigger.expect == {event}
    assert trigger.model_dump()["match"] == {"prefect.resource.id": "fepflow.suite.refund-bot"}
    assert "event.payload.reasons" in TEXTS[kind].body
