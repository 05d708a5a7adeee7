"""`fepflow plan`: how many cases, from the suite and from earlier runs in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fepflow.analysis.planning import votes_of
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

SUITE = """\
name: planned
target: {http: {url: "http://127.0.0.1:9/"}}
test_cases: cases.jsonl
checks:
  - {type: contains, id: right, arguments: {text: $.output.value, phrases: a}}
"""


@pytest.fixture
def suite(home: Path) -> Path:
    (home / "cases.jsonl").write_text("".join(f'{{"id": "{n}", "input": {n}}}\n' for n in range(100)), encoding="utf-8")
    path = home / "suite.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return path


def ran(store: Store, repeats: int, passes: list[str], run_id: str = "", *, backwards: bool = False) -> None:
    """A run of the suite; each text has the passes and fails of one case, the last one first if `backwards`."""
    run_id = run_id or f"cafe000{repeats}"
    cases = [TestCase(id=str(n), input=n) for n in range(len(passes))]
    if backwards:
        cases, passes = cases[::-1], passes[::-1]
    store.runs.create(RunRecord(id=run_id, name="planned", suite={}, repeats=repeats, suite_hash="s"), cases)
    result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=utc_now())
    keys = [(case_index, repeat) for case_index in range(len(passes)) for repeat in range(repeats)]
    store.results.write(
        run_id,
        [NewOutput(*key, "b" * 64, Output(value="x")) for key in keys],
        [NewCheckResult(*key, "right", "a" * 64, result, passes[key[0]][key[1]] == "1") for key in keys],
    )


def test_it_says_how_many_cases_a_minimum_takes(cli: Cli, suite: Path) -> None:
    done = cli("plan", suite, "--min", "0.9", "--expect", "0.95", "--power", "0.8")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "To show right of at least 0.9 with 95 % confidence takes 254 test cases, if 0.95 of all answers pass: "
        "then 80 % of runs do.",
        "The suite's 100 have a chance of 43.6 %.",
    ]


def test_the_gate_says_what_to_plan_for(cli: Cli, suite: Path) -> None:
    suite.write_text(SUITE + "gate: {min: {right: 0.8}, confidence: 0.99}\n", encoding="utf-8")
    (plan,) = json.loads(cli("plan", suite, "--expect", "0.9", "--json").stdout)
    assert (plan["metric"], plan["minimum"], plan["confidence"], plan["has"]) == ("right", 0.8, 0.99, 100)
    assert plan["cases"] > 112
    (other,) = json.loads(cli("plan", suite, "--expect", "0.9", "--min", "0.7", "--json").stdout)
    assert (other["metric"], other["minimum"]) == ("right", 0.7)


def test_a_one_sided_gate_takes_a_fifth_fewer_cases(cli: Cli, suite: Path) -> None:
    suite.write_text(SUITE + "gate: {min: {right: 0.9}, sides: one}\n", encoding="utf-8")
    exact = cli("plan", suite, "--expect", "0.95").stdout
    assert "with 95 % one-sided confidence takes 203 test cases" in exact
    suite.write_text(SUITE + "gate: {min: {right: 0.9}, sides: one, interval: wilson}\n", encoding="utf-8")
    assert "takes 188 test cases" in cli("plan", suite, "--expect", "0.95").stdout


@pytest.mark.battery
def test_repeats_count_as_far_as_those_of_earlier_runs_differ(cli: Cli, suite: Path, store: Store) -> None:
    unknown = cli("plan", suite, "--min", "0.9", "--expect", "0.95", "--repeats", "3").stdout
    assert "254 test cases with 3 repeats (762 calls)" in unknown
    assert "No earlier run tells how far repeats of a case agree" in unknown
    ran(store, 1, ["1", "0"])
    ran(store, 3, ["111", "101", "001", "111", "000"])
    known = cli("plan", suite, "--min", "0.9", "--expect", "0.95", "--repeats", "3").stdout
    assert "Repeats of a case agree to 0.52 (intraclass correlation, run cafe0003)." in known
    assert known.splitlines()[-1] == (
        "Of the variance, 52 % lies between test cases and 48 % lies between answers to the same case (run cafe0003): "
        "the interval narrows by 29 % with twice as many test cases and 6 % with twice as many repeats, so the next "
        "call is best spent on another test case."
    )
    (plan,) = json.loads(cli("plan", suite, "--min", "0.9", "--expect", "0.95", "--json").stdout)
    assert plan["spending"]["runs"] == ["run cafe0003"]
    assert plan["spending"]["narrowing"]["cases"] == pytest.approx(0.293, abs=0.001)
    (cases,) = re.findall(r"(\d+) test cases with 3 repeats", known)
    assert 150 < int(cases) < 200


def test_the_variance_between_runs_is_of_the_same_cases_in_any_order(cli: Cli, suite: Path, store: Store) -> None:
    passes = ["1"] * 8 + ["0"] * 4
    ran(store, 1, passes, "cafe0001")
    ran(store, 1, passes, "cafe0002", backwards=True)
    (plan,) = json.loads(cli("plan", suite, "--min", "0.9", "--expect", "0.95", "--json").stdout)
    assert plan["spending"]["runs"] == ["run cafe0002", "run cafe0001"]
    parts = plan["spending"]["parts"]
    assert (parts["run"], parts["repeat"]) == (0, 0), "each case came out twice as it was"
    assert parts["case"] > 0.2


def test_votes_of_samples_and_juries_are_read_from_earlier_runs(store: Store) -> None:
    said = {"said": [{"passed": True}, {"passed": False}, {"error": "busy"}]}
    store.runs.create(
        RunRecord(id="cafe0009", name="planned", suite={}, repeats=1), [TestCase(id=str(n), input=n) for n in range(3)]
    )
    answers: list[dict[str, object]] = [{"samples": said}, {"jury": said, "samples": {}}, {}]
    store.results.write(
        "cafe0009",
        [NewOutput(n, 0, "b" * 64, Output(value="x")) for n in range(3)],
        [
            NewCheckResult(
                n,
                0,
                "right",
                "a" * 64,
                CheckResult(
                    check_type="llm_judge", status="completed", results={"metadata": found}, evaluated_at=utc_now()
                ),
                True,
            )
            for n, found in enumerate(answers)
        ],
    )
    assert votes_of(store, store.runs.get("cafe0009"), "right") == [[1.0, 0.0], [1.0, 0.0]]


@pytest.mark.battery
def test_clusters_are_planned_for_by_how_far_their_results_agreed(cli: Cli, suite: Path, store: Store) -> None:
    cases = "".join(f'{{"id": "{n}", "input": {n}, "metadata": {{"document": {n // 10}}}}}\n' for n in range(100))
    (suite.parent / "clustered.jsonl").write_text(cases, encoding="utf-8")
    text = re.sub("test_cases: .*", "test_cases: clustered.jsonl", SUITE)
    suite.write_text(text + "cluster: $.test_case.metadata.document\n", encoding="utf-8")
    unknown = cli("plan", suite, "--min", "0.9", "--expect", "0.95").stdout
    assert "takes 2540 test cases in 254 documents" in unknown
    assert "100 in 10 documents have a chance of 0 %" in unknown
    assert "No earlier run tells how far results of one document agree" in unknown
    cases_of_run = [TestCase(id=str(n), input=n, metadata={"document": n // 2}) for n in range(100)]
    compared_runs(store, "1" * 80 + "10" * 5 + "0" * 10, cases=cases_of_run)
    known = cli("plan", suite, "--min", "0.9", "--expect", "0.95").stdout
    assert "Results of one document agree to 0." in known
    (documents,) = re.findall(r"test cases in (\d+) documents", known)
    assert 100 < int(documents) < 254


def test_what_cannot_be_shown_is_said(cli: Cli, suite: Path) -> None:
    close = cli("plan", suite, "--min", "0.9", "--expect", "0.901").stdout
    assert "takes more than 100,000 test cases" in close
    done = cli("plan", suite, "--min", "0.9", "--expect", "0.9")
    assert done.exit_code == 2
    assert "The expected rate (0.9) must be above the minimum (0.9)" in done.stderr
    done = cli("plan", suite, "--expect", "0.9")
    assert done.exit_code == 2
    assert "has no minimum of a share that passed to plan for: name one (--min)" in done.stderr


def compared_runs(
    store: Store, *passed: str, cases: Sequence[TestCase] = (), first: int = 0, **fields: Any
) -> list[str]:
    """Completed runs of the suite's 100 cases, each once; each text has a run's passes and fails."""
    result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=utc_now())
    cases = cases or [TestCase(id=str(n), input=n) for n in range(100)]
    check = {"type": "contains", "id": "right", "arguments": {"text": "$.output.value", "phrases": "a"}}
    document = {"name": "planned", "target": {"http": {"url": "http://127.0.0.1:9/"}}, "test_cases": [],
                "checks": [check]}  # fmt: skip
    ids = [f"{first + number:04x}0000" for number in range(len(passed))]
    for run_id, of_run in zip(ids, passed, strict=True):
        store.runs.create(RunRecord(id=run_id, name="planned", suite=document, repeats=1, **fields), cases)
        store.leases.acquire(run_id, "me", 30)
        store.results.write(
            run_id,
            [NewOutput(n, 0, "b" * 64, Output(value="x")) for n in range(100)],
            [NewCheckResult(n, 0, "right", "a" * 64, result, of_run[n] == "1") for n in range(100)],
        )
        verdict = {"gate": "Every check must pass.", "reasons": [], "warnings": []}
        store.leases.finish(run_id, "me", "completed", outcome="fail", verdict=verdict, metrics=[])
    return ids


def test_it_says_how_many_cases_show_that_a_version_is_not_worse(cli: Cli, suite: Path, store: Store) -> None:
    (base,) = compared_runs(store, "1" * 90 + "0" * 10)
    assert cli("baseline", "set", "main", base).exit_code == 0
    done = cli("plan", suite, "--against", "main", "--margin", "0.05")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "To show that right is not worse than main (run 00000000) by more than 0.05, with 95 % confidence, takes 340 "
        "test cases, if both are equally good: then 80 % of comparisons do.",
        "The 100 test cases in both have a chance of 28.9 %.",
        "Assumed: 0.1 of the cases differ between two runs, as no other run tells (--discordant states it).",
    ]
    stated = cli("plan", suite, "--against", base, "--margin", "right=0.05", "--discordant", "0.04").stdout
    assert "Stated: 0.04 of the cases differ between two runs" in stated


def test_how_many_cases_differ_is_learned_from_earlier_runs(cli: Cli, suite: Path, store: Store) -> None:
    """Each other run has two cases that the base has not, and lacks two that it has."""
    same = "1" * 80 + "0" * 16
    suite.write_text(SUITE + "gate: {regression: {margin: 0.05}}\n", encoding="utf-8")
    compared_runs(store, same + "1100", same + "0011", same + "1100")
    compared_runs(store, same + "1100", first=3, rescored_from="00020000")
    compared_runs(store, same + "1100", first=4, options={"reuse_outputs": True})
    (plan,) = json.loads(cli("plan", suite, "--against", "previous", "--json").stdout)
    assert (plan["base"], plan["learned_from"], plan["pairs"]) == (
        "previous (run 00020000)",
        ["00010000", "00000000"],
        200,
    )
    assert (plan["discordant"], plan["margin"], plan["matched"], plan["is_stated"]) == (0.02, 0.05, 100, False)
    assert 73 < plan["cases"] < 340


def test_what_cannot_be_planned_against_is_said(cli: Cli, suite: Path, store: Store) -> None:
    assert "no baseline main of the suite planned" in cli("plan", suite, "--against", "main").stderr
    (base,) = compared_runs(store, "1" * 100)
    assert "Give a margin above 0" in cli("plan", suite, "--against", base).stderr
    unknown = cli("plan", suite, "--against", base, "--margin", "wrong=0.1")
    assert (unknown.exit_code, "name one of right" in unknown.stderr) == (2, True)
    assert "--against takes --margin" in cli("plan", suite, "--against", base, "--expect", "0.9").stderr
    assert "or --against BASE" in cli("plan", suite).stderr
