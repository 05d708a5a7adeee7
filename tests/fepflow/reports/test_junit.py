"""JUnit: a build is red if the verdict is, and who opens it sees why without opening anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from fepflow.cli.report_files import write_report
from fepflow.protocol.test_case import Output
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import BROKE_OFF, NASTY, NO_ANSWER, FillRun, check

ROWS = [
    ("good", Output(value="yes", metadata={"latency_ms": 20.0}), check(True)),
    ("wrong", Output(value="no"), check(False, text="no", phrases=["yes"])),
    ("broken", Output(value="no"), check(None, error="the path $.x found nothing")),
    ("silent", NO_ANSWER, check(None, error="the target gave no output: no answer within 2 s")),
    ("not got to", None, None),
]


def rule(outcome: str, check_id: str | None = "says_so", name: str = "acc") -> dict[str, Any]:
    return {
        "rule": f"{name}: at least 0.9",
        "metric": name,
        "check": check_id,
        "outcome": outcome,
        "reason": f"{name} is.",
    }


def verdict(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    reasons = [rule["reason"] for rule in rules] or ["because"]
    return {"gate": "acc must be at least 0.9.", "reasons": reasons, "rules": list(rules), "warnings": [], **more}


@pytest.fixture
def junit(store: Store, tmp_path: Path, read_junit):
    def read(run: RunRecord, failures: Literal["gate", "checks"] = "gate"):
        write_report(store, run, tmp_path / "r.xml", failures)
        return read_junit(tmp_path / "r.xml")

    return read


def test_what_decided_a_failing_verdict_fails(fill_run: FillRun, junit) -> None:
    suites = junit(fill_run(ROWS, outcome="fail", verdict=verdict(rule("fail"), blocks=True)))
    assert list(suites) == ["verdict", "calls", "check says_so"]
    assert suites["verdict"].outcomes == {"acc: at least 0.9": "failure"}
    assert suites["calls"].outcomes == {
        "good": "passed", "wrong": "passed", "broken": "passed", "silent": "error", "not got to": "skipped",
    }  # fmt: skip
    assert suites["check says_so"].outcomes == {
        "good": "passed", "wrong": "failure", "broken": "error", "silent": "skipped",
    }  # fmt: skip
    why = suites["check says_so"].said("wrong")
    assert why.startswith('"yes" is not in: "no"\n')
    assert all(line in why.splitlines() for line in ('input: "input of wrong"', 'expected: "yes"', 'output: "no"'))
    assert "the path $.x found nothing" in suites["check says_so"].said("broken")
    assert "attempt 2, 2500.0 ms" in suites["calls"].said("silent")
    summary = suites["verdict"].element.findtext("system-out") or ""
    assert "1 × no answer within 2 s" in summary
    assert "1 × says_so: error: the path $.x found nothing" in summary


def test_a_failure_under_a_passing_gate_is_not_a_junit_failure(fill_run: FillRun, junit) -> None:
    run = fill_run(ROWS, outcome="pass", verdict=verdict(rule("pass"), blocks=False))
    suites = junit(run)
    assert all(suite.counts["failures"] == suite.counts["errors"] == 0 for suite in suites.values())
    assert suites["verdict"].outcomes == {"acc: at least 0.9": "passed"}
    assert suites["check says_so"].outcomes["wrong"] == "skipped"
    assert suites["check says_so"].said("wrong").startswith('failed, which the gate allows: "yes" is not in: "no"')
    every = junit(run, "checks")
    assert every["check says_so"].outcomes == {
        "good": "passed", "wrong": "failure", "broken": "error", "silent": "skipped",
    }  # fmt: skip
    assert every["calls"].outcomes["silent"] == "error"


def test_only_the_checks_of_rules_that_do_not_hold_fail(fill_run: FillRun, junit) -> None:
    other = verdict(rule("fail", "other", "other"), rule("pass"), blocks=True)
    suites = junit(fill_run(ROWS, outcome="fail", verdict=other))
    assert suites["verdict"].outcomes == {"other: at least 0.9": "failure", "acc: at least 0.9": "passed"}
    assert suites["check says_so"].outcomes["wrong"] == "skipped"
    assert suites["calls"].outcomes["silent"] == "error"
    whole = junit(fill_run(ROWS, outcome="fail", verdict=verdict(rule("fail", None), blocks=True)))
    assert whole["check says_so"].outcomes["wrong"] == "failure"


@pytest.mark.parametrize(("blocks", "kind"), [(True, "error"), (False, "skipped")])
def test_inconclusive_is_never_green(fill_run: FillRun, junit, blocks: bool, kind: str) -> None:
    run = fill_run(ROWS, outcome="inconclusive", verdict=verdict(rule("inconclusive"), blocks=blocks))
    suites = junit(run)
    assert suites["verdict"].outcomes == {"acc: at least 0.9": kind}
    assert suites["calls"].outcomes["silent"] == kind


def test_a_verdict_that_no_rule_explains_is_not_green(fill_run: FillRun, junit) -> None:
    suites = junit(fill_run(ROWS, outcome="inconclusive", verdict=verdict(rule("pass"), blocks=True)))
    assert suites["verdict"].outcomes == {"acc must be at least 0.9.": "error"}


@pytest.mark.parametrize("outcome", ["pass", "fail", "inconclusive"])
def test_a_verdict_of_an_older_version_is_one_test_case(fill_run: FillRun, junit, outcome: str) -> None:
    old = {"gate": "Every check must pass.", "reasons": ["because", "and"], "warnings": []}
    suites = junit(fill_run(ROWS, outcome=outcome, verdict=old))
    kind = {"pass": "passed", "fail": "failure", "inconclusive": "error"}[outcome]
    assert suites["verdict"].outcomes == {"Every check must pass.": kind}
    assert suites["check says_so"].outcomes["wrong"] == ("skipped" if outcome == "pass" else "failure")


def test_a_run_without_a_verdict_is_an_error(fill_run: FillRun, store: Store, junit) -> None:

    run = fill_run(ROWS).replaced(outcome=None, verdict=None, status="failed", error="the disk is full")
    suites = junit(run)
    assert suites["verdict"].outcomes == {"verdict": "error"}
    assert "the disk is full" in suites["verdict"].said("verdict")


def test_it_is_valid_whatever_an_agent_says(fill_run: FillRun, junit) -> None:
    rows = [
        (f"{name} {text}".replace("\ud83d", ""), Output(value=text), check(False, text=text))
        for name, text in NASTY.items()
    ]
    suites = junit(fill_run([*rows, *ROWS]))
    assert suites["check says_so"].counts["failures"] == len(NASTY) + 1
    assert any(NASTY["markup"] in name for name in suites["calls"].outcomes)


def test_it_says_how_long_the_target_was_asked(fill_run: FillRun, junit) -> None:
    cases = junit(fill_run(ROWS))["calls"].element.iter("testcase")
    seconds = {case.attrib["name"]: case.attrib["time"] for case in cases}
    assert (seconds["good"], seconds["silent"]) == ("0.020", "4.500")


def test_a_scenario_that_broke_off_is_an_error_and_the_checks_of_its_first_steps_count(
    fill_run: FillRun, junit
) -> None:
    rows = [
        ("right before", BROKE_OFF, check(True)),
        ("wrong before", BROKE_OFF, check(False)),
        ("after", BROKE_OFF, check(None, error="the target gave only a part of the output: step 2 of 2: ...")),
    ]
    suites = junit(fill_run(rows, outcome="fail", verdict=verdict(rule("fail"), blocks=True)))
    assert suites["calls"].outcomes == dict.fromkeys(("right before", "wrong before", "after"), "error")
    assert suites["check says_so"].outcomes == {
        "right before": "passed", "wrong before": "failure", "after": "skipped",
    }  # fmt: skip
