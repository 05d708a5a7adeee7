"""The stand-in for models is what it says that it is."""

import json
import signal
import subprocess
import sys
from typing import Any

import httpx

from fepflow.deployments.simulators.language_model import value_for

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "passed": {"type": "boolean"},
        "grade": {"enum": ["a", "b", "c"]},
        "score": {"type": "number", "minimum": 2, "maximum": 3},
        "claims": {"type": "array", "items": {"$ref": "#/$defs/claim"}, "minItems": 2},
    },
    "$defs": {"claim": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}}},
}


def test_responses_fit_the_schema_and_are_reproducible():
    value = value_for(SCHEMA, 7, "Good?")
    assert value == value_for(SCHEMA, 7, "Good?")
    assert 2 <= value["score"] <= 3
    assert value["claims"] == [{"text": "A sta"}] * 2
    assert len({str(value_for(SCHEMA, 7, str(number))) for number in range(20)}) > 10


def test_it_answers_as_the_schema_wants_and_says_that_it_is_a_stand_in():
    command = [sys.executable, "-m", "fepflow.deployments.simulators.language_model", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        form = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
        body = {"model": "any", "messages": [{"role": "user", "content": "Good?"}], "response_format": form}
        answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert answer["model"] == "any (stand-in)"
    assert json.loads(answer["choices"][0]["message"]["content"]).keys() == SCHEMA["properties"].keys()
