"""promptfoo's templates (nunjucks): those that only name variables can be filled in, or become placeholders of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from fepflow.json.values import map_leaves, texts_in

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*"
_PLACEHOLDER = re.compile(rf"\{{\{{-?\s*({_NAME})(\s*\|\s*(?:dump|safe|tojson))?\s*-?\}}\}}")
_OTHER = re.compile(r"\{\{|\{%|\{#")


class LogicError(ValueError):
    """A template with filters, conditions, loops or the environment, which only nunjucks can fill in."""


def has_template(value: Any) -> bool:
    """Return whether a text, or a text inside of a value, is a template."""
    return any(_OTHER.search(text) for _, text in texts_in(value))


def fill_in(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value whose texts are filled in, as promptfoo fills them in before a test. Raises LogicError."""
    return map_leaves(value, partial(_filled_in, variables=variables))


def _filled_in(value: Any, variables: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or not _OTHER.search(value):
        return value
    _require_plain(value)
    return _PLACEHOLDER.sub(lambda match: _text(_look_up(match[1], variables), match[2] or ""), value)


def placeholders(text: str) -> str:
    """Return a template with placeholders of ours, over the input of a test case. Raises LogicError."""
    _require_plain(text)
    return _PLACEHOLDER.sub(lambda match: f"{{{{$.test_case.input.{match[1]}}}}}", text)


def without_logic(text: str) -> str:
    """Return a template with its placeholders, and with [[ ]] around whatever else nunjucks reads."""
    plain, names = _PLACEHOLDER.split(text)[::3], _PLACEHOLDER.findall(text)
    parts = [part.replace("{{", "[[").replace("}}", "]]") for part in plain]
    return parts[0] + "".join(
        f"{{{{$.test_case.input.{name}}}}}{part}" for (name, _), part in zip(names, parts[1:], strict=True)
    )


def _require_plain(text: str) -> None:
    rest = _PLACEHOLDER.sub("", text)
    if _OTHER.search(rest) or any(match[1].startswith("env.") for match in _PLACEHOLDER.finditer(text)):
        raise LogicError("it is a template with logic, filters or the environment")


def _look_up(name: str, variables: Mapping[str, Any]) -> Any:
    value: Any = variables
    for step in re.findall(r"\w+", name):
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _text(value: Any, filtered: str) -> str:
    """Return a value as nunjucks prints it: nothing for what is missing, JSON with a filter. Raises LogicError."""
    if "dump" in filtered or "tojson" in filtered:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if not isinstance(value, str):
        raise LogicError("a list or an object stands inside of a text")
    return value


def number_text(value: float) -> str:
    """Return a number as JavaScript prints it: 5.0 is 5. Raises LogicError for one that is too large or too small."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if abs(value) > 2**53 or not (text := str(value)).removeprefix("-").replace(".", "").isdecimal():
        raise LogicError(f"JavaScript prints the number {value:.17g} in another way")
    return text
