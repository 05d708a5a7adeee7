"""How large a report of one file is, and what it leaves out."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest

from fepflow.pages import run_page
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.pages.conftest import Row, answer, fill, simple

TEST_DATA = os.environ.get("FEPFLOW_TEST_DATA")
MODEL = "6b_finetuning"


def report_of(store: Store, run: RunRecord) -> str:
    file = StringIO()
    run_page.write_html(store, run, file)
    return file.getvalue()


@pytest.mark.skipif(not TEST_DATA, reason="FEPFLOW_TEST_DATA does not name the folder of the answers")
def test_a_benchmark_of_1319_questions_is_a_file_that_can_be_mailed(store: Store) -> None:
    lines = Path(TEST_DATA or "", "data", "gsm8k", "solutions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = []
    for number, record in enumerate(map(json.loads, lines)):
        case = TestCase(id=f"question-{number}", input=record["question"], expected=record["ground_truth"])
        solution, passed = record[MODEL]["solution"], record[MODEL]["is_correct"]
        rows.append(Row(case, [Output(value=solution)], {"says_so": answer(passed, text=solution)}))
    html = report_of(store, fill(store, rows, run_id="aaaa1111"))
    assert html.count('<details class="case"') == len(rows) == 1_319
    assert len(html.encode()) < 5_000_000


def test_a_file_says_what_it_leaves_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fill(store, [*(simple(f"good {number}") for number in range(5)), simple("bad", False)], run_id="aaaa1111")
    monkeypatch.setattr(run_page, "MAX_REPORT_CASES", 3)
    html = report_of(store, run)
    assert "<strong>3 of 6</strong> cases are in this file" in html
    assert "bad" in html, "what did not pass is not left out"
    assert "good 4" not in html
