"""The one word for a case: what is missing is no pass."""

from __future__ import annotations

import pytest

from fepflow.pages.rendering import State, model_of, state_of
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import CheckMark, GridRow, StoredOutput
from tests.fepflow.pages.conftest import answer

PASSED, FAILED, UNJUDGED = CheckMark("completed", True), CheckMark("completed", False), CheckMark("completed", None)
ERROR, SKIPPED = CheckMark("error", None), CheckMark("skip", None)
ANSWER, NO_ANSWER = StoredOutput(Output(value=1), "", False), StoredOutput(Output(value=None), "", True)


@pytest.mark.parametrize(
    ("marks", "word"),
    [
        ({"a": PASSED, "b": PASSED}, "passed"),
        ({"a": PASSED, "b": FAILED}, "failed"),
        ({"a": ERROR, "b": FAILED}, "failed"),
        ({"a": PASSED, "b": ERROR}, "error"),
        ({"a": PASSED}, "absent"),
        ({}, "absent"),
        ({"a": PASSED, "b": SKIPPED}, "skipped"),
        ({"a": PASSED, "b": UNJUDGED}, "no verdict"),
        ({"a": PASSED, "b": PASSED, "other": FAILED}, "failed"),
    ],
)
def test_a_case_is_as_its_worst_result(marks: dict[str, CheckMark], word: State) -> None:
    row = GridRow(0, TestCase(id="c", input=1), {0: ANSWER}, {(0, name): mark for name, mark in marks.items()})
    assert state_of(row, 1, ["a", "b"]) == word


def test_a_repeat_that_is_missing_is_no_pass() -> None:
    row = GridRow(0, TestCase(id="c", input=1), {0: ANSWER}, {(0, "a"): PASSED})
    assert state_of(row, 1, ["a"]) == "passed"
    assert state_of(row, 2, ["a"]) == "absent"


def test_a_call_without_an_answer_is_an_error() -> None:
    row = GridRow(0, TestCase(id="c", input=1), {0: NO_ANSWER}, {(0, "a"): PASSED})
    assert state_of(row, 1, ["a"]) == "error"


def test_checks_of_the_case_itself_are_expected_too() -> None:
    case = TestCase.model_validate({"id": "c", "input": 1, "checks": [{"type": "contains", "arguments": {}}]})
    row = GridRow(0, case, {0: ANSWER}, {(0, "a"): PASSED})
    assert state_of(row, 1, ["a"]) == "absent"
    row.marks[0, "contains"] = PASSED
    assert state_of(row, 1, ["a"]) == "passed"


def test_a_case_without_checks_has_no_verdict() -> None:
    assert state_of(GridRow(0, TestCase(id="c", input=1), {0: ANSWER}), 1, []) == "no verdict"


def test_a_jury_is_not_shown_as_its_first_model() -> None:
    known = {"model_answered": "one", "mode": "json_schema", "cost_usd": 0.1}
    assert model_of(answer(metadata=known)) == known
    assert model_of(answer(metadata={**known, "jury": {"decides": "majority"}})) == {"cost_usd": 0.1}
