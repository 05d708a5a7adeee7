"""Test cases that wait on disk."""

from typing import Any

import pytest

from fepflow.json.values import NotJsonError
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase
from fepflow.suite.test_cases import CasesOnDisk

CHECK = Check(type="contains", arguments={"text": "$.output.value", "phrases": ["a"]})


def case(number: int, **parts) -> TestCase:
    return TestCase(id=f"case-{number}", input=f"question {number}\n\ud800", **parts)


def test_they_come_back_as_they_were_and_in_their_order():
    cases = [
        case(0),
        case(1, expected=None),
        case(2, expected=float("inf"), metadata={"日": [1]}),
        case(3, checks=[CHECK]),
    ]
    kept = CasesOnDisk(cases)
    assert len(kept) == 4
    assert list(kept) == cases
    assert [sorted(mine.model_fields_set) for mine in kept] == [sorted(mine.model_fields_set) for mine in cases]
    assert list(kept.with_checks()) == [cases[3]]
    assert cases[2] in kept
    assert case(4) not in kept


def test_several_may_read_at_once_and_more_may_come():
    kept = CasesOnDisk(case(number, metadata={"long": "x" * 1_000}) for number in range(500))
    one, other = iter(kept), iter(kept)
    seen = [(next(one).id, next(other).id) for _ in range(200)]
    kept.add(case(500, checks=[CHECK]))
    assert [mine.id for mine in kept.with_checks()] == ["case-500"]
    assert seen == [(f"case-{number}", f"case-{number}") for number in range(200)]
    assert [mine.id for mine in one] == [f"case-{number}" for number in range(200, 501)]


def test_large_sets_of_cases_are_spooled_to_a_file_that_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = CasesOnDisk(case(number, metadata={"long": "x" * 100_000}) for number in range(60))
    assert sum(len((mine.metadata or {})["long"]) for mine in kept) == 6_000_000
    assert list(tmp_path.iterdir()) == []  # it has no name


def test_a_case_without_a_json_form_is_refused_and_leaves_no_trace():
    deep: list[Any] = []
    value = deep
    for _ in range(300):
        value.append([])
        value = value[0]
    kept = CasesOnDisk([case(0)])
    with pytest.raises(NotJsonError):
        kept.add(case(1, metadata={"deep": deep}))
    kept.add(case(2))
    assert [mine.id for mine in kept] == ["case-0", "case-2"]
