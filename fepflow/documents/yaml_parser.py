"""YAML 1.2 text as JSON values, read so that a hostile one cannot hurt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fepflow.documents.yaml_errors import FLOW_COLON, problem_of, shown
from fepflow.errors import InputError, Problem
from fepflow.json.values import MAX_DEPTH

MAX_EVENTS = 200_000
MAX_EXPANDED_NODES = 1_000_000

_SLOWLY = 200_000
"""Characters that the parser in Python is given, which takes 3 s for 100,000."""

_CORE = "tag:yaml.org,2002:"


class _JsonConstructor(SafeConstructor):
    """Builds JSON values only: YAML 1.2's core schema has no dates, so what looks like one stays text.

    Neither has it numbers with underscores, nor a meaning of `=` and, as a value, of `<<`.
    """

    def construct_yaml_int(self, node: ScalarNode) -> Any:
        """An integer, or the text that YAML 1.1 took for one; raises ValueError for a sign or a tag alone."""
        return node.value if "_" in node.value else super().construct_yaml_int(_with_digits(node))

    def construct_yaml_float(self, node: ScalarNode) -> Any:
        """A float, or the text that YAML 1.1 took for one; raises ValueError for a sign or a tag alone."""
        return node.value if "_" in node.value else super().construct_yaml_float(_with_digits(node))

    def construct_yaml_bool(self, node: ScalarNode) -> Any:
        """A boolean; raises ValueError for what has only the tag of one."""
        if str(node.value).lower() not in ("true", "false"):
            raise ValueError(f"{shown(node.value)} is not true or false")
        return super().construct_yaml_bool(node)


def _with_digits(node: ScalarNode) -> ScalarNode:
    # ruamel.yaml looks at the first character, and at the one after a sign, without asking whether it is there.
    if not node.value.strip("+-"):
        raise ValueError(f"{shown(node.value)} is not a number")
    return node


for _tag in ("timestamp", "value", "merge"):
    _JsonConstructor.add_constructor(f"{_CORE}{_tag}", SafeConstructor.construct_yaml_str)
for _tag in ("int", "float", "bool"):
    _JsonConstructor.add_constructor(f"{_CORE}{_tag}", getattr(_JsonConstructor, f"construct_yaml_{_tag}"))


def parse_yaml(text: str, file: str) -> Any:
    """The value that YAML text holds; None for an empty one.

    Raises InputError, with line, column and advice: bad syntax, a duplicate key, aliases that expand without bound,
    what JSON does not have.
    """
    with _yaml_errors(text, file):
        yaml, root = _composed(text, file)
        _refuse_bombs(root, file)
        _read_keys_as_text(root)
        if root is None:
            return None
        try:
            return _json_only(yaml.constructor.construct_document(root))
        except ValueError as error:
            raise InputError(_blame(root, file) or Problem(f"is not valid YAML: {error}", file)) from None


def compose(text: str, file: str) -> Node | None:
    """The nodes of YAML text, each with its place; None for an empty one. Raises InputError."""
    with _yaml_errors(text, file):
        return _composed(text, file)[1]


def too_deep(file: str, line: int | None = None) -> InputError:
    """The error of a document that nests deeper than it may."""
    return InputError(Problem(f"is nested deeper than {MAX_DEPTH} levels", file, line))


def children(node: Node) -> list[Node]:
    """The nodes directly inside of a node, keys among them."""
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _composed(text: str, file: str) -> tuple[YAML, Node | None]:
    yaml = _yaml()
    try:
        _refuse_size(yaml, text, file)
    except YAMLError as error:
        if FLOW_COLON not in str(error) or len(text) > _SLOWLY:
            raise
        # Its C parser does not know `{model: local:letters}`, which YAML 1.2, PyYAML and its own Python parser do.
        slow = _yaml(pure=True)
        with _first_error(error):
            _refuse_size(slow, text, file)
        yaml = _yaml(pure=True)
    return yaml, yaml.compose(text)


@contextmanager
def _first_error(error: YAMLError) -> Iterator[None]:
    """Errors that both parsers find are reported in the words of the first, which `yaml_errors` knows."""
    try:
        yield
    except YAMLError as other:
        raise (other if FLOW_COLON in str(error) else error) from None


def _yaml(*, pure: bool = False) -> YAML:
    yaml = YAML(typ="safe", pure=pure)  # the C parser: a suite with a thousand inline cases reads in 0.1 s, not in 2
    yaml.Constructor = _JsonConstructor
    yaml.allow_duplicate_keys = False
    return yaml


@contextmanager
def _yaml_errors(text: str, file: str) -> Iterator[None]:
    try:
        yield
    except YAMLError as error:
        raise InputError(problem_of(error, text, file)) from None
    except (ValueError, KeyError, RecursionError) as error:
        raise InputError(Problem(f"is not valid YAML: {error}", file)) from None


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
    raise ValueError(f"{shown(str(key))} cannot be a key: JSON's keys are strings")


def _blame(root: Node, file: str) -> Problem | None:
    """Where the first value is that YAML can say and JSON cannot; None if that is not one value's fault."""
    constructor = _yaml().constructor
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += reversed(children(node))
        if isinstance(node, ScalarNode) or str(node.tag) not in (f"{_CORE}map", f"{_CORE}seq"):
            try:
                _json_only(constructor.construct_object(node, deep=True))
            except (ValueError, YAMLError) as error:
                mark = node.start_mark
                advice = "put it in quotes, if it is a text"
                return Problem(f"is not valid YAML: {error}", file, mark.line + 1, None, advice, column=mark.column + 1)
    return None


def _refuse_size(yaml: YAML, text: str, file: str) -> None:
    """The C composer recurses and takes the process with it: count the depth on the flat stream of events first.

    The same for the number of nodes: each costs a twentieth of a millisecond, several times over.
    """
    depth = 0
    for number, event in enumerate(yaml.parse(text)):
        if number > MAX_EVENTS:
            message = f"holds more than {MAX_EVENTS:,} values"
            raise InputError(Problem(message, file, event.start_mark.line + 1, advice="use JSONL for data"))
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep(file, event.start_mark.line + 1)
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
            parts = [measure(child) for child in children(node)]
            open_nodes.discard(key)
            size, depth = 1 + sum(size for size, _ in parts), 1 + max((depth for _, depth in parts), default=0)
            if size > MAX_EXPANDED_NODES:
                raise InputError(Problem(f"its aliases expand to more than {MAX_EXPANDED_NODES:,} nodes", file))
            if depth > MAX_DEPTH + 1:
                raise too_deep(file, node.start_mark.line + 1)
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
        waiting += children(node)
        for key, _ in node.value if isinstance(node, MappingNode) else ():
            if isinstance(key, ScalarNode) and str(key.tag).startswith(_CORE) and key.tag != f"{_CORE}merge":
                key.tag = f"{_CORE}str"
