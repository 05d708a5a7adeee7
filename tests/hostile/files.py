"""Hostile files: suites and data files as somebody makes them who wants `fepflow validate` to hang, grow or break."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HEAD = 'name: hostile\ntarget: {http: {url: "http://127.0.0.1:9/ask"}}\n'
CHECKS = "checks: [{type: contains, arguments: {text: $.output.value, phrases: a}}]\n"
CASE = '{"id": "one", "input": "?"}\n'


@dataclass(frozen=True)
class HostileFile:
    """A folder with a suite.yaml in it, and what validating it says: words of the first problem, or nothing.

    `made` writes the files into a folder. Bounds are in seconds of computing and in megabytes beyond those before.
    """

    name: str
    made: Callable[[Path], None] = field(repr=False)
    says: str = ""
    seconds: float = 10.0
    megabytes: float = 400.0


def suite(text: str | bytes) -> Callable[[Path], None]:
    """A suite that is this text."""

    def write(folder: Path) -> None:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        (folder / "suite.yaml").write_bytes(data)

    return write


def good(more: str = "", cases: str = "cases.jsonl") -> str:
    return f"{HEAD}test_cases: {cases}\n{CHECKS}{more}"


def cases(data: str | bytes | Callable[[], bytes], name: str = "cases.jsonl", more: str = "") -> Callable[[Path], None]:
    """A suite without fault, and a data file that is this; large data is made when it is written."""

    def write(folder: Path) -> None:
        suite(good(more, name))(folder)
        content = data() if callable(data) else data
        whole = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(gzip.compress(whole, 1) if name.endswith(".gz") else whole)

    return write


def damaged_gzip(folder: Path) -> None:
    cases(CASE, "cases.jsonl.gz")(folder)
    whole = folder / "cases.jsonl.gz"
    whole.write_bytes(whole.read_bytes()[:-9])


def node(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """A suite without fault whose data file is something else than a file."""

    def write(folder: Path) -> None:
        suite(good())(folder)
        make(folder / "cases.jsonl")

    return write


def suite_node(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """A suite that is no file."""
    return lambda folder: make(folder / "suite.yaml")


def bomb(depth: int, width: int) -> str:
    """Aliases of aliases: `width` to the power of `depth` values, if somebody made them."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join(lines) + "\n"


def loop(path: Path) -> None:
    other = path.with_name("other")
    path.symlink_to(other)
    other.symlink_to(path)


SUITES = [
    HostileFile("no document", suite(""), "empty"),
    HostileFile("a number", suite("7"), "mapping"),
    HostileFile("zeros", suite(bytes(100_000))),
    HostileFile("random bytes", suite(random.Random(1).randbytes(100_000))),
    HostileFile("UTF-16", suite(good().encode("utf-16"))),
    HostileFile("half a character", suite(good("description: \ud800\n"))),
    HostileFile("6 MB of a text", suite(good("description: " + "a" * 6_000_000)), "5"),
    HostileFile("4 MB of a plain text", suite(good("description: " + "a " * 2_000_000))),
    HostileFile("4 MB of a quoted text", suite(good('description: "' + "a" * 4_000_000 + '"'))),
    HostileFile("300,000 keys", suite(good("tags: {" + ", ".join(f"k{i}: 1" for i in range(300_000)) + "}"))),
    HostileFile("100,000 unknown sections", suite(good("\n".join(f"s{i}: 1" for i in range(100_000))))),
    HostileFile("100,000 equal keys", suite(good("tags: [a]\n" * 100_000))),
    HostileFile("nested lists", suite(good("tags: " + "[" * 100_000))),
    HostileFile("nested mappings", suite(good("tags: " + "{a: " * 100_000))),
    HostileFile("nested blocks", suite(good("tags:\n" + "".join(f"{' ' * i}- \n" for i in range(1, 2_000))))),
    HostileFile("aliases of aliases", suite(bomb(9, 9) + good())),
    HostileFile("an alias of itself", suite("a: &a [*a]\n" + good())),
    HostileFile("merge keys", suite("a: &a {x: 1}\nb: {<<: [" + "*a, " * 10_000 + "]}\n" + good())),
    HostileFile("a tag of Python's", suite(good("tags: !!python/object/apply:os.system [id]\n"))),
    HostileFile("a boolean that is none", suite(good('tags: [!!bool "abc"]\n'))),
    HostileFile("an integer that is none", suite(good('repeats: !!int "abc"\n'))),
    HostileFile("a binary that is none", suite(good('description: !!binary "***"\n'))),
    HostileFile("a time that is none", suite(good("description: 2020-99-99T99:99:99Z\n"))),
    HostileFile("an integer of 10,000 digits", suite(good(f"repeats: {'9' * 10_000}\n"))),
    HostileFile("a float without end", suite(good("repeats: .inf\n"))),
    HostileFile("300,000 references", suite(good('description: "' + "${A:-" * 300_000 + '"\n'))),
    HostileFile("references in references", suite(good('description: "' + "${A:-" * 500 + "}" * 500 + '"\n'))),
    HostileFile("a name of a megabyte", suite(good().replace("hostile", "n" * 1_000_000))),
    HostileFile("a path of 5,000 characters", suite(good(cases="x" * 5_000))),
    HostileFile("a path with a NUL", suite(good(cases='"a\\0b"'))),
    HostileFile("a path out of the folder", suite(good(cases="../../../../etc/passwd")), "leads out"),
    HostileFile("a plugin out of the folder", suite(good("plugins: [/etc/passwd]\n")), "leads out"),
    HostileFile("documents", suite(good() + "---\n" * 100_000)),
    HostileFile("directives", suite("%YAML 1.1\n" * 10_000 + "---\n" + good())),
    HostileFile("comments", suite("#\n" * 2_000_000 + good())),
    HostileFile("anchors", suite(good("tags: [" + ", ".join(f"&a{i} x" for i in range(50_000)) + "]\n"))),
    HostileFile("itself as a data file", suite(good(cases="suite.yaml"))),
    HostileFile("100,000 checks", suite(good().replace("checks: [", "checks: [" + "{type: nothing}, " * 100_000))),
    HostileFile("a path of JSONPath", suite(good().replace("$.output.value", "$" + "..*" * 200))),
    HostileFile("a pipe as the suite", suite_node(os.mkfifo), "is a pipe"),
    HostileFile("a folder as the suite", suite_node(Path.mkdir)),
    HostileFile("a loop of links as the suite", suite_node(loop)),
    HostileFile("a device as the suite", suite_node(lambda path: path.symlink_to("/dev/zero")), "is a device"),
]

DATA = [
    HostileFile("no cases", cases(""), "no test case"),
    HostileFile("empty lines", cases("\n" * 1_000_000)),
    HostileFile("a list", cases("[]\n")),
    HostileFile("a cut line", cases(CASE + '{"id": "two", "inp'), "cases.jsonl:2"),
    HostileFile("not UTF-8", cases(b'{"id": "one", "input": "\xff"}\n')),
    HostileFile("random lines", cases(random.Random(2).randbytes(1_000_000))),
    HostileFile("NaN", cases('{"id": "one", "input": NaN}\n'), "cases.jsonl:1"),
    HostileFile("1e400", cases('{"id": "one", "input": 1e400}\n'), "cases.jsonl:1"),
    HostileFile("a number of 10,000 digits", cases('{"id": "one", "input": ' + "9" * 10_000 + "}\n")),
    HostileFile("nested lists in a case", cases('{"id": "one", "input": ' + "[" * 200_000 + "]" * 200_000 + "}\n")),
    HostileFile(
        "a line of 50 MB", cases(lambda: b'{"id": "one", "input": "' + b"a" * 50_000_000 + b'"}\n'), megabytes=900
    ),
    HostileFile(
        "equal members",
        cases('{"id": "one", "input": {' + ", ".join(f'"k{i}": 1' for i in range(50_000)) + ', "k1": 2}}\n'),
    ),
    HostileFile("equal ids", cases(CASE * 100_000), "one"),
    HostileFile("100,000 cases without an id", cases('{"input": "?"}\n' * 100_000)),
    HostileFile("100,000 cases that are none", cases('{"output": "?"}\n' * 100_000), "cases.jsonl:1"),
    HostileFile("a lone surrogate in an id", cases('{"id": "\\ud800", "input": "?"}\n')),
    HostileFile("an id of a megabyte", cases(json.dumps({"id": "i" * 1_000_000, "input": "?"}) + "\n")),
    HostileFile("an id with an escape", cases('{"id": "\\u001b[2J", "input": "?"}\n')),
    HostileFile("1 GB of newlines in gzip", cases(lambda: b"\n" * 1_000_000_000, "cases.jsonl.gz"), seconds=40),
    HostileFile("20 million empty objects in gzip", cases(lambda: b"{}\n" * 20_000_000, "cases.jsonl.gz"), seconds=60),
    HostileFile("damaged gzip", damaged_gzip),
    HostileFile("CSV of 200,000 columns", cases(",".join(f"c{i}" for i in range(200_000)) + "\n", "cases.csv")),
    HostileFile("CSV of one quote", cases('id,input\n1,"' + "a\n" * 1_000_000, "cases.csv")),
    HostileFile("CSV of equal columns", cases("id,input,input\n1,2,3\n", "cases.csv")),
    HostileFile("CSV of ragged lines", cases("id,input\n" + "1,2,3,4\n" * 100_000, "cases.csv")),
    HostileFile("CSV with NULs", cases("id,input\n1,\0\n", "cases.csv")),
    HostileFile("YAML of aliases", cases(bomb(9, 9), "cases.yaml")),
    HostileFile("JSON that is cut", cases("[" + '{"id": 1},' * 100_000, "cases.json")),
    HostileFile("a check without a type", cases('{"id": "one", "input": "?", "checks": [{"arguments": {}}]}\n')),
    HostileFile("checks that are no list", cases('{"id": "one", "input": "?", "checks": 7}\n'), "cases.jsonl:1"),
    HostileFile(
        "10,000 checks of a case",
        cases(json.dumps({"id": "one", "input": "?", "checks": [{"type": "nothing"}] * 10_000}) + "\n"),
    ),
    HostileFile("a pipe", node(os.mkfifo), "is a pipe"),
    HostileFile("a folder", node(Path.mkdir)),
    HostileFile("a loop of links", node(loop)),
    HostileFile("a device without end", node(lambda path: path.symlink_to("/dev/zero"))),
    HostileFile("a device without bytes", node(lambda path: path.symlink_to("/dev/null"))),
    HostileFile("a file of the system", node(lambda path: path.symlink_to("/etc/passwd")), "leads out"),
]


def regex_suite(pattern: str) -> Callable[[Path], None]:
    """A suite whose check has this pattern."""
    check = {"type": "regex", "arguments": {"text": "$.output.value", "pattern": pattern}}

    def write(folder: Path) -> None:
        suite(f"{HEAD}test_cases: cases.jsonl\nchecks: [{json.dumps(check)}]\n")(folder)
        (folder / "cases.jsonl").write_text(CASE, encoding="utf-8")

    return write


PATTERNS = [
    "(?:(?:(?:ab?){1000}){1000}){1000}$",
    "(" * 500 + ")" * 500,
    "(a" * 400 + "+)+" * 400,
    "(?i)[\\x00-\\U0010ffff]" * 40,
    "a{1000000000}",
    "a{0,4294967296}",
    "(?P<a>x)(?P<a>y)",
    "[" * 999,
    "(?<=a+)b",
    "\\" * 999,
    "(?#" * 300,
    "(?:a|b|c|d)" * 90,
    "[a-z]" * 200,
    "(?i:" * 100,
    "\\p{L}" * 160,
    "(?1)" * 200,
    "(a)(?1){1000}",
    "x" * 1_000,
    "x" * 1_001,
    "(((a{30}){30}){30}){30}",
    "\\N{BULLET}" * 90,
]


def schema_suite(schema: object) -> Callable[[Path], None]:
    """A suite whose check has this JSON Schema."""
    text = schema if isinstance(schema, str) else json.dumps(schema)

    def write(folder: Path) -> None:
        check = f'{{"type": "schema_validation", "arguments": {{"data": "$.output.value", "schema": {text}}}}}'
        suite(f"{HEAD}test_cases: cases.jsonl\nchecks: [{check}]\n")(folder)
        (folder / "cases.jsonl").write_text(CASE, encoding="utf-8")

    return write


SCHEMAS: dict[str, object] = {
    "of an unknown type": {"type": "nothing"},
    "that refers to itself": {"$ref": "#"},
    "of two that refer to each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "that refers to the network": {"$ref": "http://127.0.0.1:9/schema.json"},
    "that refers to a file": {"$ref": "file:///etc/passwd"},
    "of no dialect": {"$schema": "http://evil.example/schema"},
    "with a pattern that backtracks": {"type": "string", "pattern": "^(a|a)*$"},
    "with a pattern that is none": {"type": "string", "pattern": "("},
    "with patterns of members": {"patternProperties": {"(a+)+$": {}, "(": {}}},
    "with 10,000 members": {"properties": {f"m{i}": {"type": "string"} for i in range(10_000)}},
    "with 10,000 alternatives": {"anyOf": [{"const": i} for i in range(10_000)]},
    "nested 200 deep": '{"not": ' * 200 + "{}" + "}" * 200,
    "nested 20,000 deep": '{"not": ' * 20_000 + "{}" + "}" * 20_000,
    "that is a boolean": False,
    "that is a list": [],
    "with a minimum that is a text": {"minimum": "a"},
    "with a multiple of nothing": {"multipleOf": 0},
    "with an infinite enum": {"enum": [1e308] * 10_000},
    "with dynamic references": {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "$dynamicRef": "#a"}}},
    "with unevaluated members": {
        "allOf": [{"properties": {f"m{i}": True}} for i in range(2_000)],
        "unevaluatedProperties": False,
    },
}


def all_files() -> Iterator[HostileFile]:
    """Every one."""
    yield from SUITES
    yield from DATA
    for number, pattern in enumerate(PATTERNS):
        yield HostileFile(f"pattern {number}: {pattern[:30]}", regex_suite(pattern))
    for name, schema in SCHEMAS.items():
        yield HostileFile(f"a schema {name}", schema_suite(schema))
