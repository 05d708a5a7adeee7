"""What the stand-in model says: values that a JSON Schema allows, and vectors, the same for the same seed and text.

Nothing is understood here. A boolean is decided by a hash, a text says that it is made up, and texts that share words
have vectors that lie close to each other.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from fepflow.json.values import referred

SENTENCE = "A stand-in made this up."
DIMENSIONS = 64

_MOST_LEVELS = 8


def fraction(*parts: object) -> float:
    """A number from 0 up to 1 that depends on the parts only."""
    digest = hashlib.sha256(json.dumps(parts, default=str).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def value_for(schema: dict[str, Any], *parts: object) -> Any:
    """A value that the schema allows, as far as this generator knows schemas; `parts` decide which."""
    return _value(schema, schema, parts, 0)


def _value(schema: Any, root: dict[str, Any], parts: tuple[object, ...], level: int) -> Any:
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        return None
    if "$ref" in schema:
        return _value(referred(root, str(schema["$ref"])), root, parts, level + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][int(fraction(*parts) * len(schema["enum"]))]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _value(schema[word][0], root, parts, level + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        members = schema.get("properties", {}).items()
        return {name: _value(item, root, (*parts, name), level + 1) for name, item in members}
    if kind == "array":
        count = max(1, schema.get("minItems", 0))
        return [_value(schema.get("items", {}), root, (*parts, index), level + 1) for index in range(count)]
    return _scalar(str(kind), schema, parts)


def _scalar(kind: str, schema: dict[str, Any], parts: tuple[object, ...]) -> Any:
    if kind == "boolean":
        return fraction(*parts) < 0.5
    if kind in ("integer", "number"):
        lowest = schema.get("minimum", 0)
        number = lowest + fraction(*parts) * (schema.get("maximum", lowest + 1) - lowest)
        return round(number) if kind == "integer" else round(number, 3)
    if kind == "string":
        text = SENTENCE.ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength", len(text))]
    return None


def schema_in(text: str) -> dict[str, Any] | None:
    """The JSON Schema of an object that stands somewhere in a text; the last one counts."""
    found = None
    for value in _objects_in(text):
        if isinstance(value.get("properties"), dict):
            found = value
    return found


def _objects_in(text: str) -> Iterator[dict[str, Any]]:
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = None, start + 1
        if isinstance(value, dict):
            yield value
        start = text.find("{", end)


def vector_of(text: str, seed: int, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1: the sum of one made-up direction a word, so that common words bring texts together."""
    sums = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [""]:
        for index in range(dimensions):
            sums[index] += fraction(seed, word, index) - 0.5
    length = math.sqrt(sum(number * number for number in sums)) or 1.0
    return [round(number / length, 6) for number in sums]
