"""A first suite for an MCP server: a test case for each tool, with arguments made from its schema.

Texts of a server are not trusted: they are comments or JSON, on one line each.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_types import Tool

from fepflow.calls.mcp.session import Connection, Server
from fepflow.calls.mcp.target import open_servers
from fepflow.calls.policy import time_limit
from fepflow.documents.loader import Document
from fepflow.errors import InputError, TargetTimeoutError
from fepflow.json.values import referred
from fepflow.security.redaction import excerpt, known_secrets, remember
from fepflow.suite.reader import read_suite
from fepflow.suite.target import Target

TODO = "TODO"
_SECONDS = 60.0
_DEEPEST = 5
_MOST_ARGUMENTS = 50
_SHOWN = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "url": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}


@dataclass(frozen=True, slots=True)
class StarterSuite:
    """The text of a suite, and names of tools.

    `called` are its test cases, `may_change` those of them that are not declared read-only, and `left_out` the tools
    that are declared destructive.
    """

    text: str
    called: Sequence[str]
    may_change: Sequence[str]
    left_out: Sequence[str]


def target_of(server: str, variables: Sequence[str], headers: Sequence[str]) -> tuple[Target, dict[str, Any]]:
    """Return the target for a server (a command or an address), and its section as it is written into a suite.

    `variables` are names of environment variables, `headers` texts `NAME: VALUE`. The section keeps `${NAME}` as it is.
    Raises InputError.
    """
    parts = [header.partition(":") for header in headers]
    written: dict[str, Any] = {"command": server} if "://" not in server else {"url": server}
    written |= {"env": list(variables)} if variables else {}
    written |= {"headers": {name.strip(): value.strip() for name, _, value in parts}} if parts else {}
    data = {"target": {"mcp": written}, "name": "mcp", "test_cases": [{"input": "?"}]}
    loaded = read_suite(Document(data, "--mcp", ""), Path.cwd())
    if loaded.problems:
        raise InputError([replace(problem, file=None, path="--mcp") for problem in loaded.problems])
    target: Target = loaded.section("target")
    assert target.mcp is not None  # it is what the document has
    remember(loaded.secrets)
    if target.mcp.command is not None:
        written["command"] = target.mcp.command
    return target, written


async def starter_suite(target: Target, written: Mapping[str, Any], folder: Path) -> StarterSuite:
    """Ask a server for its tools, from the working directory, and return a suite in `folder` with a case for each.

    `written` is the section `mcp` of the suite, with its references. A tool that is declared destructive
    (destructiveHint) is a comment. Most tools declare nothing: they are cases with a warning. Raises InputError,
    TargetError.
    """

    def late() -> TargetTimeoutError:
        return TargetTimeoutError(f"the server has not listed its tools within {_SECONDS:g} s")

    async with (
        aclosing(open_servers(target, Path.cwd(), known_secrets())) as servers,
        aclosing(Connection(servers.streams, known_secrets())) as connection,
    ):
        async with time_limit(_SECONDS, late):
            server = await connection.server()
        return _suite(server, written, folder)


def _suite(server: Server, written: Mapping[str, Any], folder: Path) -> StarterSuite:
    called = [tool for tool in server.tools.values() if not _destroys(tool)]
    left_out = [tool for tool in server.tools.values() if _destroys(tool)]
    may_change = [tool for tool in called if not _only_reads(tool)]
    section = dict(written)
    if "command" in section and (place := os.path.relpath(Path.cwd(), folder)) != ".":
        section["cwd"] = place
    text = suite_text(str(server.about["server"].get("name") or "mcp-server"), called, left_out, section)
    return StarterSuite(text, *([tool.name for tool in tools] for tools in (called, may_change, left_out)))


def suite_text(name: str, called: Sequence[Tool], left_out: Sequence[Tool], section: Mapping[str, Any]) -> str:
    """Return a suite with a case for each tool; the tools `left_out` are comments."""
    lines = [
        f"# A test case for each tool of the server {_words(name)}. Replace each TODO by a real value.",
        "# `fepflow validate suite.yaml` finds mistakes; `fepflow run suite.yaml` runs it.",
        f"name: {_yaml(_words(name))}",
        "target:",
        "  mcp:",
        *(f"    {key}: {_yaml(value)}" for key, value in section.items()),
        "  timeout: 60s",
        "",
        "# Besides its own checks each case has the check `answered`: the tool did not answer with an error. A case",
        "# that is to be refused says so: input: {tool: ..., arguments: {...}, is_error: true}.",
        "test_cases:" if called else "test_cases: []",
    ]
    for tool in called:
        lines += ["", *_case(tool)]
    if left_out:
        lines += [
            "",
            "  # These tools say that they destroy something (destructiveHint). Uncomment a case if you want that"
            + ("." if called else ", and take [] away above."),
        ]
    for tool in left_out:
        lines += ["", *(f"  # {line.removeprefix('  ')}" for line in _case(tool))]
    return "\n".join(lines) + "\n"


def _only_reads(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True


def _destroys(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.destructive_hint is True and not _only_reads(tool)


def _case(tool: Tool) -> Iterator[str]:
    if tool.description:
        yield f"  # {_words(tool.description)}"
    if not _only_reads(tool):
        yield "  # It does not say that it only reads (readOnlyHint): calling it may change something."
    name = _yaml(_words(tool.name, 1_000))
    yield f"  - id: {name}"
    yield "    input:"
    yield f"      tool: {name}"
    arguments = list(_arguments(tool.input_schema))
    yield "      arguments:" if arguments else "      arguments: {}"
    yield from arguments
    if tool.output_schema is not None:
        yield "    checks: [{type: declared}]"
    else:
        yield "    checks: [{type: is_empty, arguments: {value: $.output.metadata.content, negate: true}}]"


def _arguments(schema: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each required argument."""
    for name, part in _required(schema).items():
        value = sample(part, schema)
        about = part.get("description") if isinstance(part, dict) else None
        words = [TODO] if value == 1 and value is not True and "1" not in json.dumps(part) else []
        words += [_words(about)] if isinstance(about, str) and about.strip() else []
        key = _yaml(_words(name, 1_000))
        comment = f"  # {': '.join(words)}" if words else ""
        yield f"        {key}: {_yaml(value)}{comment}"


def _required(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of an object's required members, by name."""
    properties, names = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(names, list):
        return {}
    return {name: properties.get(name) for name in [name for name in names if isinstance(name, str)][:_MOST_ARGUMENTS]}


def sample(schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """Return a value that fits a simple schema: its example, default or first choice, else a value of its type.

    A text without any of these, and a value of an unknown type, is TODO.
    """
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return TODO
    if isinstance(examples := schema.get("examples"), list) and examples:
        return examples[0]
    for key in ("example", "default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(branches := schema.get(key), list) and branches:
            kinds = [branch for branch in branches if isinstance(branch, dict) and branch.get("type") != "null"]
            return sample(kinds[0] if kinds else None, root, depth + 1)
    if isinstance(reference := schema.get("$ref"), str):
        return sample(referred(root, reference), root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), None)
    match kind:
        case "boolean":
            return False
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum"))
            return least + ("minimum" not in schema) if isinstance(least, int | float) else 1
        case "array":
            return [sample(schema.get("items"), root, depth + 1)] if schema.get("minItems") else []
        case "object":
            return {name: sample(part, root, depth + 1) for name, part in _required(schema).items()}
    return _FORMATS.get(str(schema.get("format")), TODO)


def _yaml(value: Any) -> str:
    """Return a value as JSON on one line, which is also YAML; plain names stay as they are."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXTS:
        return value
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _words(text: str, limit: int = _SHOWN) -> str:
    return excerpt(text, frozenset(), limit)
