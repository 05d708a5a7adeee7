"""`fepflow compare`: what it says of two runs or more, and its exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fepflow.settings import settings
from fepflow.statistics.paired import mcnemar_mid_p, tango_interval
from fepflow.text import escape_markdown
from tests.fepflow.cli.conftest import SUITE, Ran
from tests.fepflow.conftest import NASTY, Cli


def compared(cli: Cli, *arguments: Any) -> Any:
    done = cli("compare", *arguments, "--format", "json")
    assert done.stdout, done.stderr
    return {**json.loads(done.stdout), "exit_code": done.exit_code}


def test_the_difference_has_an_interval_and_a_p_value(cli: Cli, ran: Ran) -> None:
    base = ran([n >= 3 for n in range(100)])
    new = ran([n < 88 for n in range(100)])
    done = cli("compare", base.id, new.id[:8])
    assert (done.exit_code, done.stderr) == (1, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "all 100 test cases matched" in lines
    assert "says_so 0.97 0.88 -0.09 -0.1737 to -0.01598 0.021 12 3" in lines
    assert "REGRESSION" in lines
    power = (
        "says_so: with 100 test cases like these, a regression of 0.1058 or more is shown in 80 % of such comparisons."
    )
    assert power in " ".join(done.stdout.split())
    assert "worse now (5 of 12, --limit):" in lines
    assert "base 00000000 says True" in lines
    assert "better now (3 of 3):" in lines
    found = compared(cli, base.id, new.id)
    metric = found["compared"][0]["metrics"][0]
    assert (metric["low"], metric["high"]) == pytest.approx(tango_interval(3, 12, 100))
    assert metric["p"] == metric["p_adjusted"] == pytest.approx(mcnemar_mid_p(3, 12))
    assert metric["detectable"] == pytest.approx(0.1058, abs=1e-4)
    assert (found["outcome"], found["exit_code"], metric["worsened"], metric["improved"]) == ("fail", 1, 12, 3)
    flips = found["compared"][0]["worsened"]
    assert (len(flips), flips[0]["base_output"], flips[0]["new_output"]) == (
        12,
        "00000000 says True",
        "00000001 says False",
    )


def test_the_power_to_show_a_regression_is_not_told_where_every_case_is_better(cli: Cli, ran: Ran) -> None:
    done = cli("compare", ran([False] * 4).id, ran([True] * 4).id)
    sentence = "says_so: how large a regression 4 test cases would show is not known: all of them differ alike."
    assert sentence in " ".join(done.stdout.split())


OUTCOMES: dict[int, dict[str, tuple[str | None, int]]] = {
    0: {"": (None, 0), "0.05": ("pass", 0)},
    3: {"": (None, 0), "0.02": ("inconclusive", 4)},
    12: {"": ("fail", 1), "says_so=0.02": ("fail", 1), "0.3": ("pass", 0), "0.3 says_so=0.01": ("fail", 1)},
}
"""By how many of 100 cases are worse, and the margins: the outcome and the exit code."""


@pytest.mark.parametrize("worse", OUTCOMES)
def test_the_exit_code_says_what_is_shown(cli: Cli, ran: Ran, worse: int, subtests: pytest.Subtests) -> None:
    runs = [ran([True] * 100).id, ran([n >= worse for n in range(100)]).id]
    for margins, expected in OUTCOMES[worse].items():
        with subtests.test(margins=margins):
            options = [word for margin in margins.split() for word in ("--margin", margin)]
            found = compared(cli, *runs, *options)
            assert (found["outcome"], found["exit_code"]) == expected


def test_what_was_not_asked_for_is_not_said_to_be_excluded(cli: Cli, ran: Ran) -> None:
    same = [True] * 20
    done = cli("compare", ran(same).id, ran(same).id)
    assert "NO REGRESSION IS SHOWN, AND NONE IS EXCLUDED" in done.stdout
    assert "--margin 0.02" in done.stdout


def test_only_the_same_cases_are_compared_and_the_others_named(cli: Cli, ran: Ran) -> None:
    base = ran([True] * 6, inputs=[0, 1, 2, "old", 4, 5])
    new = ran([False, *[True] * 4], inputs=[0, 1, 2, 3, 4])
    done = cli("compare", base.id, new.id)
    assert "4 test cases matched; not compared: 1 changed (c3) and 1 only in the base (c5)" in done.stdout
    found = compared(cli, base.id, new.id)["compared"][0]
    assert (found["matched"], found["metrics"][0]["n_expected"]) == (4, 6), "a third was edited or removed"
    assert any("2 of the base's 6 test cases were edited or removed" in warning for warning in found["warnings"])
    assert found["not_matched"] == {"changed": ["c3"], "only_base": ["c5"], "only_new": []}


def test_missing_halves_count_as_much_as_they_can(cli: Cli, ran: Ran) -> None:
    base, new = ran([*[True] * 97, None, None, True]), ran([*[True] * 97, True, None, None])
    found = compared(cli, base.id, new.id, "--margin", "0.05")["compared"][0]
    metric, (warning,) = found["metrics"][0], found["warnings"]
    assert (metric["n_completed"], metric["n_expected"], metric["difference"]) == (97, 100, 0.0)
    assert "no result in one of the runs" in warning
    assert warning.endswith("(says_so: 3 of 100).")
    assert metric["low"] == pytest.approx(tango_interval(0, 3, 100)[0])


def test_repeats_are_compared_by_case(cli: Cli, ran: Ran) -> None:
    base, new = ran([[True, True, True]] * 40), ran([[True, False, True]] * 4 + [[True, True, True]] * 36)
    found = compared(cli, base.id, new.id)["compared"][0]
    metric, flips = found["metrics"][0], found["worsened"]
    assert (metric["method"], metric["worsened"], len(flips)) == ("paired-bounded", 4, 4)
    assert flips[0]["new"] == pytest.approx(2 / 3)


def test_more_runs_are_a_table_against_the_first(cli: Cli, ran: Ran) -> None:
    runs = [ran([n >= worse for n in range(60)]).id for worse in (0, 0, 20)]
    done = cli("compare", *runs)
    assert done.exit_code == 1
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("says_so ")]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        ("00000000", "1", "·"),
        ("00000001", "1", "+0"),
        ("00000002", "0.6667", "-0.3333"),
    ]
    assert [" ".join(row[-2:]) for row in rows] == ["the base", "no difference", "0 worse"]
    assert "p (Holm)" in done.stdout


def test_scores_errors_and_percentiles(cli: Cli, ran: Ran) -> None:
    metrics = [
        {"id": "score", "check": "says_so", "value": "$.response.score", "range": [0, 1]},
        {"id": "free", "check": "says_so", "value": "$.response.score"},
        {"id": "median", "check": "says_so", "value": "$.response.score", "aggregate": "median"},
        {"id": "errors", "check": "says_so", "aggregate": "error_rate"},
        {"id": "usd", "value": "$.output.metadata.usd"},
    ]
    base = ran([True] * 50, metrics=metrics, score=lambda n: 0.5 + n % 5 / 10)
    new = ran([None] * 10 + [True] * 40, metrics=metrics, score=lambda n: 0.5)
    found = compared(cli, base.id, new.id)
    by_id = {metric["id"]: metric for metric in found["compared"][0]["metrics"]}
    assert by_id["score"]["method"] == "paired-bounded"
    assert by_id["free"]["low"] is None  # results are missing, and nothing bounds what they could have been
    assert by_id["median"]["why_not_compared"] == "there is no interval for the difference of percentiles"
    assert (by_id["errors"]["difference"], by_id["errors"]["worsened"]) == (0.2, 10)
    assert by_id["usd"]["difference"] is None
    assert {rule["metric"]: rule["outcome"] for rule in found["compared"][0]["rules"]} == {
        "score": "inconclusive", "free": "inconclusive", "errors": "fail"}  # fmt: skip
    done = cli("compare", base.id, new.id, "--margin", "usd=1")
    assert done.exit_code == 4
    assert "usd: not compared with the base: whether more or less of it is worse is not known" in done.stdout


def test_a_metric_whose_check_has_changed_is_not_compared(cli: Cli, ran: Ran) -> None:
    other = {**SUITE["checks"][0], "arguments": {"text": "$.output.value", "phrases": ["no"]}}
    metrics = [{"id": "a", "check": "says_so"}, {"id": "errors", "aggregate": "error_rate"}]
    base, new = ran([True] * 5, metrics=metrics), ran([True] * 5, metrics=metrics, checks=[other])
    assert "not compared: a: its check has changed" in cli("compare", base.id, new.id).stdout
    done = cli("compare", base.id, new.id, "--margin", "0.1")
    assert (done.exit_code, "a: not compared with the base: its check has changed." in done.stdout) == (4, True)
    dropped = ran([True] * 5, metrics=metrics[1:])
    done = cli("compare", base.id, dropped.id, "--margin", "0.1")
    assert (done.exit_code, "the new run does not have it" in done.stdout) == (4, True)


def test_runs_of_different_suites_with_the_same_cases_can_be_compared_and_it_is_said(cli: Cli, ran: Ran) -> None:
    done = cli("compare", ran([True] * 5).id, ran([True] * 5, name="another").id)
    assert (done.exit_code, "different suites, refunds and another" in done.stdout) == (0, True)


def test_what_cannot_be_compared_is_said_and_is_no_pass(cli: Cli, ran: Ran) -> None:
    base, lost = ran([True] * 5).id, ran([None] * 5).id
    running = ran([True] * 5, ended=False).id
    other = ran([True] * 5, inputs=list("abcde")).id
    unlike = ran([True] * 5, checks=[]).id
    for names, code, says in (
        ((base, "ffff"), 2, "There is no run 'ffff'"),
        ((base, base), 2, "would be compared with itself"),
        ((base, running), 2, "has no verdict to compare: it is running"),
        ((base, other), 2, "have no test case in common: 0 test cases matched; not compared: 5 changed"),
        ((base, unlike), 2, "have no metric that can be compared: says_so: the new run does not have it"),
        ((base, lost), 4, "INCONCLUSIVE"),
        ((base, lost, "--margin", "0.5"), 4, "no test case has a value in both"),
        ((base, lost, "--margin", "nothing=1"), 2, "There is no metric nothing to give a margin"),
        ((base, lost, "--margin", "-1"), 2, "is not a margin"),
    ):  # fmt: skip
        done = cli("compare", *names)
        assert done.exit_code == code, done.stdout
        assert says in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert "NO REGRESSION" not in done.stdout


def test_markdown_links_the_pages_where_their_address_is_known(
    cli: Cli, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, new = ran([True] * 8), ran([False] * 8)
    command = ("compare", base.id, new.id, "--format", "markdown")
    assert "http" not in cli(*command).stdout
    monkeypatch.setenv("FEPFLOW_PAGES_URL", "https://eval.example.org")
    settings.cache_clear()
    shown = cli(*command).stdout
    site = "https://eval.example.org"
    assert f"[`{new.id[:8]}`]({site}/runs/{new.id}) against [`{base.id[:8]}`]({site}/runs/{base.id}), " in shown
    assert f"\n\n[Case by case]({site}/compare?base={base.id}&new={new.id})\n\n| metric |" in shown


def test_a_case_that_flipped_says_why_it_failed(cli: Cli, ran: Ran) -> None:
    base, new = ran([True] * 8), ran([False] * 8)
    why = '"yes" is not in: "00000001 says False"'
    assert cli("compare", base.id, new.id).stdout.count(f"    why   {why}\n") == 5
    assert f"  - why: {escape_markdown(why)}\n" in cli("compare", base.id, new.id, "--format", "markdown").stdout
    (each,) = compared(cli, base.id, new.id)["compared"]
    assert {flip["reason"] for flip in each["worsened"]} == {why}
    (back,) = compared(cli, new.id, base.id)["compared"]
    assert {flip["reason"] for flip in back["improved"]} == {f"before: {why}"}


def test_markdown_is_for_a_comment_and_nothing_that_agents_say_is_markup(cli: Cli, ran: Ran) -> None:
    said = [*NASTY.values(), "<img src=x> [link](http://example.com) **bold** | cell", "x" * 10_000]
    base, new = ran([True] * len(said), outputs=said), ran([False] * len(said), outputs=said)
    done = cli("compare", base.id, new.id, "--format", "markdown", "--limit", "50")
    assert done.exit_code == 1
    assert done.stdout.startswith("### Regression\n\n`00000001` against `00000000`, all 19 test cases matched")
    assert "| says\\_so | 1 | 0 | -1 |" in done.stdout
    assert "<img" not in done.stdout.replace("\\<", "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 1_000
    assert "\x1b[31m" not in cli("compare", base.id, new.id).stdout
