"""`json_diff`: which fields of two JSON values agree, and by which rules."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from fepflow.checks.engine import evaluate
from fepflow.checks.explanation import explain
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase


def result(actual: Any, expected: Any, rules: Any = None, **arguments: Any) -> CheckResult:
    if rules is not None:
        arguments["rules"] = rules
    check = Check(type="json_diff", arguments=arguments)
    case = TestCase(id="a", input="?", expected=expected)
    return evaluate([case], [Output(value=actual)], [check]).results[0].check_results[0]


def score(actual: Any, expected: Any, rules: Any = None) -> float:
    found = result(actual, expected, rules)
    assert found.error is None, found.error
    return float(found.results["score"])


def test_the_score_is_the_share_of_fields_that_agree() -> None:
    found = result({"a": 1, "b": [1, 2], "c": {"d": "x"}}, {"a": 1, "b": [1, 3], "c": {"d": "y"}})
    assert found.results == {
        "score": 0.5,
        "fields": 4,
        "differing": ["$.b[1]: got 2, wanted 3", '$.c.d: got "x", wanted "y"'],
        "passed": False,
    }
    assert explain(found) == '$.b[1]: got 2, wanted 3; $.c.d: got "x", wanted "y" (2 of 4 fields differ)'
    assert result({"a": 1, "b": 2}, {"a": 1, "b": 3}, pass_at=0.5).passed is True


def test_fields_that_only_one_has_differ() -> None:
    assert result({}, {"a": {"b": 1, "c": 2}}).results["differing"] == ['$.a is missing, wanted {"b": 1, "c": 2}']
    assert score({}, {"a": {"b": 1, "c": 2}}) == 0
    assert score({"a": 1, "more": 2}, {"a": 1}) == 0.5
    assert score([1, 2], [1]) == 0.5
    assert score({"a": None}, {}) == 0, "null is there, and wanted by nobody"
    assert score({"a": [1]}, {"a": {"0": 1}}) == 0


def test_values_are_compared_as_json() -> None:
    assert score(1, 1.0) == 1
    assert score(1, True) == 0
    assert score(0, False) == 0
    assert score("1", "1") == 1
    assert score([], []) == score({}, {}) == 1
    assert score([], {}) == score({}, None) == 0
    assert score({"b": 1, "a": 2}, {"a": 2, "b": 1}) == 1


def test_a_text_is_read_as_json_where_json_is_expected() -> None:
    assert score('{"a": 1}', {"a": 1}) == 1
    assert score({"a": 1}, '{"a": 1}') == 1
    assert score("5", 5) == 1
    assert score("Paris", "Paris") == 1
    found = result('{"a": 1', {"a": 1})
    assert (found.passed, found.results["score"]) == (False, 0.0)
    assert explain(found).startswith("is not valid JSON: ")
    assert explain(result('```json\n{"a": 1}\n```', {"a": 1})).endswith(
        "(extract: {fence: json} takes it out of a code fence)"
    )
    broken = result('{"a": 1', '{"a": 1').error
    assert broken is not None, "what is expected is the author's, and broken JSON would equal the same broken JSON"
    assert "expected begins like JSON" in broken.message


def test_tolerances() -> None:
    assert score({"a": 1.1}, {"a": 1.0}, {"$.a": {"tolerance": 0.1}}) == 1, "in floats they differ by more than 0.1"
    assert score({"a": 106}, {"a": 100}, {"a": {"percent": 5}}) == 0
    assert score({"a": [1, 2.04]}, {"a": [1, 2]}, {"a": {"tolerance": 0.05}}) == 1, "a rule holds for all inside"
    assert score({"a": True}, {"a": 1.0}, {"a": {"tolerance": 5}}) == 0
    assert score({"a": "1"}, {"a": 1}, {"a": {"tolerance": 5}}) == 0


def test_paths_with_any_member_and_at_any_depth() -> None:
    expected = {"items": [{"id": 1, "price": 2.0}, {"id": 2, "price": 3.0}]}
    actual = {"items": [{"id": 8, "price": 2.001}, {"id": 9, "price": 3.001}]}
    rules = {"$.items[*].id": "ignore", "$.items[*].price": {"tolerance": 0.01}}
    assert result(actual, expected, rules).results == {"score": 1.0, "fields": 2, "differing": [], "passed": True}
    assert score(actual, expected, {"$..id": "ignore", "$..price": {"tolerance": 0.01}}) == 1
    assert score({"a b": 1, "c": 1}, {"a b": 2, "c": 1}, {"$['a b']": "ignore"}) == 1
    assert score([5, 1], [6, 1], {"$[0]": "ignore"}) == 1


def test_the_last_rule_counts_and_one_inside_overrules_one_around() -> None:
    assert score({"a": 1, "b": 9}, {"a": 1, "b": 2}, {"$": "ignore", "$.a": "equal"}) == 1
    assert score({"a": 3, "b": 9}, {"a": 1, "b": 2}, {"$": "ignore", "$.a": "equal"}) == 0
    assert score({"a": 3}, {"a": 1}, {"$.a": "ignore", "$.*": "equal"}) == 0
    assert score({"a": {"t": 9, "x": 1}}, {"a": {"t": 2, "x": 1}}, {"$..t": "ignore"}) == 1


def test_a_list_in_any_order_is_paired_by_what_agrees() -> None:
    assert score([3, 1, 2], [1, 2, 3], {"$": "unordered"}) == 1
    assert score([1, 1, 2], [1, 2, 2], {"$": "unordered"}) == pytest.approx(2 / 3)
    assert score([True, 0], [False, 1], {"$": "unordered"}) == 0, "true is not 1, in any order"
    people = [{"name": "A", "age": 30.2}, {"name": "B", "age": 40.1}]
    wanted = [{"name": "B", "age": 40}, {"name": "A", "age": 30}]
    rules = {"$": "unordered", "$[*].age": {"tolerance": 0.5}}
    assert score(people, wanted, rules) == 1
    assert score(people, wanted, {"$": {"order": False, "tolerance": 0.5}}) == 1
    assert score(people, wanted) == 0
    close = {"$": {"order": False, "tolerance": 0.6}}
    assert score([1.0, 1.9], [1.5, 0.5], close) == 1, "1.0 agrees with both, 1.9 with the first only"
    nested = {"$.a": "unordered"}
    assert score({"a": [[2, 1], [3]]}, {"a": [[3], [1, 2]]}, nested) == 1, "lists inside are in any order, too"


def test_elements_that_are_too_many_to_pair_are_an_error_and_no_fail() -> None:
    rules = {"$": "unordered", "$[*].age": {"tolerance": 0.5}}
    wanted = [{"name": n, "age": n} for n in range(250)]
    error = result([{"name": n, "age": n + 0.1} for n in reversed(range(250))], wanted, rules).error
    assert error is not None
    assert "too many elements that differ" in error.message
    for others in ({}, {"$..age": {"tolerance": 0.5}}):
        rules_of_numbers = {"$": "unordered", **others}
        assert score(list(range(500)), list(range(250, 750)), rules_of_numbers) == pytest.approx(0.5)
    strangers = [{"x": n} for n in range(5_000)]
    assert score(strangers, wanted[:3], rules) == 0, "however many a stranger's answer has"


def test_nothing_to_compare_is_an_error_and_no_pass() -> None:
    for rules in ({"$": "ignore"}, {"$.a": "ignore"}, {"$..*": "ignore", "$": "ignore"}):
        error = result({"a": 1}, {"a": 2}, rules).error
        assert error is not None
        assert "the rules ignore every field" in error.message


def test_elements_that_agree_but_for_what_is_ignored_are_paired_however_many_they_are() -> None:
    wanted = [{"id": n, "name": f"n{n}", "tags": [{"id": n, "t": 1}]} for n in range(300)]
    tags = [[{"id": 7, "t": 1}] for _ in range(300)]
    actual = [{"id": -n, "name": f"n{n}", "tags": tags[n]} for n in reversed(range(300))]
    rules = {"$.rows": "unordered", "$..id": "ignore"}
    assert score({"rows": actual}, {"rows": wanted}, rules) == 1
    tags[3][0]["t"] = 2
    assert score({"rows": actual}, {"rows": wanted}, rules) == pytest.approx(1 - 1 / 600)
    only_first = {"$": "unordered", "$[0].id": "ignore"}
    assert score([{"id": 9, "a": 1}, {"id": 2, "a": 2}], [{"id": 1, "a": 1}, {"id": 2, "a": 2}], only_first) == 1
    assert score([{"id": 1, "a": 1}, {"id": 9, "a": 2}], [{"id": 1, "a": 1}, {"id": 2, "a": 2}], only_first) < 1


def test_rules_are_checked_before_anything_runs() -> None:
    for rules in (
        {"$.a[?@.b]": "equal"},
        {"$[": "equal"},
        {"$.a": "unequal"},
        {"$.a": {"tolerance": -1}},
        {"": "equal"},
    ):
        assert result({"a": 1}, {"a": 1}, rules).error is not None
    assert "only names, indices" in result(1, 1, {"$[?@.a]": "equal"}).error.message


@pytest.mark.parametrize("path", ["$[-1]", "$[-2:]", "$[::-1]"])
def test_an_answer_cannot_choose_by_its_length_which_fields_are_compared(path: str) -> None:
    assert "from 0 on" in result(["a", "wrong"], ["a", "b", "10:35"], {path: "ignore"}).error.message


def test_differences_are_bounded_and_hold_no_control_characters() -> None:
    found = result({f"k{n}": "\x1b[31m" * 100 for n in range(1_000)}, {f"k{n}": 1 for n in range(1_000)})
    assert len(found.results["differing"]) == 20
    assert all(len(line) < 250 and line.isprintable() for line in found.results["differing"])
    assert found.results["fields"] == 1_000


def test_large_values_take_bounded_time() -> None:
    many = list(range(2_000))
    start = time.process_time()
    assert score(many, many) == 1
    assert score(many[::-1], many, {"$": "unordered"}) == 1
    for one, other in (
        (many, [n + 0.5 for n in many]),
        ([[n, n + 0.5, n + 0.25] for n in range(60)], [[n + 7, n, n + 0.3] for n in range(60)]),
    ):
        assert result(one, other, {"$": {"order": False, "tolerance": 0.1}}).passed is not True
    assert result(list(range(200_001)), [1]).error is not None
    deep: Any = json.loads("[" * 99 + "]" * 99)
    assert score(deep, deep) == 1
    assert time.process_time() - start < 20
