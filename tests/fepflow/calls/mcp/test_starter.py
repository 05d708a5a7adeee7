"""Suites that `fepflow init --mcp` writes: arguments from schemas that nobody has vouched for, and no harm by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.calls.mcp.starter import sample, suite_text
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.protocol.check import to_check
from tests.fepflow.calls.mcp.conftest import HOSTILE, ORDERS
from tests.fepflow.conftest import Cli


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "TODO"),
        ({"type": "string", "examples": ["A100"]}, "A100"),
        ({"type": "string", "default": "fr"}, "fr"),
        ({"type": "string", "enum": ["asc", "desc"]}, "asc"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": ["null", "integer"]}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "boolean"}, False),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "array", "minItems": 1, "items": {"type": "number"}}, [1]),
        ({"type": "object", "properties": {"a": {}, "b": {"type": "boolean"}}, "required": ["b"]}, {"b": False}),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, False),
        ({"$ref": "#/$defs/kind"}, "x"),
        ({"$ref": "#/$defs/loop"}, "TODO"),
        ({"$ref": "http://127.0.0.1/"}, "TODO"),
        (True, "TODO"),
        ({"enum": 5, "examples": {}, "anyOf": "no", "type": 7}, "TODO"),
    ],
)
def test_a_sample_fits_its_schema_as_far_as_that_can_be_seen(schema: Any, value: Any) -> None:
    root = {"$defs": {"kind": {"const": "x"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert sample(schema, root) == value


def test_words_of_a_server_stay_on_their_line_and_cases_that_may_do_harm_are_comments() -> None:
    from mcp_types import Tool, ToolAnnotations

    odd = Tool(
        name="a: b\n- id: evil",
        description="first\nchecks: [] # \x07 \U0001f600",
        input_schema={
            "properties": {
                'k"\n: {[': {"type": "string", "default": "x\ny: '\U0001f600\ud800", "description": "a\nb"},
                "is_new": {"type": "boolean", "default": True},
                "count": {"type": "integer"},
            },
            "required": ['k"\n: {[', "is_new", "count"],
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )
    quiet = Tool(name="on", input_schema={})
    text = suite_text("a\nname: evil", [odd], [quiet], {"command": ["x"]})
    document = YAML(typ="safe").load(text)
    assert list(document) == ["name", "target", "test_cases"]
    (case,) = document["test_cases"]
    assert case["checks"][0]["type"] == "is_empty"
    assert list(case["input"]["arguments"].values()) == ["x\ny: '\U0001f600?", True, 1]
    assert "is_new: true\n" in text, "a value that the schema has is none to put in"
    assert "count: 1  # TODO\n" in text
    uncommented = text.replace("  # - id", "  - id").replace("  #   ", "    ")
    assert [case["id"] for case in YAML(typ="safe").load(uncommented)["test_cases"]][1:] == ["on"]


def test_init_writes_a_case_for_each_tool_once_and_nothing_else(cli: Cli, home: Path) -> None:
    done = cli("init", "made", "--mcp", " ".join(ORDERS))
    assert done.exit_code == 0, done.output
    assert "A run calls these too, which do not say that they only read: environment." in done.output
    assert "Left as comments, for these say that they destroy something: delete_order, crash." in done.output
    assert [path.name for path in (home / "made").iterdir()] == ["suite.yaml"]
    validation = validate_suite(home / "made" / "suite.yaml")
    assert validation.problems == []
    checks = {case.id: [to_check(check).type for check in case.checks or ()] for case in validation.cases}
    assert (checks["get_order"], checks["greet"], checks["environment"]) == (["declared"], ["is_empty"], ["is_empty"])
    assert "delete_order" not in checks
    before = (home / "made" / "suite.yaml").read_text()
    again = cli("init", "made", "--mcp", " ".join(ORDERS))
    assert (again.exit_code, (home / "made" / "suite.yaml").read_text()) == (2, before)
    assert "already exists" in again.output


ENDS_AT_ONCE = " ".join([*HOSTILE, "'exits at once'"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mcp", "no-such-program"], "error: the server cannot be started: the program no-such-program is not found"),
        (["--mcp", ENDS_AT_ONCE], "error: initialize: the server exited with code 4"),
        (["--mcp", "http://127.0.0.1:1/mcp"], "error: initialize: connection refused by 127.0.0.1:1"),
        (
            ["--mcp", "http://h/mcp", "--header", "Authorization: Bearer abcdefgh"],
            "error: --mcp: a secret must not stand in the suite",
        ),
        (["--env", "HOME"], "--env and --header go with --mcp."),
    ],
)
def test_a_server_that_cannot_be_asked_is_told_and_nothing_is_written(
    words: list[str], sentence: str, cli: Cli, home: Path
) -> None:
    done = cli("init", "made", *words)
    assert done.exit_code in (2, 3)
    assert sentence in done.output
    assert not (home / "made").exists()
