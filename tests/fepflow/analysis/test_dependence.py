"""Test cases that tell less than their number: duplicates, and signs that cases depend on one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fepflow.analysis.dependence import Duplicates, Survey, metadata_read
from fepflow.protocol.test_case import TestCase

HTTP = {"target": {"http": {"url": "http://agent", "body": {"question": "$.test_case.input"}}}, "checks": []}
CONTAINS = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["refund"]}}


def duplicates_of(*cases: dict[str, Any], suite: dict[str, Any] = HTTP) -> Duplicates:
    duplicates = Duplicates(suite)
    for number, case in enumerate(cases):
        duplicates.add(TestCase.model_validate({"id": f"c-{number}", **case}))
    return duplicates


def resemblance_of(cases: list[dict[str, Any]]) -> str | None:
    survey = Survey()
    for number, case in enumerate(cases):
        survey.add(TestCase.model_validate({"id": f"c-{number}", **case}))
    remark = survey.resemblance()
    return None if remark is None else f"{remark.message}; {remark.advice}"


def test_cases_of_one_content_are_the_same_case_under_whatever_id_and_metadata() -> None:
    duplicates = duplicates_of(
        {"input": "When?", "expected": "14 days"},
        {"input": "Why?", "expected": "14 days"},
        {"input": "When?", "expected": "14 days", "metadata": {"number": 7}},
        {"id": "again", "input": "When?", "expected": "14 days"},
    )
    assert list(duplicates.first) == [0, 1, 0, 0]
    assert duplicates.sentence == ("3 of 4 test cases have the same content under different ids: c-0, c-2 and again")


@pytest.mark.parametrize(
    "other",
    [
        {"input": "Why?", "expected": "14 days"},
        {"input": "When?", "expected": "7 days"},
        {"input": "When?", "expected": "14 days", "checks": [CONTAINS]},
        {"input": ["When?"], "expected": "14 days"},
    ],
)
def test_another_input_expectation_or_check_makes_another_case(other: dict[str, Any]) -> None:
    duplicates = duplicates_of({"input": "When?", "expected": "14 days"}, other)
    assert list(duplicates.first) == [0, 1]
    assert duplicates.sentence is None


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_cases_with_an_empty_input_are_told_apart_by_something_else(empty: Any) -> None:
    assert duplicates_of({"input": empty}, {"input": empty}).sentence is None


def test_metadata_that_the_request_or_a_check_reads_is_content() -> None:
    body = {"question": "$.test_case.input", "user": "$.test_case.metadata.user"}
    suite = {**HTTP, "target": {"http": {"url": "http://agent", "body": body}}}
    cases = [{"input": "My balance?", "metadata": {"user": user, "night": night}} for user, night in ("a1", "b1", "a2")]
    assert list(duplicates_of(*cases, suite=suite).first) == [0, 1, 0]
    assert list(duplicates_of(*cases).first) == [0, 0, 0]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("$.test_case.input", frozenset()),
        ("$.test_case.metadata.user.name", frozenset({"user"})),
        ("$.test_case.metadata['the user']", frozenset({"the user"})),
        ('$.test_case.metadata["user"]', frozenset({"user"})),
        ("Judge {{$.test_case.metadata.rubric}}, {{$.test_case.metadata.tone}}.", frozenset({"rubric", "tone"})),
        ("$.test_case.metadata", None),
        ("$.test_case.metadata[*]", None),
        ("$.test_case", None),
        ("$.test_cases", frozenset()),
        ("$.test_case.metadata_of_mine", frozenset()),
    ],
)
def test_it_is_known_which_metadata_a_suite_reads(path: str, names: frozenset[str] | None) -> None:
    assert metadata_read({"target": {}, "checks": [{"arguments": {"text": path}}]}) == names


def test_many_groups_are_counted_and_the_largest_is_named() -> None:
    cases = [{"input": f"question {number % 20}"} for number in range(200)]
    cases[7] = {"input": "question 5"}
    assert duplicates_of(*cases).sentence == (
        "200 of 200 test cases are only 20 different ones: c-5, c-7, c-25 and 8 more, for example, have the same "
        "content"
    )


def case(number: int, **metadata: Any) -> dict[str, Any]:
    return {"input": f"question {number}", "metadata": metadata}


def test_a_field_of_documents_with_several_cases_each_is_told() -> None:
    assert resemblance_of([case(number, document=f"d-{number % 20}", topic="tax") for number in range(200)]) == (
        "200 test cases share 20 values of metadata.document: cases of one document are rarely independent, so the "
        "intervals may be too narrow; set cluster: $.test_case.metadata.document; cluster: $.test_case.id says that "
        "they are independent"
    )


@pytest.mark.parametrize("name", ["doc_id", "conversationId", "sessions", "user", "patient-id", "source", "context_id"])
def test_many_names_are_those_of_documents_conversations_and_users(name: str) -> None:
    found = resemblance_of([case(number, **{name: number % 20}) for number in range(200)])
    assert found is not None
    assert f"20 values of metadata.{name}" in found


def test_a_long_text_that_cases_share_is_a_document_by_whatever_name() -> None:
    texts = [f"{number} " + "what the manual says " * 20 for number in range(10)]
    found = resemblance_of([case(number, background=texts[number % 10]) for number in range(50)])
    assert found is not None
    assert "50 test cases share 10 values of metadata.background" in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", lambda number: number % 30),
        ("source", lambda number: number % 4),
        ("user", lambda number: number % 2),
        ("document", lambda number: number),
        ("document", lambda number: number if number > 20 else number // 2),
        ("is_document", lambda _: True),
        ("documents", lambda number: ["a", number % 20]),
    ],
)
def test_slices_and_documents_with_one_case_each_are_no_sign(name: str, value: Callable[[int], Any]) -> None:
    assert resemblance_of([case(number, **{name: value(number)}) for number in range(200)]) is None


def manual(number: int) -> str:
    return " ".join(f"Paragraph {part} of manual {number} says what part {part} of it is for." for part in range(12))


def test_a_text_that_most_of_a_cases_input_is_shared_with_others_is_told() -> None:
    cases = [{"input": f"{manual(number % 20)}\nWhat is question {number}?"} for number in range(200)]
    assert resemblance_of(cases) == (
        "200 test cases share most of their text with others, 20 texts in all: cases of one text are rarely "
        "independent, so the intervals may be too narrow; name the text in a field of metadata, and set cluster: "
        "$.test_case.metadata.FIELD"
    )


def test_the_turns_of_a_conversation_are_one_text() -> None:
    turns = [
        {
            "role": "user",
            "content": f"In conversation {talk} we speak of matter {part}, which is long enough to matter.",
        }
        for talk in range(10)
        for part in range(6)
    ]
    cases = [{"input": turns[talk * 6 : talk * 6 + 3 + length]} for talk in range(10) for length in range(4)]
    found = resemblance_of(cases)
    assert found is not None
    assert "40 test cases share most of their text with others, 10 texts" in found


def test_instructions_that_all_cases_have_are_no_text_of_theirs() -> None:
    rules = " ".join(f"Rule {part} says how all questions are to be answered by you." for part in range(10))
    assert resemblance_of([{"input": f"{rules}\nWhat is question {number}?"} for number in range(100)]) is None
    long = [f"{rules}\n{manual(number)}" for number in range(100)]
    assert resemblance_of([{"input": text} for text in long]) is None
