"""What each page says, of runs in every state, and what it answers to what is not there or not understood."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.blobs import Blobs
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from tests.fepflow.conftest import BROKE_OFF, NO_ANSWER
from tests.fepflow.pages.conftest import OF_A_PAGE, Row, answer, fill, served, simple

ROWS = [*(simple(f"good {number}") for number in range(70)), simple("bad", False), simple("worse", False)]


CLAIMS = {
    "passed": False,
    "claims": [
        {"claim": "Refunds take 3 days.", "verdict": False, "reason": "Not in the context."},
        {"claim": "Paid.", "verdict": True},
    ],
}
ODD = {"claims": [3, None], "why": {"a": None, "b": [1, True]}}


def judged(passed: bool | None, response: Any, metadata: Any, **arguments: Any) -> CheckResult:
    """A judge's result."""
    found = answer(passed, **arguments)
    return found.model_copy(update={"results": {"passed": passed, "response": response, "metadata": metadata}})


def page(client: httpx.Client, path: str, **query: str) -> str:
    """The page's text, without its marks."""
    response = client.get(path, params=query or None)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return plain(response.text)


def plain(html: str) -> str:
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def cases_of(html: str) -> list[str]:
    """The ids in the grid."""
    return [unescape(found) for found in re.findall(r'<th scope="row"><a href="[^"]*/case[^"]*">(.*?)</a>', html)]


def test_runs_are_listed_with_verdict_and_why_and_filtered(client: httpx.Client, store: Store) -> None:
    fill(store, ROWS, run_id="aaaa1111", tags=["nightly"])
    fill(store, [simple("only")], run_id="bbbb2222", name="other suite")
    everything = page(client, "/runs")
    assert "2 runs" in everything
    assert "✓ Pass refunds nightly aaaa1111" in everything
    assert "? Inconclusive other suite bbbb2222" in everything, "one case proves no 90 %"
    today = utc_now().date()
    for query, found in (
        ({"suite": "refunds"}, "aaaa1111"),
        ({"tag": "nightly"}, "aaaa1111"),
        ({"outcome": "inconclusive", "suite": "other suite"}, "bbbb2222"),
        ({"status": "completed", "suite": "other suite", "since": f"{today}", "until": f"{today}"}, "bbbb2222"),
    ):
        shown = page(client, "/runs", **query)
        assert "1 run " in shown
        assert found in shown
    for query in (
        {"tag": "night"},
        {"until": f"{today - timedelta(days=1)}"},
        {"since": f"{today + timedelta(days=1)}"},
    ):
        assert "0 runs No run matches." in page(client, "/runs", **query)


def test_an_empty_store_says_what_makes_a_run(client: httpx.Client) -> None:
    for path in ("/runs", "/"):
        assert "There are no runs yet. fepflow run suite.yaml" in page(client, path)
    assert "No suite has a judge." in page(client, "/judges")


def test_runs_are_paged(client: httpx.Client, store: Store) -> None:
    for number in range(51):
        fill(store, [simple("only")], run_id=f"{number:08x}", ended=False)
    first, last = (page(client, "/runs", suite="refunds", page=number) for number in ("1", "2"))
    assert "51 runs" in first
    assert "Page 1 of 2" in first
    assert "00000000" not in first
    assert "00000000" in last
    assert "/runs?suite=refunds&amp;page=2" in client.get("/runs?suite=refunds").text


def test_a_run_says_its_verdict_and_why_first(client: httpx.Client, store: Store) -> None:
    run = fill(store, ROWS, run_id="aaaa1111")
    shown = page(client, "/runs/aaaa")
    assert shown.startswith("Pass: refunds aaaa1111 - fepflow Skip to content fepflow Suites Runs Judges ")
    assert shown.index(run.verdict["reasons"][0]) < shown.index("Metrics") < shown.index("Test cases")
    assert "142 passed, 2 failed, 0 errors, 0 skipped" in shown


def test_a_run_says_how_its_outputs_are_judged_again_and_a_rescored_one_whose_they_are(
    client: httpx.Client, store: Store
) -> None:
    fill(store, [simple("a")], run_id="aaaa1111bbbb")
    fill(store, [simple("a")], run_id="cccc1111dddd", rescored_from="aaaa1111bbbb")
    assert "fepflow rescore aaaa1111" in page(client, "/runs/aaaa1111bbbb")
    assert "Rescored from run aaaa1111" in page(client, "/runs/cccc1111dddd")


def test_a_metric_whose_check_the_gate_judges_is_not_called_unjudged(client: httpx.Client, store: Store) -> None:
    gates = {"aaaa1111": {}, "bbbb2222": {"min": {"accuracy": 0.9}}, "cccc3333": {"checks": "all"}}
    shown = {}
    for run_id, gate in gates.items():
        fill(store, ROWS, run_id=run_id, gate=gate)
        shown[run_id] = (
            page(client, f"/runs/{run_id}").partition("Impact or limit")[2].partition("What did not pass")[0]
        )
    for run_id in ("aaaa1111", "cccc3333"):
        assert "accuracy says_so its check: ✗ Fail" in shown[run_id]
        assert "politeness polite its check: ✓ Pass" in shown[run_id]
        assert "not judged" not in shown[run_id]
    assert "accuracy says_so ✓ Pass" in shown["bbbb2222"]
    assert "politeness polite not judged" in shown["bbbb2222"]


def test_the_grid_has_what_did_not_pass_first_and_is_filtered(client: httpx.Client, store: Store) -> None:
    fill(store, ROWS, run_id="aaaa1111")

    def found(**query: str) -> list[str]:
        return cases_of(client.get("/runs/aaaa1111", params=query).text)

    assert found()[:3] == ["bad", "worse", "good 0"]
    assert len(found()) == 50
    assert found(page="2")[-1] == "good 69"
    for show in ("failed", "problems"):
        assert found(show=show) == ["bad", "worse"]
    assert found(show="errors") == []
    assert found(show="others", page="2")[-1] == "good 69"
    assert found(show="failed", check="polite") == []
    assert found(show="failed", check="says_so") == ["bad", "worse"]
    assert found(text="INPUT of good 42") == ["good 42"], "of the input"
    assert found(text="no") == ["bad", "worse"], "of the output"
    assert found(text="good 42", show="failed") == []
    assert found(text="%") == [], "it is no pattern"
    assert found(page="999") == []


def test_a_case_shows_all_that_there_is(client: httpx.Client, store: Store) -> None:
    earlier = fill(store, [simple("c/../1?")], run_id="aaaa1111")
    fill(store, [simple("c/../1?", False, metadata={"topic": "refund"})], run_id="bbbb2222")
    shown = page(client, "/runs/bbbb2222/case", id="c/../1?")
    for wanted in ("c/../1? ✗ failed", "Input input of c/../1?", "Expected yes", "Output no", "says_so", "topic"):
        assert wanted in shown
    assert f"{earlier.created_at:%Y-%m-%d}" in shown.partition("The same case in earlier runs")[2]


def test_every_way_in_which_a_case_can_come_out_has_a_word(client: httpx.Client, store: Store) -> None:
    log = [
        {"attempt": 1, "started_at": "2026-01-01T00:00:00Z", "latency_ms": 100.0, "error": {"message": "refused"}},
        {"attempt": 2, "started_at": "2026-01-01T00:00:01Z", "latency_ms": 200.0, "error": None},
    ]
    votes = {
        "asked": 3,
        "agreement": {"passed": 0.67},
        "said": [{"passed": True}, {"passed": False}, {"error": "busy"}],
    }
    samples = {"samples": votes, "model_answered": "gpt-x"}
    steps = {"steps": [{"public_output": "one", "tool_calls": [{"name": "look_up"}]}, {"public_output": "two"}]}
    said = [{"role": "user", "content": "Refund!"}, {"role": "assistant", "content": "one"}]
    talk = {**steps, "messages": [*said, *said]}
    ended = {"user": {"ended": "given_up", "reason": "It asks the same again."}}
    hostile = {"steps": [{"public_output": 1, "tool_calls": {"name": 1}, "usage": "x"}], "messages": said[:1]}
    spans = [
        {"name": "POST /ask", "span_id": "1", "parent_id": "0", "start_ms": 0, "ms": 200, "status": "ok"},
        {"name": "execute_tool x", "span_id": "2", "parent_id": "1", "start_ms": 20, "ms": 100, "status": "error"},
    ]
    spans[1]["status_message"] = "broken"
    trace = {"spans": spans, "tool_calls": [{"name": "x"}], "unknown": {"usd": "not told"}}
    times = {"start_ms": 0, "ms": -5, "attributes": {"gen_ai.tool.name": "x"}}
    circle = [{"name": a, "span_id": a, "parent_id": b, **times} for a, b in ("ab", "ba")]
    rows = {
        "silent": Row(TestCase(id="silent", input=1), [NO_ANSWER], {"says_so": answer(error="no output")}),
        "broke off": Row(TestCase(id="broke off", input=1), [BROKE_OFF], {"says_so": answer(False)}),
        "not there": Row(TestCase(id="not there", input=1), [None]),
        "unchecked": Row(TestCase(id="unchecked", input=1), [Output(value="x")]),
        "retried": Row(
            TestCase(id="retried", input=1), [Output(value="x", metadata={"attempt_log": log})], {"says_so": answer()}
        ),
        "null": Row(TestCase(id="null", input=1, expected=None), [Output(value=None)], {"says_so": answer()}),
        "judged": Row(
            TestCase(id="judged", input=1),
            [Output(value="x")],
            {"polite": answer(), "says_so": judged(False, CLAIMS, samples, prompt="Is <b>it</b> polite?")},
        ),
        "odd judge": Row(TestCase(id="odd judge", input=1), [Output(value="x")], {"says_so": judged(None, ODD, "x")}),
        "no yes or no": Row(TestCase(id="no yes or no", input=1), [Output(value="x")], {"says_so": answer(None)}),
        "steps": Row(TestCase(id="steps", input=1), [Output(value=steps)], {"says_so": answer()}),
        "talk": Row(TestCase(id="talk", input=1), [Output(value=talk, metadata=ended)], {"says_so": answer()}),
        "odd talk": Row(TestCase(id="odd talk", input=1), [Output(value=hostile)], {}),
        "traced": Row(TestCase(id="traced", input=1), [Output(value=1, metadata={"trace": trace})], {}),
        "circle": Row(TestCase(id="circle", input=1), [Output(value=1, metadata={"trace": {"spans": circle}})], {}),
    }
    fill(store, list(rows.values()), run_id="aaaa1111")
    wanted = {
        "silent": ("No output timeout error no answer within 2 s", "! error says_so"),
        "broke off": ("Broken off", "step 2 of 2: the agent exited with code 1", "✗ failed says_so"),
        "not there": ("There is no output yet.", "absent"),
        "unchecked": ("absent",),
        "retried": ("100 ms: ! refused", "after a pause of 900 ms, 200 ms: ✓ answered"),
        "null": ("Expected null", "Output null"),
        "judged": (
            "Checks ✗ failed says_so",
            "The judge was asked Is <b>it</b> polite? It answered passed no",
            "claims claim Refunds take 3 days. verdict no reason Not in the context. claim Paid. verdict yes",
            "sample 1: passed: yes sample 2: passed: no sample 3: error: busy",
            "model answered: gpt-x",
        ),
        "odd judge": ("It answered claims 3; none why a: none, b: 1; yes",),
        "no yes or no": ("no verdict",),
        "steps": ("Steps one tool look_up", "two"),
        "talk": (
            "Conversation User Refund! Agent one tool look_up",
            "It ended because the user gave up: It asks the same again.",
        ),
        "odd talk": ("Conversation User Refund! Agent 1",),
        "traced": ("Trace 2 spans; 1 tool call; unknown: usd (not told)", "execute_tool x ! broken", "20 ms 100 ms"),
        "circle": ("Trace 2 spans", "a ", "b "),
    }
    grid = page(client, "/runs/aaaa1111")
    assert "silent no output: no answer within 2 s" in grid, "the reason stands first, where a phone has it"
    assert "broke off broken off: step 2 of 2: the agent exited with code 1" in grid
    report = plain(client.get("/runs/aaaa1111/report.html").text)
    for case_id, parts in wanted.items():
        shown = page(client, "/runs/aaaa1111/case", id=case_id)
        for part in parts:
            assert part in shown, shown
        assert case_id in grid
        assert case_id in report
    assert "Expected null" not in page(client, "/runs/aaaa1111/case", id="judged"), "nothing was expected"


def test_a_case_leads_to_the_failed_ones_before_and_after_it(client: httpx.Client, store: Store) -> None:
    rows = [simple("a", False), simple("b"), simple("c/&?", False), simple("d", False), simple("e")]
    fill(store, rows, run_id="aaaa1111")

    def neighbours(case_id: str) -> list[tuple[str, str]]:
        html = client.get("/runs/aaaa1111/case", params={"id": case_id}).text
        return re.findall(r'<a href="[^"]*id=([^"]*)" rel="(prev|next)" data-key', html)

    assert neighbours("a") == [("c%2F%26%3F", "next")]
    assert neighbours("b") == [("a", "prev"), ("c%2F%26%3F", "next")]
    assert neighbours("c/&?") == [("a", "prev"), ("d", "next")]
    assert neighbours("d") == [("c%2F%26%3F", "prev")]
    assert neighbours("e") == [("d", "prev")]


def test_repeats_stand_beside_each_other(client: httpx.Client, store: Store) -> None:
    rows = [Row(TestCase(id="thrice", input=1), [Output(value=f"try {n}") for n in range(3)], {"says_so": answer()})]
    fill(store, rows, run_id="aaaa1111")
    assert "3 of 3 passed" in page(client, "/runs/aaaa1111")
    shown = page(client, "/runs/aaaa1111/case", id="thrice")
    for number in range(3):
        assert f"Repeat {number + 1} of 3" in shown
        assert f"Output try {number}" in shown


def test_a_run_of_errors_only_is_no_pass(client: httpx.Client, store: Store) -> None:
    error = answer(error="the target gave no output")
    rows = [Row(TestCase(id=f"{n}", input=n), [NO_ANSWER], {"says_so": error, "polite": error}) for n in range(3)]
    fill(store, rows, run_id="aaaa1111")
    for path in ("/runs/aaaa1111", "/runs/aaaa1111/report.html"):
        shown = plain(client.get(path).raise_for_status().text)
        assert "Pass" not in shown
        assert "no answer within 2 s" in shown
        assert "0 passed, 0 failed, 6 errors" in shown
        assert "0 of 3" in shown
    for path in ("/runs", "/", "/suite?suite=refunds", "/trends?suite=refunds"):
        assert "✓ Pass" not in plain(client.get(path).text)


def test_a_run_under_way_shows_its_progress_and_is_asked_for_again(client: httpx.Client, store: Store) -> None:
    rows = [simple("there"), Row(TestCase(id="to come", input=1), [None])]
    run = fill(store, rows, run_id="aaaa1111", ended=False)
    html = client.get("/runs/aaaa1111").text
    assert "1 of 2 outputs" in plain(html)
    assert re.search(r'<section[^>]* id="verdict"[^>]* hx-trigger="every 2s"', html)
    assert "no output yet" in plain(html)
    assert "1 of 2" in page(client, "/runs")
    assert 'hx-trigger="every 3s"' in client.get("/runs").text
    polled = {"HX-Request": "true", "HX-Target": "verdict"}
    assert "HX-Refresh" not in client.get("/runs/aaaa1111", headers=polled).headers
    store.leases.finish(run.id, "host/1/a", "failed", error="the agent is gone")
    ended = client.get("/runs/aaaa1111", headers=polled)
    assert ended.headers["HX-Refresh"] == "true", "all of the page is another now"
    assert (
        "HX-Refresh" not in client.get("/runs/aaaa1111", headers={"HX-Request": "true", "HX-Target": "cases"}).headers
    )
    shown = page(client, "/runs/aaaa1111")
    assert "Failed the agent is gone" in shown
    assert "fepflow run --resume aaaa1111" in shown
    assert "every 2s" not in client.get("/runs/aaaa1111").text
    assert "every 3s" not in client.get("/runs").text


def test_ticked_runs_are_compared_with_the_oldest(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("a"), simple("b")], run_id="aaaa1111")
    fill(store, [simple("a"), simple("b", False)], run_id="bbbb2222")
    shown = page(client, "/compare?run=bbbb2222&run=aaaa1111")
    assert re.search(r"Base aaaa1111 .* New bbbb2222", shown)
    assert re.search(r"Worse now 1 .* b accuracy 1 → 0 ", shown)
    assert page(client, "/compare?base=aaaa1111&new=bbbb2222") == shown


def test_trends_of_a_suite(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("a")], run_id="aaaa0000", ended=False)
    empty = page(client, "/trends", suite="refunds")
    assert "No metric has a trend yet: that needs a run of the whole suite with a verdict" in empty
    fill(store, [simple("a"), simple("b")], run_id="aaaa1111")
    fill(store, [simple("a"), simple("b", False)], run_id="bbbb2222")
    shown = page(client, "/trends", suite="refunds")
    assert "accuracy" in shown
    assert "2 runs in numbers" in shown


def test_a_trend_and_the_evidence_of_a_drift_are_told_in_words(client: httpx.Client, store: Store) -> None:
    for number in range(9):
        fill(store, [simple(str(case), case >= number) for case in range(12)], run_id=f"aaaa{number:04}")
    shown = page(client, "/trends", suite="refunds")
    assert re.search(
        r"It falls over 9 runs: without a trend, chance alone makes as clear an order in 0\.0\d+ % of", shown
    )
    assert "The last runs are" in shown or "Nothing suggests that the rate has fallen" in shown


def test_what_is_not_there_is_a_404(client: httpx.Client, store: Store, subtests: pytest.Subtests) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for path in [
        "/runs/nothing",
        "/runs/aaaa1111/case",
        "/runs/aaaa1111/case?id=nothing",
        "/runs/nothing/case?id=a",
        "/runs/nothing/report.html",
        "/runs/%25",
        "/runs/_",
        "/runs/%00",
        "/runs/%ED%A0%80",
        "/runs/" + "a" * 5000,
        "/compare?base=nothing&new=aaaa1111",
        "/compare?run=aaaa1111&run=nothing",
        "/trends?suite=nothing",
        "/nothing",
        "/static/000000000000/style.css",
        "/static/../session.py",
        "/static/%2e%2e/session.py",
    ]:
        with subtests.test(path=path):
            response = client.get(path)
            assert response.status_code == 404, response.text
            if not path.startswith("/static/"):
                assert "Not Found" in response.text
                assert 'href="/runs"' in response.text


def test_what_is_not_understood_is_a_400_that_says_why(
    client: httpx.Client, store: Store, subtests: pytest.Subtests
) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for path in [
        "/runs?page=0",
        "/runs?page=-1",
        "/runs?page=x",
        "/runs?page=",
        "/runs?page=%C2%B2",
        "/runs?page=99999999999999999999",
        "/runs?outcome=fine",
        "/runs?status=over",
        "/runs?since=yesterday",
        "/runs?since=2026-13-01",
        "/runs?until=9999-12-31",
        "/runs/aaaa1111?show=none",
        "/runs/aaaa1111?page=1.5",
        "/compare",
        "/compare?base=aaaa1111",
        "/compare?run=aaaa1111",
        "/compare?base=aaaa1111" + "&new=aaaa1111" * 11,
        "/trends",
    ]:
        with subtests.test(path=path):
            response = client.get(path)
            assert response.status_code == 400, plain(response.text)
            assert "Bad Request" in plain(response.text)
            assert len(plain(response.text)) > 60


def test_odd_filters_find_nothing_or_everything(client: httpx.Client, store: Store, subtests: pytest.Subtests) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for path in [
        "/runs?since=0001-01-01",
        "/runs?suite=%00",
        "/runs?tag=%ED%A0%80",
        "/runs?x=y",
        "/runs/aaaa1111?text=%00",
        "/runs/aaaa1111?check=nothing",
        "/runs/aaaa1111?text=%5C&page=1000000",
    ]:
        with subtests.test(path=path):
            assert client.get(path).status_code == 200


def test_only_get_is_answered(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/runs/aaaa1111").status_code == 405


def test_what_did_not_pass_is_told_anew_when_a_run_has_gone_on(client: httpx.Client, store: Store) -> None:
    rows = [simple("a", False), Row(TestCase(id="b", input=1), [None])]
    run = fill(store, rows, run_id="aaaa1111")
    assert '1 × says_so: "yes" is not in: "no"' in unescape(page(client, "/runs/aaaa1111"))
    assert '1 × says_so: "yes" is not in: "no"' in unescape(page(client, "/runs/aaaa1111"))
    found = answer(False, text="no", phrases="yes").model_copy(update={"metadata": {"check_id": "says_so"}})
    store.leases.acquire(run.id, "host/2/b", 60)
    store.results.write(
        run.id,
        [NewOutput(1, 0, "a" * 64, Output(value="no"))],
        [NewCheckResult(1, 0, "says_so", "b" * 64, found, False)],
    )
    store.leases.finish(
        run.id, "host/2/b", "completed", outcome="fail", metrics=run.metrics, verdict=run.verdict, stats={}
    )
    assert '2 × says_so: "yes" is not in: "no"' in unescape(page(client, "/runs/aaaa1111"))


def markup(client: httpx.Client, path: str) -> str:
    return client.get(path).raise_for_status().text


def test_a_case_says_why_its_checks_failed_in_the_list_on_its_page_and_beside_a_base(
    client: httpx.Client, store: Store
) -> None:
    fill(store, [simple("a"), simple("b")], run_id="aaaa1111")
    run = fill(store, [simple("a", False), simple("b")], run_id="bbbb2222")
    why = '"yes" is not in: "no"'
    listed = unescape(markup(client, f"/runs/{run.id}"))
    assert listed.count(f"says_so: {why}") == 2, "the cause, and the case"
    assert f'<a href="/runs/{run.id}/case?id=a">a</a>' in listed
    of_cause = f"/runs/{run.id}?show=failed&check=says_so#cases-title"
    assert f'<a href="{of_cause}">in the list of cases</a>' in listed
    assert '<p class="count" role="status">1 case</p>' in markup(client, of_cause)
    assert f'<p class="why"><bdi>{why}</bdi></p>' in unescape(markup(client, f"/runs/{run.id}/case?id=a"))
    assert f"Now: <bdi>{why}</bdi>" in unescape(markup(client, f"/compare?base=aaaa1111&new={run.id}"))
    file = unescape(markup(client, f"/runs/{run.id}/report.html"))
    assert file.count(why) == 3, "the cause, the list, the case"
    assert "in the list of cases" not in file


def test_variants_stand_beside_each_other_and_each_run_leads_there(client: httpx.Client, store: Store) -> None:
    good = [simple(f"case {number}") for number in range(40)]
    bad = [simple(f"case {number}", number < 10) for number in range(40)]
    for number, (variant, rows) in enumerate((("<b>a", bad), ("b", good), ("c", bad))):
        options = {"variants": "dddd" * 8, "variant_number": number}
        fill(store, rows, run_id=f"{number}" * 8, variant={"model": variant}, options=options, ended=variant != "c")
    html = client.get(f"/variants/{'dddd' * 8}").text
    assert "<b>a" not in html
    shown = plain(html)
    assert "refunds: variants dddddddd" in shown
    assert "accuracy of model=b is better than the first by" in shown
    assert "These differences hold at 95 % over 2 comparisons (Holm)." in shown
    assert "model=c has no verdict yet: it is running." in shown
    assert "Running Of 3 variants" in shown
    assert 'href="/compare?base=00000000&amp;new=11111111"' in html
    assert f'href="/variants/{"dddd" * 8}"' in client.get("/runs/11111111").text
    assert client.get("/variants/eeeeeeee").status_code == 404
    assert client.get("/runs/dddddddd").headers["location"] == "/variants/dddddddd"


def test_only_pages_that_show_a_large_output_whole_need_its_blob(store: Store, tmp_path: Path) -> None:
    with_blobs = Store(store._database, Blobs((tmp_path / "blobs").as_uri()))
    rows = [simple("large", False)]
    rows[0].outputs = [Output(value="the beginning " + "x" * 300_000)]
    fill(with_blobs, rows, run_id="aaaa1111")
    case = "/runs/aaaa1111/case?id=large"
    with served(with_blobs) as address, httpx.Client(base_url=address, timeout=60, headers=OF_A_PAGE) as client:
        assert "x" * 1_001 in page(client, case)
        (tmp_path / "blobs").rename(tmp_path / "away")
        for path in ("/", "/runs/aaaa1111"):
            assert client.get(path).status_code == 200
        assert "the beginning" in page(client, "/runs/aaaa1111")
        for path in (case, "/runs/aaaa1111/report.html"):
            response = client.get(path)
            assert response.status_code == 503
            assert "(the folder is not there): look at its disk" in plain(response.text)
