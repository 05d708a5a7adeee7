"""A check's arguments made ready: paths compiled, the literal ones validated, and what of them may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fepflow.checks.base import MISSING, RESOLVED, BaseCheck, JSONPath, argument_fields, wrong_arguments
from fepflow.errors import CheckArgumentsError, ValidationMessage
from fepflow.jsonpath.path import Path, compile_path, is_path
from fepflow.jsonpath.template import TextTemplate, compile_template, copy_containers
from fepflow.protocol.model import construct_fast, to_jsonable
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.security.secret_names import is_secret_name

REDACTED = "***"


class OptionalPath:
    """A path that may find nothing: it is MISSING then."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._path = compile_path(expression)

    def is_quick(self, document: Any) -> bool:
        """See Path.is_quick."""
        return self._path.is_quick(document)

    def find(self, document: Any) -> list[Any]:
        """See Path.find."""
        return self._path.find(document)

    def resolve(self, document: Any) -> Any:
        """The value of one node, the list of values of several, MISSING if there is none."""
        found = self._path.find(document)
        return (found[0] if len(found) == 1 else found) if found else MISSING


class CallsPath:
    """A path to tool calls: an assistant's message that has none made none."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._path = compile_path(expression)

    def is_quick(self, document: Any) -> bool:
        """See Path.is_quick."""
        return self._path.is_quick(document)

    def find(self, document: Any) -> list[Any]:
        """See Path.find."""
        return [[]] if made_no_calls(self._path, document) else self._path.find(document)

    def resolve(self, document: Any) -> Any:
        """See Path.resolve."""
        return [] if made_no_calls(self._path, document) else self._path.resolve(document)


class Arguments:
    """The arguments of one check, ready to be resolved for any number of evaluation contexts. Never changes.

    Raises CheckArgumentsError for what the check type does not take, JSONPathError for what is no path.
    """

    def __init__(self, check_class: type[BaseCheck], check_type: str, arguments: dict[str, Any]) -> None:
        self._class = check_class
        self._type = check_type
        self._fields = argument_fields(check_class)
        self.template = compile_template(arguments, _special(check_class, check_type, arguments))
        self.unknown = unknown_arguments(check_class, arguments)
        open_ones = dict.fromkeys(str(location[0]) for location, _ in self.template.paths)
        # Of a path inside a list, an object or a text, the argument as a whole is known only when it is resolved.
        self._paths = {
            str(location[0]): path.expression
            for location, path in self.template.paths
            if len(location) == 1 and not isinstance(path, TextTemplate)
        }
        special = {*check_class.check_secrets, *check_class.check_optional_paths}
        self._whole = [(name, path) for name, path in self._paths.items() if name not in special]
        self._other = [name for name in open_ones if name not in self._paths or name in special]
        literals = {
            name: value
            for name, value in self.template.literal.items()
            if name not in open_ones and name in self._fields
        }
        self._as_is: list[tuple[str, str, type]] = []
        open_fields = {name: JSONPath(self._paths.get(name, "$.")) for name in open_ones}
        self._unresolved = {**literals, **open_fields}
        self.sample = sample = self.instance(self._unresolved)
        """The check with its literal arguments, and paths where the others will stand."""
        self._given = {self._fields[name] for name in arguments if name in self._fields}
        # Of the class itself: one that a user derives from it may be more demanding.
        kinds = check_class.check_passthrough if "check_passthrough" in vars(check_class) else {}
        if all(name in kinds and name in self._paths for name in open_ones):
            self._as_is = [(name, self._fields[name], kinds[name]) for name in open_ones]
        defaults = {name: getattr(sample, field) for name, field in self._fields.items() if name not in arguments}
        self._shown = {name: {"value": self._plain(name, value)} for name, value in {**defaults, **literals}.items()}

    def misfit(self, name: str, value: Any) -> ValidationMessage | None:
        """Return why a value cannot be this argument, whatever the others will be; None if it can."""
        try:
            self.instance({**self._unresolved, name: value})
        except CheckArgumentsError as error:
            return next((message for message in error.messages if message.path[:1] == (name,)), None)
        return None

    def instance(self, resolved: dict[str, Any]) -> BaseCheck:
        """An instance of the check with these values; raises CheckArgumentsError."""
        if self._as_is and all(isinstance(resolved[name], kind) for name, _, kind in self._as_is):
            values = {**self.sample.__dict__, **{field: resolved[name] for name, field, _ in self._as_is}}
            return construct_fast(self._class, values, self._given)
        try:
            return self._class.model_validate(resolved, context=RESOLVED)
        except ValidationError as error:
            raise wrong_arguments(self._class, self._type, resolved, error) from None

    def others_instance(self, resolved: dict[str, Any]) -> BaseCheck:
        """As `instance`, of a class that is not ours: what it changes are copies, and what was looked up is no path."""
        resolved = copy_containers(resolved)
        instance = self.instance(resolved)
        fields = instance.__dict__
        for name in resolved:
            # A user's own validator may take a text that begins like a path for one.
            field = self._fields.get(name, name)
            if isinstance(fields.get(field), JSONPath):
                fields[field] = resolved[name]
        return instance

    def shown(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """FEP 2.3.4's `resolved_arguments`."""
        shown: dict[str, Any] = dict(self._shown)
        for name, path in self._whole:
            shown[name] = {"jsonpath": path, "value": resolved[name]}
        for name in self._other:
            value = None if resolved[name] is MISSING else self._plain(name, resolved[name])
            shown[name] = {"jsonpath": self._paths[name], "value": value} if name in self._paths else {"value": value}
        return shown

    def _plain(self, name: str, value: Any) -> Any:
        """A value as JSON: options become objects, what code alone can give (a function) its name."""
        shown = to_jsonable(value)
        return redacted(shown) if name in self._class.check_secrets else shown


def unknown_arguments(check_class: type[BaseCheck], arguments: Mapping[str, Any]) -> list[str]:
    """The arguments that a check type does not know: it ignores them, or refuses them."""
    known = argument_fields(check_class)
    takes_any = check_class.model_config.get("extra") == "allow"
    return [] if takes_any else [name for name in arguments if name not in known]


def _special(check_class: type[BaseCheck], check_type: str, arguments: dict[str, Any]) -> dict[str, Path]:
    special: dict[str, Path] = {}
    for name in check_class.check_templates & arguments.keys():
        text = arguments[name]
        if isinstance(text, str) and not is_path(text) and "{{" in text:
            special[name] = TextTemplate(text)
    for name in check_class.check_tool_calls & arguments.keys():
        if is_path(arguments[name]):
            special[name] = CallsPath(arguments[name])
    for name in check_class.check_optional_paths & arguments.keys():
        if not is_path(arguments[name]):
            raise CheckArgumentsError(f"{check_type}: {name} must be a JSONPath, a text that starts with $.")
        special[name] = OptionalPath(arguments[name])
    return special


def redacted(value: Any) -> Any:
    """A JSON value in which members that are named like a secret are not shown."""
    if isinstance(value, dict):
        return {key: REDACTED if is_secret_name(str(key)) else redacted(item) for key, item in value.items()}
    return [redacted(item) for item in value] if isinstance(value, list) else value
