"""What Prefect shows of a run, as text; that it gets there is the end-to-end tests' affair."""

from __future__ import annotations

import pytest

from tasks.batches import Batch
from tasks.call_target import call_target
from tasks.decide import decide_run
from tasks.publish import cell, failed_rows, slug, verdict_markdown
from tasks.run_checks import run_checks_of_batch
from tasks.runtime import open_runtime

from .conftest import Plan


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("[click](javascript:x)", r"\[click\](javascript:x)"),
        ("a | b", r"a \| b"),
        ("# **big** `code` _x_", r"\# \*\*big\*\* \`code\` \_x\_"),
        ("one\n\ntwo\r\nthree", "one two three"),
        ("bell \x07 \ud800", r"bell \\u0007 \\ud800"),
        ("x" * 1_000, "x" * 299 + "…"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_what_others_wrote_is_text_and_nothing_else(text: object, shown: str) -> None:
    assert cell(text) == shown


@pytest.mark.parametrize(("name", "part"), [("Refund Bot (v2)", "refund-bot-v2"), ("日本語", "suite")])
def test_a_suites_name_in_a_resource_id(name: str, part: str) -> None:
    assert slug(name) == part


async def test_the_failed_cases_and_the_verdict_are_shown(plan: Plan) -> None:
    run_id = plan(["good", "fail 9", {"id": "<b>", "input": "no", "expected": "yes"}], repeats=2)
    async with open_runtime(run_id) as runtime:
        await call_target(runtime, Batch(0, 6))
        await run_checks_of_batch(runtime, Batch(0, 6))
        verdict = await decide_run(runtime)
        rows = list(failed_rows(runtime))
        page = verdict_markdown(runtime.run.name, run_id, verdict)
    assert [(row["case"], row["check"]) for row in rows] == [
        (r"fail 9 \#1", "all"),
        (r"fail 9 \#2", "all"),
        (r"&lt;b&gt; \#1", r"exact\_match"),
        (r"&lt;b&gt; \#2", r"exact\_match"),
    ]
    assert rows[0]["why"].startswith("HTTP 503 Service Unavailable")
    assert page.startswith("# Fail: s\n")
    assert "| exact\\_match | " in page
    assert f"`fepflow show {run_id}`" in page
