"""JSON values as YAML that people read; whatever characters are in it, `yaml_parser` reads the same again."""

from __future__ import annotations

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@ +-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
"""What some version of YAML does not take for a text."""


def dump_yaml(value: Any) -> str:
    """The text of a value. Half a character (a lone surrogate), which no file can hold, becomes its escape."""
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_quoted(value), stream)
    return stream.getvalue().removesuffix("...\n")


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text == text.strip()
    return text if is_plain else DoubleQuotedScalarString(text)
