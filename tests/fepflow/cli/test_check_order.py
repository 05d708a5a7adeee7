"""Checks come as they were declared wherever results are shown: a case's own first, then the suite's (FEP 2.3.3)."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fepflow.api.evaluations.fep import FepService
from fepflow.cli.report_files import write_report
from fepflow.pages.case_page import case_view
from fepflow.pages.run_page import GridFilter, grid_view
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.python_api import load_run
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

SAYS = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["yes"]}}
SUITE = [*[SAYS] * 11, {**SAYS, "id": "z"}, {**SAYS, "id": "a"}, {"type": "regex", "arguments": {}}]
OWN = [{**SAYS, "id": "own-b"}, {"type": "threshold", "arguments": {}}, {**SAYS, "id": "own-a"}]

DECLARED = ["contains", *(f"contains-{number}" for number in range(2, 12)), "z", "a", "regex", "completed"]
BEFORE = ["own-b", "threshold", "own-a"]
RUN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def run(store: Store) -> str:
    """A run of two cases, the second with checks of its own; its results are stored by id, as text."""
    suite: dict[str, Any] = {"name": "order", "target": {"ecp": {"command": ["agent"]}}, "checks": SUITE}
    cases = [TestCase(id="plain", input="?"), TestCase.model_validate({"id": "own", "input": "?", "checks": OWN})]
    store.runs.create(RunRecord(id=RUN, name="order", suite=suite, repeats=1), cases)
    store.leases.acquire(RUN, "host/1/a", 30)
    for case_index, names in enumerate((DECLARED, [*BEFORE, *DECLARED])):
        results = [
            NewCheckResult(case_index, 0, name, "b" * 64, _result(name), name != "own-a") for name in sorted(names)
        ]
        store.results.write(RUN, [NewOutput(case_index, 0, "a" * 64, Output(value="yes"))], results)
    verdict = {"gate": "Every check must pass.", "reasons": ["because"], "warnings": []}
    store.leases.finish(RUN, "host/1/a", "completed", outcome="fail", verdict=verdict, metrics=[])
    return RUN


def _result(name: str) -> CheckResult:
    return CheckResult(
        check_type="contains",
        status="completed",
        results={"passed": name != "own-a"},
        evaluated_at=utc_now(),
        metadata={"check_id": name},
    )


def _ids(results: Any) -> list[list[str]]:
    return [[check["metadata"]["check_id"] for check in result["check_results"]] for result in results]


def _of_json(path: Path) -> list[list[str]]:
    return _ids(json.loads(path.read_text(encoding="utf-8"))["results"])


def _of_lines(path: Path) -> list[list[str]]:
    return _ids(map(json.loads, path.read_text(encoding="utf-8").splitlines()))


def _of_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return [[row["check_id"] for row in rows if row["test_case_id"] == case_id] for case_id in ("plain", "own")]


def _of_parquet(path: Path) -> list[list[str]]:
    from pyarrow import parquet

    rows = parquet.read_table(path).to_pylist()
    return [[row["check_id"] for row in rows if row["case_index"] == case_index] for case_index in (0, 1)]


@pytest.mark.parametrize(
    ("name", "read"),
    [("r.json", _of_json), ("r.jsonl", _of_lines), ("r.csv", _of_csv), ("r.parquet", _of_parquet)],
)
def test_a_report_has_checks_in_the_order_declared(store: Store, tmp_path: Path, name: str, read: Any) -> None:
    write_report(store, store.runs.get(RUN), tmp_path / name)
    assert read(tmp_path / name) == [DECLARED, [*BEFORE, *DECLARED]]


def test_junit_has_a_suite_for_each_check_in_the_order_declared(store: Store, tmp_path: Path, read_junit: Any) -> None:
    write_report(store, store.runs.get(RUN), tmp_path / "r.xml")
    suites = [name.removeprefix("check ") for name in read_junit(tmp_path / "r.xml") if name.startswith("check ")]
    assert suites == [*DECLARED, *BEFORE]


def test_the_interfaces_and_python_give_checks_in_the_order_declared(store: Store) -> None:
    async def find() -> Any:
        async with FepService.open(store) as service:
            return await service.find(RUN)

    expected = [DECLARED, [*BEFORE, *DECLARED]]
    assert _ids(asyncio.run(find()).model_dump()["results"]) == expected
    assert [[check.check_id for check in result.check_results] for result in load_run(RUN).results] == expected


def test_pages_show_checks_in_the_order_declared(store: Store) -> None:
    assert grid_view(store, store.runs.get(RUN), GridFilter()).checks == [*BEFORE, *DECLARED]
    own = case_view(store, RUN, "own")
    assert own.checks == [check.check_id for check in own.repeats[0].result.checks] == [*BEFORE, *DECLARED]


def test_show_prints_checks_in_the_order_declared(cli: Cli) -> None:
    printed = cli("show", RUN[:8], "--case", "own").stdout
    assert re.findall(r"^  (?:passed|failed) +([\w-]+)\b", printed, re.MULTILINE) == [*BEFORE, *DECLARED]
    assert re.findall(r"^([\w-]+) +(?:[12·] +){4}·$", printed, re.MULTILINE) == [*BEFORE, *DECLARED], "counts of each"
