from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from fepflow.access.credentials import hash_of, parse_api_key
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli


def created(cli: Cli, *arguments: str) -> str:
    done = cli("keys", "create", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def test_create_prints_the_key_alone_on_stdout_and_stores_its_hash(cli: Cli, store: Store, home: Path) -> None:
    done = cli("keys", "create", "ci")

    key_id, secret = parse_api_key(done.stdout.removesuffix("\n"))
    (key,) = store.access.all_keys()
    assert (key.id, key.name, key.scopes, key.expires_at) == (key_id, "ci", ["evaluate", "read"], None)
    assert key.secret_hash == hash_of(secret)
    assert "not shown again" in done.stderr
    assert secret not in done.stderr
    assert not any(secret.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.battery
def test_create_in_a_shell_gives_the_key(home: Path) -> None:
    command = f'KEY=$({sys.executable} -P -m fepflow.cli.main keys create ci 2>/dev/null); echo "[$KEY]"'
    done = subprocess.run(["sh", "-c", command], cwd=home, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\[fep_[0-9a-f]{12}_[A-Za-z0-9_-]{43}\]\n", done.stdout)


def test_scopes_and_expiry(cli: Cli, store: Store) -> None:
    created(cli, "x", "--scope", "read", "--scope", "admin", "--scope", "read", "--expires", "30d")
    (key,) = store.access.all_keys()
    assert key.scopes == ["admin", "read"]
    assert key.expires_at - key.created_at == timedelta(days=30)
    assert abs(key.created_at - store.now()) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--scope", "root"), "is not one of"),
        (("x", "--expires", "0s"), "--expires is a duration"),
        (("x", "--expires", "soon"), "a duration reads like"),
        (("x", "--expires", "99999999999d"), "--expires is too long"),
        (("x", "--expires", "9" * 400 + "d"), "--expires is too long"),
        ((" ",), "printable text"),
        (("a\x1b[2Jb",), "printable text"),
        (("x" * 101,), "printable text"),
    ],
    ids=range(8),
)
def test_what_cannot_be_a_key_is_refused(arguments: tuple[str, ...], message: str, cli: Cli, store: Store) -> None:
    done = cli("keys", "create", *arguments)
    assert (done.exit_code, done.stdout, message in done.stderr) == (2, "", True), done.stderr
    assert store.access.all_keys() == []


def test_list_shows_keys_with_their_state_and_no_hash(cli: Cli, store: Store) -> None:
    assert "No keys yet" in cli("keys", "list").stdout
    first, second = created(cli, "[bold]nightly[/]"), created(cli, "other", "--expires", "1ms")
    store.access.revoke_key(first[4:16])

    table, told = cli("keys", "list").stdout, cli("keys", "list", "--json").stdout

    assert "[bold]nightly[/]" in table
    assert "revoked" in table
    assert "expired" in table
    rows = [json.loads(line) for line in told.splitlines()]
    assert {row["name"]: (row["id"], row["state"], row["scopes"]) for row in rows} == {
        "[bold]nightly[/]": (first[4:16], "revoked", ["evaluate", "read"]),
        "other": (second[4:16], "expired", ["evaluate", "read"]),
    }
    for key in store.access.all_keys():
        assert key.secret_hash not in table + told


def test_revoke_ends_a_key(cli: Cli, store: Store) -> None:
    key = created(cli, "ci")
    done = cli("keys", "revoke", key[4:16])
    assert (done.exit_code, done.stdout) == (0, f"Key {key[4:16]} (ci) is revoked.\n")
    assert store.access.all_keys()[0].revoked_at is not None
    assert cli("keys", "revoke", key[4:16]).exit_code == 0


@pytest.mark.parametrize("given", ["000000000000", "", "ci", "\udcff", "fep_000000000000_" + "x" * 43])
def test_revoking_what_is_no_key_shows_nothing_of_it(given: str, cli: Cli, store: Store) -> None:
    done = cli("keys", "revoke", "--", given)
    assert (done.exit_code, "`fepflow keys list` shows all" in done.stderr) == (2, True)
    assert "x" * 43 not in done.stderr


def test_who_makes_and_revokes_keys_is_on_record(cli: Cli, store: Store, home: Path) -> None:
    key = created(cli, "ci")
    cli("keys", "revoke", key[4:16])
    entries = store.access.audit_entries(10)
    assert [(entry.action, entry.resource, entry.outcome) for entry in entries[::-1]] == [
        ("keys create", key[4:16], "done"),
        ("keys revoke", key[4:16], "done"),
    ]
    assert all(entry.caller.startswith("cli:") for entry in entries)
    (file,) = (home / "home" / "audit").iterdir()
    assert len(file.read_text().splitlines()) == 2


def test_a_key_that_cannot_be_recorded_is_not_shown_and_revoking_works_even_so(
    cli: Cli, store: Store, home: Path
) -> None:
    key = created(cli, "ci")
    folder = home / "home" / "audit"
    folder.rename(home / "moved")
    folder.touch()
    done = cli("keys", "create", "other")
    assert (done.exit_code, done.stdout, "cannot be written" in done.stderr) == (3, "", True)
    assert cli("keys", "revoke", key[4:16]).exit_code == 3
    assert store.access.all_keys()[0].revoked_at is not None
