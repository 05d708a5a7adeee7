"""`fepflow baseline`, and baselines by name in `fepflow compare`."""

from __future__ import annotations

import json

from tests.fepflow.cli.test_compare_command import Ran, ran
from tests.fepflow.conftest import Cli

__all__ = ["ran"]


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
