"""Variants on the command line and from Python, up to where something would be called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fepflow
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.tasks.create_run import RunOptions, create_variants
from tests.fepflow.conftest import Cli

ID = "abcd1234" * 4


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write(tmp_path, {"of": list(range(51))})


def write(folder: Path, variants: Any) -> Path:
    path = folder / "suite.json"
    url = "http://127.0.0.1:9/${variant.of}" if variants else "http://127.0.0.1:9/"
    cases = [{"id": "a", "input": "a", "expected": "a"}]
    check = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": "a"}}
    document = {"name": "s", "target": {"http": {"url": url}}, "test_cases": cases, "checks": [check]}
    path.write_text(json.dumps({**document, **({"variants": variants} if variants else {})}), encoding="utf-8")
    return path


@pytest.fixture
def runs(store: Store, tmp_path: Path) -> list[RunRecord]:
    suite = write(tmp_path, {"of": ["a", "b"]})
    return [made.run for made in create_variants(store, validate_suite(suite), RunOptions(), ID)]


def test_more_than_fifty_variants_need_a_yes(cli: Cli, store: Store, suite: Path) -> None:
    done = cli("run", suite)
    assert done.exit_code == 2
    assert "has 51 variants, which is a run of each and 51 calls at least: give --yes" in done.stderr
    assert store.runs.newest() == []


@pytest.mark.parametrize(
    ("option", "message"),
    [("of=51", "of has no such value; it has 0, 1"), ("model=a", "the suite has no variants model; it has of.")],
)
def test_a_variant_that_there_is_not_is_an_error_of_use(
    cli: Cli, store: Store, suite: Path, option: str, message: str
) -> None:
    done = cli("run", suite, "--yes", "--variant", option)
    assert done.exit_code == 2
    assert message in done.stderr
    assert store.runs.newest() == []


def test_a_suite_without_variants_has_none_to_choose(cli: Cli, store: Store, tmp_path: Path) -> None:
    done = cli("run", write(tmp_path, None), "--variant", "of=1")
    assert done.exit_code == 2
    assert "has no variants to choose from" in done.stderr
    with pytest.raises(fepflow.UserError, match=r"take fepflow\.run\."):
        fepflow.run_variants(tmp_path / "suite.json")


def test_python_says_how_to_run_a_suite_with_variants(store: Store, suite: Path) -> None:
    with pytest.raises(fepflow.UserError, match=r"fepflow\.run_variants"):
        fepflow.run(suite)
    with pytest.raises(fepflow.UserError, match="of has no such value"):
        fepflow.run_variants(suite, variants={"of": [1, 99]})


def test_a_report_of_each_variant_is_looked_at_before_anything_is_called(
    cli: Cli, store: Store, suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "junit-2.xml").touch()
    arguments = ("--variant", "of=3", "--variant", "of=4", "-o", tmp_path / "junit.xml")
    done = cli("run", suite, *arguments)
    assert done.exit_code == 2
    assert "junit-2.xml already exists" in done.stderr
    assert store.runs.newest() == []


def test_variants_are_shown_by_their_own_id_and_listed_by_the_suite(cli: Cli, runs: list[RunRecord]) -> None:
    shown = cli("show", "abcd1234")
    assert "of=a has no verdict yet: it is pending." in shown.stdout
    assert runs[1].id[:8] in shown.stdout
    table = json.loads(cli("show", ID[:8], "--json").stdout)
    assert [run["variant"] for run in table["runs"]] == [{"of": "a"}, {"of": "b"}]
    assert cli("show", ID[:8], "--failed").exit_code == 2
    listed = cli("list", "--name", "s").stdout
    assert "s [of=a]" in listed
    assert "s [of=b]" in listed
    assert "name one, for example 's [of=a]', 's [of=b]'" in cli("trends", "s").stderr


def test_all_variants_are_cancelled_at_once(cli: Cli, store: Store, runs: list[RunRecord]) -> None:
    done = cli("cancel", "abcd1234")
    assert done.stdout == "2 variants will stop. Continue them: fepflow run --resume abcd1234\n"
    assert {store.runs.get(run.id).status for run in runs} == {"cancelled"}
    again = cli("cancel", "abcd1234")
    assert again.exit_code == 2
    assert "are over" in again.stderr
