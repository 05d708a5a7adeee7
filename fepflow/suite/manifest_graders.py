"""Graders of a manifest as checks of one step of an output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fepflow.errors import DocumentPath
from fepflow.json.values import map_leaves
from fepflow.jsonpath.path import is_path, unescape
from fepflow.suite.manifest_parts import Grader, PartsReader

DEFAULT_JUDGE = "openai/gpt-4o-mini"
"""The model that judges unless ECP_LLM_JUDGE_MODEL names one: the reference runtime's."""

_USED = {
    "text_match": ("type", "field", "condition", "value", "pattern"),
    "llm_judge": ("type", "field", "prompt"),
    "tool_usage": ("type", "tool_name", "arguments"),
}
_OLDER_NAMES = {"tool": "tool_name", "args": "arguments"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
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


class GraderCheck(NamedTuple):
    """The check of a grader, and the grader's number in its step, from 0.

    A check that `is_faulty` can only end in a validation_error; the grader's own errors are reported already.
    """

    check: dict[str, Any]
    number: int
    is_faulty: bool


def checks_of_step(reader: PartsReader, graders: Sequence[Any], index: int, path: DocumentPath) -> list[GraderCheck]:
    """Return the checks of the step with this index, from 0; its graders are at `path` in the manifest."""
    checks = []
    types: Counter[str] = Counter()
    for number, value in enumerate(graders):
        location = (*path, number)
        grader = reader.fields(Grader, _with_newer_names(reader, value), location, is_confined=True)
        is_faulty = len(grader) < len(Grader.model_fields)
        kind = grader.get("type") or _foreign_type(value)
        arguments: dict[str, Any] | None = {}
        if not is_faulty:
            is_faulty = _tell_what_is_lacking(reader, grader, location)
            arguments = _arguments(reader, grader, f"$.output.value.steps[{index}]", location)
        if arguments is None:
            continue
        if isinstance(value, dict) and kind in _USED:
            _note_unused(reader, value, kind, location)
        types[kind] += 1
        checks.append(GraderCheck(_check(kind, index, types[kind], arguments), number, is_faulty))
    return checks


def _foreign_type(value: Any) -> str:
    """Return a check type that does not exist, so that a grader of an unknown type ends in an error."""
    name = value.get("type") if isinstance(value, dict) else None
    return f"ecp-{name}" if isinstance(name, str) and _NAME.fullmatch(name) else "ecp-grader"


def _check(kind: str, index: int, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    name = f"step-{index + 1}-{kind}"
    return {"id": name if number == 1 else f"{name}-{number}", "type": kind, "arguments": arguments}


def equals_check(index: int, value: str) -> dict[str, Any]:
    """Return the check that the step's answer equals the value. Raises ValueError as `literal` does."""
    text = f"$.output.value.steps[{index}].public_output"
    return _check("text_match", index, 1, {"text": text, "condition": "equals", "value": literal(value)})


def _with_newer_names(reader: PartsReader, value: Any) -> Any:
    if not reader.is_lenient or not isinstance(value, dict):
        return value
    return {
        _OLDER_NAMES.get(name, name) if _OLDER_NAMES.get(name) not in value else name: value[name] for name in value
    }


def _note_unused(reader: PartsReader, grader: dict[str, Any], kind: str, location: DocumentPath) -> None:
    for name, value in grader.items():
        if name in Grader.model_fields and name not in _USED[kind] and value not in (None, {}):
            reader.warn((*location, name), f"{name} is not used by {kind} graders")


def _tell_what_is_lacking(reader: PartsReader, grader: dict[str, Any], location: DocumentPath) -> bool:
    """Report a field that a grader of this type and condition needs but lacks. Return False if it lacks none."""
    needed = "value"
    if grader["type"] == "llm_judge":
        needed = "prompt"
    elif grader["type"] == "tool_usage":
        return False
    elif grader["condition"] in (None, "regex"):
        needed = "condition" if grader["condition"] is None else "pattern"
    value = grader[needed]
    if value is not None and (needed in ("condition", "value") or value.strip() or (needed == "pattern" and value)):
        return False
    message = f"{needed} is missing: {grader['type']} needs it"
    reader.error(location, message, "add it", is_confined=True)
    return True


def _arguments(reader: PartsReader, grader: dict[str, Any], step: str, location: DocumentPath) -> dict[str, Any] | None:
    """Return the arguments of a grader's check; None, with an error, if a value cannot be an argument."""
    make = {"text_match": _text_match, "llm_judge": _llm_judge, "tool_usage": _tool_usage}[grader["type"]]
    try:
        return make(grader, f"{step}.{grader['field']}", step)
    except ValueError as error:
        reader.error(location, str(error))
    return None


def _text_match(grader: dict[str, Any], text: str, _: str) -> dict[str, Any]:
    condition, pattern = grader["condition"], grader["pattern"]
    arguments = {"condition": condition, "value": None if condition == "regex" else literal(grader["value"])}
    if condition == "regex" and pattern:
        # A group of nothing in front keeps it from being taken for a path, or for an escaped one.
        arguments["pattern"] = f"(?:){pattern}" if _is_special(pattern) else pattern
    return {"text": text, **{name: value for name, value in arguments.items() if value is not None}}


def _llm_judge(grader: dict[str, Any], text: str, _: str) -> dict[str, Any]:
    if not (prompt := (grader["prompt"] or "").strip()):
        return {"response_format": _VERDICT}
    criteria = _PLACEHOLDER.sub(r"{{\\$.", prompt)
    return {"prompt": _QUESTION.format(criteria=criteria, path=text), "response_format": _VERDICT}


def _tool_usage(grader: dict[str, Any], _: str, step: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"calls": f"{step}.tool_calls"}
    if grader["tool_name"]:
        arguments["name"] = literal(grader["tool_name"])
    if grader["arguments"]:
        arguments["arguments"] = literal(grader["arguments"])
    return arguments


def literal(value: Any) -> Any:
    r"""Return a JSON value as an argument of a check that is taken literally.

    Raises ValueError for a text that starts with `\$.`, which cannot be an argument.
    """
    return map_leaves(value, _literal)


def _literal(value: Any) -> Any:
    if not isinstance(value, str) or not _is_special(value):
        return value
    if not is_path(value):
        raise ValueError("a text that starts with \\$. cannot be compared (use a regex)")
    return f"\\{value}"


def _is_special(text: str) -> bool:
    return is_path(text) or unescape(text) != text
