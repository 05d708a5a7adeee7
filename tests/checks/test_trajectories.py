"""The calls of an agent beside the expected ones: ways of matching, arguments, scores, and sentences."""

import random
import time
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fepflow.checks.explanation import explain
from fepflow.checks.tool_usage import ExpectedCall, compare
from fepflow.protocol.tool_calls import ToolCall

SEARCH = {"name": "search", "arguments": {"q": "Paris", "limit": 3}}
LOOKUP = {"name": "lookup", "arguments": {"id": 7}}
REFUND = {"name": "refund", "arguments": {"id": 7}}


@pytest.fixture
def matched(results):
    """The results of comparing `calls` with `expected`."""

    def matched(calls, expected, **arguments):
        return results("tool_usage", answer=calls, calls="$.output.value", expected=expected, **arguments)

    return matched


@pytest.mark.parametrize(
    ("calls", "modes"),
    [
        ([SEARCH, LOOKUP, REFUND], "exact in_order any_order subset"),
        ([SEARCH, LOOKUP, SEARCH, REFUND], "in_order any_order"),
        ([LOOKUP, SEARCH, REFUND], "any_order subset"),
        ([REFUND, SEARCH, LOOKUP, SEARCH], "any_order"),
        ([SEARCH, REFUND], "subset"),
        ([SEARCH, SEARCH], ""),
        ([], "subset"),
        ([{"name": "delete"}], ""),
    ],
)
def test_each_way_of_matching_takes_the_trajectories_that_it_should(matched, calls, modes):
    expected = [SEARCH, LOOKUP, REFUND]
    for match in ("exact", "in_order", "any_order", "subset"):
        result = matched(calls, expected, match=match)
        assert result["passed"] is (match in modes.split()), match
        assert (result["score"] == 1) is result["passed"]
        assert matched(calls, expected, match=match, negate=True)["passed"] is not result["passed"]


@pytest.mark.parametrize(
    ("match", "missing", "unexpected", "score"),
    [
        ("exact", ["lookup"], ["search", "delete"], 2 * 2 / 7),
        ("in_order", ["lookup"], [], 2 / 3),
        ("any_order", ["lookup"], [], 2 / 3),
        ("subset", [], ["search", "delete"], 2 / 4),
    ],
)
def test_a_score_is_f1_or_the_share_that_the_way_of_matching_asks_for(matched, match, missing, unexpected, score):
    result = matched([SEARCH, SEARCH, {"name": "delete"}, REFUND], ["search", "lookup", "refund"], match=match)
    assert result == {
        "passed": False,
        "count": 4,
        "missing": missing,
        "unexpected": unexpected,
        "score": pytest.approx(score),
    }


def test_exact_is_the_default_and_nothing_expected_is_met_by_no_call(matched):
    assert not matched([SEARCH, LOOKUP], ["search"])["passed"]
    assert matched([], []) == {"passed": True, "count": 0, "missing": [], "unexpected": [], "score": 1.0}
    assert not matched([SEARCH], [])["passed"]


@pytest.mark.parametrize(
    ("arguments", "equal", "subset", "ignore"),
    [
        ({"q": "Paris", "limit": 3}, True, True, True),
        ({"limit": 3.0, "q": "Paris"}, True, True, True),
        ({"q": "Paris", "limit": 3, "page": None}, False, True, True),
        ({"q": "Paris"}, False, False, True),
        ({"q": "Rome", "limit": 3}, False, False, True),
        ({"q": "Paris", "limit": True}, False, False, True),
        ('{"q": "Paris", "limit": 3}', True, True, True),
    ],
)
def test_arguments_are_equal_or_more_or_ignored(matched, arguments, equal, subset, ignore):
    for mode, passes in {"equal": equal, "subset": subset, "ignore": ignore}.items():
        calls = [{"name": "search", "arguments": arguments}]
        assert matched(calls, [SEARCH], match_arguments=mode)["passed"] is passes, mode
        assert matched(calls, [{**SEARCH, "match_arguments": mode}])["passed"] is passes, mode


def test_an_expected_call_without_arguments_is_met_by_any_and_one_with_an_empty_object_by_none(matched):
    assert matched([SEARCH], [{"name": "search"}])["passed"]
    assert matched([SEARCH], ["search"])["passed"]
    assert not matched([SEARCH], [{"name": "search", "arguments": {}}])["passed"]


def test_a_call_that_meets_two_expected_ones_is_given_to_the_one_that_needs_it(matched):
    broad = {"name": "search", "arguments": {"q": "Paris"}, "match_arguments": "subset"}
    narrow = {"name": "search", "arguments": {"q": "Paris", "limit": 3}, "match_arguments": "subset"}
    calls = [
        {"name": "search", "arguments": {"q": "Paris", "limit": 3}},
        {"name": "search", "arguments": {"q": "Paris"}},
    ]
    for expected in ([broad, narrow], [narrow, broad]):
        assert matched(calls, expected, match="any_order")["score"] == 1
        assert matched(list(reversed(calls)), expected, match="subset")["score"] == 1


def test_expected_calls_come_from_the_test_case_and_counts_hold_beside_them(results):
    arguments = {"calls": "$.output.value", "expected": "$.test_case.expected", "match": "any_order"}
    assert results("tool_usage", answer=[SEARCH, LOOKUP], reference=["lookup"], **arguments)["passed"]
    assert results("tool_usage", answer=[SEARCH], reference={"name": "search"}, **arguments)["passed"]
    assert not results("tool_usage", answer=[SEARCH, LOOKUP], reference=["lookup"], max_count=1, **arguments)["passed"]
    assert not results("tool_usage", answer=[SEARCH], reference=["search"], name="delete", **arguments)["passed"]


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ([{"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"id": 7}'}}], "search"),
        ([{"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"id": 7}'}], "search"),
        (
            [
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "name": "search", "arguments": '{"id": 7}'},
                {"type": "message", "role": "assistant", "content": []},
            ],
            "search",
        ),
        ([{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "search", "input": {"id": 7}}], "search"),
        (
            [
                {"type": "server_tool_use", "name": "search", "input": {"id": 7}},
                {"type": "web_search_tool_result", "content": []},
            ],
            "search",
        ),
        ([{"tool": "search", "arguments": {"id": 7}}], "search"),
        ([{"tool": "search", "args": {"id": 7}}], "search"),
        ([{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search", "arguments": {"id": 7}}}], "search"),
        ([{"name": "search", "arguments": {"id": 7}, "result": "x", "error": None, "ms": 3}], "search"),
        ([[], [{"name": "search", "arguments": {"id": 7}}]], "search"),
        ([{"type": "web_search_call", "status": "completed", "arguments": {"id": 7}}], "web_search_call"),
    ],
)
def test_calls_are_read_in_the_forms_that_models_agents_and_traces_have(matched, calls, name):
    assert matched(calls, [{"name": name, "arguments": {"id": 7}}])["passed"]


def test_a_message_whose_content_has_no_call_made_none(matched):
    assert matched([{"type": "text", "text": "No."}], [])["passed"]


def test_the_calls_of_all_steps_are_one_list(results):
    steps = [{"tool_calls": [SEARCH]}, {"tool_calls": []}, {"tool_calls": [LOOKUP, REFUND]}]
    arguments = {"calls": "$.output.value.steps[*].tool_calls", "expected": ["search", "lookup", "refund"]}
    assert results("tool_usage", answer={"steps": steps}, **arguments)["count"] == 3
    assert results("tool_usage", answer={"steps": steps[:1]}, **{**arguments, "expected": ["search"]})["passed"]


def test_a_step_that_does_not_tell_its_calls_is_no_trouble_where_more_calls_change_nothing(results):
    arguments: Any
    for arguments, passes in [
        ({"expected": ["search"], "match": "any_order"}, True),
        ({"expected": ["lookup"], "match": "any_order"}, False),
        ({"expected": ["lookup"], "match": "exact"}, False),
        ({"name": "search"}, True),
        ({"order": ["search"]}, True),
    ]:
        answer = {"steps": [{"tool_calls": [SEARCH]}, {"tool_calls": None}]}
        calls = "$.output.value.steps[*].tool_calls"
        assert results("tool_usage", answer=answer, calls=calls, **arguments)["passed"] is passes


@pytest.mark.parametrize(
    "arguments",
    [
        {"expected": ["search"]},
        {"expected": ["search", "lookup"], "match": "subset"},
        {"name": "delete", "max_count": 0},
        {"name": "delete", "negate": True},
    ],
)
def test_a_step_that_does_not_tell_its_calls_is_an_error_where_a_pass_needs_that_there_are_no_more(refused, arguments):
    answer = {"steps": [{"tool_calls": [SEARCH]}, {"tool_calls": None}]}
    why = refused("tool_usage", answer=answer, calls="$.output.value.steps[*].tool_calls", **arguments)
    assert "null does not tell that no tool was called" in why


SPAN = {"name": "search", "arguments": None, "result": None, "error": None, "ms": 3.0, "span_id": "a" * 16}


def test_a_span_need_not_tell_arguments_that_are_not_compared(passed):
    arguments: Any
    for arguments, passes in [
        ({"expected": ["search"]}, True),
        ({"expected": [SEARCH], "match_arguments": "ignore"}, True),
        ({"expected": [LOOKUP]}, False),
        ({"name": "search"}, True),
        ({"name": "lookup", "arguments": {"id": 7}, "max_count": 0}, True),
    ]:
        assert passed("tool_usage", answer=[SPAN], calls="$.output.value", **arguments) is passes


@pytest.mark.parametrize(
    "arguments",
    [
        {"expected": [SEARCH]},
        {"expected": [SEARCH], "match_arguments": "subset", "match": "any_order"},
        {"name": "search", "arguments": {"q": "Paris"}, "max_count": 0},
        {"arguments": {"q": "Paris"}},
    ],
)
def test_arguments_that_a_span_does_not_tell_are_neither_right_nor_wrong(refused, arguments):
    why = refused("tool_usage", answer=[SPAN], calls="$.output.value", **arguments)
    assert "calls[0].arguments are not known: the spans do not tell them" in why


@pytest.mark.parametrize("match", ["exact", "subset", "any_order"])
def test_nothing_expected_is_not_met_by_calls_that_are_not_told(refused, match):
    assert "null does not tell" in refused("tool_usage", answer=None, calls="$.output.value", expected=[], match=match)


def test_wrong_expectations_are_refused(refused):
    arguments: Any
    for arguments, why in [
        ({"expected": "search"}, "expected: must be a list"),
        ({"expected": [5]}, "expected[0]"),
        ({"expected": [{"arguments": {}}]}, "expected[0] must have a name"),
        ({"expected": [{"name": "a", "arguments": "{"}]}, "expected[0].arguments is not valid JSON"),
        (
            {"expected": [{"name": "a", "match_arguments": "some"}]},
            "match_arguments: must be equal or subset or ignore",
        ),
        ({"expected": ["a"], "match": "strict"}, "match: must be"),
        ({"expected": ["a"], "order": ["a"]}, "order: give `expected` or `order`, not both"),
        ({"match": "exact"}, "match: says how calls agree with `expected`, which is missing"),
        ({"match_arguments": "ignore"}, "match_arguments: says how calls agree"),
        ({"expected": ["a"] * 1_001}, "expected: must have at most 1000"),
        ({"expected": "$.test_case.expected"}, "expected: must be a list: null does not tell"),
    ]:
        assert why in refused("tool_usage", calls=[], **arguments)


def test_a_trajectory_that_does_not_match_is_explained(ask):
    arguments: Any
    for calls, arguments, sentence in [
        (
            [SEARCH, REFUND],
            {"expected": ["search", "lookup", "refund"], "match": "in_order"},
            "called search, refund; wanted search, then lookup, then refund",
        ),
        (
            [SEARCH, LOOKUP],
            {"expected": ["search"]},
            "called search, lookup; wanted search, and nothing else",
        ),
        (
            [],
            {"expected": ["search", "lookup"], "match": "any_order"},
            "called nothing; wanted search, lookup, in any order",
        ),
        ([SEARCH], {"expected": ["lookup"], "match": "subset"}, "called search; wanted nothing but lookup"),
        ([SEARCH], {"expected": []}, "called search; wanted nothing"),
        (
            [SEARCH, LOOKUP],
            {"expected": [SEARCH, {"name": "lookup", "arguments": {"id": 8}}]},
            'called lookup with {"id": 7}; wanted lookup with {"id": 8}',
        ),
        ([SEARCH], {"expected": ["search"], "negate": True}, "called search, which is not wanted"),
        (
            [SEARCH, SEARCH],
            {"expected": ["search"], "match": "in_order", "max_count": 1},
            "called any tool 2 times; wanted at most once",
        ),
    ]:
        assert explain(ask("tool_usage", answer=calls, calls="$.output.value", **arguments)) == sentence


CALLS = st.builds(
    ToolCall, st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.sampled_from([1, True, "1"]), max_size=2)
)
EXPECTED = st.builds(ExpectedCall, CALLS, st.sampled_from(["equal", "subset", "ignore"]))


def meets(call, expected):
    """The rule, as a reader would write it."""
    if call.name != expected.call.name:
        return False
    own = {(name, repr(value)) for name, value in expected.call.arguments.items()}
    made = {(name, repr(value)) for name, value in call.arguments.items()}
    return {"equal": own == made, "subset": own <= made, "ignore": True}[expected.arguments]


def most_pairs(calls, expected, *, in_order):
    """The most pairs, by trying all."""
    if not calls or not expected:
        return 0
    if in_order:
        together = 1 + most_pairs(calls[1:], expected[1:], in_order=True) if meets(calls[0], expected[0]) else 0
        skips = most_pairs(calls[1:], expected, in_order=True), most_pairs(calls, expected[1:], in_order=True)
        return max(together, *skips)
    short, long = (calls, expected) if len(calls) <= len(expected) else (expected, calls)
    fits = meets if short is calls else lambda item, call: meets(call, item)
    return max(sum(map(fits, short, chosen)) for chosen in permutations(long, len(short)))


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, max_size=5), st.lists(EXPECTED, max_size=5))
def test_every_way_of_matching_finds_as_many_pairs_as_trying_all_does(calls, expected):
    ordered, free = (most_pairs(calls, expected, in_order=in_order) for in_order in (True, False))
    n, m = len(calls), len(expected)
    exact, in_order, any_order, subset = (
        compare(calls, expected, m) for m in ("exact", "in_order", "any_order", "subset")
    )
    assert (len(exact.missing), len(exact.unexpected)) == (m - ordered, n - ordered)
    assert (len(in_order.missing), in_order.unexpected) == (m - ordered, [])
    assert (len(any_order.missing), any_order.unexpected) == (m - free, [])
    assert (subset.missing, len(subset.unexpected)) == ([], n - free)
    for trajectory in (exact, in_order, any_order, subset):
        matches = not trajectory.missing and not trajectory.unexpected
        assert 0 <= trajectory.score <= 1
        assert (trajectory.score == 1) is matches
    if exact.score == 1:
        assert in_order.score == any_order.score == subset.score == 1
        assert all(map(meets, calls, expected))
    assert in_order.score <= any_order.score


@pytest.mark.parametrize("match", ["exact", "any_order"])
def test_thousands_of_calls_are_compared_within_seconds(match):
    numbers = random.Random(7)
    calls = [ToolCall("a", {"x": numbers.randrange(40), "y": numbers.randrange(40), "z": n}) for n in range(4_000)]
    wanted = [{name: numbers.randrange(40) for name in numbers.sample("xy", 1 + number % 2)} for number in range(400)]
    expected = [ExpectedCall(ToolCall("a", arguments), "subset") for arguments in wanted]
    began = time.process_time()
    compare(calls, expected, match)
    assert time.process_time() - began < 5  # a way that grows with the square takes minutes
