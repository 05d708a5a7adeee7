"""The local server as a process: started once, found again, stopped; real servers on free ports."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from fepflow.deployments.server import write_private
from tests.conftest import free_port
from tests.prefect_api import PrefectAPI

pytestmark = pytest.mark.e2e


def server(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "fepflow.deployments.server", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)


def test_up_again_finds_the_running_server(stack) -> None:
    first = json.loads(server("status", env=stack.env).stdout)["server"]
    again = json.loads(server("up", env=stack.env).stdout)["server"]
    assert again == first


def test_the_ui_talks_to_the_port_that_the_server_listens_on(stack) -> None:
    root = stack.api_url.removesuffix("/api")
    with urlopen(f"{root}/ui-settings") as answer:
        assert json.loads(answer.read())["api_url"] == stack.api_url


def test_its_files_are_for_their_owner_only(stack) -> None:
    home = Path(stack.env["FEPFLOW_HOME"])
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for path in [home / "server.json", home / "server.log", home / "prefect-login", home / "prefect" / "prefect.db"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_api_requires_the_login(stack) -> None:
    def ask(api: str, **headers: str) -> int:
        return PrefectAPI(api).post("/flow_runs/filter", json={}, headers=headers).status_code

    assert ask(stack.api.url) == 200
    assert ask(stack.api_url) == 401
    assert ask(stack.api.url.replace("fepflow:", "fepflow:x")) == 401


@pytest.mark.parametrize("host", ["localhost:1", "evil.example", "127.0.0.1.evil.example:4200"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_from_elsewhere_has_no_login_and_reads_no_answer(stack, host: str, origin: str) -> None:
    headers = {"Host": host, "Origin": origin}
    api = PrefectAPI(stack.api_url)
    answer = api.post("/flow_runs/filter", json={}, headers=headers)
    assert answer.status_code == 401
    assert "access-control-allow-origin" not in answer.headers
    health = api.get("/health", headers=headers)
    assert "access-control-allow-origin" not in health.headers


def test_a_socket_is_closed_without_the_login(stack) -> None:
    address = f"ws{stack.api_url.removeprefix('http')}/events/out"
    with connect(address, subprotocols=[Subprotocol("prefect")], proxy=None, open_timeout=60) as socket:
        socket.send(json.dumps({"type": "auth", "token": "fepflow:guessed"}))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)


def test_a_taken_port_is_a_sentence(tmp_path: Path, stack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        env = {**stack.env, "FEPFLOW_HOME": str(tmp_path / "home"), "FEPFLOW_PORT": str(port)}
        done = server("up", env=env)
    assert done.returncode == 3
    assert f"port {port}" in done.stderr
    assert "FEPFLOW_PORT" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "server.json").exists()


def test_stopping_without_a_server_succeeds(tmp_path: Path, stack) -> None:
    done = server("down", env={**stack.env, "FEPFLOW_HOME": str(tmp_path)})
    assert (done.returncode, json.loads(done.stdout)) == (0, {"server": None})


def test_a_state_file_of_another_process_is_not_believed(tmp_path: Path, stack) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"pid": os.getpid(), "started": 1.0, "port": 4200}))
    done = server("status", env={**stack.env, "FEPFLOW_HOME": str(tmp_path)})
    assert json.loads(done.stdout) == {"server": None}


def test_an_api_that_the_environment_names_is_used_and_nothing_is_started(tmp_path: Path, stack) -> None:
    env = {**stack.prefect, "FEPFLOW_HOME": str(tmp_path / "other")}
    done = stack.fepflow("up", env=env)
    assert done.returncode == 0, done.stderr
    assert "PREFECT_API_URL" in done.stdout
    assert not (tmp_path / "other" / "server.json").exists()


def test_an_api_that_the_active_profile_names_is_used(tmp_path: Path, stack) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{stack.api_url}"\n', encoding="utf-8")
    env = {"PREFECT_PROFILES_PATH": str(profiles), "FEPFLOW_HOME": str(tmp_path / "other")}
    done = stack.fepflow("status", "--env", env=env)
    assert done.stdout.strip() == f"export PREFECT_API_URL={stack.api_url}"


def test_a_run_goes_to_the_server_that_the_profile_of_the_home_folder_names(tmp_path: Path, stack) -> None:
    write_suite(tmp_path)
    (tmp_path / ".prefect").mkdir()
    profile = "\n".join(f'{name} = "{value}"' for name, value in stack.prefect.items())
    (tmp_path / ".prefect" / "profiles.toml").write_text(f'active = "mine"\n[profiles.mine]\n{profile}\n')
    env = {name: value for name, value in stack.env.items() if name != "PREFECT_HOME"}
    env |= {"HOME": str(tmp_path), "FEPFLOW_HOME": str(tmp_path / "other"), "FEPFLOW_PORT": str(free_port())}
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "run", "suite.yaml", "--json"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "other" / "server.json").exists(), "no server of our own was started"
    flow_run = json.loads(done.stdout)["metadata"]["flow_run_id"]
    assert stack.api.get(f"/flow_runs/{flow_run}").json()["state_type"] == "COMPLETED"


def test_an_unreachable_configured_api_is_an_error_in_one_line(tmp_path: Path, stack) -> None:
    env = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "FEPFLOW_HOME": str(tmp_path)}
    done = stack.fepflow("up", env=env)
    assert done.returncode == 3
    assert "PREFECT_API_URL" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def own(tmp_path: Path, stack) -> Iterator[dict[str, str]]:
    """The environment of a home whose server nobody has started yet."""
    env = {**stack.env, "FEPFLOW_HOME": str(stack.new_home(tmp_path / "home")), "FEPFLOW_PORT": str(free_port())}
    yield env
    server("down", env=env)


SUITE = """
name: greeting
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""


def write_suite(folder: Path) -> None:
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")


@pytest.mark.battery
def test_a_shell_that_has_the_local_servers_address_starts_it_when_it_is_down(
    tmp_path: Path, stack, own: dict[str, str]
) -> None:
    write_suite(tmp_path)
    port = free_port()  # and not the one of FEPFLOW_PORT
    assert stack.fepflow("up", "--port", str(port), env=own).returncode == 0
    line = stack.fepflow("status", "--env", env=own).stdout.strip()
    login = (Path(own["FEPFLOW_HOME"]) / "prefect-login").read_text(encoding="ascii").strip()
    address = f"http://127.0.0.1:{port}/api"
    assert line == f"export PREFECT_API_URL={address}\nexport PREFECT_API_AUTH_STRING={login}"
    shell = {**own, "PREFECT_API_URL": address, "PREFECT_API_AUTH_STRING": login}
    assert "local server, process" in stack.fepflow("status", env=shell).stdout
    assert stack.fepflow("down", env=shell).returncode == 0
    assert "No Prefect server is running" in stack.fepflow("status", env=shell).stdout
    done = stack.fepflow("run", tmp_path / "suite.yaml", env=shell)
    assert done.returncode == 0, done.stderr
    assert f"http://127.0.0.1:{port}/v2/runs/flow-run/" in done.stdout, "the UI that Prefect opens by default"
    assert "local server, process" in stack.fepflow("status", env=shell).stdout


@pytest.mark.battery
def test_a_service_that_fails_is_said_with_its_name_and_the_log(tmp_path: Path, stack, own: dict[str, str]) -> None:
    assert stack.fepflow("up", env=own).stderr == ""
    with closing(sqlite3.connect(tmp_path / "home" / "prefect" / "prefect.db", timeout=30)) as database:
        database.execute("DROP TABLE deployment_schedule")
    log = tmp_path / "home" / "server.log"
    deadline = time.monotonic() + 60
    while "schedule_recent_deployments" not in log.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (warning,) = [
        line
        for line in stack.fepflow("status", env=own).stderr.splitlines()
        if line.startswith("warning: schedule_recent_deployments")
    ]
    assert "no such table: deployment_schedule" in warning
    assert "Scheduled runs may not come." in warning
    assert str(log) in warning


def test_whoever_reads_a_private_file_gets_it_whole_and_nobody_else_may(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    texts = ["a" * 5_000, "b" * 5_000]

    def write_again_and_again() -> None:
        for text in texts * 200:
            write_private(file, text)

    write_private(file, texts[0])
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_again_and_again)
        while not writing.done():
            assert file.read_text() in texts
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.may_stall("loads Prefect's server, which no other test of a process may want")
async def test_a_lease_that_a_killed_server_has_not_entered_in_its_index_ends(tmp_path: Path) -> None:
    from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage

    from fepflow.deployments.prefect_server import renew_leases

    storage = ConcurrencyLeaseStorage(tmp_path)
    await renew_leases(storage)  # there is none
    lease = await storage.create_lease([uuid4()], timedelta(minutes=5))
    (tmp_path / "expirations.json").unlink()
    assert await storage.read_active_lease_ids() == []
    await renew_leases(storage)
    assert await storage.read_active_lease_ids() == [lease.id]
