"""Hostile requests to evaluate outputs, over REST and gRPC, and a caller beside them who wants to be answered."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil

from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from tests.api_process import ApiProcess
from tests.checks.core.test_patterns import CATASTROPHIC, CATASTROPHIC_PATHS, ITEMS

MEGABYTES = 200
"""Bytes that the interfaces may take more while a hostile request is under way."""

SECONDS = 1.0
"""Within which others are answered meanwhile."""

COMPUTED = 0.05
"""Seconds of computing by which the machine's load is measured, before and after."""

Bomb = tuple[str, Any, dict[str, Any]]
"""Its kind, the output and the check."""


def _pattern(pattern: str, text: str) -> Bomb:
    return "regex", text, {"type": "regex", "arguments": {"text": "$.output.value", "pattern": pattern}}


def _path(path: str) -> Bomb:
    return "jsonpath", ITEMS, {"type": "is_empty", "arguments": {"value": path}}


def _schema(schema: dict[str, Any], data: Any = 1) -> Bomb:
    arguments = {"data": "$.output.value", "schema": schema}
    return "schema", data, {"type": "schema_validation", "arguments": arguments}


def _doubling(keyword: str, levels: int = 40, **inner: Any) -> dict[str, Any]:
    """Return a schema in which each definition refers to the next one twice."""
    definitions = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2, **inner} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "string"}}}


def _nested(levels: int, end: Any) -> Any:
    value = end
    for _ in range(levels):
        value = {"a": value}
    return value


SCHEMAS = [
    _schema(_doubling("anyOf")),
    _schema(_doubling("oneOf")),
    _schema(_doubling("allOf", 40) | {"$defs": _doubling("allOf", 40)["$defs"] | {"d40": True}}),
    _schema(_doubling("anyOf", 40, description="a" * 500)),
    _schema({"not": _doubling("anyOf")} | {"$defs": _doubling("anyOf")["$defs"]}),
    _schema({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": _doubling("anyOf")["$defs"]}, {"a": 1}),
    _schema({"items": {"$ref": "#/$defs/d0"}, "$defs": _doubling("anyOf", 12)["$defs"]}, list(range(100))),
    _schema(
        {"$defs": {"a": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/a"}}}] * 2 + [False]}}, "$ref": "#/$defs/a"}
        | {"unevaluatedProperties": False},
        _nested(40, 1),
    ),
    _schema(
        {
            "$defs": {"a": {"oneOf": [{"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}] * 3}},
            "$ref": "#/$defs/a",
        },
        _nested(40, 1),
    ),
    _schema({"dependentSchemas": {"a": {"$ref": "#/$defs/d0"}}, "$defs": _doubling("oneOf")["$defs"]}, {"a": 1}),
    _schema({"if": {"$ref": "#/$defs/d0"}, "then": False, "$defs": _doubling("anyOf")["$defs"]}),
    _schema({"prefixItems": [{"$ref": "#/$defs/d0"}], "$defs": _doubling("anyOf")["$defs"]}, [1]),
]

BOMBS: list[Bomb] = [
    *(_pattern(pattern, text) for pattern, text in CATASTROPHIC.values()),
    *map(_path, CATASTROPHIC_PATHS),
    *SCHEMAS,
]


def request_of(output: Any, *checks: dict[str, Any]) -> dict[str, Any]:
    """Return a request with one test case."""
    return {"test_cases": [{"id": "one", "input": "?"}], "outputs": [{"value": output}], "checks": list(checks)}


SMALL = request_of("Paris", {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["Paris"]}})


def message_of(request: dict[str, Any]) -> fep_pb2.EvaluationRequest:
    """Return the same request for gRPC."""
    message = fep_pb2.EvaluationRequest()
    for case in request["test_cases"]:
        message.test_cases.add(id=case["id"]).input.json_text = json.dumps(case["input"])
    for output in request["outputs"]:
        message.outputs.add().value.json_text = json.dumps(output["value"])
    message.checks.shared_checks.SetInParent()
    for check in request["checks"]:
        message.checks.shared_checks.checks.add(type=check["type"], arguments_json=json.dumps(check["arguments"]))
    return message


@dataclass
class Interfaces:
    """Clients of both interfaces."""

    api: ApiProcess
    rest: httpx.Client
    channel: grpc.Channel

    def post(self, request: Any, path: str = "/v1/evaluate") -> httpx.Response:
        """Send a request over REST; text as it is."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.rest.post(path, content=body, headers={"Content-Type": "application/json"})

    def call(self, request: dict[str, Any]) -> fep_pb2.EvaluationRunResult:
        """Send a request over gRPC."""
        run = fep_pb2_grpc.EvaluationServiceStub(self.channel).RunEvaluation
        result: fep_pb2.EvaluationRunResult = run(message_of(request), timeout=120)
        return result


@contextmanager
def interfaces_of(api: ApiProcess) -> Iterator[Interfaces]:
    """Clients, by which an evaluation has been made: the processes for checks are there."""
    with (
        httpx.Client(base_url=api.rest, timeout=120, trust_env=False) as rest,
        grpc.insecure_channel(api.grpc) as channel,
    ):
        interfaces = Interfaces(api, rest, channel)
        interfaces.post(SMALL).raise_for_status()
        yield interfaces


@dataclass
class Meanwhile:
    """Effects on others: the most seconds in which they were answered, and the most megabytes that were taken.

    The seconds are those of a quiet machine: without those in which the event loop waited for the processor, and
    divided by `slowness`, as a small evaluation needs further processes.
    """

    slowness: float = 1.0
    seconds: float = 0.0
    megabytes: float = 0.0
    answers: int = 0
    failures: list[str] = field(default_factory=list)

    def require_kept(self) -> None:
        """Fail unless everybody was answered in time and memory stayed within its bound.

        The time that a busy machine or disk takes does not come each time: pytest runs a test with these words again.
        """
        assert not self.failures
        assert self.answers
        assert self.megabytes < MEGABYTES, self
        assert self.seconds / self.slowness < SECONDS, f"others were kept waiting: {self}"


@contextmanager
def others_beside(api: ApiProcess) -> Iterator[Meanwhile]:
    """Ask for health and a small evaluation, again and again, while it lasts."""
    meanwhile, stop = Meanwhile(_slowness()), threading.Event()
    process = psutil.Process(api.process.pid)
    before = _memory(process)

    def watch() -> None:
        while not stop.wait(0.02):
            meanwhile.megabytes = max(meanwhile.megabytes, (_memory(process) - before) / 1e6)

    def ask() -> None:
        with httpx.Client(base_url=api.rest, timeout=60, trust_env=False) as client:
            while not meanwhile.answers or not stop.wait(0.05):
                for send in (lambda: client.get("/v1/health"), lambda: client.post("/v1/evaluate", json=SMALL)):
                    begun, waited = time.monotonic(), _waited(process.pid)
                    response = send()
                    taken = time.monotonic() - begun - (_waited(process.pid) - waited)
                    meanwhile.seconds = max(meanwhile.seconds, taken)
                    if response.status_code != 200:
                        meanwhile.failures.append(response.text[:500])
                meanwhile.answers += 1

    threads = [threading.Thread(target=work) for work in (watch, ask)]
    for thread in threads:
        thread.start()
    try:
        yield meanwhile
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        meanwhile.slowness = max(meanwhile.slowness, _slowness())


def _slowness() -> float:
    """Return how many times longer it takes to compute while processes of others have the processor, too."""
    begun, computed = time.monotonic(), time.thread_time()
    while time.thread_time() - computed < COMPUTED:
        pass
    return max(1.0, (time.monotonic() - begun) / COMPUTED)


def _memory(process: psutil.Process) -> int:
    """Return the bytes of the process, and what its children do not share with others."""
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            total += child.memory_full_info().uss
    return int(total)


def _waited(pid: int) -> float:
    """Return the seconds in which the process's event loop could have run, and was not let."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
