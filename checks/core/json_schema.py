"""JSON Schemas among arguments: read, and applied. The library behind them is loaded when one is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator

from fepflow.json.limits import is_small
from fepflow.json.parser import parse

if TYPE_CHECKING:
    from fepflow.checks.core.json_schema_2020 import CompiledSchema

_SIZES = (10, 100, 1_000)
_QUICK_NODES = _SIZES[-1]
_QUICK_CHARACTERS = 4_000


def read_schema(value: Any) -> Any:
    """A schema as an object: one is given as it is, as JSON text, or as a pydantic model class. Raises ValueError."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        value = value.model_json_schema()
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError as error:
            raise ValueError(f"must be a JSON Schema: this text is not valid JSON: {error}") from None
    if isinstance(value, dict):
        _compiled(value)
    return value


if TYPE_CHECKING:
    Schema = Mapping[str, Any] | str | type[BaseModel]
else:
    Schema = Annotated[dict[str, Any], BeforeValidator(read_schema, json_schema_input_type=dict[str, Any] | str)]
"""What `read_schema` takes; the field holds the object."""


def is_quick(schema: dict[str, Any], data: Any) -> bool:
    """Whether applying the schema to this data is bound to take milliseconds."""
    if not is_small(data, _QUICK_NODES, _QUICK_CHARACTERS):
        return False
    compiled = _compiled(schema)
    if isinstance(data, str):  # it is JSON; a value in it has a comma, a bracket or a colon
        nodes = 1 + sum(map(data.count, ",[{:"))
    else:
        nodes = next(nodes for nodes in _SIZES if is_small(data, nodes))
    return compiled.is_quick_for(nodes) and compiled.is_quick_up_to(_QUICK_CHARACTERS)


def schema_errors(schema: dict[str, Any], data: Any) -> list[str]:
    """What of the data is not as the schema has it, `place: message` each, the first 20; they may quote the data.

    Raises CheckArgumentsError for a schema that cannot be followed, CheckTimeoutError after a second.
    """
    return _compiled(schema).errors(data)


def _compiled(schema: dict[str, Any]) -> CompiledSchema:
    from fepflow.checks.core.json_schema_2020 import compile_schema

    return compile_schema(json.dumps(schema, default=repr))
