"""gRPC in the process of the network's interfaces: the same store, keys, TLS and end as REST."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme

from surfaces.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from tests.api_process import ApiProcess, api_process
from tests.surfaces.grpc.conftest import request_of


def fepflow(api: ApiProcess, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "surfaces.cli.main", *arguments]
    return subprocess.run(command, env=api.env, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


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


def test_both_interfaces_are_one_service(tmp_path: Path) -> None:
    with api_process(tmp_path) as api, stub_of(api.grpc) as stub:
        assert f"gRPC at {api.grpc}\n" in api.log.read_text()
        result = stub.RunEvaluation(request_of())
        found = httpx.get(f"{api.rest}/v1/evaluations/{result.evaluation_id}").json()
        entries = [json.loads(line) for line in fepflow(api, "audit", "--json").splitlines()]

    assert found["metadata"]["outcome"] == result.metadata["outcome"] == "pass"
    mine = {(entry["source"], entry["outcome"]) for entry in entries if entry["action"].endswith("/RunEvaluation")}
    assert mine == {("127.0.0.1", "begun"), ("127.0.0.1", "OK")}


def test_a_key_closes_both_interfaces(tmp_path: Path) -> None:
    with api_process(tmp_path, FEPFLOW_REQUESTS_PER_MINUTE="3") as api, stub_of(api.grpc) as stub:
        assert code_of(stub.RunEvaluation) == "OK"
        reader, writer = fepflow(api, "keys", "create", "a", "--scope", "read"), fepflow(api, "keys", "create", "b")
        codes = [code_of(stub.RunEvaluation, key) for key in (None, "fep_no_key", reader, writer)]
        assert codes == ["UNAUTHENTICATED", "UNAUTHENTICATED", "PERMISSION_DENIED", "OK"]
        headers = {"X-API-Key": writer}
        assert httpx.get(f"{api.rest}/v1/evaluations/{'0' * 32}", headers=headers).status_code == 404
        assert [code_of(stub.RunEvaluation, writer) for _ in "ab"] == ["OK", "RESOURCE_EXHAUSTED"]
        fepflow(api, "keys", "revoke", writer.split("_")[1])
        assert code_of(stub.RunEvaluation, writer) == "UNAUTHENTICATED"
        assert stub.HealthCheck(fep_pb2.HealthCheckRequest()).status == "healthy"
        assert reader not in api.log.read_text()


def test_elsewhere_it_takes_a_key_over_tls_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = {"FEPFLOW_TLS_CERT": str(tmp_path / "cert.pem"), "FEPFLOW_TLS_KEY": str(tmp_path / "key.pem")}
    with api_process(tmp_path / "home") as api:
        key = fepflow(api, "keys", "create", "ci")

    with api_process(tmp_path / "home", "--host", "0.0.0.0", **tls) as api:
        address = api.grpc.replace("0.0.0.0", "127.0.0.1")
        with stub_of(address, authority.cert_pem.bytes()) as stub:
            assert [code_of(stub.RunEvaluation, each) for each in (None, key)] == ["UNAUTHENTICATED", "OK"]
        with stub_of(address) as stub:
            assert code_of(stub.RunEvaluation, key) == "UNAVAILABLE"


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(AssertionError) as said, api_process(tmp_path, FEPFLOW_GRPC_PORT=port):
            pass

    assert f"error: gRPC cannot listen on 127.0.0.1:{port}" in str(said.value)
    assert "Traceback" not in str(said.value)
    assert not (tmp_path / "api.json").exists()


def test_a_stream_under_way_comes_to_its_end(tmp_path: Path) -> None:
    with api_process(tmp_path) as api, stub_of(api.grpc) as stub:
        stream = stub.StreamEvaluation(request_of(*[("question", "Paris")] * 300))
        told = [next(stream)]
        api.process.terminate()
        told += list(stream)

    assert told[-1].status == "completed"
    assert told[-1].final_result.metadata["outcome"] == "pass"
