"""EvalGuard's API on a socket: each answer is held against its schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from starlette.types import ASGIApp

from fepflow.api.rest.evalguard import Catalogue, evalguard_error, evalguard_router, operations
from fepflow.api.rest.http import Errors, create_app
from fepflow.documents.loader import parse_document
from fepflow.evalguard.documents import SCHEMAS, schema_path, schema_text
from fepflow.protocol.model import utc_now
from fepflow.store.records import StoredReport
from fepflow.store.store import Store
from tests.fepflow.api.rest.conftest import served_by

DOCUMENTS: dict[str, Any] = {schema_path(name).name: parse_document(schema_text(name), name).data for name in SCHEMAS}
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, DRAFT202012.create_resource(document)) for name, document in DOCUMENTS.items()
)
API = DOCUMENTS["api.schema.yaml"]
DEMO = Path(__file__).parents[5] / "deployments" / "suites" / "demo"
NOW = utc_now()


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


@contextmanager
def served(store: Store, folder: Path | None) -> Iterator[Client]:
    """Serve the API, with the definitions of a folder."""

    @asynccontextmanager
    async def evalguard() -> AsyncIterator[ASGIApp]:
        yield create_app([evalguard_router(Catalogue(folder), store)], Errors({"/v1": evalguard_error}), operations())

    with served_by(evalguard) as http:
        yield Client(http)


@pytest.fixture
def serve(store: Store) -> Iterator[Serve]:
    with ExitStack() as running:
        yield lambda folder: running.enter_context(served(store, folder))


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
