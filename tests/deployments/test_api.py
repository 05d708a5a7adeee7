"""The process of the network's interfaces, from its start to its end: REST and gRPC are one service."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from fepflow.access.credentials import create_key
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.cli.main import fepflow as command_line
from fepflow.deployments import api as api_module
from fepflow.deployments import serve as serve_module
from fepflow.deployments.http_server import bind
from fepflow.settings import NAMED_FILE, current_file, settings, use_folder_file
from fepflow.store.store import Store
from tests.api_process import ApiProcess, api_process
from tests.fepflow.api.grpc.conftest import request_of
from tests.fepflow.api.rest.middleware.test_records import held

CHECK = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}}
REQUEST = {"test_cases": [{"id": "a", "input": 1}], "outputs": [{"value": "a"}], "checks": [CHECK]}


@contextmanager
def at_home(home: Path, **env: str) -> Iterator[None]:
    """Let this process use the store of a home."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {"FEPFLOW_HOME": str(home), NAMED_FILE: "", **env}.items():
            environment.setenv(name, value)
        environment.delenv("FEPFLOW_STORE_URL", raising=False)
        use_folder_file()
        settings.cache_clear()
        yield
    current_file.cache_clear()
    settings.cache_clear()


def fepflow(home: Path, *arguments: str) -> str:
    """What a command prints that uses the store of this home."""
    with at_home(home):
        done = CliRunner().invoke(command_line, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@contextmanager
def stub_of(address: str, trust: bytes | None = None) -> Iterator[Any]:
    channel = (
        grpc.insecure_channel(address)
        if trust is None
        else grpc.secure_channel(address, grpc.ssl_channel_credentials(trust))
    )
    with channel:
        yield fep_pb2_grpc.EvaluationServiceStub(channel)


def code_of(call: Any, key: str | None = None) -> str:
    """The status of an evaluation."""
    try:
        call(request_of(), metadata=[("x-api-key", key)] if key else [], timeout=30)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def status_of(client: httpx.Client, key: str | None = None) -> int:
    """The status of an evaluation over REST."""
    headers = {"X-API-Key": key} if key else {}
    return client.post("/v1/evaluate", json=REQUEST, headers=headers).status_code


@pytest.fixture(scope="module")
def without_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One that asks for no key."""
    with api_process(tmp_path_factory.mktemp("without_keys")) as api:
        yield api


def test_what_was_asked_for_over_the_network_is_seen_on_the_command_line(without_keys: ApiProcess) -> None:
    api, home = without_keys, Path(without_keys.env["FEPFLOW_HOME"])
    log = api.log.read_text()
    assert "No API key is asked for" in log
    assert f"gRPC at {api.grpc}\n" in log
    over_rest = httpx.post(f"{api.rest}/v1/evaluate", json=REQUEST, timeout=60).json()
    with stub_of(api.grpc) as stub:
        over_grpc = stub.RunEvaluation(request_of())
    found = httpx.get(f"{api.rest}/v1/evaluations/{over_grpc.evaluation_id}", timeout=60).json()
    assert found["metadata"]["outcome"] == over_grpc.metadata["outcome"] == "pass"
    shown = json.loads(fepflow(home, "show", over_rest["evaluation_id"], "--json"))
    entries = [json.loads(line) for line in fepflow(home, "audit", "--json").splitlines()]

    assert (shown["evaluation_id"], shown["metadata"]["outcome"]) == (over_rest["evaluation_id"], "pass")
    assert {(entry["action"], entry["source"], entry["outcome"]) for entry in entries} >= {
        ("POST /v1/evaluate", "127.0.0.1", "begun"),
        ("POST /v1/evaluate", "127.0.0.1", "200"),
        ("fep.v1.EvaluationService/RunEvaluation", "127.0.0.1", "begun"),
        ("fep.v1.EvaluationService/RunEvaluation", "127.0.0.1", "OK"),
    }


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One whose store is held by others."""
    with api_process(tmp_path_factory.mktemp("interrupted")) as api:
        yield api


@pytest.mark.battery
def test_reads_are_answered_while_another_process_holds_the_store(interrupted: ApiProcess) -> None:
    api, home = interrupted, Path(interrupted.env["FEPFLOW_HOME"])
    with stub_of(api.grpc) as stub, httpx.Client(base_url=api.rest, timeout=40) as client:
        evaluation = client.post("/v1/evaluate", json=REQUEST).json()["evaluation_id"]
        with held(home / "fepflow.db", "EXCLUSIVE"):
            for path in ("/v1/reports", f"/v1/evaluations/{evaluation}", "/api/evaluations", "/runs", "/v1/health"):
                assert client.get(path).status_code == 200, path
        with held(home / "fepflow.db", "IMMEDIATE"):
            assert stub.GetEvaluation(fep_pb2.GetEvaluationRequest(evaluation_id=evaluation), timeout=40)
            assert code_of(stub.RunEvaluation) == "OK"
        entries = fepflow(home, "audit", "--json").splitlines()
        (file,) = (home / "audit").iterdir()
        assert len(entries) == len(file.read_text().splitlines()) == 9, "nothing is lost"


def test_compressed_messages_are_refused_and_leave_no_line_in_the_log(without_keys: ApiProcess) -> None:
    before = without_keys.log.read_text()
    with stub_of(without_keys.grpc) as stub:
        for _ in range(5):
            with pytest.raises(grpc.RpcError) as error:
                stub.RunEvaluation(request_of(), compression=grpc.Compression.Gzip, timeout=30)
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert without_keys.log.read_text() == before


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One that gets keys, takes spans of agents, and tells what it imports."""
    home = tmp_path_factory.mktemp("guarded")
    (run_of_spans := home / "spool" / ("a1" * 8)).mkdir(parents=True)
    run_of_spans.parent.chmod(0o700)
    env = {"FEPFLOW_TRACES": str(home / "spool"), "FEPFLOW_REQUESTS_PER_MINUTE": "4", "PYTHONPROFILEIMPORTTIME": "1"}
    with api_process(home, **env) as api:
        yield api


def test_it_loads_neither_prefect_nor_litellm(guarded: ApiProcess) -> None:
    assert httpx.get(f"{guarded.rest}/openapi.json", timeout=60).status_code == 200
    loaded = set(re.findall(r"^import time:.*\| +([a-z_.]+)$", guarded.log.read_text(), re.MULTILINE))
    assert {"fastapi", "fepflow.api.rest.evaluations"} <= loaded
    assert loaded & {"prefect", "litellm"} == set()


def test_a_key_closes_all_interfaces_of_a_running_process(guarded: ApiProcess) -> None:
    home = Path(guarded.env["FEPFLOW_HOME"])
    span = {"traceId": f"{'a1' * 8}{'b2' * 8}", "spanId": "c3" * 8}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    sent: dict[str, Any] = {"content": body, "headers": {"Content-Type": "application/json"}}
    with stub_of(guarded.grpc) as stub, httpx.Client(base_url=guarded.rest, timeout=30) as client:
        assert (status_of(client), code_of(stub.RunEvaluation)) == (200, "OK")
        answer = client.post("/v1/traces", **sent)
        assert (answer.status_code, answer.json()) == (200, {})
        reader, writer = guarded.new_key("read"), guarded.new_key()

        keys = (None, "fep_no_key", reader, writer)
        assert [status_of(client, key) for key in keys] == [401, 401, 403, 200]
        assert [code_of(stub.RunEvaluation, key) for key in keys] == [
            "UNAUTHENTICATED",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "OK",
        ]
        assert client.post("/v1/traces", **sent).status_code == 401
        assert len(list((home / "spool" / ("a1" * 8)).iterdir())) == 1, "one span came, to the run on this machine"
        headers = {"X-API-Key": writer}
        assert client.get(f"/v1/evaluations/{'0' * 32}", headers=headers).status_code == 404
        assert [code_of(stub.RunEvaluation, writer) for _ in "ab"] == ["OK", "RESOURCE_EXHAUSTED"]
        fepflow(home, "keys", "revoke", writer.split("_")[1])
        assert (status_of(client, writer), code_of(stub.RunEvaluation, writer)) == (401, "UNAUTHENTICATED")
        assert stub.HealthCheck(fep_pb2.HealthCheckRequest()).status == "healthy"
        assert reader not in guarded.log.read_text()


def test_anybody_may_probe_the_process_and_its_store(guarded: ApiProcess) -> None:
    """After the one above: it asks for keys."""
    home = Path(guarded.env["FEPFLOW_HOME"])
    foreign = {"Host": "10.0.0.7:4280", "X-Forwarded-For": "192.0.2.1"}
    with httpx.Client(base_url=guarded.rest, timeout=30) as client:
        for path in ("/livez", "/readyz", "/healthz"):
            answer = client.get(path, headers=foreign)
            states = {} if path == "/livez" else {"store": "ok", "prefect": "not configured"}
            assert (answer.status_code, answer.json()) == (200, {"status": "ok", **states}), path
            assert client.head(path).status_code == 200
            assert client.post(path).status_code in (401, 403, 405)
        assert client.get("/livez/x").status_code == 303, "only these paths"
        entries = [json.loads(line) for line in fepflow(home, "audit", "--json").splitlines()]
        assert not [entry for entry in entries if entry["action"].startswith(("GET /livez ", "GET /readyz", "HEAD"))]

        (home / "fepflow.db").rename(home / "away.db")
        assert [client.get(path).status_code for path in ("/livez", "/readyz", "/healthz")] == [200, 503, 503]
        assert client.get("/readyz").json().items() >= {"status": "unavailable", "store": "unavailable"}.items()
        assert str(home) not in client.get("/readyz").text
        (home / "away.db").rename(home / "fepflow.db")
        assert client.get("/readyz").status_code == 200


def test_who_is_refused_is_told_so_in_the_form_of_the_interface(without_keys: ApiProcess) -> None:
    api = without_keys
    with httpx.Client(base_url=api.rest, headers={"X-API-Key": "none"}, timeout=60) as stranger:
        document = stranger.get("/openapi.json").json()
        for path in ("/v1/reports", "/v1/reports/x/metrics", "/v1/thresholds", "/v1/models", "/v1/tasks"):
            refused = stranger.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            described = document["paths"][path.replace("/x/", "/{report_id}/")]["get"]["responses"]["401"]
            Draft202012Validator(described["content"]["application/json"]["schema"]).validate(refused.json())
        assert stranger.get("/v1/evaluations/x").json()["error"] == "unauthorized"
        assert stranger.get("/api/graders").json()["error"]["code"] == "UNAUTHENTICATED"
        wrong = httpx.put(f"{api.rest}/v1/reports", timeout=60)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


def test_elsewhere_it_listens_with_a_key_and_tls_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = {"FEPFLOW_TLS_CERT": str(tmp_path / "cert.pem"), "FEPFLOW_TLS_KEY": str(tmp_path / "key.pem")}
    home = tmp_path / "home"

    def refused(**env: str) -> str:
        """Return the message with which it refuses to listen there."""
        with at_home(home, FEPFLOW_API_PORT="0", FEPFLOW_GRPC_PORT="0", **env):
            assert api_module.main(["--host", "0.0.0.0"]) == 2
        return capsys.readouterr().err

    assert "neither an active API key" in refused(**tls)
    with Store.open(f"sqlite:///{home / 'fepflow.db'}") as store:
        key = create_key(store, "tests", ["read", "evaluate"], None)[1]
    assert "FEPFLOW_TLS_CERT" in refused()

    with api_process(home, "--host", "0.0.0.0", **tls) as api:
        address = api.rest.replace("0.0.0.0", "127.0.0.1")
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        with httpx.Client(base_url=address, verify=trust, timeout=60) as client:
            assert client.get("/v1/health").status_code == 200
            assert [status_of(client, each) for each in (None, key)] == [401, 200]
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{address}/v1/health", timeout=60)
        address = api.grpc.replace("0.0.0.0", "127.0.0.1")
        with stub_of(address, authority.cert_pem.bytes()) as stub:
            assert [code_of(stub.RunEvaluation, each) for each in (None, key)] == ["UNAUTHENTICATED", "OK"]
        with stub_of(address) as stub:
            assert code_of(stub.RunEvaluation, key) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("options", "why"), [(["--host", "0.0.0.0"], "On 0.0.0.0"), (["--behind-tls"], "Behind a proxy")]
)
def test_serve_says_so_before_it_starts_anything(
    tmp_path: Path, options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with at_home(tmp_path):
        assert serve_module.main(options) == 2
    assert capsys.readouterr().err.startswith(f"error: {why}, other machines can call")
    assert not (tmp_path / "server.json").exists()


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for name, message in (
            ("FEPFLOW_API_PORT", f"port {port} on 127.0.0.1 cannot be used"),
            ("FEPFLOW_GRPC_PORT", f"error: gRPC cannot listen on 127.0.0.1:{port}"),
        ):
            ports = {"FEPFLOW_API_PORT": "0", "FEPFLOW_GRPC_PORT": "0", name: port}
            with at_home(tmp_path, **ports):
                assert api_module.main([]) == 3
            assert message in capsys.readouterr().err
    assert not (tmp_path / "api.json").exists()


def test_responses_are_sent_at_once() -> None:
    with bind("127.0.0.1", 0, "--port") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY on these only"


def test_what_is_under_way_is_answered_before_it_ends(without_keys: ApiProcess) -> None:
    """The last of those that share this process."""
    api = without_keys
    with stub_of(api.grpc) as stub:
        told = stub.StreamEvaluation(request_of(*[("question", "Paris")] * 300))
        messages = [next(told)]
        url = f"{api.rest}/v1/evaluate/stream"
        with httpx.stream("POST", url, json={**REQUEST, "checks": [CHECK] * 500}, timeout=30) as response:
            api.process.terminate()
            lines = list(response.iter_lines())
        messages += list(told)
        assert api.process.wait(60) == 0, api.log.read_text()

    assert json.loads(lines[-1])["status"] == "completed"
    assert messages[-1].status == "completed"
    assert messages[-1].final_result.metadata["outcome"] == "pass"
