"""The paths in a check's arguments: their places, and the values that the check accepts from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, default_paths, modifier_names
from fepflow.checks.core.compiled import Arguments
from fepflow.checks.registry import find_check, is_ours
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, JSONPathError, ValidationMessage
from fepflow.json.values import texts_in
from fepflow.jsonpath.path import is_path
from fepflow.jsonpath.template import TextTemplate
from fepflow.protocol.check import Check


@dataclass(frozen=True)
class PathUse:
    """A path in an argument, its place among the arguments, and whether it may find nothing.

    `arguments` are those of the check, if the path is one of them as a whole.
    """

    location: DocumentPath
    expression: str
    optional: bool = False
    arguments: Arguments | None = None

    def misfit(self, value: Any) -> ValidationMessage | None:
        """Return why the check cannot take a value that the path finds; None if it can, or if this is unknown."""
        return None if self.arguments is None else self.arguments.misfit(str(self.location[0]), value)


def paths_of(check: Check) -> list[PathUse]:
    """Return all valid paths in a check's arguments; an empty list for an unknown check type."""
    check_class = class_of(check)
    if check_class is None:
        return []
    uses = []
    defaults = default_paths(check_class)
    given = {**defaults, **check.arguments}
    for name, value in given.items():
        if name in modifier_names(check_class):
            continue
        if name in check_class.check_templates and isinstance(value, str) and not is_path(value):
            uses += [PathUse((name,), expression) for expression in _placeholders(value)]
        else:
            optional = name in check_class.check_optional_paths and value == defaults.get(name, value)
            uses += [PathUse(location, text, optional) for location, text in texts_in(value, (name,)) if is_path(text)]
    arguments = arguments_of(check_class, check)
    if arguments is None:
        return uses
    return [replace(use, arguments=arguments) if _is_whole(use, given) else use for use in uses]


def with_default_paths(check: Check) -> Check:
    """Return the check with the default paths of arguments that it leaves out, as it is stored and sent."""
    check_class = class_of(check)
    defaults = {} if check_class is None else default_paths(check_class)
    if defaults.keys() <= check.arguments.keys():
        return check
    return check.model_copy(update={"arguments": {**defaults, **check.arguments}})


def left_to_defaults(check: Check) -> str | None:
    """Return why FEP's callers may not send a check of ours (2.3.5), or None: an argument is left to its default path.

    Suites, test cases and Python may leave arguments to their default paths. A request must have them.
    """
    check_class = class_of(check)
    if check_class is None or not is_ours(check_class):
        return None
    missing = [
        name
        for name, path in default_paths(check_class).items()
        if path in (OUTPUT.expression, EXPECTED.expression)
        and name not in check.arguments
        and name not in check_class.check_optional_paths
    ]
    if not missing:
        return None
    return f"{check.type} cannot take these arguments: {'; '.join(f'{name}: is missing' for name in missing)}"


def class_of(check: Check) -> type[BaseCheck] | None:
    """Return the class of a check; None if its type or version is not known."""
    try:
        return find_check(check.type, check.version)
    except CheckArgumentsError:
        return None


def arguments_of(check_class: type[BaseCheck], check: Check) -> Arguments | None:
    """Return the arguments of a check type of ours; None if they are refused where the check is compiled."""
    try:
        return Arguments(check_class, check.type, check.arguments) if is_ours(check_class) else None
    except FepflowError:
        return None


def _is_whole(use: PathUse, arguments: Mapping[str, Any]) -> bool:
    return len(use.location) == 1 and arguments.get(str(use.location[0])) == use.expression and not use.optional


def _placeholders(prompt: str) -> list[str]:
    try:
        return TextTemplate(prompt).paths
    except JSONPathError:
        return []  # reported where the check is compiled
