"""The JSON Schemas of EvalGuard's documents (EvalGuard 4 and 6), and the description of its API (4.5), as files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

SchemaName = Literal["task", "metric", "threshold", "report", "api"]
SCHEMAS: tuple[str, ...] = get_args(SchemaName)

_FOLDER = Path(__file__).parent / "schemas" / "v1"


def schema_text(name: str) -> str:
    """A schema as YAML; `name` is one of SCHEMAS."""
    return schema_path(name).read_text(encoding="utf-8")


def schema_path(name: str) -> Path:
    """Its file, named as 6.2 has it."""
    return _FOLDER / f"{name}.schema.yaml"
