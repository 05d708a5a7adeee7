import asyncio
import gzip
import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from fepflow import BaseAsyncCheck, register
from fepflow.analysis.recorded_runs import record_run
from fepflow.api.evaluations import fep
from fepflow.api.evaluations.fep import FepService
from fepflow.api.evaluations.requests import MAX_CHECKS
from fepflow.api.rest.fep import fep_router
from fepflow.api.rest.http import Errors, create_app
from fepflow.checks import registry
from fepflow.protocol.results import EvaluationRunResult
from fepflow.protocol.test_case import TestCase
from fepflow.store import database
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.api.rest.conftest import Admitted, served

CONTAINS = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["Paris"]}}
CASE = {"id": "capital", "input": "What is the capital of France?"}
RIGHT = {"value": "It is Paris."}


def request(**members: Any) -> dict[str, Any]:
    return {"test_cases": [CASE], "outputs": [RIGHT], "checks": [CONTAINS], **members}


def statuses(response: httpx.Response) -> list[list[Any]]:
    """Of each test case, what each check came to: passed or not, else its error's type."""
    return [
        [check["results"].get("passed", (check.get("error") or {}).get("type")) for check in result["check_results"]]
        for result in response.json()["results"]
    ]


def schema_of(client: httpx.Client, name: str) -> Draft202012Validator:
    document = client.get("/openapi.json").json()
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})


def test_outputs_are_checked_and_found_again(client: httpx.Client):
    response = client.post("/v1/evaluate", json=request(experiment_metadata={"name": "geo", "metadata": {"a": [1]}}))

    assert response.status_code == 200
    result = response.json()
    assert statuses(response) == [[True]]
    assert result["experiment"] == {"name": "geo", "metadata": {"a": [1]}}
    assert result["results"][0]["execution_context"] == {"test_case": CASE, "output": RIGHT}
    assert result["metadata"]["outcome"] == "pass"
    EvaluationRunResult.model_validate_json(response.text)
    schema_of(client, "EvaluationRunResult").validate(result)
    assert client.get(f"/v1/evaluations/{result['evaluation_id']}").json() == result


def test_a_request_leaves_nothing_to_the_defaults_of_suites(client: httpx.Client):
    checks = [{"type": "contains", "arguments": {"phrases": "Paris"}}, {"type": "exact_match", "arguments": {}}]
    response = client.post("/v1/evaluate", json=request(checks=checks))
    assert statuses(response) == [["validation_error", "validation_error"]]
    contains, exact_match = response.json()["results"][0]["check_results"]
    assert "text: is missing" in contains["error"]["message"]
    assert "actual: is missing; expected: is missing" in exact_match["error"]["message"]


def test_a_failed_check_an_error_and_an_unknown_type_do_not_pass(client: httpx.Client):
    broken = {"type": "contains", "arguments": {"text": "$.output.nothing", "phrases": ["a"]}}
    unknown = {"type": "no_such_check", "arguments": {}}
    for check, found, outcome in (
        ({**CONTAINS, "arguments": {"text": "$.output.value", "phrases": ["Rome"]}}, False, "fail"),
        (broken, "jsonpath_error", "inconclusive"),
        (unknown, "validation_error", "inconclusive"),
        ({**CONTAINS, "version": "99.0.0"}, "validation_error", "inconclusive"),
    ):
        response = client.post("/v1/evaluate", json=request(checks=[CONTAINS, check]))

        assert response.status_code == 200
        assert statuses(response) == [[True, found]]
        assert response.json()["metadata"]["outcome"] == outcome
        assert response.json()["status"] == ("completed" if found is False else "error")


def test_checks_may_be_shared_for_each_case_or_inside_of_it(client: httpx.Client):
    cases = [{"id": str(number), "input": number} for number in range(3)]
    outputs = [{"value": "Paris"}] * 3
    lists = [[CONTAINS], [CONTAINS, CONTAINS], []]
    inline = [{**case, "checks": [CONTAINS]} for case in cases]
    for members, found in (
        ({"test_cases": cases, "checks": lists}, [[True], [True, True], []]),
        ({"test_cases": cases, "checks": []}, [[], [], []]),
        ({"test_cases": inline, "checks": [CONTAINS]}, [[True, True]] * 3),
        ({"test_cases": inline}, [[True]] * 3),
    ):
        body = request(**members, outputs=outputs)
        if "checks" not in members:
            del body["checks"]
        response = client.post("/v1/evaluate", json=body)

        assert statuses(response) == found
        for result, case in zip(response.json()["results"], cases, strict=True):
            assert result["execution_context"]["test_case"] == case
        assert client.get(f"/v1/evaluations/{response.json()['evaluation_id']}").json() == response.json()


def test_any_json_value_is_an_input_an_expected_value_and_an_output(client: httpx.Client, subtests: pytest.Subtests):
    for value in [None, True, 0, 1.5, 2**70, "", "é\u0000\U0001f600", [1, [2]], {"a": {"b": None}}]:
        with subtests.test(value=value):
            case = {"id": "any", "input": value, "expected": value}
            check = {
                "type": "exact_match",
                "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"},
            }

            response = client.post(
                "/v1/evaluate", json=request(test_cases=[case], outputs=[{"value": value}], checks=[check])
            )

            assert statuses(response) == [[True]]
            assert response.json()["results"][0]["execution_context"] == {"test_case": case, "output": {"value": value}}
            assert client.get(f"/v1/evaluations/{response.json()['evaluation_id']}").json() == response.json()


def test_half_a_surrogate_pair_goes_through_unharmed(client: httpx.Client):
    body = json.dumps(request(outputs=[{"value": "Paris \ud83d"}]))

    response = client.post("/v1/evaluate", content=body, headers={"Content-Type": "application/json"})

    assert statuses(response) == [[True]]
    assert response.json()["results"][0]["execution_context"]["output"]["value"] == "Paris \ud83d"


NO_VERSIONS = (
    "",
    "01.0.0",
    "1.00.0",
    " 1.0.0",
    "1.0.0 ",
    "1.0",
    "v1.0.0",
    "1.0.0\n",
    "1.0.0-01",
    "\uff11.0.0",
    "1\u0661.0.0",
)

WRONG: dict[str, Any] = {
    "no object": [],
    "null": None,
    "nothing": {},
    "no test cases": request(test_cases=[]),
    "test cases that are none": request(test_cases="abc"),
    "a case without an id": request(test_cases=[{"input": 1}]),
    "an id that is a number": request(test_cases=[{"id": 1, "input": 1}]),
    "an empty id": request(test_cases=[{"id": "", "input": 1}]),
    "a case without an input": request(test_cases=[{"id": "a"}]),
    "metadata that is a list": request(test_cases=[{**CASE, "metadata": []}]),
    "metadata that is null": request(test_cases=[{**CASE, "metadata": None}]),
    "more outputs than cases": request(outputs=[RIGHT, RIGHT]),
    "no outputs": request(outputs=[]),
    "an output without a value": request(outputs=[{}]),
    "an output that is a text": request(outputs=["Paris"]),
    "an id that is not a text": request(outputs=[{"value": 1, "id": 1}]),
    "checks that are an object": request(checks=CONTAINS),
    "checks that are null": request(checks=None),
    "checks of both kinds": request(checks=[CONTAINS, [CONTAINS]]),
    "lists of checks for other cases": request(checks=[[CONTAINS], [CONTAINS]]),
    "a check without arguments": request(checks=[{"type": "contains"}]),
    "arguments that are a list": request(checks=[{"type": "contains", "arguments": []}]),
    "a check without a type": request(checks=[{"arguments": {}}]),
    "a version that is none": request(checks=[{**CONTAINS, "version": "1"}]),
    **{f"the version {version!a}": request(checks=[{**CONTAINS, "version": version}]) for version in NO_VERSIONS},
    "a check of an empty type": request(checks=[{**CONTAINS, "type": ""}]),
    "an id twice": request(test_cases=[CASE, CASE], outputs=[RIGHT, RIGHT]),
    "an experiment that is a text": request(experiment_metadata="geo"),
    "a name that is a number": request(experiment_metadata={"name": 1}),
}


def test_a_request_that_is_not_valid_is_refused_and_stores_nothing(
    client: httpx.Client, store: Store, subtests: pytest.Subtests
):
    schema = schema_of(client, "ErrorResponse")
    for name, body in WRONG.items():
        with subtests.test(name):
            response = client.post("/v1/evaluate", json=body)

            assert response.status_code == 400
            schema.validate(response.json())
            assert response.json()["error"] == "validation_error"
            assert store.runs.newest() == []


def test_neither_shared_checks_nor_checks_of_each_case_is_refused(client: httpx.Client):
    body = request()
    del body["checks"]

    assert client.post("/v1/evaluate", json=body).status_code == 400


def test_the_document_says_what_is_required(client: httpx.Client):
    schema = schema_of(client, "EvaluationRequestBody")
    unchecked = {name: value for name, value in request().items() if name != "checks"}
    inline = {**unchecked, "test_cases": [{**CASE, "checks": [CONTAINS]}]}
    partly = {"test_cases": [{**CASE, "checks": []}, {**CASE, "id": "b"}], "outputs": [RIGHT, RIGHT]}
    no_versions = [request(checks=[{**CONTAINS, "version": version}]) for version in NO_VERSIONS]
    for body, status in (
        *((refused, 400) for refused in [unchecked, partly, request(checks=[{**CONTAINS, "type": ""}]), *no_versions]),
        *((taken, 200) for taken in [request(), inline, request(checks=[]), request(checks=[[CONTAINS]])]),
    ):
        assert client.post("/v1/evaluate", json=body).status_code == status
        # Python's `$` also matches before a final line break, unlike that of JSON Schema.
        assert schema.is_valid(body) is (status == 200) or "1.0.0\\n" in json.dumps(body)


BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"a": "\xff"}',
    "NaN": b'{"test_cases": [NaN]}',
    "a number beyond floats": b'{"test_cases": [1e999]}',
    "a number of many digits": b'{"a": ' + b"1" * 5000 + b"}",
    "deep": b"[" * 100_000,
    "a name twice": b'{"checks": [], "checks": []}',
}


def test_a_body_that_is_not_read_is_refused(client: httpx.Client, subtests: pytest.Subtests):
    for name, body in BODIES.items():
        with subtests.test(name):
            response = client.post("/v1/evaluate", content=body, headers={"Content-Type": "application/json"})
            assert (response.status_code, response.json()["error"]) == (400, "validation_error")
    assert client.post("/v1/evaluate", content=b"a=1", headers={"Content-Type": "text/plain"}).status_code == 400


def test_a_result_without_any_check_is_inconclusive_and_no_error(client: httpx.Client):
    unchecked = client.post("/v1/evaluate", json=request(checks=[])).json()["metadata"]

    assert unchecked["outcome"] == "inconclusive"
    assert unchecked["verdict"]["reasons"][0].endswith("; 1 without any check, which could decide it.")


def test_members_that_are_not_known_are_named_and_left_out(client: httpx.Client):
    body = request(test_cases=[{**CASE, "exepcted": "Paris"}], checks=[{**CONTAINS, "arguemnts": {}}], foo=1)

    response = client.post("/v1/evaluate", json=body)

    assert statuses(response) == [[True]]
    assert response.json()["metadata"]["warnings"] == [
        f"{name} is not known and was left out" for name in ("foo", "test_cases[0].exepcted", "checks[0].arguemnts")
    ]


def test_a_request_with_more_checks_than_are_taken_is_too_large(client: httpx.Client):
    cases = [{"id": str(number), "input": 0} for number in range(400)]
    body = request(test_cases=cases, outputs=[RIGHT] * 400, checks=[CONTAINS] * (MAX_CHECKS // 400 + 1))

    response = client.post("/v1/evaluate", json=body)

    assert (response.status_code, response.json()["error"]) == (413, "request_entity_too_large")


def test_only_models_that_the_operator_allows_are_asked(client: httpx.Client, subtests: pytest.Subtests):
    arguments: Any
    for arguments, expected in [
        ({"model_config": {"model": "openai/gpt-4o"}}, "FEPFLOW_MODELS"),
        ({"model_config": {"model": "openai/gpt-4o", "api_base": "http://127.0.0.1:1"}}, "FEPFLOW_MODELS"),
        ({"provider_config": {"api_base": "http://127.0.0.1:1"}}, "provider_config.api_base"),
        ({"model_config": {"model": "${HOME}"}}, "${NAME}"),
        ({"response_format": {"type": "object", "properties": {str(n): {} for n in range(600)}}}, "up to 500 values"),
    ]:
        with subtests.test(arguments=arguments, expected=expected):
            judge = {
                "prompt": "Is it right? {{$.output.value}}",
                "response_format": {"type": "object", "properties": {}},
            }
            check = {"type": "llm_judge", "arguments": {**judge, **arguments}}

            response = client.post("/v1/evaluate", json=request(checks=[check]))

            error = response.json()["results"][0]["check_results"][0]["error"]
            assert error["type"] == "validation_error"
            assert expected in error["message"]


def test_a_large_result_is_sent_and_found_in_pieces(client: httpx.Client):
    cases = [{"id": str(number), "input": "\ud83d" if number % 50 == 0 else number} for number in range(300)]
    body = json.dumps(request(test_cases=cases, outputs=[RIGHT] * 300, checks=[CONTAINS, CONTAINS]))

    response = client.post("/v1/evaluate", content=body, headers={"Content-Type": "application/json"})

    found = client.get(f"/v1/evaluations/{response.json()['evaluation_id']}")
    assert response.headers["transfer-encoding"] == found.headers["transfer-encoding"] == "chunked"
    assert found.json() == response.json()
    schema_of(client, "EvaluationRunResult").validate(found.json())
    assert statuses(found) == [[True, True]] * 300


def test_one_test_case_of_many_checks_is_sent_in_pieces(client: httpx.Client):
    response = client.post("/v1/evaluate", json=request(checks=[CONTAINS] * 450))

    assert statuses(response) == [[True] * 450]
    assert client.get(f"/v1/evaluations/{response.json()['evaluation_id']}").json() == response.json()
    with client.stream("POST", "/v1/evaluate/stream", json=request(checks=[CONTAINS] * 450)) as streamed:
        lines = [json.loads(line) for line in streamed.iter_lines()]
    assert len(lines[1]["result"]["check_results"]) == 450
    assert lines[-1]["final_result"]["results"] == [lines[1]["result"]]


def test_a_stream_tells_of_each_test_case_and_ends_with_the_result(client: httpx.Client):
    cases = [{"id": str(number), "input": number} for number in range(20)]
    body = request(test_cases=cases, outputs=[RIGHT] * 20)

    with client.stream("POST", "/v1/evaluate/stream", json=body) as response:
        lines = [json.loads(line) for line in response.iter_lines()]

    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert [line["completed_test_cases"] for line in lines] == [0, *range(1, 21), 20]
    assert [line["status"] for line in lines] == ["running"] * 21 + ["completed"]
    told = {line["result"]["execution_context"]["test_case"]["id"] for line in lines[1:-1]}
    assert told == {case["id"] for case in cases}
    validator = schema_of(client, "Progress")
    for line in lines:
        validator.validate(line)
    final = lines[-1]["final_result"]
    assert client.get(f"/v1/evaluations/{lines[0]['evaluation_id']}").json() == final


def test_a_stream_of_events_says_the_same(client: httpx.Client):
    with client.stream(
        "POST", "/v1/evaluate/stream", json=request(), headers={"Accept": "text/event-stream"}
    ) as response:
        text = response.read().decode()

    assert response.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in text.strip().split("\n\n")]
    assert [name for name, _ in events] == ["event: running", "event: running", "event: completed"]
    assert json.loads(events[-1][1].removeprefix("data: "))["final_result"]["metadata"]["outcome"] == "pass"


def test_a_stream_of_a_request_that_is_not_valid_is_refused_before_it_begins(client: httpx.Client):
    assert client.post("/v1/evaluate/stream", json=request(outputs=[])).status_code == 400


def test_an_evaluation_that_is_not_over_says_how_far_it_is(client: httpx.Client, store: Store):
    cases = [TestCase(id=str(number), input=number) for number in range(3)]
    store.runs.create(
        RunRecord(id="a" * 32, name="nightly", suite={"name": "nightly", "target": {}, "checks": []}, repeats=2), cases
    )

    response = client.get(f"/v1/evaluations/{'a' * 32}")

    assert response.status_code == 202
    assert response.json() == {
        "evaluation_id": "a" * 32,
        "status": "pending",
        "completed_test_cases": 0,
        "total_test_cases": 6,
    }


def test_an_evaluation_is_found_by_its_whole_id_only(client: httpx.Client, store: Store, subtests: pytest.Subtests):
    store.runs.create(RunRecord(id="a" * 32, name="n", suite={"name": "n", "target": {}, "checks": []}, repeats=1), [])

    for name in ["latest", "aaaa", "b" * 32, "%00", "..%2f..", "é", "a" * 5000, "{}"]:
        with subtests.test(name=name):
            response = client.get(f"/v1/evaluations/{name}")

            assert response.status_code == 404
            schema_of(client, "ErrorResponse").validate(response.json())


def test_the_service_says_that_it_is_healthy(client: httpx.Client):
    response = client.get("/v1/health")

    assert response.status_code == 200
    assert response.json()["status"] == "healthy"
    schema_of(client, "Health").validate(response.json())


def test_what_is_not_there_is_an_error_of_the_same_form(client: httpx.Client, subtests: pytest.Subtests):
    for method, path, status in [("GET", "/v1/nothing", 404), ("PUT", "/v1/evaluate", 405), ("GET", "/", 404)]:
        with subtests.test(method=method, path=path, status=status):
            response = client.request(method, path)

            assert response.status_code == status
            assert set(response.json()) == {"error", "message"}


async def test_a_caller_who_leaves_in_the_middle_of_a_body_is_no_fault_of_ours(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/evaluate", "query_string": b"", "headers": []}
    async with FepService.open(store) as service:
        await Admitted(create_app([fep_router(service)], Errors({})))(scope, receive, send)

    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["message"] == "the body ended before it was complete"
    assert caplog.records == []


def test_a_compressed_body_is_refused_as_such(client: httpx.Client):
    body = gzip.compress(json.dumps(request()).encode())
    refused = client.post("/v1/evaluate", content=body, headers={"Content-Encoding": "gzip"})
    assert refused.status_code == 400
    assert refused.json()["message"] == "a body with Content-Encoding 'gzip' is not read (send it uncompressed)"
    assert client.post("/v1/evaluate", json=request(), headers={"Content-Encoding": "identity"}).status_code == 200


def test_head_is_get_without_the_body(client: httpx.Client):
    evaluation = client.post("/v1/evaluate", json=request()).json()["evaluation_id"]
    for path in ("/v1/health", f"/v1/evaluations/{evaluation}", "/v1/evaluations/x"):
        asked, told = client.get(path), client.head(path)
        assert (told.status_code, told.content) == (asked.status_code, b"")
        assert told.headers["content-length"] == asked.headers["content-length"]
    assert client.head("/v1/evaluate").status_code == 405


def test_many_at_once_are_all_answered_and_stored(client: httpx.Client, store: Store):
    with ThreadPoolExecutor(12) as threads:
        responses = list(threads.map(lambda _: client.post("/v1/evaluate", json=request()), range(24)))

    assert {response.status_code for response in responses} == {200}
    ids = {response.json()["evaluation_id"] for response in responses}
    assert len(ids) == 24
    assert {run.id for run in store.runs.newest(limit=100)} == ids


def test_results_wait_for_a_store_that_another_one_is_writing(
    tmp_path: Path, new_store: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
):
    url, is_recorded = new_store(f"sqlite:///{tmp_path / 'store.db'}"), Event()

    def record(*run: Any) -> None:
        is_recorded.set()
        record_run(*run)

    monkeypatch.setattr(fep, "record_run", record)
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    with Store.open(url) as store, served(store) as client, closing(sqlite3.connect(url[10:])) as writer:
        writer.isolation_level = None
        writer.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            response = threads.submit(client.post, "/v1/evaluate", json=request())
            assert is_recorded.wait(30)
            wait([response], 1)  # without waiting for the other one, it is refused by now
            writer.execute("ROLLBACK")
            assert response.result().status_code == 200, response.result().text


class SlowCheck(BaseAsyncCheck):
    """Takes its time."""

    async def __call__(self) -> dict[str, Any]:
        await asyncio.sleep(30)
        return {"passed": True}


def test_an_evaluation_that_takes_too_long_is_given_up_and_not_stored(
    client: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "_registered", {})
    register("slow")(SlowCheck)
    monkeypatch.setattr(fep, "MAX_SECONDS", 1)  # by then the check is under way, also on a busy machine

    response = client.post("/v1/evaluate", json=request(checks=[{"type": "slow", "arguments": {}}]))

    assert response.status_code == 413
    assert "longer than 1 s" in response.json()["message"]
    assert store.runs.newest() == []
