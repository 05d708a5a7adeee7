"""The models of test cases, outputs, checks and results: what they accept, and that they emit what they were given."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fepflow.checks.contains import ContainsCheck
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.content_hash import canonical_json, content_hash
from fepflow.protocol.results import (
    CheckError,
    CheckResult,
    TestCaseSummary,
    status_of,
    summarize_case,
)
from fepflow.protocol.test_case import Output, TestCase

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NOW = datetime(2025, 6, 26, 19, 4, 23, tzinfo=UTC)


class TestTestCase:
    @pytest.mark.parametrize("value", ["", "text", 0, 1.5, True, None, [], ["a"], {}, {"a": [1]}])
    def test_any_json_value_is_an_input_and_an_expectation(self, value):
        case = TestCase(id="a", input=value, expected=value)
        assert case.model_dump() == {"id": "a", "input": value, "expected": value}

    def test_what_was_not_given_is_not_emitted_and_null_that_was_given_is(self):
        assert TestCase(id="a", input="").model_dump() == {"id": "a", "input": ""}
        assert TestCase(id="a", input="", expected=None).model_dump() == {"id": "a", "input": "", "expected": None}
        assert json.loads(Output(value=None).model_dump_json()) == {"value": None}

    def test_the_same_content_has_the_same_id_everywhere(self):
        first, second = (
            TestCase(input={"a": 1, "b": 2}),
            TestCase.model_validate({"input": {"b": 2, "a": 1}, "id": None}),
        )
        assert first.id == second.id
        assert first.id.startswith("case-")
        assert first.id != TestCase(input={"a": 1, "b": 2}, expected=1).id

    @pytest.mark.parametrize(
        "data",
        [
            {"id": "a"},
            {"id": "", "input": ""},
            {"id": 5, "input": ""},
            {"id": "a", "input": "", "metadata": []},
            {"id": "a", "input": "", "checks": [{"arguments": {}}]},
            {"id": "a", "input": "", "checks": ["contains"]},
            {"id": "a", "input": "", "question": ""},
            {},
            [],
        ],
    )
    def test_an_invalid_test_case_is_refused(self, data):
        with pytest.raises(ValidationError):
            TestCase.model_validate(data)

    def test_it_carries_declared_and_typed_checks_and_emits_declarations(self):
        typed = ContainsCheck(text="$.output.value", phrases="a")
        case = TestCase(id="a", input="", checks=[typed, Check(type="regex")])
        assert case.checks is not None
        assert case.checks[0] is typed
        data = json.loads(case.model_dump_json())
        assert data["checks"] == [
            {"type": "contains", "arguments": {"text": "$.output.value", "phrases": "a"}, "version": "1.0.0"},
            {"type": "regex"},
        ]
        again = TestCase.model_validate_json(case.model_dump_json())
        assert again.checks == [to_check(check) for check in case.checks]

    @settings(max_examples=40)
    @given(json_values, json_values)
    def test_reading_and_writing_is_the_identity(self, value, expected):
        case = TestCase(id="a", input=value, expected=expected, metadata={"k": value})
        assert TestCase.model_validate_json(case.model_dump_json()) == case
        assert TestCase.model_validate(json.loads(case.model_dump_json())) == case

    def test_a_simulated_user_is_read_back_in_the_order_in_which_it_was_written(self):
        written = TestCase.model_validate({"id": "a", "user": {"persona": "In a hurry.", "goal": "A refund."}})
        read = TestCase.model_validate(json.loads(written.model_dump_json()))
        assert read.model_dump_json() == written.model_dump_json()


class TestCheckDeclaration:
    @pytest.mark.parametrize("version", ["1.0.0", "0.0.1", "10.20.30", "1.0.0-beta.1", "1.0.0+build"])
    def test_a_semantic_version_is_one(self, version):
        assert Check(type="a", version=version).version == version

    @pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "latest", "", 1.0])
    def test_anything_else_is_none(self, version):
        with pytest.raises(ValidationError):
            Check(type="a", version=version)

    @pytest.mark.parametrize("id", ["", "a b", "a/b", "a" * 101, "é"])
    def test_an_id_is_a_name(self, id):
        with pytest.raises(ValidationError):
            Check(type="a", id=id)


class TestCheckResult:
    RESULT = CheckResult(check_type="contains", status="completed", results={"passed": True}, evaluated_at=NOW)

    def test_times_are_utc_with_a_z(self):
        assert json.loads(self.RESULT.model_dump_json())["evaluated_at"] == "2025-06-26T19:04:23Z"

    def test_a_text_is_read_as_a_time(self):
        data = json.loads(self.RESULT.model_dump_json())
        assert CheckResult.model_validate(data) == self.RESULT

    def test_its_id_is_its_type_unless_it_was_given_one(self):
        assert self.RESULT.check_id == "contains"
        assert self.RESULT.model_copy(update={"metadata": {"check_id": "says"}}).check_id == "says"

    @pytest.mark.parametrize(
        "wrong", [{"status": "passed"}, {"results": None}, {"results": []}, {"evaluated_at": "yesterday"}, {"score": 1}]
    )
    def test_an_invalid_result_is_refused(self, wrong):
        with pytest.raises(ValidationError):
            CheckResult.model_validate({**self.RESULT.model_dump(), **wrong})

    def test_an_error_has_one_of_four_types(self):
        assert CheckError(type="jsonpath_error", message="").recoverable is False
        with pytest.raises(ValidationError):
            CheckError.model_validate({"type": "network_error", "message": ""})

    def test_a_trusted_one_is_the_same_as_a_validated_one(self):
        fields = {name: getattr(self.RESULT, name) for name in ("check_type", "status", "results", "evaluated_at")}
        trusted = CheckResult.trusted(fields)
        assert trusted == self.RESULT
        assert trusted.model_dump_json() == self.RESULT.model_dump_json()
        assert trusted.model_fields_set == self.RESULT.model_fields_set
        assert trusted.model_copy(deep=True) == self.RESULT
        assert trusted.error is None


def test_an_error_outweighs_a_skip_and_a_skip_the_rest():
    statuses: Any
    for statuses, status in [
        ([], "completed"),
        (["completed"], "completed"),
        (["completed", "skip"], "skip"),
        (["skip", "skip"], "skip"),
        (["skip", "error", "completed"], "error"),
    ]:
        assert status_of(statuses) == status


def test_a_summary_counts_each_status():
    results = [
        CheckResult(check_type="a", status=status, results={}, evaluated_at=NOW)
        for status in ("completed", "error", "skip", "skip")
    ]
    expected = TestCaseSummary(total_checks=4, completed_checks=1, error_checks=1, skipped_checks=2)
    assert summarize_case(results) == expected


class TestAddresses:
    def test_they_are_computed_once(self):
        assert content_hash() == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"

    @settings(max_examples=40)
    @given(json_values)
    def test_they_do_not_depend_on_the_order_of_keys_nor_on_a_trip_through_json(self, value):
        assert content_hash(value) == content_hash(json.loads(canonical_json(value)))
        assert content_hash({"a": value, "b": 1}) == content_hash({"b": 1, "a": value})

    @pytest.mark.parametrize(
        "pair", [(1, "1"), (1, True), (None, ""), ([], {}), ([["a"], "b"], ["a", ["b"]]), (0.1, 0.2)]
    )
    def test_different_values_differ(self, pair):
        assert content_hash(pair[0]) != content_hash(pair[1])

    def test_every_value_has_one(self):
        for value in ("\0", "\ud800", float("nan"), {1, 2}, "日本"):
            assert len(content_hash(value)) == 64
