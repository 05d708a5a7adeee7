"""subset, superset, set_equal, disjoint: collections as sets."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.checks.disjoint import DisjointCheck
from fepflow.checks.set_equal import SetEqualCheck
from fepflow.checks.subset import SubsetCheck
from fepflow.checks.superset import SupersetCheck
from fepflow.json.values import json_equal, json_key


def test_subset_lists_present_and_missing_items(results):
    told = results("subset", collection=["a", "b", "b"], required=["b", "c", "b", "a"])
    assert told == {"passed": False, "missing": ["c"], "found": ["b", "a"]}
    assert results("subset", collection=["a"], required=[]) == {"passed": True, "missing": [], "found": []}


def test_superset_lists_items_that_are_not_allowed(results):
    told = results("superset", collection=["a", "x", "x", "b"], allowed=["a", "b", "c"])
    assert told == {"passed": False, "unexpected": ["x"], "found": ["a", "b"]}
    assert results("superset", collection=[], allowed=[])["passed"]


def test_set_equal_passes_for_the_same_items(results):
    assert results("set_equal", actual=["b", "a", "a"], expected=["a", "b"])["passed"]
    told = results("set_equal", actual=["a", "x"], expected=["a", "b"])
    assert told == {"passed": False, "missing": ["b"], "unexpected": ["x"]}


def test_disjoint_lists_common_items_as_the_forbidden_ones_are_written(results):
    told = results("disjoint", collection=["SORRY", "no"], forbidden=["sorry", "alas"], case_sensitive=False)
    assert told == {"passed": False, "overlapping": ["sorry"]}
    assert results("disjoint", collection=["SORRY"], forbidden=["sorry"])["passed"]


@pytest.mark.parametrize(
    ("check_type", "arguments"),
    [
        ("subset", {"collection": [1], "required": [2]}),
        ("superset", {"collection": [1], "allowed": [2]}),
        ("set_equal", {"actual": [1], "expected": [2]}),
        ("disjoint", {"collection": [1], "forbidden": [1]}),
    ],
)
def test_negate_turns_the_verdict_and_leaves_the_rest(results, check_type, arguments):
    plain, negated = results(check_type, **arguments), results(check_type, **arguments, negate=True)
    assert (plain.pop("passed"), negated.pop("passed")) == (False, True)
    assert plain == negated


def test_items_are_equal_as_json_is_and_may_be_anything(results):
    items = [{"a": 1, "b": [None]}, 1, "1", True]
    same = [True, "1", 1.0, {"b": [None], "a": 1.0}]
    assert results("set_equal", actual=items, expected=same)["passed"]
    assert results("subset", collection=[1, 0], required=[True])["missing"] == [True]


def test_case_is_folded_for_items_that_are_texts_only(results):
    assert results("subset", collection=["STRASSE"], required=["straße"], case_sensitive=False)["passed"]
    assert not results("subset", collection=[["A"]], required=[["a"]], case_sensitive=False)["passed"]


@pytest.mark.parametrize("answer", ["abc", None, 5, {"a": 1}])
def test_a_value_that_is_not_a_list_is_refused(refused, answer):
    assert "collection: must be a list" in refused("subset", answer=answer, collection="$.output.value", required=[])


def test_large_sets_are_compared_without_blocking_the_loop(results):
    items = [{"id": index} for index in range(30_000)]
    gc.freeze()  # the collector would look through all that the tests before have left
    assert results("set_equal", answer=items, actual="$.output.value", expected=items[::-1])["passed"]


def test_a_set_from_code_is_taken_as_a_list_in_an_order_that_is_always_the_same():
    check = SubsetCheck(collection={"b", "a"}, required=frozenset({"c", "b"}))
    assert check.to_check().arguments == {"collection": ["a", "b"], "required": ["b", "c"]}
    assert check() == {"passed": False, "missing": ["c"], "found": ["b"]}


def test_each_can_be_called_directly():
    assert SupersetCheck(collection=["a"], allowed=["a"])()["passed"]
    assert SetEqualCheck(actual=["a"], expected=["b"])()["passed"] is False
    assert DisjointCheck(collection=["a"], forbidden=["b"])()["passed"]


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "a", "A"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)


@given(values, values)
def test_two_values_have_the_same_key_if_they_are_equal_and_only_then(left, right):
    assert (json_key(left) == json_key(right)) is json_equal(left, right)
