"""Unknown names in a document: what they are likely to mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from fepflow.errors import DocumentPath

_MANY = 20
_LONGEST = 60
_SURE = 0.8
"""How alike names are that can hardly be different ones: tests and test_cases are less."""


def closest(name: str, known: Sequence[str]) -> str | None:
    """Which of the known names was likely meant; None if none is like it."""
    return _closest(name[:_LONGEST], tuple(known))


def did_you_mean(name: str, known: Sequence[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Advice for a name that is not among those known; `elsewhere` says what some names are called here."""
    return _advice(name[:_LONGEST], tuple(known), tuple((elsewhere or {}).items()))


@lru_cache(maxsize=1_000)  # the same error may have been made a hundred thousand times
def _advice(name: str, known: tuple[str, ...], called: tuple[tuple[str, str], ...]) -> str:
    if not _same(name, known) and (meant := dict(called).get(_bare(name))):
        return meant
    if close := _closest(name, known):
        return f"did you mean {close}?"
    more = ", ..." if len(known) > _MANY else ""
    return f"known are {', '.join(known[:_MANY])}{more}" if known else "remove it"


@lru_cache(maxsize=1_000)
def _closest(name: str, known: tuple[str, ...]) -> str | None:
    alike = _same(name, known) or get_close_matches(name, known, 1)
    return next(iter(alike or (item for item in known if _words(item) & _words(name))), None)


def _same(name: str, known: tuple[str, ...]) -> list[str]:
    return [item for item in known if _bare(item) == _bare(name)] or get_close_matches(name, known, 1, _SURE)


def _words(name: str) -> set[str]:
    return {word for word in name.lower().split("_") if len(word) > 2}


def _bare(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def names_at(annotation: Any, path: DocumentPath) -> list[str]:
    """The field names of the models that `annotation` allows at `path`; none where no model is."""
    kinds = list(_alternatives(annotation))
    for step in path:
        kinds = [kind for parent in kinds for kind in _inside(parent, step)]
    return list(dict.fromkeys(name for kind in kinds for name in _fields(kind)))


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation


def _inside(kind: Any, step: str | int) -> Iterator[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if step in (name, info.alias):
                yield from _alternatives(info.annotation)
    elif origin is dict and len(arguments) == 2:
        yield from _alternatives(arguments[1])
    elif origin is list and arguments:
        yield from _alternatives(arguments[0])


def _fields(kind: Any) -> Iterator[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from (info.alias or name for name, info in kind.model_fields.items())
