"""Graders of a manifest as checks of one step of an output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fepflow.documents.document_path import DocumentPath
from fepflow.jsonpath.path import is_path, unescape
from fepflow.manifest.models import Grader
from fepflow.manifest.parts import PartsReader

DEFAULT_JUDGE = "openai/gpt-4o-mini"
"""The model that judges where ECP_LLM_JUDGE_MODEL names none: the one of the reference runtime."""

_USED = {
    "text_match": ("type", "field", "condition", "value", "pattern"),
    "llm_judge": ("type", "field", "prompt"),
    "tool_usage": ("type", "tool_name", "arguments"),
}
_OLD_BOOLEANS = {"yes", "no", "on", "off"}
_OLDER_NAMES = {"tool": "tool_name", "args": "arguments"}
_PLACEHOLDER = re.compile(r"\{\{\s*\$\.")

_QUESTION = """\
Does the answer of an agent satisfy these criteria?

{criteria}

The answer is: {{{{{path}}}}}

Say in `reason`, in a sentence or two, why; then in `passed` whether it satisfies all of the criteria."""

_VERDICT = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "passed": {"type": "boolean"}},
    "required": ["reason", "passed"],
    "additionalProperties": False,
}


def checks_of_step(
    reader: PartsReader, graders: Sequence[Any], index: int, path: DocumentPath
) -> list[tuple[dict[str, Any], int]]:
    """The checks of the step with this index, from 0, each with the number of its grader, from 0, in those at `path`.

    A grader that is not valid has none, but an error.
    """
    found = []
    types: Counter[str] = Counter()
    for number, given in enumerate(graders):
        location = (*path, number)
        grader = reader.fields(Grader, _with_newer_names(reader, given), location)
        kind = grader.get("type")
        arguments = _arguments(reader, grader, f"$.output.value.steps[{index}]", location) if kind else None
        if kind is None or arguments is None:
            continue
        _note_unused(reader, given, kind, location)
        for name in ("arguments", "args"):
            _note_old_booleans(reader, given.get(name), (*location, name))
        types[kind] += 1
        found.append((_check(kind, index, types[kind], arguments), number))
    return found


def _check(kind: str, index: int, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    name = f"step-{index + 1}-{kind}"
    return {"id": name if number == 1 else f"{name}-{number}", "type": kind, "arguments": arguments}


def equals_check(index: int, value: str) -> dict[str, Any]:
    """The check that the step with this index said just that; raises ValueError as `literal` does."""
    text = f"$.output.value.steps[{index}].public_output"
    return _check("text_match", index, 1, {"text": text, "condition": "equals", "value": literal(value)})


def _with_newer_names(reader: PartsReader, given: Any) -> Any:
    if not reader.is_lenient or not isinstance(given, dict):
        return given
    return {
        _OLDER_NAMES.get(name, name) if _OLDER_NAMES.get(name) not in given else name: given[name] for name in given
    }


def _note_unused(reader: PartsReader, given: Any, kind: str, location: DocumentPath) -> None:
    for name, value in given.items():
        if name in Grader.model_fields and name not in _USED[kind] and value not in (None, {}):
            reader.warn((*location, name), f"{name} has no meaning in a {kind} grader, and is not looked at")


def _note_old_booleans(reader: PartsReader, value: Any, path: DocumentPath) -> None:
    """YAML 1.1, which ECP's own runtime reads, takes these words for booleans."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _note_old_booleans(reader, item, (*path, key))
    elif isinstance(value, str) and value.lower() in _OLD_BOOLEANS and reader.document.is_plain_text(path):
        message = f"is the text {value!r}, as in YAML 1.2; ECP's own runtime reads a boolean"
        reader.warn(path, message, "write true or false, or put it in quotes")


def _arguments(reader: PartsReader, grader: dict[str, Any], step: str, location: DocumentPath) -> dict[str, Any] | None:
    """The arguments of its check; None, with an error, for a grader that lacks something."""
    make = {"text_match": _text_match, "llm_judge": _llm_judge, "tool_usage": _tool_usage}[grader["type"]]
    try:
        return make(grader, f"{step}.{grader.get('field')}", step) if _is_whole(grader) else None
    except _LackingError as error:
        reader.error(location, f"{error} is missing: {grader['type']} needs it", "add it")
    except ValueError as error:
        reader.error(location, str(error))
    return None


def _is_whole(grader: dict[str, Any]) -> bool:
    """Whether all its fields are valid; what is not has its error already."""
    return len(grader) == len(Grader.model_fields)


class _LackingError(Exception):
    pass


def _needed(grader: dict[str, Any], name: str) -> Any:
    value = grader[name]
    if value is None or (name == "pattern" and not value) or (name == "prompt" and not value.strip()):
        raise _LackingError(name)
    return value


def _text_match(grader: dict[str, Any], text: str, _: str) -> dict[str, Any]:
    condition = _needed(grader, "condition")
    if condition != "regex":
        return {"text": text, "condition": condition, "value": literal(_needed(grader, "value"))}
    pattern = _needed(grader, "pattern")
    # A group of nothing in front keeps it from being taken for a path, or for an escaped one.
    return {"text": text, "condition": condition, "pattern": f"(?:){pattern}" if _is_special(pattern) else pattern}


def _llm_judge(grader: dict[str, Any], text: str, _: str) -> dict[str, Any]:
    criteria = _PLACEHOLDER.sub(r"{{\\$.", _needed(grader, "prompt").strip())
    return {"prompt": _QUESTION.format(criteria=criteria, path=text), "response_format": _VERDICT}


def _tool_usage(grader: dict[str, Any], _: str, step: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"calls": f"{step}.tool_calls"}
    if grader["tool_name"]:
        arguments["name"] = literal(grader["tool_name"])
    if grader["arguments"]:
        arguments["arguments"] = literal(grader["arguments"])
    return arguments


def literal(value: Any) -> Any:
    r"""A JSON value as an argument of a check that means just that; raises ValueError for a text that starts with
    `\$.`, which no argument can say."""
    if isinstance(value, dict):
        return {name: literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    if not isinstance(value, str) or not _is_special(value):
        return value
    if not is_path(value):
        raise ValueError("a text that starts with \\$. cannot be compared (use a regex)")
    return f"\\{value}"


def _is_special(text: str) -> bool:
    return is_path(text) or unescape(text) != text
