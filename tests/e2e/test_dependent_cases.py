"""Runs whose test cases tell less than their number, on all surfaces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Workplace

pytestmark = pytest.mark.e2e

GATE: dict[str, Any] = {"metrics": [{"id": "acc", "check": "exact_match"}], "gate": {"min": {"acc": 0.9}}}


def test_the_same_questions_under_many_ids_show_no_more_than_once(workplace: Workplace) -> None:
    cases = [
        {"id": f"c-{number}", "input": f"case {number % 20}", "expected": f"case {number % 20}"}
        for number in range(200)
    ]
    workplace.write_suite(cases, **GATE)
    junit, fep = workplace.folder / "report.xml", workplace.folder / "report.json"
    done = workplace.run("-o", junit, "-o", fep)
    assert done.returncode == 4, done.stdout + done.stderr
    warning = (
        "200 of 200 test cases are only 20 different ones: c-0, c-20, c-40 and 7 more, for example, have the same "
        "content; they count as repeats of one case."
    )
    assert "n = 200 in 20 different cases" in done.stdout
    assert warning in done.stdout
    shown = workplace.fepflow("show", "latest").stdout
    assert warning in shown
    assert "n = 200 in 20 different cases" in shown
    assert warning in json.loads(fep.read_text(encoding="utf-8"))["metadata"]["verdict"]["warnings"]
    assert "in 20 different cases" in junit.read_text(encoding="utf-8")


def test_questions_about_few_documents_are_warned_of_until_the_documents_are_counted(workplace: Workplace) -> None:
    cases = [
        {
            "id": f"c-{number}",
            "input": f"case {number}",
            "expected": f"case {number}",
            "metadata": {"doc_id": number % 20},
        }
        for number in range(200)
    ]
    workplace.write_suite(cases, **GATE)
    done = workplace.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 test cases share 20 values of metadata.doc_id: cases of one doc are rarely independent" in done.stdout
    workplace.write_suite(cases, cluster="$.test_case.metadata.doc_id", **GATE)
    done = workplace.run()
    assert done.returncode == 4, done.stdout + done.stderr
    assert "n = 200 in 20 docs" in done.stdout
    assert "rarely independent" not in done.stdout
