"""EvalGuard's API: what it refuses, and how it says so."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from fepflow.api.rest.evalguard import MAX_BODY
from fepflow.store.store import Store
from tests.fepflow.api.rest.evalguard.conftest import DEMO, Client, served

PATHS = ["/reports", "/reports/x", "/reports/x/metrics", "/thresholds", "/models", "/tasks"]
HOSTILE = {
    "limit=0": "limit must be at least 1",
    "limit=101": "limit must be at most 100",
    "limit=-1": "limit must be at least 1",
    "limit=": "limit must be a whole number",
    "limit": "limit must be a whole number",
    "limit=ten": "limit must be a whole number",
    "limit=5.0": "limit must be a whole number",
    "limit=1e1": "limit must be a whole number",
    "limit=%2B5": "limit must be a whole number",
    "limit=+5": "limit must be a whole number",
    "limit=1_0": "limit must be a whole number",
    "limit=%D9%A5": "limit must be a whole number",
    "limit=true": "limit must be a whole number",
    "limit=[5]": "limit must be a whole number",
    f"limit={'9' * 5000}": "limit must be at most 100",
    "offset=-1": "offset must be at least 0",
    "offset=2147483648": "offset must be at most 2147483647",
    f"offset=-{'9' * 5000}": "offset must be at least 0",
    "limit=5&limit=5": "The parameter 'limit' appears twice",
    "limit[]=5": "There is no parameter 'limit[]' (did you mean limit?)",
    "Limit=5": "There is no parameter 'Limit'",
    "x=1": "There is no parameter 'x'",
    "%00=1": "There is no parameter",
    "=": "There is no parameter ''",
    "limit=%FF": "The query cannot be read",
    "limit=5&x=%ED%A0%80": "The query cannot be read",
    "&".join(f"a{number}=1" for number in range(21)): "The query cannot be read: at most 20",
    f"{'x' * 20_000}=1": "There is no parameter 'xxx",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]) -> Iterator[Client]:
    """One server for all tests here: what is refused changes nothing."""
    url = new_store(f"sqlite:///{tmp_path_factory.mktemp('refusals') / 'store.db'}")
    with Store.open(url) as store, served(store, DEMO) as client:
        yield client


class TestHostile:
    @pytest.mark.parametrize("path", ["/reports", "/models", "/tasks"])
    @pytest.mark.parametrize(("query", "message"), HOSTILE.items())
    def test_a_parameter_that_is_not_valid_is_a_400(self, api: Client, path: str, query: str, message: str) -> None:
        error = api.raw(path, query)["error"]
        assert error["code"] == "bad_request"
        assert message in error["message"]
        assert len(error["message"]) < 300

    @pytest.mark.parametrize("path", PATHS)
    def test_an_unknown_parameter_is_a_400_everywhere(self, api: Client, path: str) -> None:
        assert "There is no parameter 'unknown'" in api.raw(path, "unknown=1")["error"]["message"]

    @pytest.mark.parametrize("name", ["model_name", "model_source", "task_ref", "metric"])
    def test_texts_that_no_report_has_are_a_400(self, api: Client, name: str) -> None:
        for bad in ("%00", "a%00b", "%0A", "a%0A", "%7F", "x" * 1001, "%ED%A0%80", "%FF", f"a&{name}=a"):
            assert api.raw("/reports", f"{name}={bad}")["error"]["code"] == "bad_request"
        values: list[Any] = ["\0", "\n", "x" * 1001, "\ud800", None, 1, True, ["a"], {"a": "b"}]
        for value in values:
            body = json.dumps({name: value})
            error = api.post(400, content=body, headers={"content-type": "application/json"})["error"]
            assert name in error["message"]
            assert len(error["message"]) < 300

    def test_what_the_server_itself_refuses_is_a_400_too(self, api: Client) -> None:
        with socket.create_connection((api.http.base_url.host, api.http.base_url.port or 0), timeout=30) as raw:
            with suppress(ConnectionError):  # it may answer, and close, before it has read all
                raw.sendall(b"GET /v1/reports?model_name=" + b"x" * 1_000_000)
            assert raw.recv(12) == b"HTTP/1.1 400"
        assert api.get("/reports")["reports"] == []

    @pytest.mark.parametrize("query", [
        "", "tasks=", "tasks=,", "tasks=a,", "tasks=,a", "tasks=a,,b", "tasks=a%0A", "tasks=a%00", "tasks=a%20,b",
        "tasks=a&tasks=b", "tasks[]=a", "tasks=a&metrics=", "tasks=a&metrics=b,", "metrics=a", "tasks=../a",
        f"tasks={'x' * 4_001}", "tasks=a&limit=1",
    ])  # fmt: skip
    def test_thresholds_take_lists_of_ids(self, api: Client, query: str) -> None:
        message = api.raw("/thresholds", query)["error"]["message"]
        if not query:
            assert message == "The parameter tasks is missing."

    @pytest.mark.parametrize("body", [
        "", "{", "null", "[]", '"a"', "1", "NaN", '{"limit": NaN}', '{"limit": 1, "limit": 1}', '{"limit": "5"}',
        '{"limit": true}', '{"limit": 0}', '{"limit": 101}', '{"limit": 5.5}', '{"limit": null}', '{"limit": 1e400}',
        f'{{"limit": {"9" * 5000}}}', f'{{"offset": {"9" * 4000}}}', '{"offset": -1}', '{"offset": 2147483648}',
        '{"x": 1}', '{"\\u0000": 1}', '{"\\ud800": 1}', "[" * 50_000, '{"a":' * 10_000,
        f'{{"metric": "{"x" * MAX_BODY}"}}',
        b"\xff", b"\xef\xbb\xbf{}", '{"limit": 1}'.encode("utf-16"),
    ], ids=lambda body: repr(body[:30]))  # fmt: skip
    def test_a_body_that_is_not_valid_is_a_400(self, api: Client, body: str | bytes) -> None:
        error = api.post(400, content=body, headers={"content-type": "application/json"})["error"]
        assert error["code"] == "bad_request"
        assert len(error["message"]) < 500

    def test_a_body_of_another_type_or_a_query_beside_it_is_a_400(self, api: Client) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
            message = api.post(400, content="{}", headers={"content-type": kind})["error"]["message"]
            assert "send the header Content-Type: application/json" in message
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        assert "Content-Encoding 'gzip'" in api.post(400, content="{}", headers=headers)["error"]["message"]
        assert "There is no parameter 'limit'" in api.post(400, query="?limit=1", json={})["error"]["message"]

    def test_whole_numbers_and_types_may_be_written_as_json_and_http_allow(self, api: Client) -> None:
        assert api.raw("/reports", "limit=007&offset=-0", 200)["pagination"]["limit"] == 7
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert api.post(content='{"limit": 7.0}', headers=headers)["pagination"]["limit"] == 7
