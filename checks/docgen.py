"""The reference of check types: purpose, arguments, an example.

`python -m fepflow.checks.docgen docs/checks.md` writes the reference into that page, between its two marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from inspect import getdoc
from pathlib import Path
from textwrap import indent
from typing import Any

from pydantic_core import PydanticUndefined
from ruamel.yaml import YAML

from fepflow.checks.base import BaseAsyncCheck, BaseCheck, JSONPath, Options
from fepflow.checks.models.judge_check import JudgeCheck
from fepflow.checks.registry import CHECKS, find_check, our_checks
from fepflow.checks.schemas import check_schema

BEGIN = "<!-- The reference begins; `python -m fepflow.checks.docgen docs/checks.md` writes it. -->\n"
END = "<!-- The reference ends. -->\n"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a check type; `default` is in a suite's form, None for a required argument."""

    name: str
    kind: str
    default: str | None
    description: str


def purpose_of(check_class: type[BaseCheck]) -> str:
    """Return the docstring of a class; empty if it has none."""
    words = getdoc(check_class) or ""
    return "" if words in (getdoc(BaseCheck), getdoc(BaseAsyncCheck)) else words


def summary_of(check_class: type[BaseCheck]) -> str:
    """Return the first sentence of its purpose."""
    return purpose_of(check_class).partition("\n")[0].partition(" Results:")[0]


def arguments_of(check_type: str, version: str | None = None) -> list[Argument]:
    """Return the arguments of a check type, required ones first. Raises CheckArgumentsError for an unknown type or
    version.
    """
    check_class = find_check(check_type, version)
    properties = check_schema(check_type, version)["properties"]["arguments"].get("properties", {})
    arguments = []
    for field, info in check_class.model_fields.items():
        name = info.alias or field
        default = None if info.is_required() else _shown(info.get_default(call_default_factory=True))
        kind = _kind(properties[name]) if name in properties else "function"
        arguments.append(Argument(name, kind, default, info.description or ""))
    inherited = [info.alias or field for field, info in JudgeCheck.model_fields.items()]
    last = inherited if issubclass(check_class, JudgeCheck) else []
    return sorted(arguments, key=lambda argument: (argument.default is not None, argument.name in last))


def _shown(default: Any) -> str:
    if default is None or default is PydanticUndefined:
        return "none"
    if isinstance(default, JSONPath):
        return f"`{default.expression}`"
    return json.dumps({} if isinstance(default, Options) else default, default=str)


def _kind(schema: dict[str, Any]) -> str:
    """Return the allowed types of a schema in words, without the path that is always allowed."""
    kinds = {word: None for branch in schema.get("anyOf", [schema]) for word in _words(branch)}
    if "number" in kinds:
        kinds.pop("whole number", None)
    return " or ".join(kinds) or "path"


def _words(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield from (f"`{value}`" for value in schema["enum"])
    elif "$ref" in schema:
        yield "object"
    elif schema.get("type") == "array":
        inner = schema.get("items", {}).get("type")
        yield {"string": "list of texts", "object": "list of objects"}.get(inner, "list")
    elif "pattern" not in schema and schema.get("type") != "null":
        names = {"string": "text", "boolean": "true or false", "integer": "whole number"}
        kind = schema.get("type", "any value")
        yield names.get(kind, kind)


@cache
def examples() -> dict[str, Any]:
    """Return an example of each of our check types: see examples.yaml."""
    text = files("fepflow.checks").joinpath("examples.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe").load(text))


def reference() -> str:
    """Return a section of Markdown for each of our check types."""
    return "\n".join(_section(name, our_checks(name)[-1]) for name in CHECKS)


def _section(name: str, check_class: type[BaseCheck]) -> str:
    lines = [
        f"## {name}",
        "",
        purpose_of(check_class),
        "",
        "| argument | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for argument in arguments_of(name):
        default = "required" if argument.default is None else argument.default
        lines.append(f"| `{argument.name}` | {argument.kind} | {default} | {argument.description} |")
    return "\n".join([*lines, "", *_example(examples()[name]), ""])


def _example(example: dict[str, Any]) -> Iterator[str]:
    if "suite" in example:
        yield f"In a suite:\n\n```yaml\n{example['suite']}```\n"
    expected = f" and the expected value `{json.dumps(example['expected'])}`" if "expected" in example else ""
    yield f"Example, with the output `{json.dumps(example['output'])}`{expected}:"
    yield ""
    if "check" in example:
        yield f"```yaml\nchecks:\n  - {indent(example['check'], '    ').lstrip()}```"
    else:
        yield f"```python\n{example['python']}```"
    yield ""
    yield f"Result: `{json.dumps(example['results'])}`."
    yield ""
    about = f"The output `{json.dumps(example['failing'])}` fails" if "failing" in example else "It fails"
    yield f"{about}: `{example['says']}`."


def rewritten(page: str) -> str:
    """Return the page with the present reference between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
