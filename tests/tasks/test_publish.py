"""What Prefect shows of a run, as text; that it gets there is the end-to-end tests' affair."""

from __future__ import annotations

import re

from tasks.batches import Batch
from tasks.call_target import call_target
from tasks.decide import decide_run
from tasks.publish import MAX_ROWS, failed_table, verdict_markdown
from tasks.run_checks import run_checks_of_batch
from tasks.runtime import open_runtime

from .conftest import Plan


async def test_the_failed_cases_and_the_verdict_are_shown(plan: Plan) -> None:
    run_id = plan(["good", "fail 9", {"id": "<b>", "input": "no", "expected": "yes"}], repeats=2)
    async with open_runtime(run_id) as runtime:
        await call_target(runtime, Batch(0, 6))
        await run_checks_of_batch(runtime, Batch(0, 6))
        verdict = await decide_run(runtime)
        rows, about = failed_table(runtime)
        page = verdict_markdown(runtime.run, verdict)
    no_answer = ("`no check: the call failed`", "2", "")
    wrong = ("`exact_match`", "1", "`no`")
    assert [(row["case"], row["check"], row["attempts"], row["output"]) for row in rows] == [
        ("`fail 9 #1`", *no_answer),
        ("`fail 9 #2`", *no_answer),
        ("`<b> #1`", *wrong),
        ("`<b> #2`", *wrong),
    ]
    assert rows[0]["why"].startswith("`HTTP 503 Service Unavailable")
    assert rows[2]["why"] == "`expected: yes`"
    shown = f"`fepflow show {run_id[:8]} --failed`"
    assert about == f"2 of 3 cases did not pass (all here). In full: {shown}"
    assert page.startswith("# Fail: s\n")
    assert "| `exact_match` | " in page
    assert page.endswith(shown)
    assert "baseline" not in page.lower()


async def test_the_table_is_cut_and_says_how_much_is_left_out(plan: Plan) -> None:
    wrong = [{"id": str(number), "input": "no", "expected": "yes"} for number in range(MAX_ROWS + 7)]
    async with open_runtime(plan([*wrong, "good"])) as runtime:
        await call_target(runtime, Batch(0, MAX_ROWS + 8))
        await run_checks_of_batch(runtime, Batch(0, MAX_ROWS + 8))
        rows, about = failed_table(runtime)
    assert len(rows) == MAX_ROWS
    assert f"107 of 108 cases did not pass ({MAX_ROWS} of them are here, 7 are left out)" in about


async def test_the_page_shows_the_baseline_beside_the_metrics(plan: Plan) -> None:
    pages = []
    for expected in ("a", "not a"):
        async with open_runtime(
            plan([{"id": "a", "input": "a", "expected": expected}], baseline="previous")
        ) as runtime:
            await call_target(runtime, Batch(0, 1))
            await run_checks_of_batch(runtime, Batch(0, 1))
            pages.append(verdict_markdown(runtime.run, await decide_run(runtime)))
    first, second = pages
    assert "aseline" not in first
    assert re.search(r"^Baseline: pass in run `[0-9a-f]{8}`: \*\*the outcome has worsened\*\*$", second, re.MULTILINE)
    assert "| impact | baseline | change |" in second
    assert "| 1 | -1 |" in second
