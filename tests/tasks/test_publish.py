"""What Prefect shows of a run, as text; that it gets there is the end-to-end tests' affair."""

from __future__ import annotations

import re

import pytest

from fepflow.analysis import verdict_page as page_module
from fepflow.analysis.causes import causes_of
from fepflow.analysis.verdict_page import failed_cases, verdict_page, verdict_summary
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.decide import decide_run
from fepflow.tasks.events import drift_payload, payload_of
from fepflow.tasks.open_run import open_run
from fepflow.tasks.publish import progress_of, update_pause
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.text import escape_markdown

from .conftest import Agent, Plan


async def test_the_failed_cases_and_the_verdict_are_shown(plan: Plan) -> None:
    run_id = plan(["good", "fail 9", {"id": "<b>", "input": "no", "expected": "yes"}], repeats=2)
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 6))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = await decide_run(context)
        failed = failed_cases(context.store, context.run, verdict)
        page = verdict_page(context.run, verdict, (), failed, "1234")
    no_answer = ("(no answer)", "fail 9", "fail 9", "", "2")
    wrong = ("exact_match", "no", "yes", "no", "1")
    columns = ("check", "input", "expected", "output", "attempts")
    assert [(row["case"], *(row[column] for column in columns)) for row in failed.rows] == [
        ("<b> #1", *wrong),
        ("<b> #2", *wrong),
        ("fail 9 #1", *no_answer),
        ("fail 9 #2", *no_answer),
    ]
    assert failed.rows[2]["why"].startswith("HTTP 503 Service Unavailable")
    assert failed.rows[0]["why"] == 'got "no", wanted "yes"'
    shown = f"`fepflow show {run_id[:8]} --failed`"
    sentence, *links = failed.about.split("\n\n")
    assert sentence == f"2 of 3 cases did not pass (all here). In full: {shown.strip('`')}"
    assert links == ["[The verdicts of this suite](../../artifacts/key/verdict-s)"], "a card leaves links out"
    assert page.startswith(f"# FAIL: s\n\n**{escape_markdown(verdict.rules[0].reason)}**\n")
    assert "[2 cases that did not pass](../../artifacts/artifact/1234)" in page
    assert "| exact\\_match | " in page
    assert "- **\\<b\\> \\#1** · exact\\_match: " in page
    assert "    - input: no\n    - expected: yes\n    - output: no\n" in page
    assert failed.table()[0]["case"] == "<\u2060b> #1"
    assert "http" not in failed.about + page.replace("HTTP", "")
    assert "page" not in payload_of(context.run, verdict, None)
    assert shown in page
    assert "baseline" not in page.lower()
    assert verdict_summary(verdict) == f"FAIL: {verdict.rules[0].reason}"


async def test_runs_are_linked_with_their_pages_where_these_are_known(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEPFLOW_PAGES_URL", "https://eval.example.org/")
    settings.cache_clear()
    run_id = plan([{"id": "a/(b)", "input": "no", "expected": "yes"}, "good"], repeats=2)
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 4))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = await decide_run(context)
        failed = failed_cases(context.store, context.run, verdict)
        page = verdict_page(context.run, verdict, (), failed, causes=causes_of(context.store, context.run))
    address = f"https://eval.example.org/runs/{run_id}"
    assert f"[the results]({address}) · " in page
    cause = escape_markdown('2 × exact_match: got "no", wanted "yes"')
    listed = f"[in the list of cases]({address}?show=failed&check=exact_match#cases-title)"
    assert f"- {cause} ([a\\/\\(b\\)]({address}/case?id=a%2F%28b%29): {listed})\n" in page
    assert f"- **[a\\/\\(b\\) \\#2]({address}/case?id=a%2F%28b%29)** · exact\\_match: " in page
    assert (
        f"\n\n[The results]({address})\n\n[The verdicts of this suite](../../artifacts/key/verdict-s)" in failed.about
    )
    assert payload_of(context.run, verdict, None)["page"] == drift_payload(context.run, verdict, [])["page"] == address


async def test_slices_are_a_table_with_the_worst_first(plan: Plan, store: Store) -> None:
    cases = [
        {
            "id": f"{topic}{n}",
            "input": f"{topic}{n}",
            "expected": "no" if topic == "_b_" else None,
            "metadata": {"topic": topic},
        }
        for topic in ("a", "_b_")
        for n in range(8)
    ]
    for case in cases:
        case["expected"] = case["expected"] or case["input"]
    run_id = plan(cases, slices={"by": "topic", "min": 0.5})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 16))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = await decide_run(context)
        page = verdict_page(context.run, verdict)
    assert verdict.outcome == "fail"
    header, _, worst, best = page[page.index("| topic |") :].splitlines()[:4]
    assert header == "| topic | metric | value | interval | n | errors | minimum | outcome |"
    assert worst == "| \\_b\\_ | exact\\_match | 0 | 0 to 0.3694 | 8 of 8 | 0 | 0.5 | fail |"
    assert best.endswith("| 0.5 | pass |")
    stored = store.runs.get(run_id).verdict["slices"]
    assert [(each["slice"], each["outcome"]) for each in stored] == [("_b_", "fail"), ("a", "pass")]


async def test_what_is_not_known_is_a_dash(plan: Plan) -> None:
    async with open_run(plan(["fail 9"])) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        page = verdict_page(context.run, await decide_run(context))
    assert page.startswith("# INCONCLUSIVE: s\n")
    assert re.search(r"^\| exact\\_match \| · \| · \| 0 of 1 \| 1 \|", page, re.MULTILINE)
    assert "none" not in page.lower()


async def test_the_rows_of_the_check_that_decided_come_first(plan: Plan) -> None:
    paths = {"actual": "$.output.value", "expected": "$.test_case.expected"}
    checks = [{"type": "exact_match", "id": name, "arguments": paths} for name in ("asked", "watched")]
    cases = [{"id": name, "input": "no", "expected": "yes"} for name in ("a", "b")]
    checks[1]["arguments"] = {**paths, "actual": "$.test_case.id", "expected": "a"}
    async with open_run(plan(cases, checks=checks, gate={"min": {"watched": 0.9}})) as context:
        work = await context.begin(Batch(0, 2))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        rows = failed_cases(context.store, context.run, await decide_run(context)).rows
    assert [(row["check"], row["case"]) for row in rows] == [
        ("watched", "b"), ("asked", "b"), ("asked", "a")
    ]  # fmt: skip


async def test_the_table_is_cut_and_says_how_much_is_left_out(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_ROWS", 3)
    wrong = [{"id": str(number), "input": "no", "expected": "yes"} for number in range(10)]
    async with open_run(plan([*wrong, "good"])) as context:
        work = await context.begin(Batch(0, 11))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        failed = failed_cases(context.store, context.run, await decide_run(context))
    assert len(failed.rows) == 3
    assert "10 of 11 cases did not pass (3 of them are here, 7 are left out)" in failed.about


async def test_the_page_shows_the_baseline_beside_the_metrics(plan: Plan, agent: Agent) -> None:
    pages = []
    for wrong in (set(), {"a"}):
        agent.wrong = wrong
        async with open_run(plan(["a"], baseline="previous")) as context:
            work = await context.begin(Batch(0, 1))
            await call_target(context, work)
            await run_checks_of_batch(context, work)
            pages.append(verdict_page(context.run, await decide_run(context)))
    first, second = pages
    assert "\nNo baseline: There is no earlier run of the suite to compare with" in first
    assert re.search(
        r"^Baseline: pass in run `[0-9a-f]{8}`: \*\*the outcome has worsened\*\* \(compared", second, re.MULTILINE
    )
    assert "| baseline | change |" in second
    assert "| 1 | -1 |" in second


async def test_progress_is_what_the_store_has(plan: Plan) -> None:
    run_id = plan(["a", "fail 9", "c", {"id": "d", "input": "d", "expected": "x"}])
    async with open_run(run_id) as context:
        assert progress_of(context)[0] == 0
        work = await context.begin(Batch(0, 2))
        await call_target(context, work)
        assert progress_of(context)[0] == 50
        await run_checks_of_batch(context, work)
        work = await context.begin(Batch(2, 4))
        await call_target(context, work)
        assert progress_of(context)[0] == 99, "it is not over yet"
        await run_checks_of_batch(context, work)
        percent, words = progress_of(context, over=True)
    assert percent == 100
    counts = "4 of 4 calls, 1 without an answer; checks: 2 passed, 1 failed, 1 in error."
    assert words == f"{counts} So far: `fepflow show {run_id[:8]}`"


def test_long_and_large_runs_are_updated_less_often() -> None:
    age, updates = 0.0, 0
    while age < 24 * 3600:
        age += update_pause(age, counting=0.01)
        updates += 1
    assert updates < 500, "Prefect keeps an event of each"
    assert update_pause(10, counting=0.01) == 2
    assert update_pause(10, counting=1.0) == 20, "counting takes a twentieth of the time at most"
