"""`fepflow baseline`, and baselines by name in `fepflow compare`."""

from __future__ import annotations

import json

import pytest

from fepflow.analysis.comparison import require_poolable
from fepflow.errors import UserError
from fepflow.store.store import Store
from tests.fepflow.cli.conftest import Ran
from tests.fepflow.cli.test_compare_command import compared
from tests.fepflow.conftest import Cli


def test_a_run_is_named_listed_compared_with_and_forgotten(cli: Cli, ran: Ran) -> None:
    first, second = ran([True] * 10).id, ran([True] * 9 + [False]).id
    assert "No baselines yet" in cli("baseline", "list").stdout
    done = cli("baseline", "set", "main", first[:8])
    assert (done.exit_code, done.stdout) == (0, "main of refunds is run 00000000 now, with the verdict fail.\n")
    assert cli("compare", "main", second).stdout.startswith("base  00000000")
    assert "(was 00000000)" in cli("baseline", "set", "main", "latest").stdout
    (row,) = [json.loads(line) for line in cli("baseline", "list", "--json").stdout.splitlines()]
    assert (row["suite"], row["name"], row["run_id"], row["outcome"]) == ("refunds", "main", second, "fail")
    assert "00000001" in cli("baseline", "list").stdout
    assert cli("baseline", "remove", "main").stdout == "Removed the baseline main of refunds.\n"
    done = cli("compare", "main", second)
    assert (done.exit_code, done.stderr.count("There is no baseline main of the suite refunds")) == (2, 1)


def test_each_suite_has_baselines_of_its_own(cli: Cli, ran: Ran) -> None:
    runs = [ran([True] * 10, name=name).id for name in ("a", "b", "a")]
    for run in runs[:2]:
        cli("baseline", "set", "main", run)
    assert cli("compare", "main", runs[2]).stdout.startswith("base  00000000  a ")
    for done in (cli("baseline", "remove", "main"), cli("compare", "main", "main")):
        assert (done.exit_code, "a and b have a baseline main" in done.stderr) == (2, True)
    assert cli("baseline", "remove", "main", "--suite", "b").exit_code == 0
    assert cli("baseline", "remove", "main", "--suite", "b").exit_code == 2
    assert cli("baseline", "remove", "main").exit_code == 0


def test_a_name_cannot_be_taken_for_a_run_and_a_run_needs_a_verdict(cli: Cli, ran: Ran) -> None:
    run, unfinished = ran([True] * 3).id, ran([True] * 3, ended=False).id
    for name in ("cafe", "latest", "previous", "1.0", "a b", "-x", "é", ""):
        assert cli("baseline", "set", "--", name, run).exit_code == 2, name
    done = cli("baseline", "set", "main", unfinished)
    assert (done.exit_code, "has no verdict to compare with: it is running" in done.stderr) == (2, True)
    assert cli("baseline", "set", "main", "ffff").exit_code == 2


def test_several_runs_are_pooled_and_the_base_of_a_case_is_their_mean(cli: Cli, ran: Ran, store: Store) -> None:
    """The worst of three equal runs as a base hides what the three together show."""
    runs = [ran([number != n for n in range(3)] + [True] * 97).id for number in range(2)]
    runs.append(ran([n >= 20 for n in range(100)]).id)
    done = cli("baseline", "set", "main", runs[2])
    assert done.stdout == "main of refunds is run 00000002 now, with the verdict fail.\n"
    warning = (
        "The base is 1 of 3 runs on the same target. If it was chosen because it came out low, a regression passes "
        "more often than promised; pool the runs: fepflow baseline set NAME RUN RUN ..."
    )
    assert done.stderr == f"warning: {warning}\n"
    new = ran([n >= 20 for n in range(100)]).id
    store.runs.note_target(new, "the next version")
    alone = compared(cli, "main", new, "--margin", "0.1")
    assert (alone["outcome"], alone["compared"][0]["warnings"]) == ("pass", [warning])

    done = cli("baseline", "set", "main", *runs)
    pooled = "main of refunds is 3 runs pooled now (00000000, 00000001 and 00000002) (was 00000002).\n"
    assert (done.stdout, done.stderr) == (pooled, "")
    (row,) = [json.loads(line) for line in cli("baseline", "list", "--json").stdout.splitlines()]
    assert (row["run_id"], row["others"]) == (runs[0], runs[1:])
    assert "00000000 and 2 more" in cli("baseline", "list").stdout
    together = compared(cli, "main", new, "--margin", "0.1")
    (metric,) = together["compared"][0]["metrics"]
    assert (together["outcome"], together["compared"][0]["warnings"]) == ("inconclusive", [])
    assert metric["base"] == pytest.approx((0.99 + 0.99 + 0.8) / 3)
    assert metric["method"] == "paired-bounded"
    assert [run["id"] for run in together["pooled"]] == runs[1:]
    assert cli("compare", "main", new).stdout.startswith("base  00000000  refunds")
    assert "would be compared with itself" in cli("compare", "main", runs[1]).stderr


def test_runs_of_other_cases_or_suites_cannot_be_pooled(cli: Cli, ran: Ran) -> None:
    first, more, other = ran([True] * 5).id, ran([True] * 6).id, ran([True] * 5, name="other").id
    assert "they have other test cases" in cli("baseline", "set", "main", first, more).stderr
    assert "their suites are not the same" in cli("baseline", "set", "main", first, other).stderr
    assert "No baselines yet" in cli("baseline", "list").stdout


def test_runs_that_were_topped_up_differently_cannot_be_pooled(ran: Ran) -> None:
    """The cases that both might take in are the same."""
    run = ran([True] * 5)
    drawn = run.replaced(n_cases=4, options={"sample": {"of": 5, "cases": 5, "seed": 1, "limit": None}})
    require_poolable([drawn, drawn.replaced(id="again")])
    for other in (
        run.replaced(id="all"),
        drawn.replaced(id="other", options={"sample": {"of": 5, "cases": 5, "seed": 2, "limit": None}}),
    ):
        with pytest.raises(UserError, match="they have other test cases"):
            require_poolable([drawn, other])
