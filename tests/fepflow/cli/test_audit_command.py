from __future__ import annotations

import json
from datetime import timedelta

import pytest

from fepflow.protocol.model import utc_now
from fepflow.store.records import AuditEntry
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

NOW = utc_now()
ENTRIES = [
    AuditEntry("key:a", "127.0.0.1", "GET /v1/runs", None, "200", NOW - timedelta(days=2)),
    AuditEntry(None, "::1", "POST /api/evaluations", None, "401", NOW - timedelta(minutes=5)),
    AuditEntry("jwt:[red]x[/]", None, "GET /v1/runs/{id}", "a\x1b[2J", "200", NOW),
]


@pytest.fixture
def filled(store: Store) -> Store:
    store.access.add_audit_entries(ENTRIES)
    return store


def actions(cli: Cli, *arguments: str) -> list[str]:
    done = cli("audit", "--json", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return [json.loads(line)["action"] for line in done.stdout.splitlines()]


def test_without_requests_there_is_nothing_to_show(cli: Cli, store: Store) -> None:
    assert cli("audit").stdout == "No requests are recorded.\n"
    assert cli("audit", "--json").stdout == ""


def test_entries_are_shown_newest_first_and_can_do_nothing_to_a_terminal(cli: Cli, filled: Store) -> None:
    lines = cli("audit").stdout.splitlines()[-3:]
    assert "jwt:[red]x[/]" in lines[0]
    assert "a\\u001b[2J" in lines[0]
    assert "401" in lines[1]
    assert "key:a" in lines[2]


def test_entries_are_json_for_programs(cli: Cli, filled: Store) -> None:
    (line,) = cli("audit", "--json", "--limit", "1").stdout.splitlines()
    told = json.loads(line)
    assert told.pop("at") == NOW.isoformat()
    assert told == {
        "caller": "jwt:[red]x[/]",
        "source": None,
        "action": "GET /v1/runs/{id}",
        "resource": "a\x1b[2J",
        "outcome": "200",
    }


def test_filters(cli: Cli, filled: Store) -> None:
    everything = [entry.action for entry in ENTRIES[::-1]]
    assert actions(cli) == everything
    assert actions(cli, "--since", "1d") == everything[:2]
    assert actions(cli, "--since", "9999999999d") == everything
    assert actions(cli, "--caller", "key:a") == everything[2:]
    assert actions(cli, "--outcome", "401") == everything[1:2]
    assert actions(cli, "-n", "2") == everything[:2]


def test_bad_filters_are_refused(cli: Cli, filled: Store) -> None:
    for arguments in (("--since", "yesterday"), ("--limit", "0")):
        assert cli("audit", *arguments).exit_code == 2
