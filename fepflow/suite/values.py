"""What the sections of a suite file are made of: durations, sizes, paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import compile_path
from fepflow.jsonpath.template import compile_template
from fepflow.text import seconds

LIMIT_NAME = "[^/%&<>]+"
"""What Prefect takes as the name of a global limit."""


def _size(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*(kB|KB|MB|GB)", value.strip())
        if not match:
            raise ValueError("a size reads like 500kB or 10MB")
        return int(match[1]) * {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}[match[2][0]]
    return value


def _path(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("$"):
        raise ValueError(f"a JSONPath starts with $: did you mean $.{value.lstrip('.')}?")
    if isinstance(value, str):
        _refuse_invalid_paths(lambda: compile_path(value))
    return value


def _refuse_invalid_paths(compile: Callable[[], object]) -> None:
    try:
        compile()
    except JSONPathError as error:
        raise ValueError(str(error)) from None


def checked_template(value: Any) -> Any:
    """The value, which is refused if a path in it is not valid."""
    _refuse_invalid_paths(lambda: compile_template(value))
    return value


Duration = Annotated[
    float,
    BeforeValidator(seconds, json_schema_input_type=float | str),
    Field(gt=0, description="Seconds, or a text such as 500ms, 30s, 2m, 1h, 7d."),
]
ByteSize = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str), Field(gt=0)]
JSONPathText = Annotated[str, BeforeValidator(_path), Field(description="A JSONPath, starting with $.")]


Template = Annotated[Any, BeforeValidator(checked_template)]
"""A value with JSONPaths inside, at any depth."""


class Section(BaseModel):
    """A part of the suite file: unknown fields are errors, and values are never shown in errors."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, frozen=True)
