"""Checks, in declared and typed form (FEP 2.3)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_serializer,
)

from fepflow.errors import InputError, Problem
from fepflow.protocol.model import FepModel, to_jsonable

SEMVER = (
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
)
"""Semantic version 2.0.0, without leading zeros. `\\d` would also match digits of other scripts."""

CHECK_ID = r"^[A-Za-z0-9_-]{1,100}$"
CheckId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=100)]


def id_of_type(check_type: str) -> str:
    """Return the default id of a check of this type: the type itself, with `_` for characters that no id may have.

    It leaves room for the number of a second check of the type.
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", check_type)[:95]


class CheckForm(BaseModel):
    """Base of both forms of a check, so that type checkers accept a list of both."""

    @abstractmethod
    def to_check(self) -> Check:
        """Return the declarative form."""


class Check(FepModel, CheckForm):
    """A check in declared form: its type, arguments, and optionally the version of its implementation.

    `id` and `turn` are fepflow's additions. `id` is the name for results, metrics and thresholds. `turn` is the number
    of a turn, from 1, whose answer the check sees as the output; without it, the check sees the whole output. A string
    argument that starts with `$.` is a JSONPath over the evaluation context (FEP 2.3.1, 2.3.2). Never changes.
    """

    model_config = ConfigDict(frozen=True)

    type: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any] = Field(default_factory=dict)
    version: Annotated[str, Field(pattern=SEMVER)] | None = None
    id: CheckId | None = None
    turn: Annotated[int, Field(ge=1)] | None = None

    def __eq__(self, other: object) -> bool:
        """Compare declarations; a typed check is compared by its declaration."""
        return super().__eq__(other.to_check() if isinstance(other, TypedCheck) else other)

    def to_check(self) -> Check:
        """Return the check itself."""
        return self

    @field_serializer("arguments", when_used="json")
    def _plain_arguments(self, arguments: dict[str, Any]) -> Any:
        return to_jsonable(arguments)


CHECK_KEYS = frozenset(Check.model_fields)
"""Keys of a check that are not arguments."""


def in_full(check: Any) -> Any:
    """Return the document of a check with its other keys among the arguments: `{type: contains, phrases: Paris}`.

    That is the short form of suites. FEP's form has all arguments in `arguments`, and FEP's callers must send it. A key
    in both places is left there, and is refused.
    """
    if not isinstance(check, dict) or "type" not in check or check.keys() <= CHECK_KEYS:
        return check
    arguments = check.get("arguments", {})
    if not isinstance(arguments, dict):
        return check
    beside = {name: value for name, value in check.items() if name not in CHECK_KEYS and name not in arguments}
    rest = {name: value for name, value in check.items() if name not in beside}
    return {**rest, "arguments": {**beside, **arguments}}


def checks_in_full(part: Any) -> Any:
    """Return the document of a suite, a test case or a turn, with its own checks in full."""
    if not isinstance(part, dict) or not isinstance(part.get("checks"), list):
        return part
    return {**part, "checks": [in_full(check) for check in part["checks"]]}


class TypedCheck(CheckForm):
    """Base of the classes whose instances are checks with typed arguments, equal to a `Check`."""

    def __eq__(self, other: object) -> bool:
        """Compare declarations, in either form."""
        return self.to_check() == other if isinstance(other, Check) else super().__eq__(other)


def to_check(check: CheckForm) -> Check:
    """Return the declaration of a check in either form. Raises InputError for another object."""
    if not isinstance(check, CheckForm):
        advice = "give Check(type=..., arguments=...), or one of the typed classes, such as ContainsCheck(...)"
        raise InputError(Problem(f"{type(check).__name__} is not a check", path="checks", advice=advice))
    return check.to_check()


def _write(check: CheckForm, info: SerializationInfo) -> dict[str, Any]:
    return to_check(check).model_dump(mode=info.mode)


def _read(check: Any, read: ValidatorFunctionWrapHandler) -> Any:
    return check if isinstance(check, TypedCheck) else read(check)


if TYPE_CHECKING:
    AnyCheck = CheckForm
    Checks = Sequence[CheckForm]
else:  # not a union: what is wrong with a declaration is said once
    AnyCheck = Annotated[Check, WrapValidator(_read), PlainSerializer(_write)]
    Checks = list[AnyCheck]
