"""`fepflow cases add`: what failed becomes test cases of a file that suites read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Dataset
from fepflow.suite.test_cases import read_test_cases
from tests.fepflow.conftest import NASTY, NO_ANSWER, Cli, FillRun, check

FILE = "cases.jsonl"


def records(home: Path, file: str = FILE) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / file).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def run(fill_run: FillRun) -> RunRecord:
    return fill_run(
        [
            ("good", Output(value="yes"), check(True)),
            ("bad", Output(value="no"), check(False)),
            ("silent", NO_ANSWER, check(None, error="the target gave no output")),
        ]
    )


def test_failed_cases_are_appended_once_and_what_is_there_stays(cli: Cli, run: RunRecord, home: Path) -> None:
    before = '{"id": "mine", "input": "mine",   "expected": 1}'
    (home / FILE).write_text(before, encoding="utf-8")
    done = cli("cases", "add", "latest", "--failed", "-o", FILE, "--tag", "production", "--tag", "march")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "cases.jsonl: 2 test cases added.\n", "")
    assert (home / FILE).read_text(encoding="utf-8").startswith(f"{before}\n")
    _, bad, silent = records(home)
    assert bad == {
        "id": "bad",
        "input": "input of bad",
        "expected": "yes",
        "metadata": {"tags": ["production", "march"], "origin": {"run": run.id, "case": "bad"}},
    }
    assert silent["id"] == "silent"
    cases = read_test_cases(Dataset(path=FILE), home / FILE, FILE).cases
    assert [case.id for case in cases] == ["mine", "bad", "silent"]
    whole = (home / FILE).read_bytes()
    again = cli("cases", "add", run.id[:8], "--failed", "--output", FILE)
    assert again.stdout == "cases.jsonl: 0 test cases added, 2 were there already.\n"
    assert (home / FILE).read_bytes() == whole
    assert [path.name for path in home.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], ["good", "bad", "silent"]),
        (["--case", "good"], ["good"]),
        (["--case", "silent", "--case", "good"], ["silent", "good"]),
        (["--failed", "--case", "good"], []),
        (["--check", "says_so"], ["bad", "silent"]),
    ],
)
def test_cases_are_chosen(cli: Cli, run: RunRecord, home: Path, options: list[str], ids: list[str]) -> None:
    assert cli("cases", "add", "latest", *options, "-o", FILE).exit_code == 0
    assert [record["id"] for record in records(home)] == ids if ids else not (home / FILE).exists()


@pytest.mark.parametrize(
    ("there", "added"),
    [
        ({"id": "bad", "input": "input of bad", "expected": "corrected"}, []),
        ({"id": "other", "input": "input of bad"}, []),
        ({"input": "input of bad"}, []),
        ({"id": "b", "input": "rewritten", "metadata": {"origin": {"run": "RUN", "case": "bad"}}}, []),
        ({"id": "bad", "input": "another question"}, ["bad-2"]),
        ({"id": "c", "input": "input of bad", "metadata": {"customer": "c"}}, ["bad"]),
        ({"id": "bad", "input": "another"}, ["bad-2"]),
    ],
)
def test_a_case_is_there_already_by_its_content_origin_or_id_and_input(
    cli: Cli, run: RunRecord, home: Path, there: dict[str, Any], added: list[str]
) -> None:
    (home / FILE).write_text(json.dumps(there).replace("RUN", run.id) + "\n", encoding="utf-8")
    done = cli("cases", "add", "latest", "--case", "bad", "-o", FILE)
    assert [record["id"] for record in records(home)[1:]] == added
    assert ("called bad-2" in done.stderr) is (added == ["bad-2"])


def test_an_erased_case_becomes_no_test_case(cli: Cli, run: RunRecord, home: Path) -> None:
    cli("delete", "--case", "bad", "--yes")
    assert cli("cases", "add", run.id, "--failed", "-o", FILE).exit_code == 0
    assert [record["id"] for record in records(home)] == ["silent"]


def test_a_case_keeps_all_that_it_has_whatever_agents_and_people_wrote(cli: Cli, store: Store, home: Path) -> None:
    own = [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": "a"}, "id": "own"}]
    case = TestCase.model_validate({"id": "nasty", "input": NASTY, "metadata": {"tags": ["a"], "n": 1}, "checks": own})
    store.runs.create(RunRecord(id="cafe", name="s", suite={"name": "s"}, repeats=2), [case])
    store.leases.acquire("cafe", "host/1/a", 30)
    store.results.write(
        "cafe",
        [NewOutput(0, repeat, "a" * 64, Output(value="no")) for repeat in (0, 1)],
        [NewCheckResult(0, repeat, "own", "b" * 64, check(False), False) for repeat in (0, 1)],
    )
    done = cli("cases", "add", "cafe", "--failed", "--tag", "b", "-o", FILE)
    assert done.stderr == "1 new case without an expected value: add what is right.\n"
    (read,) = read_test_cases(Dataset(path=FILE), home / FILE, FILE).cases
    assert (read.id, read.input, "expected" in read.model_fields_set) == ("nasty", NASTY, False)
    assert read.metadata == {"tags": ["a", "b"], "n": 1, "origin": {"run": "cafe", "case": "nasty"}}
    assert read.checks is not None
    assert [each.model_dump() for each in read.checks] == own


@pytest.mark.parametrize(
    "case",
    [
        {"turns": ["I want a refund.", {"input": "A100", "checks": [{"type": "json_valid"}]}], "expected": "yes"},
        {"user": {"goal": "A refund", "persona": "hurried", "max_turns": 3}},
    ],
)
def test_a_conversation_stays_one(cli: Cli, store: Store, home: Path, case: dict[str, Any]) -> None:
    whole = TestCase.model_validate({"id": "talk", **case})
    store.runs.create(RunRecord(id="cafe", name="s", suite={"name": "s"}, repeats=1), [whole])
    written = {"id": "other", **case, "metadata": {"origin": {"run": "cafe", "case": "another"}}}
    (home / FILE).write_text(json.dumps(written) + "\n", encoding="utf-8")
    assert "1 was there already" in cli("cases", "add", "cafe", "-o", FILE).stdout
    assert cli("cases", "add", "cafe", "-o", "new.jsonl").exit_code == 0
    (record,) = records(home, "new.jsonl")
    assert "input" not in record
    (read,) = read_test_cases(Dataset(path="new.jsonl"), home / "new.jsonl", "new.jsonl").cases
    assert read.model_copy(update={"metadata": None}) == whole.model_copy(update={"metadata": None})


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(cli: Cli, run: RunRecord, home: Path) -> None:
    (home / "real.jsonl").touch(mode=0o640)
    (home / FILE).symlink_to("real.jsonl")
    assert cli("cases", "add", "latest", "--failed", "-o", FILE).exit_code == 0
    assert (home / FILE).is_symlink()
    assert len(records(home, "real.jsonl")) == 2
    assert (home / "real.jsonl").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("cases.csv", None, "name a file that ends in .jsonl"),
        (FILE, b'{"id": "a"', "is not valid JSON"),
        (FILE, b"\xff\xfea\x00", "is UTF-16"),
        ("none/cases.jsonl", None, ""),
    ],
)
def test_a_file_that_cannot_be_appended_to_stays_as_it_is(
    cli: Cli, run: RunRecord, home: Path, file: str, content: bytes | None, why: str
) -> None:
    if content is not None:
        (home / file).write_bytes(content)
    done = cli("cases", "add", "latest", "--failed", "-o", file)
    if why:
        assert (done.exit_code, why in done.stderr) == (2, True), done.stderr
        assert content is None or (home / file).read_bytes() == content
    else:  # its folder is made
        assert len(records(home, file)) == 2


def test_what_the_run_does_not_have_is_said(cli: Cli, run: RunRecord, home: Path) -> None:
    for words in (["--case", "goood"], ["--check", "says"]):
        done = cli("cases", "add", "latest", *words, "-o", FILE)
        assert done.exit_code == 2
        assert "did you mean" in done.stderr
    assert cli("cases", "add", "latest", "-o", FILE, "--env-file", "none.env").exit_code == 2
    assert not (home / FILE).exists()
