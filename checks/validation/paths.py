"""The paths in a check's arguments, and texts that look like paths and are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fepflow.checks.base import BaseCheck
from fepflow.checks.core.arguments import Arguments
from fepflow.checks.registry import find_check, is_ours
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, JSONPathError, ValidationMessage
from fepflow.jsonpath.context_paths import is_word_of_context, meant_path
from fepflow.jsonpath.path import is_path, leading_keys
from fepflow.jsonpath.template import TextTemplate
from fepflow.protocol.check import Check

BRACES_STAY = "placeholders in braces are for prompts of judges; here they stay as they are"
"""The remark on a text with placeholders that nothing fills in."""

_CURE = "write {{{{{}}}}}"
_DOUBLE = re.compile(r"\{\{([^{}]*)\}\}")
_SINGLE = re.compile(r"(?<!\{)\{\s*(\$\.[^{}]*?)\s*\}(?!\})")
_NAKED = re.compile(r"(?<![\w\\{$])(\$\.(?:output|test_case)\b[\w.]*)")
_PLACEHOLDER = re.compile(r"\{\{\s*\\?\$\.[^{}]*\}\}")


@dataclass(frozen=True)
class PathUse:
    """A path in an argument: where in the arguments it stands, and whether it may find nothing.

    `arguments` are those of the check, if the path is one of them as a whole.
    """

    location: DocumentPath
    expression: str
    optional: bool = False
    arguments: Arguments | None = None

    def misfit(self, value: Any) -> ValidationMessage | None:
        """Return why the check cannot take a value that the path finds; None if it can, or if that is not known."""
        return None if self.arguments is None else self.arguments.misfit(str(self.location[0]), value)


@dataclass(frozen=True)
class Remark:
    """A remark on an argument that is valid."""

    location: DocumentPath
    message: str
    advice: str
    is_error: bool = True


def paths_of(check: Check) -> list[PathUse]:
    """All valid paths in a check's arguments; none of a check whose type is not known."""
    check_class = _class_of(check)
    if check_class is None:
        return []
    uses = list(_paths(check_class, check.arguments))
    arguments = _arguments(check_class, check)
    if arguments is None:
        return uses
    return [replace(use, arguments=arguments) if _is_whole(use, check) else use for use in uses]


def _arguments(check_class: type[BaseCheck], check: Check) -> Arguments | None:
    """Return the arguments of a check type of ours; None if they are refused where the check is compiled."""
    try:
        return Arguments(check_class, check.type, check.arguments) if is_ours(check_class) else None
    except FepflowError:
        return None


def _is_whole(use: PathUse, check: Check) -> bool:
    return len(use.location) == 1 and check.arguments[str(use.location[0])] == use.expression and not use.optional


def remarks_on(check: Check) -> Iterator[Remark]:
    """Placeholders that are none, texts that were meant as paths, and a check that does not look at the output."""
    check_class = _class_of(check)
    if check_class is None:
        return
    uses = list(_paths(check_class, check.arguments))
    sees_output = any(leading_keys(use.expression)[:1] in ((), ("output",)) for use in uses)
    found = [
        remark
        for name, value in check.arguments.items()
        for remark in _of_argument(name, value, is_prompt=name in check_class.check_templates, sees_output=sees_output)
    ]
    yield from found
    if any(len(use.location) > 1 for use in uses):
        yield from _wrong_containers(check_class, check)
    if sees_output or any(remark.is_error for remark in found) or not is_ours(check_class):
        return
    if check_class.check_templates:
        message = "the judge is shown nothing of the output, so it cannot judge it"
        advice = "put {{$.output.value}} where the answer is to stand"
        if isinstance(check.arguments.get("prompt"), str):
            yield Remark(("prompt",), message, advice)
    elif check_class.check_type != "custom_function":
        message = "no argument reads the output, so the result does not depend on the answer"
        yield Remark((), message, "a path such as $.output.value reads it", is_error=False)


def _wrong_containers(check_class: type[BaseCheck], check: Check) -> Iterator[Remark]:
    """Find lists and objects, with paths inside, where the check takes neither, whatever the paths find."""
    arguments = _arguments(check_class, check)
    for name, value in check.arguments.items():
        if arguments is not None and isinstance(value, list | dict):
            misfit = arguments.misfit(name, value)
            if misfit is not None and misfit.path == (name,) and misfit.message.endswith(("a list", "an object")):
                yield Remark((name,), misfit.message, "write the path alone")


def _class_of(check: Check) -> type[BaseCheck] | None:
    try:
        return find_check(check.type, check.version)
    except CheckArgumentsError:
        return None


def _paths(check_class: type[BaseCheck], arguments: dict[str, Any]) -> Iterator[PathUse]:
    for name, value in arguments.items():
        if name in check_class.check_templates and isinstance(value, str) and not is_path(value):
            yield from (PathUse((name,), expression) for expression in _placeholders(value))
        else:
            optional = name in check_class.check_optional_paths
            yield from (
                PathUse(location, text, optional) for location, text in texts_in(value, (name,)) if is_path(text)
            )


def _placeholders(prompt: str) -> list[str]:
    try:
        return TextTemplate(prompt).paths
    except JSONPathError:
        return []  # reported where the check is compiled


def texts_in(value: Any, location: DocumentPath) -> Iterator[tuple[DocumentPath, str]]:
    """All texts of a JSON value, but for keys, with their places."""
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_in(item, (*location, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_in(item, (*location, index))


def _of_argument(name: str, value: Any, *, is_prompt: bool, sees_output: bool) -> Iterator[Remark]:
    if not isinstance(value, str) or is_path(value):
        return
    if is_prompt:
        yield from (Remark((name,), *told) for told in _of_prompt(value))
    elif _PLACEHOLDER.search(value):
        meant = value.strip().strip("{} ")
        advice = f"write {meant}, without braces" if is_path(meant) else "a path is the whole text"
        yield Remark((name,), BRACES_STAY, advice)
    elif path := meant_path(value):
        message = f"{value} is a text, and not a path, which starts with $."
        yield Remark((name,), message, f"did you mean {path}?", is_error=not sees_output)


def _of_prompt(prompt: str) -> Iterator[tuple[str, str, bool]]:
    for match in _SINGLE.finditer(prompt):
        yield f"{match[0]} has one brace and stays as it is", _CURE.format(match[1]), True
    for match in _DOUBLE.finditer(prompt):
        inner = match[1].strip()
        if inner.startswith(("$.", "\\$.")):
            continue
        known = is_word_of_context(inner.lstrip("$."))
        yield f"{match[0]} is no placeholder and stays as it is", _CURE.format(_path_for(inner)), known
    for match in _NAKED.finditer(_SINGLE.sub("", _DOUBLE.sub("", prompt))):
        yield f"{match[1]} stands without braces and stays as it is", _CURE.format(match[1].rstrip(".")), True


def _path_for(name: str) -> str:
    bare = name.lstrip("$").lstrip(".")
    first, _, rest = bare.partition(".")
    words = {"input": "test_case.input", "inputs": "test_case.input", "question": "test_case.input"}
    words |= {"expected": "test_case.expected", "answer": "output.value", "response": "output.value"}
    words |= {"output": "output.value", "vars": "test_case.input", "context": "test_case.metadata.context"}
    if not rest and first in words:
        return f"$.{words[first]}"
    if first in ("output", "test_case"):
        return f"$.{bare}"
    return f"$.{words[first]}.{rest}" if first in words else "$.test_case.input"
