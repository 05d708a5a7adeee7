"""The errors of a document against its schema, as sentences with path and advice."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fepflow.documents.messages import did_you_mean, names_at
from fepflow.errors import DocumentPath
from fepflow.evalguard.models import Definition
from fepflow.security.redaction import excerpt
from fepflow.security.secret_names import is_secret_name
from fepflow.suite.models import Impact

MAX_SHOWN = 60
"""Characters of a value in a message."""

D = TypeVar("D", bound=Definition)


@dataclass(frozen=True, slots=True)
class SchemaError:
    """An error against a document's schema, with advice; `is_unknown` for a field that EvalGuard does not define."""

    path: DocumentPath
    message: str
    advice: str | None = None
    is_unknown: bool = False


def validated(model: type[D], data: Any) -> tuple[D | None, list[SchemaError]]:
    """Validate a document by the letter of its schema, where a field without a value is an error; return all its
    errors."""
    empty = [SchemaError(path, "has no value", "give it one, or leave it out") for path in _nulls(data)]
    try:
        return model.model_validate(data), empty
    except ValidationError as error:
        found = schema_errors(error, model)
    stated = {each.path for each in empty}
    return None, [*empty, *(each for each in found if each.path not in stated)]


def without_unknown(data: Any, errors: Sequence[SchemaError]) -> Any:
    """Return a copy of a document without the fields that EvalGuard does not have."""
    data = copy.deepcopy(data)
    for error in errors:
        if error.is_unknown:
            parent = data
            for step in error.path[:-1]:
                parent = parent[step]
            parent.pop(error.path[-1], None)
    return data


_FREE = ("metadata", "tools")
"""Fields of reports that hold whatever their writer likes."""


def _nulls(data: Any, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    """Yield the paths of fields that are null."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(data, dict):
        items = ((key, value) for key, value in data.items() if key not in _FREE or value is None)
    elif isinstance(data, list):
        items = enumerate(data)
    for step, value in items:
        if value is None:
            yield (*path, step)
        else:
            yield from _nulls(value, (*path, step))


_MESSAGES: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is no field of EvalGuard",
    "string_type": "must be text",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "bool_type": "must be true or false",
    "string_pattern_mismatch": "is not an identifier",
}

_ADVICE: Mapping[str, str] = {
    "missing": "add it",
    "string_type": "if YAML takes it for something else, put it in quotes",
    "float_type": "for example 0.5, without quotes",
    "string_pattern_mismatch": "use letters, digits, _ and - only",
    "label": f"write impact: with one of {', '.join(get_args(Impact))}",
    "unbounded": "give min (inclusive), max (exclusive) or both",
}


def schema_errors(error: ValidationError, model: type[Definition]) -> list[SchemaError]:
    """Return the errors that pydantic found, in its order."""
    return [_schema_error(detail, model) for detail in error.errors(include_url=False)]


def _schema_error(detail: ErrorDetails, model: type[Definition]) -> SchemaError:
    kind = detail["type"]
    # A bad key is reported below the key itself, at a step that the document does not have.
    path = tuple(step for step in detail["loc"] if step != "[key]")
    advice = _ADVICE.get(kind)
    if kind == "extra_forbidden":
        advice = did_you_mean(str(path[-1]), names_at(model, path[:-1]))
    found = _shown(detail["input"], path)
    if kind == "literal_error":
        return SchemaError(path, f"must be one of {detail['ctx']['expected']}, not {found}", advice)
    message = _MESSAGES.get(kind, detail["msg"])
    if kind == "label":
        message = f"{message}: {_shown(detail['input'].get('label'), path)}"
    elif kind in ("string_pattern_mismatch", "negative"):
        message = f"{message}: {found}"
    elif message.startswith("must"):
        message = f"{message}, not {found}"
    return SchemaError(path, message, advice, kind == "extra_forbidden")


def _shown(value: Any, path: DocumentPath) -> str:
    """Return what stands there, for a message: a short value as it is, and none under a name of a secret."""
    if isinstance(value, Mapping | list):
        return "a list" if isinstance(value, list) else "a mapping"
    if any(isinstance(step, str) and is_secret_name(step) for step in path):
        return "what is there"
    as_yaml = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return excerpt(as_yaml, frozenset(), MAX_SHOWN)
