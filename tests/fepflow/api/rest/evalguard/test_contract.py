"""EvalGuard's API is what its contract says."""

from __future__ import annotations

from typing import Any

from tests.fepflow.api.rest.evalguard.conftest import API, REGISTRY, Client


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
