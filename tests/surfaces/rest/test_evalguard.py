"""EvalGuard's API, asked over a socket; every answer is held against its schema."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import uvicorn
from fastapi import FastAPI
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from fepflow.documents.yaml_parser import parse_yaml
from fepflow.evalguard.schema_files import SCHEMAS, schema_path, schema_text
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.evalguard_reports import StoredReport
from fepflow.store.records import NewRun
from fepflow.store.store import Store
from surfaces.evalguard_catalogue import Catalogue
from surfaces.evalguard_reports import import_reports
from surfaces.rest.errors import Errors
from surfaces.rest.evalguard import MAX_BODY, evalguard_error, evalguard_router

DOCUMENTS: dict[str, Any] = {schema_path(name).name: parse_yaml(schema_text(name), name) for name in SCHEMAS}
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, DRAFT202012.create_resource(document)) for name, document in DOCUMENTS.items()
)
API = DOCUMENTS["api.schema.yaml"]
DEMO = Path(__file__).parents[3] / "deployments" / "suites" / "demo"
NOW = utc_now()
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Else each client reads the certificates of all authorities, for nothing."""


@dataclass(frozen=True)
class Client:
    """Asks the API, and holds each answer against what its schema says of the path, the method and the status."""

    http: httpx.Client

    def get(self, path: str, status: int = 200, /, **parameters: str | int) -> Any:
        return self.checked("get", path, self.http.get(f"/v1{path}", params=parameters), status)

    def raw(self, path: str, query: str, status: int = 400) -> Any:
        return self.checked("get", path, self.http.get(f"/v1{path}?{query}"), status)

    def post(self, status: int = 200, query: str = "", **options: Any) -> Any:
        return self.checked("post", "/reports", self.http.post(f"/v1/reports{query}", **options), status)

    def checked(self, method: str, path: str, response: httpx.Response, status: int) -> Any:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        (template,) = [each for each in API["paths"] if matches(each, path)]
        ref = f"/paths/{template.replace('~', '~0').replace('/', '~1')}/{method}/responses/{status}"
        found = REGISTRY.resolver("api.schema.yaml").lookup(f"#{ref.replace('{', '%7B').replace('}', '%7D')}")
        contract, resolver = found.contents, found.resolver
        while "$ref" in contract:
            found = resolver.lookup(contract["$ref"])
            contract, resolver = found.contents, found.resolver
        schema = contract["content"]["application/json"]["schema"]
        target = schema["$ref"] if ".yaml" in schema["$ref"] else f"api.schema.yaml{schema['$ref']}"
        jsonschema.Draft202012Validator({"$ref": target}, registry=REGISTRY).validate(response.json())
        return response.json()


def matches(template: str, path: str) -> bool:
    steps, named = path.split("/"), template.split("/")
    return len(steps) == len(named) and all(a == b or b[0] == "{" for a, b in zip(steps[1:], named[1:], strict=True))


Serve = Callable[[Path | None], Client]


@pytest.fixture
def serve(store: Store) -> Iterator[Serve]:
    """Serves the API, with the definitions of a folder, on a socket."""
    running = []

    def start(folder: Path | None) -> Client:
        app = FastAPI()
        Errors({"/v1": evalguard_error}).install(app)
        app.include_router(evalguard_router(Catalogue(folder), store), prefix="/v1")
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        http = httpx.Client(base_url=url, timeout=30, trust_env=False, verify=NO_TLS)
        running.append((server, thread, http))
        return Client(http)

    yield start
    for server, thread, http in running:
        http.close()
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def api(serve: Serve) -> Client:
    return serve(DEMO)


def report(number: int, model: str | None = "org/model", source: str | None = "hf", own: str | None = None,
           named: dict[str, dict[str, float]] | None = None, **results: dict[str, float]) -> StoredReport:  # fmt: skip
    """An imported report with a task for each of `results` and `named`, whose metrics have these values."""
    results |= named or {}
    tasks = [{"task_ref": task} for task in results]
    values = [{name: {"value": value} for name, value in metrics.items()} for metrics in results.values()]
    context = {name: text for name, text in (("model_name", model), ("model_source", source)) if text is not None}
    document = {"context": context, "tasks": tasks, "results": values, **({"id": own} if own else {})}
    return StoredReport(
        id=f"{number:064x}", source="r.yaml", report_id=own, model_name=model, model_source=source, evaluated_at=None,
        tasks=list(results), report=document, imported_at=NOW + timedelta(seconds=number),
    )  # fmt: skip


def numbers(answer: Any) -> list[int]:
    return [int(each["id"], 16) for each in answer["reports"]]


SOME = [
    report(1, qa={"acc": 0.5}, bias={"pct": 0.25}),
    report(2, model="other", qa={"acc_norm": 0.75}),
    report(3, source="local", bias={"acc": 0.125, "pct": 0.5}),
    report(4, model=None, source=None, qa={}),
]


class TestReports:
    def test_the_newest_come_first_and_pages_say_what_is_left(self, api: Client, store: Store) -> None:
        assert api.get("/reports") == {
            "reports": [],
            "pagination": {"total": 0, "limit": 20, "offset": 0, "has_more": False},
        }
        store.add_evalguard_reports(SOME)

        assert numbers(api.get("/reports")) == [4, 3, 2, 1]
        page = api.get("/reports", limit=2, offset=1)
        assert numbers(page) == [3, 2]
        assert page["pagination"] == {"total": 4, "limit": 2, "offset": 1, "has_more": True}
        assert api.get("/reports", limit=2, offset=2)["pagination"]["has_more"] is False
        beyond = api.get("/reports", offset=2147483647)
        assert (beyond["reports"], beyond["pagination"]["total"]) == ([], 4)

    @pytest.mark.parametrize(("filters", "expected"), [
        ({"model_name": "other"}, [2]),
        ({"model_name": "org/model"}, [3, 1]),
        ({"model_name": "org"}, []),
        ({"model_name": "ORG/MODEL"}, []),
        ({"model_name": "org/model", "model_source": "hf"}, [1]),
        ({"model_source": "local"}, [3]),
        ({"task_ref": "qa"}, [4, 2, 1]),
        ({"task_ref": "bias"}, [3, 1]),
        ({"metric": "acc"}, [3, 1]),
        ({"task_ref": "qa", "metric": "acc"}, [1]),
        ({"task_ref": "qa", "metric": "pct"}, []),
        ({"task_ref": "bias", "metric": "acc", "model_source": "local"}, [3]),
        ({"task_ref": "%"}, []),
        ({"task_ref": ""}, []),
        ({"model_name": "' OR 1=1 --"}, []),
    ])  # fmt: skip
    def test_every_filter_holds_by_get_and_by_post(
        self, api: Client, store: Store, filters: dict[str, str], expected: list[int]
    ) -> None:
        store.add_evalguard_reports(SOME)
        found = api.get("/reports", **filters)
        assert numbers(found) == expected
        assert found["pagination"]["total"] == len(expected)
        assert api.post(json=filters) == found
        assert numbers(api.post(json={**filters, "limit": 1, "offset": 1})) == expected[1:2]

    def test_texts_beyond_ascii_are_found_and_sent(self, api: Client, store: Store) -> None:
        name = 'modèle "\\u00e9" 🦙'
        store.add_evalguard_reports([report(1, model=name, tâche={"acc": 0.5})])
        assert numbers(api.get("/reports", model_name=name, task_ref="tâche")) == [1]
        assert api.get("/models")["models"] == [{"model_name": name, "model_source": "hf"}]

    def test_metadata_that_json_has_no_words_for_are_sent(self, api: Client, store: Store) -> None:
        odd = report(1)
        odd.report["metadata"] = {"nan": float("nan"), "half": "\ud800", "nul": ["\0", float("inf")]}
        store.add_evalguard_reports([odd])
        assert api.get(f"/reports/{odd.id}")["metadata"] == {"nan": None, "half": "\ud800", "nul": ["\0", None]}

    def test_a_very_long_task_is_found_by_none_but_itself(self, api: Client, store: Store) -> None:
        long = "é" * 999
        store.add_evalguard_reports([report(1, named={long: {"m" * 5000: 0.5}}), report(2, named={f"{long}x": {}})])
        assert numbers(api.get("/reports", task_ref=long)) == [1]
        (metric,) = api.get(f"/reports/{1:064x}/metrics")["metrics"]
        assert (metric["metric"], metric["value"]) == ("m" * 5000, 0.5)


class TestOneReport:
    def test_a_report_is_found_by_the_id_that_it_is_listed_under(self, api: Client, store: Store) -> None:
        store.add_evalguard_reports(SOME)
        for listed in api.get("/reports")["reports"]:
            assert api.get(f"/reports/{listed['id']}") == listed

    def test_its_own_id_finds_it_while_no_other_has_the_same(self, api: Client, store: Store) -> None:
        store.add_evalguard_reports([report(1, own="mine")])
        found = api.get("/reports/mine")
        assert (found["id"], found["metadata"]) == (f"{1:064x}", {"report_id": "mine"})
        store.add_evalguard_reports([report(2, own="mine")])
        error = api.get("/reports/mine", 404)["error"]
        assert error["message"] == "Several reports call themselves 'mine': name the one by its id in the list."

    @pytest.mark.parametrize("name", ["nothing", "0" * 63, "%00", "%ED%A0%80", "%F0%9F%A6%99", "x" * 5000, "..%5C"])
    @pytest.mark.parametrize("rest", ["", "/metrics"])
    def test_what_is_not_there_is_not_found(self, api: Client, store: Store, name: str, rest: str) -> None:
        store.add_evalguard_reports(SOME)
        assert api.get(f"/reports/{name}{rest}", 404)["error"]["code"] == "not_found"

    def test_metrics_come_with_their_tasks_and_standard_errors(self, api: Client, store: Store) -> None:
        one = report(1, qa={"acc": 0.5, "f1": 1}, bias={"acc": 0.25}, none={})
        one.report["results"][0]["acc"]["stderr"] = 0.125
        store.add_evalguard_reports([one])
        assert api.get(f"/reports/{one.id}/metrics") == {
            "report_id": one.id,
            "metrics": [
                {"task_ref": "qa", "metric": "acc", "value": 0.5, "stderr": 0.125},
                {"task_ref": "qa", "metric": "f1", "value": 1},
                {"task_ref": "bias", "metric": "acc", "value": 0.25},
            ],
        }


def metric(name: str, value: float | None, completed: int = 40) -> dict[str, Any]:
    known = {} if value is None else {"value": value, "stderr": 0.0625}
    return {"id": name, **known, "n_expected": 40, "n_completed": completed}


def add_run(store: Store, run_id: str, task: str | None = "refund_desk") -> None:
    suite = {"name": "refunds", "target": {"http": {"url": "https://me:swordfish@bot.example.org/"}}}
    new = NewRun(run_id, "refunds", suite | ({"task": task} if task else {}), "suite.yaml", 1)
    store.create_run(new, [TestCase(id="a", input="?")])


def finish(store: Store, run_id: str, value: float) -> None:
    store.acquire_lease(run_id, "me", 60)
    metrics = [metric("acc", value), metric("style", None, 38)]
    verdict = {"gate": "low is the worst allowed", "thresholds_digest": "d" * 64}
    store.finish(run_id, "me", "completed", outcome="fail", metrics=metrics, verdict=verdict)


class TestRuns:
    def test_a_run_with_a_task_is_listed_once_it_has_its_verdict(self, api: Client, store: Store) -> None:
        store.add_evalguard_reports(SOME)
        for run_id, task in (("b" * 32, None), ("a" * 32, "refund_desk")):
            add_run(store, run_id, task)
            assert numbers(api.get("/reports")) == [4, 3, 2, 1]
            finish(store, run_id, 0.75)

        (found,) = api.get("/reports", task_ref="refund_desk", metric="acc")["reports"]
        assert found == api.get(f"/reports/{'a' * 32}")
        assert (found["id"], found["metadata"]["outcome"]) == ("a" * 32, "fail")
        assert found["context"]["model_name"] == "https://***@bot.example.org/"
        assert numbers(api.get("/reports", model_source="http")) == [int("a" * 32, 16)]
        assert api.get("/reports", metric="style")["reports"] == []
        assert api.get(f"/reports/{'a' * 32}/metrics")["metrics"] == [
            {"task_ref": "refund_desk", "metric": "acc", "value": 0.75, "stderr": 0.0625}
        ]
        assert {"model_name": "https://***@bot.example.org/", "model_source": "http"} in api.get("/models")["models"]
        assert api.get("/reports")["pagination"]["total"] == 5

    def test_a_run_that_goes_on_has_no_report_until_its_next_verdict(self, api: Client, store: Store) -> None:
        add_run(store, "a" * 32)
        finish(store, "a" * 32, 0.5)
        (former,) = api.get("/reports")["reports"]
        store.acquire_lease("a" * 32, "me", 60)
        assert api.get("/reports")["reports"] == []
        api.get(f"/reports/{'a' * 32}", 404)
        finish(store, "a" * 32, 0.75)
        (later,) = api.get("/reports")["reports"]
        assert (former["results"][0]["acc"]["value"], later["results"][0]["acc"]["value"]) == (0.5, 0.75)

    def test_requests_at_once_find_each_run_once(self, api: Client, store: Store) -> None:
        for number in range(60):
            add_run(store, f"{number:032x}")
            finish(store, f"{number:032x}", 0.5)
        with ThreadPoolExecutor(8) as threads:
            pages = list(threads.map(lambda _: api.get("/reports", limit=100), range(8)))
        assert pages == [pages[0]] * 8
        assert sorted(numbers(pages[0])) == list(range(60))

    def test_reports_of_runs_are_no_imported_ones(self, api: Client, store: Store) -> None:
        add_run(store, "a" * 32)
        finish(store, "a" * 32, 0.5)
        assert api.get("/reports")["pagination"]["total"] == 1
        assert store.evalguard_reports() == []

    def test_a_run_whose_report_would_not_be_valid_is_left_out_and_the_log_says_so(
        self, api: Client, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        add_run(store, "a" * 32)
        store.acquire_lease("a" * 32, "me", 60)
        store.finish("a" * 32, "me", "completed", outcome="pass", metrics=[metric("no identifier", 0.5)], verdict={})
        assert api.get("/reports")["reports"] == []
        assert f"run {'a' * 32} has no report: is not an identifier" in caplog.text


class TestModels:
    def test_each_model_of_each_source_is_there_once_by_name(self, api: Client, store: Store) -> None:
        store.add_evalguard_reports([*SOME, report(5), report(6, source=None), report(7, model="Other")])
        models = [
            {"model_name": "Other", "model_source": "hf"},
            {"model_name": "org/model"},
            {"model_name": "org/model", "model_source": "hf"},
            {"model_name": "org/model", "model_source": "local"},
            {"model_name": "other", "model_source": "hf"},
        ]
        assert api.get("/models")["models"] == models
        page = api.get("/models", limit=2, offset=2)
        assert page["models"] == models[2:4]
        assert page["pagination"] == {"total": 5, "limit": 2, "offset": 2, "has_more": True}
        assert api.get("/models", model_source="local")["models"] == [models[3]]


class TestCatalogue:
    def test_tasks_and_thresholds_are_those_of_the_files(self, api: Client) -> None:
        tasks = api.get("/tasks")
        assert [task["id"] for task in tasks["tasks"]] == ["refund_desk"]
        assert tasks["pagination"]["total"] == 1
        (found,) = api.get("/thresholds", tasks="refund_desk,unknown,refund_desk")["thresholds"]
        file = DEMO / "thresholds" / "refund_desk.yaml"
        assert found == parse_yaml(file.read_text(encoding="utf-8"), "refund_desk.yaml")
        (some,) = api.get("/thresholds", tasks="refund_desk", metrics="unknown,acc")["thresholds"]
        assert some == {"task": "refund_desk", "thresholds": {"acc": found["thresholds"]["acc"]}}
        assert api.get("/thresholds", tasks="refund_desk", metrics="unknown") == {"thresholds": []}
        assert api.get("/thresholds", tasks="unknown") == {"thresholds": []}

    def test_without_a_folder_there_are_no_definitions(self, serve: Serve) -> None:
        api = serve(None)
        assert api.get("/tasks")["tasks"] == []
        assert api.get("/thresholds", tasks="refund_desk") == {"thresholds": []}

    def test_a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing(
        self, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        shutil.copytree(DEMO, folder := tmp_path / "definitions")
        api, file = serve(folder), folder / "tasks" / "refund_desk.yaml"
        before = api.get("/tasks")
        text = file.read_text(encoding="utf-8")
        for broken in ("id: [", "id: refund_desk\n", f"{text}\nunknown: 1\n", text.replace("- acc", "- not_there")):
            file.write_text(broken, encoding="utf-8")
            assert api.get("/tasks") == before
            assert f"{file}:" in caplog.text
            assert "those read before are served" in caplog.text
            caplog.clear()
            assert api.get("/tasks") == before
            assert caplog.text == ""
        file.write_text(text.replace("- en", "- fr"), encoding="utf-8")
        (after,) = api.get("/tasks")["tasks"]
        assert after == {**before["tasks"][0], "languages": ["fr"]}
        (folder / "tasks" / "more.yaml").write_text("id: more\nname: More\nmetrics: []\n", encoding="utf-8")
        assert [task["id"] for task in api.get("/tasks")["tasks"]] == ["more", "refund_desk"]

    @pytest.mark.parametrize("content", [None, {}, {"tasks/a.yaml": "id: a\n"}, {"tasks/a.txt": ""}])
    def test_definitions_that_never_could_be_read_are_a_503_and_reports_are_there(
        self, serve: Serve, tmp_path: Path, content: dict[str, str] | None
    ) -> None:
        folder = tmp_path / "definitions"
        for name, text in (content or {}).items():
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(text)
        api = serve(folder)
        for path, parameters in (("/tasks", {}), ("/thresholds", {"tasks": "a"})):
            error = api.get(path, 503, **parameters)["error"]
            assert error["code"] == "unavailable"
            assert "cannot be read: the log of the server says why" in error["message"]
        assert api.get("/reports")["reports"] == []
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DEMO, folder)
        assert len(api.get("/tasks")["tasks"]) == 1


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
    "limit=5&limit=5": "The parameter 'limit' stands twice",
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


def resolved(node: Any, base: str) -> Any:
    """A part of the contract, with what it refers to in its place."""
    if isinstance(node, list):
        return [resolved(item, base) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        file, _, pointer = node["$ref"].partition("#")
        found = REGISTRY.resolver(file or base).lookup(f"{file or base}#{pointer}")
        return resolved(found.contents, file or base)
    return {name: resolved(item, base) for name, item in node.items() if name not in ("$schema", "$id", "$defs")}


class TestContract:
    def test_what_is_served_is_described_as_in_the_schema(self, api: Client) -> None:
        served = api.http.get("/openapi.json").json()
        assert served["openapi"] == API["openapi"]
        paths = {path.removeprefix("/v1"): methods for path, methods in served["paths"].items()}
        assert {path: set(methods) for path, methods in paths.items()} == {
            path: set(methods) for path, methods in API["paths"].items()
        }
        for path, methods in API["paths"].items():
            for method, operation in methods.items():
                assert paths[path][method] == resolved(operation, "api.schema.yaml"), (path, method)

    def test_its_defaults_are_those_that_answers_have(self, api: Client) -> None:
        for page in (api.get("/reports"), api.post(json={}), api.get("/models"), api.get("/tasks")):
            assert (page["pagination"]["limit"], page["pagination"]["offset"]) == (20, 0)


@pytest.fixture
def real() -> Path:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder or not (Path(folder) / "evalguard").is_dir():
        pytest.skip("no FEPFLOW_TEST_DATA with EvalGuard's own files")
    return Path(folder) / "evalguard"


def test_the_definitions_and_reports_of_evalguard_itself_are_served(serve: Serve, store: Store, real: Path) -> None:
    api = serve(real / "config")
    imported = import_reports(store, [real / "reports"], lambda path, warnings: None)
    assert (imported.added, imported.bad) == (4, [])

    assert api.get("/tasks", limit=100)["pagination"]["total"] == 33
    assert api.get("/tasks", limit=10, offset=30)["pagination"]["has_more"] is False
    (truthful, crows) = api.get("/thresholds", tasks="truthfulqa_mc1,crows_pairs_english,bbq")["thresholds"]
    assert set(truthful["thresholds"]) == {"acc", "acc_norm"}
    assert crows["task"] == "crows_pairs_english"
    assert api.get("/models")["pagination"]["total"] == 4
    listed = api.get("/reports", task_ref="truthfulqa_mc1", metric="acc")["reports"]
    assert listed
    for each in listed:
        metrics = api.get(f"/reports/{each['id']}/metrics")["metrics"]
        assert [one for one in metrics if (one["task_ref"], one["metric"]) == ("truthfulqa_mc1", "acc")]
        (same,) = api.get("/reports", model_name=each["context"]["model_name"])["reports"]
        assert same == each
    assert api.get("/reports", task_ref="truthfulqa_mc1", metric="acc_norm")["reports"] == []
