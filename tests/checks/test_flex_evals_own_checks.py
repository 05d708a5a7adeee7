"""What the README of flex-evals shows of one's own checks and their versions, done here."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pydantic import Field, field_validator

from fepflow import (
    BaseAsyncCheck,
    BaseCheck,
    Check,
    CheckType,
    ContainsCheck,
    ExactMatchCheck,
    JSONPath,
    Output,
    TestCase,
    evaluate,
    get_latest_version,
    list_versions,
    register,
)

from .readme_check import register_my_check
from .test_flex_evals_readme import verdicts


class Scorer(BaseHTTPRequestHandler):
    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        answer = json.dumps({"score": len(text) / 10}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def scorer():
    with HTTPServer(("127.0.0.1", 0), Scorer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_an_async_check_of_ones_own_whose_arguments_are_parameters_of_its_call(scorer):
    import httpx

    @register("custom_async_check", version="1.0.0")
    class CustomAsyncCheck(BaseAsyncCheck):
        async def __call__(self, text: str, api_endpoint: str) -> dict[str, Any]:
            async with httpx.AsyncClient() as client:
                response = await client.post(api_endpoint, json={"text": text})
                return {"score": response.json()["score"]}

    arguments = {"text": "$.output.value", "api_endpoint": scorer}
    for check in (Check(type="custom_async_check", arguments=arguments), CustomAsyncCheck(**arguments)):
        results = evaluate([TestCase(id="a", input="?")], [Output(value="Paris")], [check])
        assert results.results[0].check_results[0].results == {"score": 0.5}


@pytest.mark.parametrize(
    "check",
    [
        ContainsCheck(text="$.output.value", phrases=["hello"]),
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}, version="1.0.0"),
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}),
    ],
)
def test_a_version_is_given_in_three_ways(check):
    results = evaluate([TestCase(id="a", input="?")], [Output(value="hello")], [check])
    assert results.results[0].check_results[0].metadata["check_version"] == "1.0.0"
    assert verdicts(results) == [[True]]


def test_literals_and_paths_in_any_argument():
    case = TestCase(id="a", input="?", expected="PARIS", metadata={"case_sensitive": False})
    checks = [
        ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected", case_sensitive=False),
        ExactMatchCheck(actual="Paris", expected="Paris", case_sensitive=True),
        ExactMatchCheck(
            actual="$.output.value",
            expected="$.test_case.expected",
            case_sensitive="$.test_case.metadata.case_sensitive",
        ),
    ]
    assert verdicts(evaluate([case], [Output(value="Paris")], checks)) == [[True, True, True]]


def enhanced_contains():
    @register(CheckType.CONTAINS, version="2.0.0")
    class ContainsCheck(BaseCheck):
        """Knows where words end."""

        text: str | JSONPath = Field(..., description="Text to search")
        phrases: str | list[str] | JSONPath = Field(..., description="Phrases to find")
        case_sensitive: bool | JSONPath = Field(True, description="Case sensitive search")
        word_boundaries: bool | JSONPath = Field(False, description="Match whole words only")

        @field_validator("text", "phrases", "case_sensitive", "word_boundaries", mode="before")
        @classmethod
        def convert_jsonpath(cls, v):
            if isinstance(v, str) and v.startswith("$."):
                return JSONPath(expression=v)
            return v

        def __call__(self) -> dict[str, Any]:
            edge = r"\b" if self.word_boundaries else ""
            return {"passed": all(re.search(edge + re.escape(phrase) + edge, self.text) for phrase in self.phrases)}


def test_a_new_version_of_a_check_lives_beside_the_old_one():
    enhanced_contains()
    check_v1 = Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}, version="1.0.0")
    check_latest = Check(
        type="contains", arguments={"text": "$.output.value", "phrases": ["hello"], "word_boundaries": True}
    )
    results = evaluate([TestCase(id="a", input="?")], [Output(value="hellos")], [check_v1, check_latest])
    assert verdicts(results) == [[True, False]]
    assert get_latest_version("contains") == "2.0.0"
    assert list_versions("contains") == ["1.0.0", "2.0.0"]


@pytest.fixture
def my_check():
    return register_my_check()


def test_my_check_called_directly(my_check):
    check = my_check(text="test input", pattern="test", threshold=0.7)
    result = check()
    assert "score" in result
    assert "passed" in result


def test_my_check_with_paths(my_check):
    test_cases = [TestCase(id="test1", input="test input")]
    outputs = [Output(value="test response")]
    checks = [my_check(text="$.output.value", pattern="$.test_case.input", threshold=0.8)]
    results = evaluate(test_cases, outputs, checks)
    assert results.results[0].check_results[0].status == "completed"


def test_my_check_as_a_class_and_by_its_name(my_check):
    checks = [
        my_check(text="$.output.value", pattern="success", threshold=0.8),
        Check(type="my_check", arguments={"text": "$.output.value", "pattern": "success", "threshold": 0.8}),
    ]
    results = evaluate([TestCase(id="a", input="?")], [Output(value="a success")], checks)
    assert verdicts(results) == [[True, True]]
