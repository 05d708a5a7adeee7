"""EvalGuard's API schema: what its operations say in our OpenAPI document, and requests held against it."""

from __future__ import annotations

from functools import cache
from typing import Any

from fepflow.documents.loader import read_document
from fepflow.evalguard.documents import schema_path


def operation(path: str, method: str) -> dict[str, Any]:
    """An operation of the schema, with everything that it refers to in its place."""
    found: dict[str, Any] = _inlined(_document("api.schema.yaml")["paths"][path][method], "api.schema.yaml")
    return found


@cache
def _document(name: str) -> Any:
    return read_document(schema_path(name.removesuffix(".schema.yaml")), name).data


def _inlined(node: Any, file: str) -> Any:
    """A part of a file without references, and without what names a schema as a document of its own."""
    if isinstance(node, list):
        return [_inlined(item, file) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(ref := node.get("$ref"), str):
        name, _, pointer = ref.partition("#")
        target = _document(name or file)
        for step in pointer.split("/")[1:]:
            target = target[step]
        return _inlined(target, name or file)
    return {key: _inlined(value, file) for key, value in node.items() if key not in ("$schema", "$id", "$defs")}
