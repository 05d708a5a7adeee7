"""Advice about checks that are written `contains: Paris`, with the type as a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fepflow.documents.messages import closest
from fepflow.errors import DocumentPath, ValidationMessage
from fepflow.jsonpath.path import descend
from fepflow.protocol.check import CHECK_KEYS
from fepflow.suite import foreign_names
from fepflow.text import brief


def with_types_named(value: Any, messages: Sequence[ValidationMessage], *, is_check: bool) -> list[ValidationMessage]:
    """Return the errors of a check, or of test cases with checks, with one message for each such check."""
    return list(_with_types_named(value, messages, is_check))


def _with_types_named(value: Any, messages: Sequence[ValidationMessage], is_check: bool) -> Iterator[ValidationMessage]:
    for item in messages:
        place = () if is_check else _place_of_check(item.path)
        name = None if place is None else _key_as_type(descend(value, place)[1])
        if place is None or name is None:
            yield item
        elif item.path == (*place, "type"):
            advice = f"write {{type: {brief(name, 60)}, ...}}, with the arguments beside the type"
            yield replace(item, advice=advice)
        elif item.path != (*place, name):
            yield item


def _place_of_check(path: DocumentPath) -> DocumentPath | None:
    for number, step in enumerate(path[:-1]):
        if step == "checks" and isinstance(path[number + 1], int):
            return path[: number + 2]
    return None


def _key_as_type(check: Any) -> str | None:
    names = [str(name) for name in check if name not in CHECK_KEYS] if isinstance(check, dict) else []
    if len(names) != 1 or "type" in check or names[0] in foreign_names.CHECK or closest(names[0], [*CHECK_KEYS]):
        return None
    return names[0]
