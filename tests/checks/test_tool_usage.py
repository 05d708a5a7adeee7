from typing import Any

import pytest

from fepflow.checks.tool_usage import ToolUsageCheck

CALLS = [
    {"name": "search", "arguments": {"query": "Paris", "limit": 3, "filter": {"kind": "hotel", "stars": 4}}},
    {"name": "search", "arguments": {"query": "Rome", "limit": 3}},
    {"name": "book", "arguments": {"id": 7}},
    {"name": "notify"},
]


@pytest.fixture
def used(results):
    def used(calls=CALLS, **arguments):
        return results("tool_usage", answer=calls, calls="$.output.value", **arguments)

    return used


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({}, 4),
        ({"name": "search"}, 2),
        ({"name": "Search"}, 0),
        ({"arguments": {"limit": 3}}, 2),
        ({"name": "search", "arguments": {"limit": 3, "query": "Rome"}}, 1),
        ({"arguments": {"limit": 3.0}}, 2),
        ({"arguments": {"limit": "3"}}, 0),
        ({"arguments": {"filter": {"kind": "hotel", "stars": 4}}}, 1),
        ({"arguments": {"filter": {"kind": "hotel"}}}, 0),
        ({"arguments": {}}, 4),
        ({"name": "book", "arguments": {"query": "Rome"}}, 0),
    ],
)
def test_one_call_has_to_have_the_name_and_all_of_the_arguments_as_whole_values(used, arguments, count):
    assert used(**arguments) == {"passed": count > 0, "count": count, "missing": []}
    assert used(**arguments, negate=True)["passed"] is (count == 0)


@pytest.mark.parametrize(
    ("bounds", "passes"),
    [
        ({"min_count": 2}, True),
        ({"min_count": 3}, False),
        ({"max_count": 2}, True),
        ({"max_count": 1}, False),
        ({"min_count": 2, "max_count": 2}, True),
        ({"min_count": 0}, True),
    ],
)
def test_calls_are_counted_between_bounds(used, bounds, passes):
    assert used(name="search", **bounds)["passed"] is passes


def test_never_is_a_most_of_zero(used):
    assert used(name="delete", max_count=0)["passed"]
    assert not used(name="book", max_count=0)["passed"]
    assert used([], max_count=0) == {"passed": True, "count": 0, "missing": []}


@pytest.mark.parametrize(
    ("order", "missing"),
    [
        (["search", "book"], []),
        (["search", "search", "notify"], []),
        (["book", "search"], ["search"]),
        (["search", "delete", "book"], ["delete", "book"]),
        (["search", "search", "search"], ["search"]),
    ],
)
def test_tools_are_called_in_an_order_whatever_comes_between(used, order, missing):
    assert used(order=order) == {"passed": not missing, "count": 4, "missing": missing}


def test_order_and_count_have_to_hold_both(used):
    assert not used(name="delete", order=["search"])["passed"]
    assert used(name="book", arguments={"id": 7}, max_count=1, order=["search", "book"])["passed"]


def test_older_names_and_arguments_as_json_text_are_understood(used):
    calls = [{"tool": "search", "args": {"q": "a"}}, {"name": "search", "arguments": '{"q": "a"}', "id": "call_1"}]
    assert used(calls, name="search", arguments={"q": "a"})["count"] == 2
    assert used([{"name": "a", "arguments": None}], arguments={})["count"] == 1


def test_a_path_that_finds_one_call_is_a_list_of_one(results):
    answer = {"calls": [{"function": {"name": "search"}}]}
    assert results("tool_usage", answer=answer, calls="$.output.value.calls[*].function", name="search")["count"] == 1


@pytest.mark.parametrize("arguments", [{}, {"name": "search"}, {"min_count": 2}, {"order": ["search"]}])
def test_null_is_no_call_where_there_must_be_some(used, arguments):
    assert used(None, **arguments) == {"passed": False, "count": 0, "missing": arguments.get("order", [])}


@pytest.mark.parametrize("arguments", [{"max_count": 0}, {"min_count": 0}, {"name": "search", "negate": True}])
def test_null_does_not_tell_that_no_tool_was_called(refused, arguments):
    assert "calls: must be a list" in refused("tool_usage", answer=None, calls="$.output.value", **arguments)


def test_a_value_that_is_not_a_list_of_calls_is_refused_with_its_path(refused):
    for calls, why in [
        ("search", "calls: must be a list"),
        ([{"name": "a"}, "b"], "calls[1]: must be a mapping"),
        ([{"arguments": {}}], "calls[0] must have a name"),
        ([{"name": 5}], "calls[0] must have a name"),
        ([{"name": "a", "arguments": [1]}], "calls[0].arguments must be an object"),
        ([{"name": "a"}, {"name": "a", "arguments": "{"}], "calls[1].arguments is not valid JSON"),
    ]:
        assert why in refused("tool_usage", answer=calls, calls="$.output.value")


def test_wrong_arguments_are_refused(refused):
    arguments: Any
    for arguments, why in [
        ({"min_count": -1}, "min_count: must be at least 0"),
        ({"min_count": 1.5}, "min_count: must be a whole number"),
        ({"max_count": True}, "max_count: must be a whole number"),
        ({"min_count": 2, "max_count": 1}, "min_count must be at most max_count"),
        ({"order": []}, "order"),
        ({"order": "search"}, "order: must be a list"),
        ({"name": 5}, "name: must be a text"),
        ({"arguments": ["a"]}, "arguments: must be a mapping"),
    ]:
        assert why in refused("tool_usage", calls=[], **arguments)


def test_it_can_be_called_directly():
    assert ToolUsageCheck(calls=CALLS, name="book", order=["search", "book"])() == {
        "passed": True,
        "count": 1,
        "missing": [],
    }


OPENAI = [
    {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "a", "limit": 3}'}},
    {"id": "call_2", "type": "function", "function": {"name": "list_orders", "arguments": ""}},
]
ANTHROPIC = [{"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "a"}}]


def test_calls_in_the_form_of_chat_apis_are_read(used):
    assert used(OPENAI, name="search", arguments={"q": "a"}) == {"passed": True, "count": 1, "missing": []}
    assert used(OPENAI, order=["search", "list_orders"], min_count=2, max_count=2)["passed"]
    assert used(ANTHROPIC, name="search", arguments={"q": "a"})["count"] == 1


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"function": {"arguments": "{}"}}, "calls[0] must have a name"),
        ({"function": {"name": "a", "arguments": "{"}}, "calls[0].arguments is not valid JSON"),
        ({"function": {"name": "a", "arguments": "[1]"}}, "calls[0].arguments must be an object"),
        ({"function": "a"}, "calls[0] must have a name"),
    ],
)
def test_wrong_calls_in_the_form_of_chat_apis_are_refused(refused, call, why):
    assert why in refused("tool_usage", answer=[call], calls="$.output.value")


@pytest.mark.parametrize("message", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_an_assistants_message_without_calls_tells_that_there_was_none(results, message):
    answer = {"choices": [{"message": {"role": "assistant", "content": "No.", **message}}]}
    calls = "$.output.value.choices[0].message.tool_calls"
    none = {"count": 0, "missing": []}
    assert results("tool_usage", answer=answer, calls=calls, max_count=0) == {"passed": True, **none}
    assert results("tool_usage", answer=answer, calls=calls, name="search", negate=True) == {"passed": True, **none}
    assert results("tool_usage", answer=answer, calls=calls, name="search") == {"passed": False, **none}


def test_nothing_else_tells_that_no_tool_was_called(ask):
    function, tool_use = {"name": "pay", "arguments": "{}"}, {"type": "tool_use", "name": "pay", "input": {}}
    for answer in [
        *({"content": "No."}, {"role": "user"}, {"role": "assistant", "tool_calls": "none"}, "No.", None),
        {"role": "assistant", "function_call": function},
        {"role": "assistant", "content": [tool_use]},
    ]:
        assert ask("tool_usage", answer=answer, calls="$.output.value.tool_calls", max_count=0).status == "error"
