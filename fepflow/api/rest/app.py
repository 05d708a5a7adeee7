"""The application of all REST interfaces, and the document that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from fepflow.api.rest.fep import COMPONENTS
from fepflow.api.rest.http import Errors
from fepflow.api.rest.middleware import HeadAsGet

TITLE = "fepflow"
DESCRIPTION = "Evaluations of AI agents: the Flexible Evaluation Protocol, the Evaluations contract and EvalGuard."


def create_app(routers: Sequence[APIRouter], errors: Errors, paths: Mapping[str, Any] | None = None) -> FastAPI:
    """Return the application. Its document is at /openapi.json; there is no page for it, which would load foreign
    scripts.

    `paths` are operations in the document besides those of the routes.
    """
    app = FastAPI(title=TITLE, version=version("fepflow"), docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    errors.install(app)
    app.add_middleware(HeadAsGet)
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        document.update(document or _document(app, paths or {}))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way of doing it
    return app


def _document(app: FastAPI, paths: Mapping[str, Any]) -> dict[str, Any]:
    document = get_openapi(title=TITLE, version=app.version, description=DESCRIPTION, routes=app.routes)
    _, schemas = models_json_schema(
        [(model, "validation") for model in COMPONENTS], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    components["schemas"] = {**schemas["$defs"], **components.get("schemas", {})}
    for name in ("HTTPValidationError", "ValidationError"):  # nothing answers 422
        components["schemas"].pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    components["securitySchemes"] = {
        "BearerAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "ApiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["paths"].update(paths)
    document["security"] = [{"BearerAuth": []}, {"ApiKeyAuth": []}]
    if "/v1/health" in document["paths"]:
        document["paths"]["/v1/health"]["get"]["security"] = []
    return document
