"""Alerts: each kind, from what happens to a receiver on a real socket, through a real Prefect server."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fepflow.store.store import Store

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .receiver import Receiver, receiving

pytestmark = pytest.mark.e2e

SUITE = "Worsening <agent>"
BLOCK = """
from prefect.blocks.notifications import CustomWebhookNotificationBlock
texts = {"subject": "{{subject}}", "body": "{{body}}"}
CustomWebhookNotificationBlock(name="receiver", url=URL, json_data=texts).save("receiver", overwrite=True)
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_alerts_left(stack: Stack) -> Iterator[None]:
    yield
    for one in stack.api.post("/automations/filter", json={}).raise_for_status().json():
        if "fepflow-alert" in one["tags"]:
            stack.api.delete(f"/automations/{one['id']}").raise_for_status()


@dataclass
class Mails:
    """A mail server on the loopback that keeps what it is given."""

    port: int = 0
    got: list[str] = field(default_factory=list)


@contextmanager
def mails() -> Iterator[Mails]:
    """Speaks as much SMTP as a mail needs (RFC 5321, section 4.1.1)."""
    box = Mails()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            while line := self.rfile.readline():
                command = line.strip().upper()[:4]
                if command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    text = b""
                    while (part := self.rfile.readline()) not in (b".\r\n", b""):
                        text += part
                    box.got.append(text.decode())
                self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")
                if command == b"QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        box.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield box
        server.shutdown()


def events(stack: Stack, name: str, run_id: str) -> list[dict[str, Any]]:
    """The events of this name that tell of the run."""
    body = {"filter": {"event": {"name": [name]}}, "limit": 50}
    found = stack.api.post("/events/filter", json=body).raise_for_status().json()["events"]
    return [event for event in found if event["payload"]["run_id"] == run_id]


def flow_run_of(workplace: Workplace, run_id: str) -> str:
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        return str(store.runs.get(run_id).flow_run_id)


@pytest.mark.battery
def test_an_alert_tells_of_a_change_of_the_outcome_and_with_every_of_each_fail(
    workplace: Workplace, endpoint: Endpoint, receiver: Receiver
) -> None:
    suite = "Changing agent"
    with receiving() as each:
        of = ["alert", "--suite", suite, "--on", "fail", "--webhook"]
        assert workplace.fepflow(*of, receiver.url).returncode == 0
        assert workplace.fepflow(*of, each.url, "--every", "--name", "each fail").returncode == 0
        workplace.write_suite(["one"], name=suite)
        for wrong, code in ((True, 1), (True, 1), (False, 0), (False, 0)):
            endpoint.wrong = wrong
            assert workplace.run("--quiet").returncode == code
        wait_for(lambda: len(receiver.got) >= 2 and len(each.got) >= 3, "all notifications", 120)
        assert [(note["subject"], note["change"]) for note in receiver.got] == [
            (f"{suite}: fail", "failed"),
            (f"{suite}: recovered", "recovered"),
        ]
        assert [note["change"] for note in each.got] == ["failed", "still failing", "recovered"]
        assert f"(on {socket.gethostname()})" in receiver.got[0]["body"]


def test_fail_and_worsened_are_sent_once_each_by_webhook_slack_mail_and_block(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, receiver: Receiver
) -> None:
    with receiving() as chat, receiving() as block, mails() as box:
        stack.python(BLOCK.replace("URL", repr(block.url), 1), stack.env)
        of = ["alert", "--suite", SUITE]
        secret = f"{receiver.url}hook?token=canary-7f3a"
        smtp = {"FEPFLOW_SMTP_URL": f"smtp://127.0.0.1:{box.port}"}
        to = ["--slack", f"{chat.url}services/canary-7f3a", "--email", "team@example.org", "--webhook"]
        made = workplace.fepflow(*of, "--on", "fail", *to, f"{receiver.url}before", **smtp)
        assert made.returncode == 0, made.stderr
        assert made.stdout.count("Created the alert") == 3
        again = workplace.fepflow(
            *of, "--on", "fail,worsened", "--webhook", secret, "--block", "custom-webhook/receiver"
        )
        assert again.returncode == 0, again.stderr
        assert (again.stdout.count("Updated"), again.stdout.count("Created")) == (1, 3)

        workplace.write_suite(["one", "two"], name=SUITE)
        ended = []
        for wrong, code in ((False, 0), (True, 1)):
            endpoint.wrong = wrong
            assert workplace.run("--quiet", FEPFLOW_PAGES_URL="https://eval.example.org").returncode == code
            ended.append(workplace.record.id)
        good, bad = ended
        wait_for(lambda: len(receiver.got + block.got) >= 4 and chat.got and box.got, "all notifications", 180)
        fail, worsened = sorted(receiver.got, key=lambda note: str(note["kind"]))
        assert (fail["kind"], fail["suite"], fail["run_id"], fail["outcome"]) == ("fail", SUITE, bad, "fail")
        assert f"fepflow show {bad[:8]} --failed" in fail["body"]
        page = f"https://eval.example.org/runs/{bad}"
        assert (fail["page"], worsened["page"]) == (page, page)
        assert f"{page}\n" in fail["body"]
        assert f"/runs/flow-run/{flow_run_of(workplace, bad)}" in fail["body"]
        assert worsened["subject"] == f"{SUITE}: fail, was pass"
        assert f"pass in run {good[:8]}" in worsened["body"]
        (message,) = chat.got
        assert set(message) == {"text"}
        assert message["text"].startswith(f"*{SUITE}: fail*\n")
        assert page in message["text"]
        assert {note["subject"] for note in block.got} == {f"{SUITE}: fail", f"{SUITE}: fail, was pass"}
        (text,) = box.got
        assert "To: team@example.org" in text
        assert bad[:8] in text

    # The address is a secret: encrypted in a block, and nowhere else.
    said = made.stdout + made.stderr + again.stdout + workplace.fepflow("alert", "--list").stdout
    said += stack.api.post("/automations/filter", json={}).text
    said += stack.api.post("/block_documents/filter", json={}).text
    said += stack.api.post("/events/filter", json={"limit": 50}).text
    home = Path(stack.env["FEPFLOW_HOME"])
    files = [home / "server.log", *(home / "prefect").glob("prefect.db*")]
    said += "".join(path.read_bytes().decode(errors="replace") for path in files)
    assert "canary-7f3a" not in said


@pytest.mark.battery
def test_a_crashed_run_is_notified_and_a_verdict_is_not(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, receiver: Receiver
) -> None:
    made = workplace.fepflow("alert", "--name", "agent down", "--on", "crashed", "--webhook", receiver.url)
    assert "Created the alert 'agent down" in made.stdout, made.stderr
    workplace.write_suite(["one"], name="crashing", target={"timeout": "60s"})
    endpoint.wrong = True
    assert workplace.run("--quiet").returncode == 1
    endpoint.held = True
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) > 1, "a call")
        process.kill()
    endpoint.held = False
    workplace.fepflow("run", workplace.suite, "--quiet")  # whoever runs next tells Prefect of the dead one
    wait_for(lambda: receiver.got, "the notification")
    (note,) = receiver.got
    assert note["kind"] == "crashed"
    assert note["flow_run"].startswith("crashing")
    assert note["subject"] == "crashing: could not be evaluated"


@pytest.mark.battery
def test_a_crash_alert_names_the_suite_and_the_deployment(stack: Stack, receiver: Receiver, nightly: str) -> None:
    on = ["alert", "--on", "crashed", "--webhook", receiver.url]
    assert stack.fepflow(*on).returncode == 0
    ordered = stack.api.post(f"/deployments/{nightly}/create_flow_run", json={}).raise_for_status().json()
    stack.api.set_state(ordered["id"], type="CRASHED", message="exit code 137")
    wait_for(lambda: [note for note in receiver.got if note["kind"] == "crashed"], "the notification")
    (note,) = [note for note in receiver.got if note["kind"] == "crashed"]
    assert note["subject"] == "nightly agent (nightly agent): could not be evaluated"
    assert note["body"].startswith("nightly agent has no verdict: exit code 137\nDeployment: evaluate/nightly agent\n")
    assert (note["suite"], note["deployment"]) == ("nightly agent", "nightly agent")


@pytest.fixture
def nightly(workplace: Workplace, stack: Stack, receiver: Receiver) -> Iterator[str]:
    """A schedule that nobody executes, every 20 s, and an alert on that; the id of its deployment."""
    workplace.write_suite(["one"], name="nightly agent")
    on = ["alert", "--on", "missed", "--suite", "nightly agent", "--grace", "10s", "--webhook", receiver.url]
    done = workplace.fepflow(*on)
    assert done.returncode == 0, done.stderr
    planned = workplace.fepflow("schedule", workplace.suite, "--every", "20s")
    assert planned.returncode == 0, planned.stderr
    found = stack.api.get("/deployments/name/evaluate/nightly agent").raise_for_status().json()
    yield str(found["id"])
    assert workplace.fepflow("schedule", "nightly agent", "--remove").returncode == 0


@pytest.mark.battery
def test_a_run_without_an_executor_is_reported_as_missed(stack: Stack, receiver: Receiver, nightly: str) -> None:
    """A run that is ordered: Prefect calls one late at once that it has planned before for more than five minutes."""
    ordered = stack.api.post(f"/deployments/{nightly}/create_flow_run", json={}).raise_for_status().json()
    wait_for(lambda: receiver.got, "the notification")
    note = receiver.got[0]
    assert (note["kind"], note["deployment"], note["flow_run"]) == ("missed", "nightly agent", ordered["name"])
    assert "has not begun" in note["body"]


@pytest.mark.battery
def test_a_scheduled_run_without_an_executor_is_reported_as_missed(receiver: Receiver, nightly: str) -> None:
    wait_for(lambda: receiver.got, "the notification", 480)
    note = receiver.got[0]
    assert (note["kind"], note["deployment"]) == ("missed", "nightly agent")
    assert "has not begun" in note["body"]


REFUSED = [(["--on", "fail", "--webhook", "ftp://canary"], "an address starts with http:// or https://")]
ALSO_REFUSED = [
    (["--remove", "nobody"], "There is no alert 'nobody'"),
    (["--on", "fail"], "say when and where"),
    (
        ["--on", "never", "--webhook", "http://x.example"],
        "'never' is not one of fail, worsened, drift, crashed, missed",
    ),
    (["--on", "fail", "--email", "nobody"], "'nobody' is not an e-mail address"),
    (["--on", "fail", "--email", "a@example.org"], "FEPFLOW_SMTP_URL"),
    (["--on", "fail", "--block", "custom-webhook/nobody"], "no notification block 'custom-webhook/nobody'"),
    (["--on", "missed", "--grace", "1s", "--webhook", "http://x.example"], "at least 10s"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), [*REFUSED, *(pytest.param(*one, marks=pytest.mark.battery) for one in ALSO_REFUSED)]
)
def test_an_alert_that_cannot_be_set_up_is_an_error_in_one_line(
    workplace: Workplace, arguments: list[str], says: str
) -> None:
    done = workplace.fepflow("alert", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "canary" not in done.stderr
