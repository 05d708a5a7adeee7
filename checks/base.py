"""The base of check types: classes whose fields are their arguments and whose call returns the results."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from inspect import Parameter, get_annotations, iscoroutinefunction, isfunction, signature
from typing import TYPE_CHECKING, Any, ClassVar, Self, Union, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import core_schema

from fepflow.documents.messages import closest, did_you_mean, kind_name, validation_messages
from fepflow.errors import CheckArgumentsError, ValidationMessage, dotted
from fepflow.jsonpath.path import descend, is_path, unescape
from fepflow.protocol.check import CHECK_ID, CHECK_KEYS, Check, TypedCheck
from fepflow.suite.foreign_names import CHECK
from fepflow.text import brief

logger = logging.getLogger("fepflow.checks")

UNKNOWN_ARGUMENT = "%s does not know the argument %s; it is ignored"

MODIFIERS = ("extract", "pass_at", "any")
"""Arguments of every check type that has no argument of that name itself; see `fepflow.checks.core.modifiers`."""

_GIVEN_MODIFIERS = "check_modifiers"

MISSING = object()
"""Value of an argument among `check_optional_paths` whose path found nothing."""

PATH_SCHEMA = {"type": "string", "pattern": r"^\$\.", "description": "JSONPath over the evaluation context."}
"""JSON Schema of an argument that is a path."""

RESOLVED = {"resolved": True}
"""Validation context of arguments whose paths are resolved: a text that starts with `$.` is then just a text."""

if TYPE_CHECKING:
    from fepflow.checks.explanation import ResolvedArguments  # which needs the catalogue of all classes

    _Unresolved = Any  # in `__call__` no path is left: a type checker lets `str | JSONPath` be used as a text
else:
    _Unresolved = object


@dataclass(frozen=True, slots=True)
class JSONPath(_Unresolved):  # type: ignore[misc]  # Any is meant
    """An argument that is read from the evaluation context (FEP 2.3.1)."""

    expression: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        # Only an instance is a path: an object {"expression": ...} that an agent answered stays an object.
        as_text = core_schema.plain_serializer_function_ser_schema(lambda path: path.expression)
        return core_schema.is_instance_schema(cls, serialization=as_text)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(PATH_SCHEMA)


OUTPUT = JSONPath("$.output.value")
"""Default of the argument that a check looks at."""
EXPECTED = JSONPath("$.test_case.expected")
"""Default of the argument that it is compared with."""
FILLED_LATER = JSONPath("$.")
"""Value of an argument that holds paths inside, before they are resolved."""

if TYPE_CHECKING:
    PathText = JSONPath | str  # a type checker knows what is given, not that the text `$.…` becomes a path
else:
    PathText = JSONPath
"""Type of a path in an argument that is not a text: any other text is refused."""


class Options(BaseModel):
    """Base of arguments that are objects with named options (`threshold: {min_value: 0.8}`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_paths(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is RESOLVED or not isinstance(data, dict):
            return data
        return {
            name: unescape(value) if isinstance(value, str) and not is_path(value) else _as_field(value)
            for name, value in data.items()
        }


def _read_default_paths(cls: type[BaseModel]) -> None:
    """Turn defaults that are written as paths into paths, before pydantic collects them.

    pydantic does not validate defaults, so a check would see the text `$.output.value` instead of the output.
    """
    for name, hint in get_annotations(cls).items():
        default = cls.__dict__.get(name)
        if is_path(default) and "ClassVar" not in str(hint):
            type.__setattr__(cls, name, JSONPath(default))


class BaseCheck(TypedCheck):
    """A check that answers at once.

    A subclass declares its arguments as fields (`text: str | JSONPath`) and returns its results from `__call__`, which
    sees resolved, validated values only. Parameters of `__call__` are arguments, too. `id=` names the check. Instances
    never change, so one may serve any number of cases. A class that is not one of ours is called in a thread, and given
    up after a minute.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True, hide_input_in_errors=True)

    if TYPE_CHECKING:
        id: str | None = (
            None  # the check's name in results, metrics and gate; no field, as an argument may be called so
        )
        extract: Any = None
        pass_at: Any = None
        any: Any = False

    check_type: ClassVar[str] = ""
    check_version: ClassVar[str] = "1.0.0"
    check_templates: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are texts with `{{$.path}}` placeholders."""
    check_case_templates: ClassVar[frozenset[str]] = frozenset()
    """Arguments among `check_templates` whose placeholders may read the test case only."""
    check_optional_paths: ClassVar[frozenset[str]] = frozenset()
    """Arguments that must be paths, and become MISSING where the path finds nothing."""
    check_tool_calls: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are tool calls. A path to `tool_calls` of an assistant's message without any gives []."""
    check_secrets: ClassVar[frozenset[str]] = frozenset()
    """Arguments in which members named like a secret are never shown."""
    check_pass_at: ClassVar[float | None] = None
    """Least `score` that passes, where the check does not say `pass_at`: `passed` is added to the results."""
    check_range: ClassVar[tuple[float, float] | None] = None
    """Least and largest score; another one is an error."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        call = cls.__dict__.get("__call__")
        if isfunction(call):
            type.__setattr__(cls, "__call__", _resolved_only(call, _add_parameters(cls, call)))
        _read_default_paths(cls)

    @model_validator(mode="wrap")
    @classmethod
    def _read_paths(cls, data: Any, read: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if info.context is RESOLVED or not isinstance(data, dict):
            return read(data)
        data, check_id = _without_id(cls, data)
        modifiers = {name: value for name, value in data.items() if name in modifier_names(cls)}
        data = {name: value for name, value in data.items() if name not in modifiers}
        _note_unknown(cls, data)
        check = read({name: _as_field(value) for name, value in data.items()})
        # Afterwards, so that no user's validator takes a literal for a path.
        for name, value in check.__dict__.items():
            if isinstance(value, str):
                check.__dict__[name] = unescape(value)
        if check_id is not None:
            check.__dict__["id"] = check_id
        if modifiers:
            check.__dict__[_GIVEN_MODIFIERS] = modifiers
        return check

    def __eq__(self, other: object) -> bool:
        """Compare arguments, modifiers and id."""
        return super().__eq__(other) and (
            not isinstance(other, BaseCheck)
            or all(self.__dict__.get(name) == other.__dict__.get(name) for name in ("id", _GIVEN_MODIFIERS))
        )

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Return the results of the check, a dict in the form of its type; or an awaitable of it.

        For type checkers, any other signature may override this one.
        """
        raise NotImplementedError

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """Return why a result is a fail, in a sentence; None if the results say it. Only for fepflow's own types.

        A result may be explained long after it was made, where a user's class is not installed. Such a class puts the
        sentence into its results, as `reason`.
        """
        return None

    def to_check(self) -> Check:
        """Return the declared form: type, given arguments, version."""
        fields = argument_fields(type(self)).items()
        resolved = {
            name: _as_argument(getattr(self, field)) for name, field in fields if field in self.model_fields_set
        }
        parameters_by_name = (
            {"id": self.__dict__["id"]} if "id" in self.__dict__ and "id" not in type(self).model_fields else {}
        )
        return Check(
            type=self.check_type or type(self).__name__,
            arguments={**resolved, **self.__dict__.get(_GIVEN_MODIFIERS, {})},
            version=self.check_version,
            **parameters_by_name,
        )


class BaseAsyncCheck(BaseCheck):
    """A check that waits for something, for example a model: its `__call__` is a coroutine."""


@cache
def argument_fields(check_class: type[BaseCheck]) -> dict[str, str]:
    """Return the name of each argument, and of its field; they differ if pydantic needs the name itself."""
    return {info.alias or name: name for name, info in check_class.model_fields.items()}


@cache
def modifier_names(check_class: type[BaseCheck]) -> frozenset[str]:
    """Return the modifiers that the class does not define itself as arguments."""
    return frozenset(MODIFIERS) - argument_fields(check_class).keys()


@cache
def default_paths(check_class: type[BaseCheck]) -> dict[str, str]:
    """Return the default paths of arguments, by argument."""
    return {
        info.alias or name: str(getattr(info.default, "expression", info.default))
        for name, info in check_class.model_fields.items()
        if isinstance(info.default, JSONPath) or is_path(info.default)
    }


def _add_parameters(cls: type[BaseCheck], call: Callable[..., Any]) -> list[str]:
    """Turn the parameters of `__call__` into fields, before pydantic collects the class's. Returns their names."""
    _, *parameters = signature(call).parameters.values()
    parameters_by_name = [
        item for item in parameters if item.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    try:
        hints = get_type_hints(call) if parameters_by_name else {}
    except NameError:  # a type that is known inside of a function only
        hints = {}
    annotations = get_annotations(cls)
    for item in parameters_by_name:
        annotations[item.name] = Union[hints.get(item.name, Any), JSONPath]  # noqa: UP007  # a hint may be any object
        if item.default is not Parameter.empty:
            type.__setattr__(cls, item.name, item.default)
    if parameters_by_name:
        cls.__annotations__ = annotations
    return [item.name for item in parameters_by_name]


def _resolved_only(call: Callable[..., Any], parameters: list[str]) -> Callable[[BaseCheck], Any]:
    """Return `__call__` for direct calls: with its parameters from the fields, and refusing paths.

    If a plain function returns a coroutine, it is awaited where no event loop is running; else its caller awaits it.
    """

    @wraps(call)
    def answer(self: BaseCheck) -> Any:
        return call(self, **{name: self.__dict__[name] for name in parameters})

    inner = answer if parameters else call
    waits = iscoroutinefunction(call)

    @wraps(inner)
    def checked(self: BaseCheck) -> Any:
        if given := self.__dict__.get(_GIVEN_MODIFIERS):
            advice = "called directly, a check takes the arguments of its type only"
            raise CheckArgumentsError(f"{self.check_type}: {min(given)} is applied by evaluate() ({advice})")
        for name, value in self.__dict__.items():
            if type(value) is JSONPath or (
                isinstance(value, Options) and JSONPath in map(type, value.__dict__.values())
            ):
                advice = "called directly, a check takes values only; evaluate() looks paths up"
                raise CheckArgumentsError(f"{self.check_type}: {name} holds a path ({advice})")
        answer = inner(self)
        if isinstance(answer, Coroutine):
            later = _judged_later(self, answer)
            return later if waits or _has_running_loop() else asyncio.run(later)
        return _judged(self, answer)

    return checked


def _judged(check: BaseCheck, results: Any) -> Any:
    """Return the results of a direct call, with `passed` by the type's `check_pass_at`."""
    least = check.check_pass_at if "pass_at" in modifier_names(type(check)) else None
    if least is None or not isinstance(results, dict) or "score" not in results:
        return results
    return {**results, "passed": results["score"] >= least}


async def _judged_later(check: BaseCheck, answer: Coroutine[Any, Any, Any]) -> Any:
    return _judged(check, await answer)


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def answering(check_class: type[BaseCheck]) -> Callable[[BaseCheck], Any]:
    """Return `__call__` of a class for instances that are known to contain no path."""
    return getattr(check_class.__call__, "__wrapped__", check_class.__call__)


def as_text(value: Any) -> str:
    """Return the text of a resolved field; an enumeration's member becomes its value."""
    return value if type(value) is str else str.__str__(value)


def finite_number(value: Any) -> int | float:
    """Return a value that is a number, and neither a boolean nor NaN or infinite. Raises ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {kind_name(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {value}")
    return value


def _as_field(value: Any) -> Any:
    return JSONPath(value) if is_path(value) else value


def _without_id(check_class: type[BaseCheck], data: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the arguments, and the check's own id, unless its class has an argument of that name."""
    if "id" not in data or "id" in argument_fields(check_class):
        return data, None
    check_id = data["id"]
    if check_id is not None and not (isinstance(check_id, str) and re.fullmatch(CHECK_ID, check_id)):
        raise ValueError("id: may hold letters, digits, _ and - only, up to 100 of them")
    return {name: value for name, value in data.items() if name != "id"}, check_id


def _note_unknown(check_class: type[BaseCheck], arguments: dict[str, Any]) -> None:
    if check_class.model_config.get("extra") != "ignore":
        return  # they are refused
    fields = argument_fields(check_class)
    aliases = {field: name for name, field in fields.items()}
    given = {aliases.get(name, name): value for name, value in arguments.items()}
    unknown = [name for name in given if name not in fields]
    refuse_misspelt(check_class, unknown, given)
    for name in unknown:
        logger.warning(UNKNOWN_ARGUMENT, check_class.check_type or check_class.__name__, name)


def refuse_misspelt(check_class: type[BaseCheck], unknown: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown argument while another one, which may be meant, has its default path."""
    defaults = {name: path for name, path in default_paths(check_class).items() if name not in given}
    if unknown and defaults:
        default = closest(unknown[0], list(defaults)) or next(iter(defaults))
        advice = meant_argument(check_class, unknown[0])
        raise ValueError(
            f"there is no argument {brief(unknown[0], 60)} ({advice}), and {default} would be {defaults[default]}"
        )


def meant_argument(check_class: type[BaseCheck], name: str) -> str:
    """Return advice for an argument that a check type does not know; it may be meant for a key of the check."""
    fields = list(argument_fields(check_class))
    if "arguments" in fields:
        advice = f"what calls are made with is arguments: {{arguments: {{{brief(name, 60)}: ...}}}}"
        return advice if closest(name, fields) is None else did_you_mean(name, fields)
    known = [*fields, *sorted(modifier_names(check_class))]
    if closest(name, known) is None and (key := closest(name, sorted(CHECK_KEYS - {"type", "arguments"}))):
        return f"did you mean {key}?"
    return did_you_mean(name, known, CHECK)


def _as_argument(value: Any) -> Any:
    if isinstance(value, JSONPath):
        return value.expression
    if isinstance(value, Options):
        return {
            name: _as_argument(getattr(value, name))
            for name in type(value).model_fields
            if name in value.model_fields_set
        }
    return "\\" + value if isinstance(value, str) and is_path(value) else value


_ONLY_KINDS = re.compile(r"must be (a )?(text|list|mapping|number|true or false|JSONPath)( or [a-z ]+)*")


def _other_kind(item: ValidationMessage, arguments: Any) -> str:
    """Return the kind of an argument, for a message that only states the kinds that it may have."""
    _, value = descend(arguments, item.path)
    if isinstance(value, JSONPath):  # of a user's class: every argument of ours takes paths
        return f", and holds a path, which its type does not allow (declare it as {item.path[-1]}: ... | JSONPath)"
    return f", not {kind_name(value)}" if _ONLY_KINDS.fullmatch(item.message) else ""


def wrong_arguments(
    check_class: type[BaseCheck], check_type: str, arguments: dict[str, Any], error: ValidationError
) -> CheckArgumentsError:
    """Return the exception for wrong arguments of a check type; it names places, never values."""
    messages = [
        replace(item, message=f"{item.message}{_other_kind(item, arguments)}")
        for item in validation_messages(arguments, error, check_class)
    ]
    return refused(check_type, messages)


def refused(check_type: str, messages: list[ValidationMessage]) -> CheckArgumentsError:
    """Return the exception for arguments that a check type does not take, for the reasons in `messages`."""
    parts = [": ".join(part for part in (dotted(item.path), item.message) if part) for item in messages]
    return CheckArgumentsError(f"{check_type} cannot take these arguments: {'; '.join(parts)}", messages)
