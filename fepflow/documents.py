"""YAML 1.2 and JSON documents, read so that a hostile one cannot hurt and a mistake has a line number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fepflow.errors import InputError, Problem

MAX_BYTES = 5_000_000
MAX_EXPANDED_NODES = 1_000_000
MAX_DEPTH = 100

DocumentPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed document: plain Python data, and where its parts stand in the text."""

    data: Any
    file: str
    text: str = field(repr=False)

    @cached_property
    def _root(self) -> Node | None:
        return None if self.file.endswith(".json") else _compose(self.text, self.file)

    def line_of(self, path: DocumentPath) -> int | None:
        """The line, from 1, of what stands at `path`, or of its nearest ancestor; None where unknown (JSON)."""
        node = self._root
        line = None
        for step in (None, *path):
            node = node if step is None else _child(node, step)
            if node is None:
                break
            line = int(node.start_mark.line) + 1
        return line

    def problem(self, path: DocumentPath, message: str, advice: str | None = None) -> Problem:
        """A mistake at `path` of this document."""
        return Problem(message, self.file, self.line_of(path), dotted(path) or None, advice)


def dotted(path: DocumentPath) -> str:
    """`('checks', 0, 'type')` as `checks[0].type`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def read_document(path: Path, name: str | None = None) -> Document:
    """Parse a YAML or JSON file of at most 5 MB; `name` is how messages call it (default: the path as given).

    Raises InputError: not there, not UTF-8, too large, bad syntax, a duplicate key, aliases that expand without bound.
    """
    file = name or str(path)
    return parse_document(read_text(path, file), file)


def read_text(path: Path, file: str, limit: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped), or an InputError that says what is in the way."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= limit else None
    except FileNotFoundError:
        raise InputError(Problem("there is no such file", file, advice="check the path")) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", file)) from None
    if raw is None:
        raise InputError(Problem(f"is larger than {limit:,} bytes", file, advice="split it, or use JSONL for data"))
    return decode(raw, file)


def decode(raw: bytes, file: str) -> str:
    """Bytes as UTF-8 text, or an InputError with the line of the first byte that is not."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}"
        raise InputError(Problem(message, file, line, advice="save the file as UTF-8")) from None


def parse_document(text: str, file: str) -> Document:
    """Parse the text of a document; JSON when the name ends in .json, else YAML 1.2."""
    return Document(_parse_json(text, file) if file.endswith(".json") else _parse_yaml(text, file), file, text)


def _parse_json(text: str, file: str) -> Any:
    try:
        value = loads(text)
    except json.JSONDecodeError as error:
        raise InputError(Problem(f"is not valid JSON: {error.msg}", file, error.lineno)) from None
    except RecursionError:
        raise _too_deep(file) from None
    except ValueError as error:
        raise InputError(Problem(f"is not valid JSON: {error}", file)) from None
    if is_deep(value):
        raise _too_deep(file)
    return value


def _too_deep(file: str, line: int | None = None) -> InputError:
    return InputError(Problem(f"is nested deeper than {MAX_DEPTH} levels", file, line))


def is_deep(value: Any) -> bool:
    """Whether a JSON value has more than MAX_DEPTH levels. Level by level: recursion could not stand the deepest."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in children if isinstance(child, dict | list)]


def loads(text: str) -> Any:
    """JSON by the standard: NaN, infinities and duplicate keys are a ValueError; so are numbers that overflow."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected byte order mark", text, 0)
    return _DECODER.decode(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large for a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return result


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)


class _JsonConstructor(SafeConstructor):
    """Builds JSON values only: YAML 1.2's core schema has no dates, so what looks like one stays text.

    Neither has it numbers with underscores, nor a meaning of `=` and, as a value, of `<<`.
    """

    def construct_yaml_int(self, node: ScalarNode) -> Any:
        """An integer, or the text that YAML 1.1 took for one."""
        return node.value if "_" in node.value else super().construct_yaml_int(node)

    def construct_yaml_float(self, node: ScalarNode) -> Any:
        """A float, or the text that YAML 1.1 took for one."""
        return node.value if "_" in node.value else super().construct_yaml_float(node)


for _tag in ("timestamp", "value", "merge"):
    _JsonConstructor.add_constructor(f"tag:yaml.org,2002:{_tag}", SafeConstructor.construct_yaml_str)
_JsonConstructor.add_constructor("tag:yaml.org,2002:int", _JsonConstructor.construct_yaml_int)
_JsonConstructor.add_constructor("tag:yaml.org,2002:float", _JsonConstructor.construct_yaml_float)


def _parse_yaml(text: str, file: str) -> Any:
    with _yaml_errors(file):
        yaml = _yaml()
        _refuse_depth(yaml, text, file)
        root = yaml.compose(text)
        _refuse_bombs(root, file)
        _read_keys_as_text(root)
        return None if root is None else _json_only(yaml.constructor.construct_document(root))


def _json_only(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _json_only(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_only(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON value")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"a {type(value).__name__} is not a JSON value")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise ValueError(f"{key!r} cannot be a key: JSON's keys are strings")


def _yaml() -> YAML:
    yaml = YAML(typ="safe")  # the C parser: a suite with a thousand inline cases reads in 0.1 s instead of 2
    yaml.Constructor = _JsonConstructor
    yaml.allow_duplicate_keys = False
    return yaml


def _compose(text: str, file: str) -> Node | None:
    with _yaml_errors(file):
        return _yaml().compose(text)  # type: ignore[no-any-return]  # ruamel's compose has no types


@contextmanager
def _yaml_errors(file: str) -> Iterator[None]:
    try:
        yield
    except YAMLError as error:
        raise _yaml_problem(error, file) from None
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(f"is not valid YAML: {error}", file)) from None


def _yaml_problem(error: YAMLError, file: str) -> InputError:
    message, line = str(error).splitlines()[0], None
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        message = str(error.problem or error.context).strip().splitlines()[0]
    return InputError(Problem(f"is not valid YAML: {message}", file, line))


def _refuse_depth(yaml: YAML, text: str, file: str) -> None:
    """The C composer recurses and takes the process with it: count the depth on the flat stream of events first."""
    depth = 0
    for event in yaml.parse(text):
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(file, event.start_mark.line + 1)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1


def _refuse_bombs(root: Node | None, file: str) -> None:
    """Aliases make a small text a huge document: count what they expand to before anything is built."""
    measured: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()

    def measure(node: Node) -> tuple[int, int]:
        """How many nodes it is with all inside of it, and how many levels."""
        key = id(node)
        if key in open_nodes:
            raise InputError(Problem("an alias contains itself", file, node.start_mark.line + 1))
        if key not in measured:
            open_nodes.add(key)
            parts = [measure(child) for child in _children(node)]
            open_nodes.discard(key)
            size, depth = 1 + sum(size for size, _ in parts), 1 + max((depth for _, depth in parts), default=0)
            if size > MAX_EXPANDED_NODES:
                raise InputError(Problem(f"its aliases expand to more than {MAX_EXPANDED_NODES:,} nodes", file))
            if depth > MAX_DEPTH + 1:
                raise _too_deep(file, node.start_mark.line + 1)
            measured[key] = size, depth
        return measured[key]

    if root is not None:
        measure(root)


def _read_keys_as_text(root: Node | None) -> None:
    """JSON's keys are strings: `1:` and `'1':` are the same key, `true:` and `1:` are not."""
    seen: set[int] = set()
    waiting = [] if root is None else [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += _children(node)
        for key, _ in node.value if isinstance(node, MappingNode) else ():
            if isinstance(key, ScalarNode) and str(key.tag).startswith(_CORE) and key.tag != f"{_CORE}merge":
                key.tag = f"{_CORE}str"


_CORE = "tag:yaml.org,2002:"


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _child(node: Node | None, step: str | int) -> Node | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(step):
                return value  # type: ignore[no-any-return]  # ruamel's nodes have no types
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step]  # type: ignore[no-any-return]  # ruamel's nodes have no types
    return None
