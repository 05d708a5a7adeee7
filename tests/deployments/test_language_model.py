"""The stand-in for models is what it says that it is, and fails as it is told to."""

import json
import signal
import subprocess
import sys

import httpx
import pytest

from fepflow.deployments.simulators.language_model import (
    FAULTS,
    FaultConfig,
    fault_config_of,
    schema_in,
    value_for,
    vector_of,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "passed": {"type": "boolean"},
        "grade": {"enum": ["a", "b", "c"]},
        "score": {"type": "number", "minimum": 2, "maximum": 3},
        "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}, "minItems": 2},
    },
    "$defs": {"claim": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}}},
}


def ask(server, model="stand-in", text="Good?", schema=SCHEMA):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return httpx.post(f"{server.address}/v1/chat/completions", json=body)


def test_it_says_that_it_is_a_stand_in_and_counts(model_server):
    before = httpx.get(model_server.address).json()["requests"].get("/v1/chat/completions", 0)  # of the fixture
    assert ask(model_server).json()["model"] == "stand-in (stand-in)"
    about = httpx.get(model_server.address).json()
    assert (about["stand_in"], about["requests"]) == (True, {"/v1/chat/completions": before + 1})
    assert "no model judges anything" in about["notice"]


def test_responses_fit_the_schema_and_are_reproducible():
    value = value_for(SCHEMA, 7, "Good?")
    assert value == value_for(SCHEMA, 7, "Good?")
    assert 2 <= value["score"] <= 3
    assert value["claims"] == [{"text": "A sta"}] * 2
    assert len({str(value_for(SCHEMA, 7, str(number))) for number in range(20)}) > 10


def test_a_schema_is_found_in_a_text_too(model_server):
    schema = {"type": "object", "properties": {"a": {}}}
    assert schema_in(f'Not {{this}}, but: {json.dumps(schema)} {{"b": 1}} {{') == schema
    said = ask(model_server, text='{"properties": {"a": {"const": 5}}}', schema=None).json()
    assert said["choices"][0]["message"]["content"] == '{"a": 5}'


def test_vectors_have_length_one_and_common_words_bring_texts_together():
    def dot(one, other):
        return sum(a * b for a, b in zip(vector_of(one, 7), vector_of(other, 7), strict=True))

    assert dot("Paris", "Paris") == pytest.approx(1, abs=1e-3)
    assert dot("the capital is Paris", "the capital is Lyon") > dot("the capital is Paris", "bananas are yellow")


@pytest.mark.parametrize(
    ("fault", "status"),
    [("rate_limited", 429), ("quota", 429), ("error", 500), ("overloaded", 529), ("unauthorized", 401)],
)
def test_a_fault_occurs_as_often_as_configured(model_server, fault, status):
    model = f"stand-in?fault={fault}&times=2&retry_after=3"
    answers = [ask(model_server, model) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [status, status, 200]
    assert answers[0].headers.get("Retry-After") == ("3" if fault == "rate_limited" else None)


@pytest.mark.parametrize("fault", ["dropped", "truncated"])
def test_a_connection_that_breaks(model_server, fault):
    with pytest.raises(httpx.RemoteProtocolError):
        ask(model_server, f"stand-in?fault={fault}")


def test_response_formats_are_refused(model_server):
    answer = ask(model_server, "stand-in?refuse=json_schema")
    assert (answer.status_code, "'response_format' of type 'json_schema'" in answer.text) == (400, True)


def test_an_unknown_fault_or_option_is_refused(model_server):
    assert "there is no knob speed" in ask(model_server, "stand-in?speed=1").text
    assert "there is no fault rain" in ask(model_server, "stand-in?fault=rain").text
    assert all(fault_config_of(f"x?fault={fault}", FaultConfig()).fault == fault for fault in FAULTS)


def test_it_runs_as_a_process_with_its_knobs_on_the_command_line():
    command = [sys.executable, "-m", "fepflow.deployments.simulators.language_model", "--port", "0", "--fault", "error"]
    with subprocess.Popen([*command, "--often", "0.5"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        statuses = [
            httpx.post(f"{address}/v1/embeddings", json={"model": "x", "input": "a"}).status_code for _ in range(20)
        ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert set(statuses) == {200, 500}
