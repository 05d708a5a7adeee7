"""What alerts wait for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prefect.events import EventTrigger

from fepflow.cli.stack import KINDS as OFFERED
from fepflow.deployments.alerts import KINDS, TEXTS, _payload, _slack, trigger_of
from fepflow.tasks.events import CHANGE, DRIFT, WORSENED


def test_the_command_offers_all_kinds() -> None:
    assert OFFERED == KINDS


@pytest.mark.parametrize(
    ("kind", "events", "changes"),
    [
        ("fail", {"fepflow.verdict.fail", "fepflow.verdict.pass"}, ["failed", "recovered"]),
        ("worsened", {WORSENED}, ["failed"]),
        ("drift", {DRIFT}, None),
    ],
)
def test_an_alert_of_a_verdict_waits_for_a_change_of_the_suites_outcome(
    kind: str, events: set[str], changes: list[str] | None
) -> None:
    trigger = trigger_of(kind, "Refund Bot", 60)
    assert isinstance(trigger, EventTrigger)
    assert trigger.expect == events
    matched = {"prefect.resource.id": "fepflow.suite.refund-bot", **({CHANGE: changes} if changes else {})}
    assert trigger.model_dump()["match"] == matched
    every = trigger_of(kind, "Refund Bot", 60, every=True).model_dump()["match"]
    assert every.get(CHANGE) == ([*changes, "still failing"] if changes else None)
    assert "event.payload.reasons" in TEXTS[kind].body


@pytest.mark.parametrize("kind", ["fail", "worsened", "drift"])
@pytest.mark.parametrize("page", [None, "https://eval.example.org/runs/a1b2c3d4e5"])
def test_a_notification_has_the_address_of_the_runs_page_where_there_is_one(kind: str, page: str | None) -> None:
    from prefect.server.utilities.user_templates import render_user_template_sync, validate_user_template

    baseline = {"run_id": "b" * 32, "outcome": "pass"}
    payload = {"run_id": "a1b2c3d4e5", "suite": "s", "outcome": "fail", "reasons": ["why"], "baseline": baseline}
    event = {"payload": {**payload, "page": page} if page else payload}

    def rendered(template: str) -> Any:
        validate_user_template(template)
        # Without what Prefect alone knows: the address of its own page of a flow run.
        return json.loads(
            render_user_template_sync(template.replace("flow_run | ui_url", "flow_run"), {"event": event})
        )

    note = rendered(_payload(kind))
    assert (note["kind"], note["run_id"], note.get("page")) == (kind, "a1b2c3d4e5", page)
    assert ("page" in note) == (page is not None)
    for text in (note["body"], rendered(_slack(kind))["text"]):
        assert text.count("https://eval.example.org/runs/a1b2c3d4e5\n") == (page is not None)
