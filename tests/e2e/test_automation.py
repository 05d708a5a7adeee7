"""A verdict that worsens: the event, and the automation that notifies of it, through a real block of a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fepflow.store.store import Store

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .receiver import Receiver, receiving

pytestmark = pytest.mark.e2e

SUITE = "Worsening <agent>"
BLOCK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock
texts = {"subject": "{{subject}}", "body": "{{body}}"}
CustomWebhookNotificationBlock(name="receiver", url=sys.argv[1], json_data=texts).save("receiver", overwrite=True)
"""


@pytest.fixture
def receiver(stack: Stack) -> Iterator[Receiver]:
    """A receiver that the notification block `custom-webhook/receiver` sends to."""
    with receiving() as running:
        env = {**stack.env, "PREFECT_API_URL": stack.api_url}
        subprocess.run([sys.executable, "-c", BLOCK, running.url], env=env, check=True, capture_output=True)
        yield running


def events(stack: Stack, name: str, run_id: str) -> list[dict[str, Any]]:
    """The events of this name that tell of the run."""
    body = {"filter": {"event": {"name": [name]}}, "limit": 50}
    found = httpx.post(f"{stack.api_url}/events/filter", json=body).raise_for_status().json()["events"]
    return [event for event in found if event["payload"]["run_id"] == run_id]


def automations(stack: Stack) -> list[dict[str, Any]]:
    body = {"automations": {"name": {"any_": [f"fepflow: verdict worsened ({SUITE})"]}}}
    found: list[dict[str, Any]] = httpx.post(f"{stack.api_url}/automations/filter", json=body).json()
    return found


def test_a_notification_is_sent_for_each_verdict_that_worsens_and_for_no_other(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, receiver: Receiver
) -> None:
    create = ["automation", "create", "--suite", SUITE]
    without = workplace.fepflow(*create)
    assert without.returncode == 2
    assert "Name a notification block with --block: the server has" in without.stderr
    assert "custom-webhook/receiver" in without.stderr
    unknown = workplace.fepflow(*create, "--block", "custom-webhook/nobody")
    assert unknown.returncode == 2
    assert "There is no notification block 'custom-webhook/nobody'" in unknown.stderr
    for word in ("Created", "Updated"):
        done = workplace.fepflow(*create, "--block", "custom-webhook/receiver")
        assert (done.returncode, done.stdout.split(" ")[0]) == (0, word), done.stderr
    (automation,) = automations(stack)
    assert automation["trigger"]["expect"] == ["fepflow.verdict.worsened"]

    workplace.write_suite(["one", "two"], name=SUITE)
    runs = []
    for wrong, code in ((False, 0), (True, 1), (True, 1)):
        endpoint.wrong = wrong
        assert workplace.run("--quiet").returncode == code
        runs.append(workplace.record.id)
    good, first_bad, still_bad = runs
    wait_for(lambda: receiver.got, "the notification")
    wait_for(lambda: events(stack, "fepflow.verdict.fail", still_bad), "the event of a run that stayed as it was")
    (note,) = receiver.got
    assert note["subject"] == f"{SUITE}: fail, was pass"
    assert f"{SUITE} has worsened: fail in run {first_bad[:8]}, pass in run {good[:8]}." in note["body"]
    assert "- 2 of 2 checks failed." in note["body"]
    assert f"fepflow show {first_bad[:8]} --failed" in note["body"]
    assert f"{stack.api_url.removesuffix('/api')}/runs/flow-run/" in note["body"]

    assert events(stack, "fepflow.verdict.fail", still_bad)[0]["payload"]["worsened"] is False
    assert not events(stack, "fepflow.verdict.worsened", still_bad)
    (event,) = events(stack, "fepflow.verdict.worsened", first_bad)
    payload = event["payload"]
    assert event["resource"]["prefect.resource.id"] == "fepflow.suite.worsening-agent"
    related = {(one["prefect.resource.role"], one["prefect.resource.id"]) for one in event["related"]}
    assert ("flow-run", f"prefect.flow-run.{flow_run_of(workplace, first_bad)}") in related
    assert payload["baseline"] == {"run_id": good, "outcome": "pass"}
    assert (payload["suite"], payload["outcome"], payload["worsened"]) == (SUITE, "fail", True)
    (metric,) = payload["metrics"]
    assert (metric["id"], metric["value"], metric["n"]) == ("exact_match", 0.0, 2)


def flow_run_of(workplace: Workplace, run_id: str) -> str:
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        return str(store.run(run_id).flow_run_id)
