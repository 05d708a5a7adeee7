"""Nothing that is sent to evaluate outputs keeps others waiting, takes much memory, or is anything but an error.

The short form is in every run of the tests; each bomb by itself, over both interfaces, is in the battery.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import httpx
import psutil
import pytest
from google.protobuf.json_format import MessageToDict

from fepflow.api.evaluations.check_pool import GRACE_SECONDS
from fepflow.api.evaluations.check_process import CHECK_SECONDS
from fepflow.api.grpc.fep.v1 import fep_pb2
from tests.api_process import ApiProcess, api_process
from tests.processes import is_running

from .requests import BOMBS, SMALL, Bomb, Interfaces, interfaces_of, others_beside, request_of

LIMITS = {"regex": 1.0, "jsonpath": 0.5, "schema": 1.0}
"""Seconds that a bomb of each kind may take; an error is there two seconds later at most."""

ANSWERED = "answered"
"""The results that some engines give for some bombs, in time."""

IS_EMPTY = {"type": "is_empty", "arguments": {"value": "$.output.value"}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    limits = {"FEPFLOW_REQUESTS_PER_MINUTE": "1000000", "FEPFLOW_STARTS_PER_MINUTE": "1000000"}
    with api_process(tmp_path_factory.mktemp("home"), **limits) as api:
        yield api


@pytest.fixture
def interfaces(api: ApiProcess) -> Iterator[Interfaces]:
    with interfaces_of(api) as found:
        yield found


def test_the_bombs_are_those_of_the_demand() -> None:
    kinds = [kind for kind, _, _ in BOMBS]
    assert {kind: kinds.count(kind) for kind in LIMITS} == {"regex": 24, "jsonpath": 12, "schema": 12}


SLOW = BOMBS[2]
"""A pattern that would take years."""

FEW = [SLOW, BOMBS[25], BOMBS[36], BOMBS[44]]


@pytest.mark.parametrize(
    ("bombs", "form"),
    [
        pytest.param(FEW, "REST", id="few-REST"),
        pytest.param(FEW[:1], "gRPC", id="one-gRPC"),
        *(pytest.param(BOMBS, form, id=f"all-{form}", marks=pytest.mark.battery) for form in ("REST", "gRPC")),
    ],
)
def test_a_bomb_is_an_error_of_its_check_and_others_are_answered_meanwhile(
    interfaces: Interfaces, bombs: list[Bomb], form: str
) -> None:
    beyond_limit: dict[str, float] = {}
    with others_beside(interfaces.api) as meanwhile:
        for kind, output, check in bombs:
            begun = time.monotonic()
            error, small = _result_of(interfaces, request_of(output, check, IS_EMPTY), form)
            beyond_limit[str(check)] = time.monotonic() - begun - LIMITS[kind]
            assert error in (("timeout_error", ANSWERED) if bombs is BOMBS else ("timeout_error",)), (check, error)
            assert small == "completed"
    # A busy machine starts and ends processes slowly.
    assert max(beyond_limit.values()) < 4 * meanwhile.slowness, beyond_limit
    meanwhile.require_kept()


def _result_of(interfaces: Interfaces, request: dict[str, Any], form: str) -> tuple[str, str]:
    """Return the error of the first check, and the status of the second one."""
    if form == "REST":
        bomb, small = interfaces.post(request).json()["results"][0]["check_results"]
        return bomb.get("error", {}).get("type", ANSWERED), small["status"]
    bomb, small = interfaces.call(request).results[0].check_results
    name = fep_pb2.CheckErrorType.Name(bomb.error.type).removeprefix("CHECK_ERROR_TYPE_").lower()
    return ANSWERED if name == "unspecified" else name, fep_pb2.CheckStatus.Name(small.status).removeprefix(
        "CHECK_STATUS_"
    ).lower()


@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.battery)])
def test_many_bombs_of_several_callers_keep_nobody_waiting(interfaces: Interfaces, times: int) -> None:
    callers = [
        threading.Thread(target=interfaces.post, args=[request_of(output, *[check] * 2)])
        for _, output, check in (SLOW, BOMBS[36], BOMBS[30], BOMBS[4]) * times
    ]
    with others_beside(interfaces.api) as meanwhile:
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    meanwhile.require_kept()


LARGE: dict[str, bytes] = {
    "errors for each of many checks": b'{"test_cases": [], "outputs": [], "checks": [' + b"1," * 900_000 + b"1]}",
    "checks that are empty": b'{"test_cases": [], "outputs": [], "checks": [' + b"{}," * 600_000 + b"{}]}",
    "lists of nothing": b'{"test_cases": [{"id": "a", "input": [' + b"[]," * 600_000 + b"[]]}]}",
    "deep values": b'{"checks": [' + b",".join([b"[" * 90 + b"]" * 90] * 10_000) + b"]}",
    "members that are not known": b"{" + b",".join(b'"%d":1' % index for index in range(180_000)) + b"}",
    "digits": b'{"checks": [' + b",".join([b"1" * 4_000] * 450) + b"]}",
}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, id=name, marks=[pytest.mark.battery] * (index > 1))
        for index, (name, body) in enumerate(LARGE.items())
    ],
)
def test_a_body_that_takes_long_to_read_keeps_nobody_waiting(interfaces: Interfaces, body: bytes) -> None:
    with others_beside(interfaces.api) as meanwhile:
        assert interfaces.post(body).status_code == 400
    meanwhile.require_kept()


@pytest.mark.parametrize("path", ["/api/test-cases", pytest.param("/api/graders", marks=pytest.mark.battery)])
def test_a_body_for_the_evaluations_contract_keeps_nobody_waiting(interfaces: Interfaces, path: str) -> None:
    with others_beside(interfaces.api) as meanwhile:
        assert interfaces.post(LARGE["deep values"], path).status_code == 400
    meanwhile.require_kept()


@pytest.mark.battery
def test_a_grader_with_a_schema_that_takes_long_to_read_keeps_nobody_waiting(interfaces: Interfaces) -> None:
    check = {"type": "schema_validation", "arguments": {"data": "$.output.value", "schema": {"allOf": [{}] * 300_000}}}
    with others_beside(interfaces.api) as meanwhile:
        refused = interfaces.post(json.dumps({"name": "slow", "checks": [check]}).encode(), "/api/graders")
    meanwhile.require_kept()
    assert refused.status_code == 400
    assert "10 s" in refused.json()["error"]["message"]


MESSAGES = {
    "no test case often": b"\x0a\x00" * 2_000_000,
    "no output often": b"\x12\x00" * 2_000_000,
    "a check without anything often": b"\x1a\x84\x80\xf4\x01\x0a\x80\x80\xf4\x01" + b"\x0a\x00" * 2_000_000,
    "no message": b"\xff" * 4_000_000,
}


@pytest.mark.parametrize("method", ["RunEvaluation", "BatchEvaluation"])
@pytest.mark.parametrize(
    "message",
    [
        pytest.param(message, id=name, marks=[pytest.mark.battery] * (index > 0))
        for index, (name, message) in enumerate(MESSAGES.items())
    ],
)
def test_a_message_of_many_small_parts_keeps_nobody_waiting(
    interfaces: Interfaces, message: bytes, method: str
) -> None:
    with others_beside(interfaces.api) as meanwhile, pytest.raises(grpc.RpcError) as error:
        interfaces.channel.unary_unary(f"/fep.v1.EvaluationService/{method}", None, None)(message, timeout=120)
    meanwhile.require_kept()
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.battery
def test_a_thousand_checks_of_a_large_output_take_little(interfaces: Interfaces) -> None:
    request = request_of("x" * 450_000, *[IS_EMPTY] * 1_000)
    with others_beside(interfaces.api) as meanwhile:
        response = interfaces.post(request)
        stored = interfaces.rest.get(f"/v1/evaluations/{response.json()['evaluation_id']}")
        streamed = interfaces.post(request, "/v1/evaluate/stream")
        message = interfaces.call(request)
    meanwhile.require_kept()
    assert stored.json() == response.json()
    assert max(len(response.content), message.ByteSize()) < 1_500_000
    assert len(streamed.content) < 3_000_000
    shown = {
        "jsonpath": "$.output.value",
        "value_sha256": response.json()["results"][0]["check_results"][0]["resolved_arguments"]["value"][
            "value_sha256"
        ],
    }
    for check in response.json()["results"][0]["check_results"]:
        assert check["resolved_arguments"]["value"] == shown
    assert MessageToDict(message.results[0].check_results[-1].resolved_arguments)["value"] == shown


def test_checks_that_look_at_too_much_together_are_refused_over_both_interfaces(interfaces: Interfaces) -> None:
    request = request_of("x" * 450_000, *[IS_EMPTY] * 2_000)
    sentence = "the checks look at 900,054,000 characters together"
    with others_beside(interfaces.api) as meanwhile:
        refused = interfaces.post(request)
        with pytest.raises(grpc.RpcError) as error:
            interfaces.call(request)
    meanwhile.require_kept()
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert sentence in refused.json()["message"]
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in error.value.details()


def test_a_process_that_heeds_nothing_is_killed_and_the_other_checks_have_results(interfaces: Interfaces) -> None:
    _, output, check = SLOW
    answers: list[Any] = []
    request = request_of(output, IS_EMPTY, check, IS_EMPTY)
    caller = threading.Thread(target=lambda: answers.append(interfaces.post(request).json()))
    caller.start()
    stopped = _stop_process_at_work(interfaces.api)
    begun = time.monotonic()
    caller.join()
    assert time.monotonic() - begun < 2 * (CHECK_SECONDS + GRACE_SECONDS) + 5
    assert not is_running(stopped)
    assert [result["status"] for result in answers[0]["results"][0]["check_results"]] == [
        "completed",
        "error",
        "completed",
    ]
    assert interfaces.post(SMALL).status_code == 200


def _stop_process_at_work(api: ApiProcess) -> int:
    """Stop the process of the request, as if it hung in a library: no alarm is heard any more."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in psutil.Process(api.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if child.nice() > 0 and child.cpu_times().user > 0.05:
                    child.suspend()
                    return int(child.pid)
        time.sleep(0.01)
    raise AssertionError("no process was at work")


def test_the_processes_end_with_the_one_that_started_them(interfaces: Interfaces) -> None:
    """The last of those that share this process."""
    process = interfaces.api.process
    _, output, check = SLOW
    caller = threading.Thread(target=_post_in_vain, args=[interfaces, request_of(output, *[check] * 30)])
    caller.start()
    children = _children_at_work(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    caller.join()
    deadline = time.monotonic() + 60
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))
    process.returncode = 0  # it was killed on purpose


def _children_at_work(pid: int) -> list[int]:
    """Return the server that forks, and a process for the request."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children(recursive=True)
        if len(children) >= 2:
            return [child.pid for child in children]
        time.sleep(0.05)
    raise AssertionError("no process was at work")


def _post_in_vain(interfaces: Interfaces, request: dict[str, Any]) -> None:
    with suppress(httpx.HTTPError):
        interfaces.post(request)
