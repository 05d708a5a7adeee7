"""The base of all FEP models."""

from __future__ import annotations

import json
import math
import reprlib
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_jsonable_python

_new = object.__new__
_set = object.__setattr__  # past pydantic's, which would validate


class FepModel(BaseModel):
    """A strict model whose dump equals its input.

    The specification's optional fields are absent or objects, never null, so a dump leaves out what was not set; an
    explicit `expected: null` stays. Reading and dumping again changes nothing.
    """

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="strings")

    @classmethod
    def trusted(cls, data: dict[str, Any]) -> Self:
        """Build an instance from the dump of a valid one, at a fifth of the cost of validating it.

        (`model_construct` costs more than validating.)
        """
        instance = _new(cls)
        _set(instance, "__dict__", {**defaults_of(cls), **data})
        _set(instance, "__pydantic_fields_set__", set(data))
        _set(instance, "__pydantic_extra__", None)
        _set(instance, "__pydantic_private__", None)
        return instance

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Dump as pydantic does, leaving out unset fields unless told otherwise."""
        return super().model_dump(**{"exclude_unset": True, **options})

    def model_dump_json(self, **options: Any) -> str:
        """Dump as pydantic does, leaving out unset fields unless told otherwise; a lone surrogate is escaped.

        Raises ValueError for values without a JSON form: a value that contains itself, a Python object.
        """
        try:
            return super().model_dump_json(**{"exclude_unset": True, **options})
        except (ValueError, RecursionError) as error:
            # Pydantic writes no lone surrogates, and nothing that is nested over 255 levels; an agent's answer may hold
            # both all the same.
            if "Circular reference" in str(error) or "Unable to serialize" in str(error):
                raise
            indent = options.pop("indent", None)
            return _dumps(self.model_dump(**options), indent)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Validate as pydantic does, but also accept lone surrogates and deep nesting."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            if error.errors(include_url=False, include_input=False, include_context=False)[0]["type"] != "json_invalid":
                raise
            try:
                data = json.loads(json_data)
            except (ValueError, RecursionError):
                raise error from None
            return cls.model_validate(data, **options)


def _dumps(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(to_json_data(value), indent=indent, separators=None if indent else (",", ":"))
    except RecursionError:
        raise ValueError("it nests too deep to be written as JSON, or contains itself") from None


def to_json_data(value: Any) -> Any:
    """Return a value as JSON data, with NaN and the infinities as texts. Raises for values without such a form."""
    if isinstance(value, dict):
        return {str(key): to_json_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_data(item) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return to_jsonable_python(value)


class Result(FepModel):
    """A model of results, which are made by the hundred thousand. It never changes."""

    model_config = ConfigDict(frozen=True)


@cache
def defaults_of(model: type[FepModel]) -> dict[str, Any]:
    """Return every field, in order, with its default; None for a required one."""
    fields = model.model_fields.items()
    return {name: None if info.is_required() else info.get_default(call_default_factory=True) for name, info in fields}


def to_jsonable(value: Any) -> Any:
    """Return a value as JSON data for display; functions and classes become their names.

    Values that JSON cannot express (a value that contains itself, nests too deep, has odd keys) become a text about
    them.
    """
    try:
        return to_jsonable_python(value, fallback=_name_of)
    except UnicodeEncodeError:  # half of a surrogate pair in a key, which JSON can have, and pydantic does not take
        return _by_way_of_text(value)
    except Exception:  # an object's own code may raise anything
        return reprlib.repr(value)


def _by_way_of_text(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, default=_name_of, allow_nan=False))
    except Exception:
        return reprlib.repr(value)


def _name_of(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


Timestamp = Annotated[datetime, Field(strict=False)]
"""UTC, ISO 8601 with `Z` in JSON (FEP 2.3.4, 4.2)."""


def utc_now() -> datetime:
    """Return the present time in UTC, with its zone."""
    return datetime.now(UTC)
