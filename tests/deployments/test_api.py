"""The process of the network's interfaces, from its start to its end."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trustme

from deployments.http_server import bind
from tests.api_process import ApiProcess, api_process

CHECK = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}}
REQUEST = {"test_cases": [{"id": "a", "input": 1}], "outputs": [{"value": "a"}], "checks": [CHECK]}


def fepflow(api: ApiProcess, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "surfaces.cli.main", *arguments]
    return subprocess.run(command, env=api.env, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_what_was_asked_for_over_the_network_is_seen_on_the_command_line(tmp_path: Path) -> None:
    with api_process(tmp_path) as api:
        assert "No API key is asked for" in api.log.read_text()
        result = httpx.post(f"{api.rest}/v1/evaluate", json=REQUEST).json()

        shown = json.loads(fepflow(api, "show", result["evaluation_id"], "--json"))
        entries = [json.loads(line) for line in fepflow(api, "audit", "--json").splitlines()]

    assert (shown["evaluation_id"], shown["metadata"]["outcome"]) == (result["evaluation_id"], "pass")
    assert {(entry["action"], entry["outcome"]) for entry in entries} == {
        ("POST /v1/evaluate", "begun"),
        ("POST /v1/evaluate", "200"),
    }


def test_a_key_closes_a_running_process(tmp_path: Path) -> None:
    with api_process(tmp_path) as api:
        assert httpx.post(f"{api.rest}/v1/evaluate", json=REQUEST).status_code == 200
        reader = fepflow(api, "keys", "create", "reader", "--scope", "read")
        writer = fepflow(api, "keys", "create", "writer")

        def status(key: str | None) -> int:
            return httpx.post(
                f"{api.rest}/v1/evaluate", json=REQUEST, headers={"X-API-Key": key} if key else {}
            ).status_code

        assert [status(key) for key in (None, "fep_no_key", reader, writer)] == [401, 401, 403, 200]
        fepflow(api, "keys", "revoke", writer.split("_")[1])
        assert status(writer) == 401
        assert reader not in api.log.read_text()


def test_elsewhere_it_listens_with_a_key_and_tls_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = {"FEPFLOW_TLS_CERT": str(tmp_path / "cert.pem"), "FEPFLOW_TLS_KEY": str(tmp_path / "key.pem")}

    assert "neither an active API key" in refused(tmp_path / "a", "--host", "0.0.0.0", **tls)
    with api_process(tmp_path / "b") as api:
        key = fepflow(api, "keys", "create", "ci")
    assert "FEPFLOW_TLS_CERT" in refused(tmp_path / "b", "--host", "0.0.0.0")

    with api_process(tmp_path / "b", "--host", "0.0.0.0", **tls) as api:
        address = api.rest.replace("0.0.0.0", "127.0.0.1")
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        with httpx.Client(base_url=address, verify=trust) as client:
            assert client.get("/v1/health").status_code == 200
            assert client.post("/v1/evaluate", json=REQUEST).status_code == 401
            assert client.post("/v1/evaluate", json=REQUEST, headers={"X-API-Key": key}).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{address}/v1/health")


@pytest.mark.parametrize(
    ("options", "why"), [(["--host", "0.0.0.0"], "On 0.0.0.0"), (["--behind-tls"], "Behind a proxy")]
)
def test_serve_says_so_before_it_starts_anything(tmp_path: Path, options: list[str], why: str) -> None:
    command = [sys.executable, "-P", "-m", "surfaces.cli.main", "serve", *options]
    env = {**os.environ, "FEPFLOW_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {why}, other machines can call")
    assert not (tmp_path / "server.json").exists()


def refused(home: Path, *options: str, **env: str) -> str:
    """What a process says that ends by itself because it may not listen so."""
    with pytest.raises(AssertionError) as said, api_process(home, *options, **env):
        pass
    assert "Traceback" not in str(said.value)
    return str(said.value)


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        assert f"port {port} on 127.0.0.1 cannot be used" in refused(tmp_path, FEPFLOW_API_PORT=port)


def test_many_requests_under_way_are_answered_before_it_ends(tmp_path: Path) -> None:
    with api_process(tmp_path) as api:
        url = f"{api.rest}/v1/evaluate/stream"
        with httpx.stream("POST", url, json={**REQUEST, "checks": [CHECK] * 500}, timeout=30) as response:
            api.process.terminate()
            lines = list(response.iter_lines())

    assert json.loads(lines[-1])["status"] == "completed"


def test_responses_are_sent_at_once() -> None:
    with bind("127.0.0.1", 0, "--port") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY on these only"
