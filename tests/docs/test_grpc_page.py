"""The page about gRPC: its calls do what it says, against the process that is served; operations: `tests/e2e`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from fepflow.api.grpc.calls import NEEDS
from tests.api_process import ApiProcess, api_process

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "grpc.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:4281"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with api_process(tmp_path_factory.mktemp("home")) as process:
        yield process


@pytest.fixture(scope="module")
def key(api: ApiProcess) -> str:
    return api.new_key()


def examples() -> list[str]:
    """The blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The calls of grpcurl, each with what it reads."""
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]


def test_the_python_example_works_with_a_key(
    api: ApiProcess, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = examples()[0].replace(ADDRESS, api.grpc)
    exec(example, {"API_KEY": key})
    assert capsys.readouterr().out == "0 of 1\n1 of 1\n1 of 1\n"

    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        exec(example, {"API_KEY": "fep_no_key"})


def test_what_grpcurl_would_send_is_answered(api: ApiProcess, key: str) -> None:
    """Its calls, made as it makes them: by what reflection says of the services."""
    listing, run, operations, health = commands()
    with grpc.insecure_channel(api.grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert listing == f"grpcurl -plaintext {ADDRESS} list\n"
        assert set(database.get_services()) >= {"fep.v1.EvaluationService", "grpc.health.v1.Health"}
        result = called(channel, database, run, key)
        assert result["status"] == "EVALUATION_STATUS_COMPLETED"
        assert result["metadata"]["outcome"] == "pass"
        assert called(channel, database, operations, key) == {}
        assert called(channel, database, health, key) == {"status": "SERVING"}


def called(channel: grpc.Channel, database: Any, command: str, key: str) -> Any:
    """The answer to a call, as grpcurl prints it."""
    line, _, rest = command.partition("\n")
    words = shlex.split(line.partition(" <<")[0])
    assert words[:2] == ["grpcurl", "-plaintext"]
    assert words[-2] == ADDRESS
    service, _, name = words[-1].partition("/")
    method: MethodDescriptor = DescriptorPool(database).FindServiceByName(service).FindMethodByName(name)
    options = dict(zip(words[2:-2:2], words[3:-2:2], strict=True))
    data = options.get("-d", "{}")
    if data == "@":
        data = rest.partition("\nEND\n")[0]
    metadata = []
    if "-H" in options:
        header, _, value = options["-H"].partition(": ")
        assert value == "$API_KEY"
        metadata.append((header, key))
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call: Any = channel.unary_unary(f"/{words[-1]}", request.SerializeToString, response.FromString)
    return MessageToDict(call(Parse(data, request()), metadata=metadata, timeout=60))


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="there is no grpcurl")
def test_the_calls_with_grpcurl_work(api: ApiProcess, key: str) -> None:
    said = []
    for command in commands():
        script = command.replace(ADDRESS, api.grpc)
        env = {**api.env, "API_KEY": key}
        done = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, text=True, timeout=60, check=True)
        said.append(done.stdout)
    assert "fep.v1.EvaluationService" in said[0]
    assert json.loads(said[1])["metadata"]["outcome"] == "pass"
    assert json.loads(said[3]) == {"status": "SERVING"}


def test_every_rpc_stands_on_the_page_with_its_scope() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", PAGE, re.MULTILINE))
    assert rows == {**NEEDS, "HealthCheck": "none"}
