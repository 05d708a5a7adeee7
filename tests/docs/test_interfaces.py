"""The pages about the network's interfaces: their calls do what they say, against one process that is served.

Tests without a key come first: the process asks for none until there is one. Operations over gRPC: `tests/e2e`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from fepflow.api.evaluations.bodies import Code
from fepflow.api.grpc.calls import NEEDS
from fepflow.errors import ConflictError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from tests.api_process import ApiProcess, api_process

DOCS = Path(__file__).parents[2] / "docs"
FEP, EVALUATIONS, GRPC = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("api.md", "evaluations-api.md", "grpc.md")
)
ADDRESS = "http://127.0.0.1:4280"
GRPC_ADDRESS = "127.0.0.1:4281"
SOME_ID = "550e8400-e29b-41d4-a716-446655440010"

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


def examples(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    """The commands of a console, each with what it reads."""
    return re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One that asks for no key until a test makes one."""
    with api_process(tmp_path_factory.mktemp("home")) as process:
        yield process


@pytest.fixture(scope="module")
def key(api: ApiProcess) -> str:
    return api.new_key()


def shell(script: str, api: ApiProcess, folder: Path, **env: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", script.replace(ADDRESS, api.rest).replace(GRPC_ADDRESS, api.grpc)],
        cwd=folder,
        env={**api.env, **env},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return done.stdout


@needs_curl
def test_the_calls_of_fep_with_curl_work(api: ApiProcess, tmp_path: Path) -> None:
    checked, streamed = ("\n".join(commands(block)) for block in examples(FEP, "console"))

    result = json.loads(shell(checked, api, tmp_path))
    assert result["metadata"]["outcome"] == "pass"

    events = shell(streamed, api, tmp_path).strip().split("\n\n")
    assert [event.split("\n")[0] for event in events] == ["event: running", "event: running", "event: completed"]


@needs_curl
def test_the_calls_of_evaluations_with_curl_work(api: ApiProcess, tmp_path: Path) -> None:
    (block,) = examples(EVALUATIONS, "console")
    add, create, results = commands(block)
    assert json.loads(shell(add, api, tmp_path))["data"]["count"] == 1
    evaluation = json.loads(shell(create, api, tmp_path))["data"]
    assert (evaluation["status"], str(UUID(evaluation["id"]))) == ("pending", evaluation["id"])
    assert json.loads(shell(results, api, tmp_path))["error"]["code"] == "NOT_FOUND"
    results = results.replace(SOME_ID, evaluation["id"])
    assert json.loads(shell(results, api, tmp_path))["data"]["results"] == []


def test_the_python_example_of_fep_works_with_a_key(api: ApiProcess, key: str) -> None:
    (example,) = examples(FEP)

    exec(example.replace(ADDRESS, api.rest), {"API_KEY": key})

    with pytest.raises(Exception, match="401"):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": "fep_no_key"})


@contextmanager
def executed(api: ApiProcess) -> Iterator[None]:
    """Requested runs get their end, as a worker gives it to them."""
    ended = threading.Event()

    def work() -> None:
        with Store.open(f"sqlite:///{api.env['FEPFLOW_HOME']}/fepflow.db") as store:
            while not ended.wait(0.05):
                for run, _ in store.requests.newest("evaluation", 10, 0, ("pending",))[0]:
                    store.leases.acquire(run.id, "worker", 60)
                    passed = CheckResult(
                        check_type="exact_match",
                        status="completed",
                        results={"passed": True},
                        evaluated_at=utc_now(),
                        metadata={"check_id": "string-match--1"},
                    )
                    output = NewOutput(0, 0, "0" * 64, Output(value="Paris", metadata={"latency_ms": 1}))
                    row = NewCheckResult(0, 0, "string-match--1", "0" * 64, passed, passed=True)
                    store.results.write(run.id, [output], [row])
                    store.leases.finish(run.id, "worker", "completed", outcome="pass")

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_the_python_example_of_evaluations_works_with_a_key(
    api: ApiProcess, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{api.env['FEPFLOW_HOME']}/fepflow.db"
    with Store.open(url) as store, suppress(ConflictError):  # curl's calls add it, too
        store.requests.add_test_cases([TestCase(id="tc-001", input="?", expected="Paris")])
    (example,) = examples(EVALUATIONS)
    monkeypatch.setattr(time, "sleep", lambda _, sleep=time.sleep: sleep(0.05))
    with executed(api):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": key})
    assert capsys.readouterr().out == "completed {'string-match': 1}\n"
    with pytest.raises(Exception, match="401"):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": "fep_no_key"})


def test_every_code_of_the_contract_stands_on_the_page() -> None:
    assert {code for code in get_args(Code) if f"`{code}`" not in EVALUATIONS} == set()


def test_the_python_example_of_grpc_works_with_a_key(
    api: ApiProcess, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = examples(GRPC)[0].replace(GRPC_ADDRESS, api.grpc)
    exec(example, {"API_KEY": key})
    assert capsys.readouterr().out == "0 of 1\n1 of 1\n1 of 1\n"

    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        exec(example, {"API_KEY": "fep_no_key"})


def test_what_grpcurl_would_send_is_answered(api: ApiProcess, key: str) -> None:
    """Its calls, made as it makes them: by what reflection says of the services."""
    (block,) = examples(GRPC, "console")
    listing, run, operations, health = commands(block)
    with grpc.insecure_channel(api.grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert listing == f"grpcurl -plaintext {GRPC_ADDRESS} list\n"
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
    assert words[-2] == GRPC_ADDRESS
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
def test_the_calls_with_grpcurl_work(api: ApiProcess, key: str, tmp_path: Path) -> None:
    (block,) = examples(GRPC, "console")
    said = [shell(command, api, tmp_path, API_KEY=key) for command in commands(block)]
    assert "fep.v1.EvaluationService" in said[0]
    assert json.loads(said[1])["metadata"]["outcome"] == "pass"
    assert json.loads(said[3]) == {"status": "SERVING"}


def test_every_rpc_stands_on_the_page_with_its_scope() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", GRPC, re.MULTILINE))
    assert rows == {**NEEDS, "HealthCheck": "none"}
