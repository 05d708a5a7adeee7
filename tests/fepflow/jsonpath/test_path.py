import re
import subprocess
import sys
import time
from contextlib import nullcontext, suppress

import jsonpath_rfc9535
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.jsonpath import queries
from fepflow.jsonpath.path import SingularPath, compile_path, is_path, unescape
from fepflow.time_limit import IN_LOOP, NotInLoopError

CONTEXT = {
    "test_case": {"id": "t1", "input": {"n": 3}, "expected": None},
    "output": {"value": {"answer": "yes", "trace": [{"tool": "a"}, {"tool": "b"}]}},
}


# --- which strings are paths


@pytest.mark.parametrize("text", ["$.a", "$..a", "$.", "$.output.value"])
def test_a_string_that_starts_with_dollar_dot_is_a_path(text):
    assert is_path(text)


def test_anything_else_is_a_literal():
    for value in ["$", "$[0]", "$x", " $.a", "\\$.a", "", "US$.5", 5, None, ["$.a"], {"$.a": 1}]:
        assert not is_path(value)


def test_one_backslash_before_dollar_dot_is_taken_off_a_literal():
    for written, meant in [
        (r"\$.5", "$.5"),
        (r"\\$.5", r"\\$.5"),
        (r"\$5", r"\$5"),
        ("$.a", "$.a"),
        ("", ""),
        (r"a\$.5", r"a\$.5"),
    ]:
        assert unescape(written) == meant


# --- one node, several, none


def test_one_node_resolves_to_its_value():
    assert compile_path("$.output.value.answer").resolve(CONTEXT) == "yes"
    assert compile_path("$..answer").resolve(CONTEXT) == "yes"


def test_a_node_that_holds_null_is_a_node():
    assert compile_path("$.test_case.expected").resolve(CONTEXT) is None
    assert compile_path("$.test_case.expected").find(CONTEXT) == [None]


def test_several_nodes_resolve_to_the_list_of_their_values():
    assert compile_path("$.output.value.trace[*].tool").resolve(CONTEXT) == ["a", "b"]


def test_the_root_is_the_document():
    assert compile_path("$").resolve(CONTEXT) is CONTEXT


def test_no_node_is_an_error_that_says_where_the_path_ended():
    for expression, message in [
        (
            "$.output.value.answr",
            "'$.output.value.answr' found nothing: 'value' has no 'answr'; it has 'answer', 'trace'",
        ),
        ("$.outptu.value", "'$' has no 'outptu'; it has 'test_case', 'output'"),
        ("$.output.value.answer.text", "'answer' is a text, not an object, so it has no 'text'"),
        ("$.test_case.expected.a", "'expected' is null, not an object"),
        ("$.output.value.trace.tool", "'trace' is a list, not an object"),
        ("$.output.value[0]", "'value' is an object, not a list, so it has no [0]"),
        ("$.output.value.trace[2]", "'trace' has 2 elements, so no [2]"),
        ("$.output.value.trace[1].name", "[1] has no 'name'; it has 'tool'"),
        ("$.output.value.trace[*].name", "'$.output.value.trace[*].name' found nothing"),
        ("$.output.value.traces[*].name", "'value' has no 'traces'; it has 'answer', 'trace'"),
        ("$.output..name", "'$.output..name' found nothing"),
        ("$.output.valu.`len`", "'$.output.valu.`len`' found nothing: 'output' has no 'valu'"),
    ]:
        path = compile_path(expression)
        assert path.find(CONTEXT) == []
        with pytest.raises(JSONPathError, match=re.escape(message)) as caught:
            path.resolve(CONTEXT)
        assert caught.value.expression == expression


def test_the_error_shows_names_and_no_values_and_not_all_of_a_thousand_names():
    document = {f"name-{number}": f"secret-{number}" for number in range(1_000)}
    with pytest.raises(JSONPathError, match="and 992 more") as caught:
        compile_path("$.missing").resolve(document)
    assert "secret" not in str(caught.value)


# --- what is no path


def test_an_invalid_path_is_refused_with_its_position():
    for expression, position in [
        ("$.a-b", 3),
        ("$.", 2),
        ("$.a b", 4),
        ("$['a", 3),
        ("$[01]", 2),
        ("$.a[?@.b = 1]", 9),
        ("output.value", 0),
    ]:
        with pytest.raises(JSONPathError, match="is not a valid JSONPath") as caught:
            compile_path(expression)
        assert caught.value.position == position


def test_a_name_with_a_dash_gets_advice():
    with pytest.raises(JSONPathError, match=re.escape("is written ['like-this']")):
        compile_path("$.output.first-name")


def test_a_path_may_have_a_thousand_characters_and_no_more():
    assert compile_path("$." + "a" * 998).find({"a" * 998: 1}) == [1]
    with pytest.raises(JSONPathError, match="1,001 characters; 1,000 are allowed"):
        compile_path("$." + "a" * 999)


@given(st.text(alphabet="$.@[]()?*'\"`\\,:0123ab!=<>&| \n日", max_size=40))
def test_any_text_after_the_dollar_compiles_and_finds_or_is_a_jsonpath_error(text):
    with suppress(JSONPathError):
        compile_path("$" + text).find(CONTEXT)


# --- the walk over keys and the library agree

names = st.sampled_from(["a", "b", "", "0", "a b", "it's", 'q"', "back\\slash", "日本", "\n", "length"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)


def in_single_quotes(name):
    escaped = name.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"['{escaped}']"


def in_double_quotes(name):
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\u000a")
    return f'["{escaped}"]'


segments = st.one_of(
    st.sampled_from([".a", ".b", ".length", " .a", "\n['a']", "[ 0 ]"]),
    names.map(in_single_quotes),
    names.map(in_double_quotes),
    (st.integers(-4, 4) | st.sampled_from([2**53 - 1, -(2**53) + 1])).map(lambda index: f"[{index}]"),
)


@given(documents, st.lists(segments, max_size=4).map("".join))
def test_the_walk_over_keys_finds_the_very_nodes_that_the_library_finds(document, suffix):
    path = compile_path("$" + suffix)
    assert isinstance(path, SingularPath)
    expected = jsonpath_rfc9535.find("$" + suffix, document).values()
    found = path.find(document)
    assert len(found) == len(expected)
    assert all(ours is theirs for ours, theirs in zip(found, expected, strict=True))


# --- limits


def nested(depth, make):
    document = make(1)
    for _ in range(depth):
        document = make(document)
    return document


def as_object(inner):
    return {"a": inner}


def as_array(inner):
    return [inner]


def test_a_path_may_find_ten_thousand_nodes_and_no_more(monkeypatch):
    monkeypatch.setattr(queries, "TIME_LIMIT", 60)  # it is about the number: a busy machine may be slow
    assert len(compile_path("$[*]").find([0] * 10_000)) == 10_000
    with pytest.raises(JSONPathError, match="finds more than 10,000 values"):
        compile_path("$[*]").find([0] * 10_001)
    with pytest.raises(JSONPathError, match="finds more than 10,000 values"):
        compile_path("$[*].`str()`").find([0] * 10_001)


def test_descending_works_deeper_than_json_from_elsewhere_may_be():
    assert len(compile_path("$..a").find(nested(150, as_object))) == 151


def test_a_singular_path_has_no_limit_of_depth():
    assert compile_path("$" + ".a" * 499).find(nested(100_000, as_object)) != []


TREE = [[[[[1] * 10] * 10] * 10] * 10] * 10
RECORDS = [{"id": number} for number in range(5_000)]
TOO_MUCH = {
    "descending too deep": ("$..a", nested(5_000, as_object)),
    "comparing too deep": ("$[?@ == $[0]]", [nested(50_000, as_array), nested(50_000, as_array)]),
    "printing too deep": ("$.`str()`", nested(50_000, as_array)),
    "brackets in brackets": ("$" + "[?@" * 300 + "]" * 300, TREE),
    "a pattern out of the document": ("$[?search(@.text, @.pattern)]", [{"text": "a", "pattern": "a" * 2_000_000}]),
    "a text too long to search": ("$[?search(@, 'b')]", ["a" * 2_000_000]),
    "many wildcards": ("$[" + "*," * 400 + "*]", list(range(10_000))),
    "a text repeated": ("$.a * $.b.`len`", {"a": "x", "b": [1, 2]}),
    "long texts joined": ("$.a + $.a.`str()`", {"a": "x" * 600_000}),
    "a text that grows": ("$.`sub(/x*/, " + "y" * 900 + ")`", "a" * 900_000),
    "sorting what has no order": ("$.`sorted`", [1, "a", None]),
    "the parent of the root": ("$.`parent`", CONTEXT),
    "no text to substitute in": ("$.`sub(/a/, b)`", 3),
    "dividing by zero": ("$.a / $.b.`len`", {"a": 1, "b": []}),
}
TOO_SLOW = {
    "backtracking in search": ("$[?search(@, '(a|a)*[bc]')]", ["a" * 40]),
    "counting everything for everything": ("$[?count($..id) > 1]", RECORDS),
    "descending from every descendant": ("$..*..*..*..*..nothing", TREE),
    "up and down": ("$" + ".*.`parent`" * 30, {str(number): {"b": 1} for number in range(50)}),
}
ALSO_TOO_SLOW = {
    "backtracking in match": ("$[?match(@, '(a*)*[bc]')]", ["a" * 50_000]),
    "backtracking in sub": ("$.`sub(/(a|a)*[bc]/, x)`", "a" * 40),
    "backtracking in =~": ("$[?(@ =~ '(a|a)*[bc]')].`len`", ["a" * 40]),
    "counting nothing for everything": ("$[?count($..nothing) > 1]", RECORDS),
    "filters in filters": ("$..[?@..[?@..[?@..[?@..x]]]]", TREE),
    "a long filter": ("$[?" + "@ > 1 && " * 100 + "@ > 1]", [0] * 100_000),
}


@pytest.mark.parametrize(("expression", "document"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_path_over_the_limits_is_a_jsonpath_error(expression, document, monkeypatch):
    monkeypatch.setattr(queries, "TIME_LIMIT", 60.0)  # of a busy machine
    with pytest.raises(JSONPathError):
        compile_path(expression).find(document)


EQUALITY = [  # RFC 9535 2.3.5.2.2
    ("@.a == @.b", {"a": 1, "b": True}, False),
    ("@.a == @.b", {"a": [1], "b": [True]}, False),
    ("@.a == @.b", {"a": {"x": [0, {"y": 1}]}, "b": {"x": [False, {"y": 1}]}}, False),
    ("@.a == @.b", {"a": {"x": [0, {"y": 1}]}, "b": {"x": [0.0, {"y": 1.0}]}}, True),
    ("@.a == @.b", {"a": {"x": 1, "y": 2}, "b": {"y": 2, "x": 1}}, True),
    ("@.a == @.b", {"a": [True, None], "b": [True, None]}, True),
    ("@.a == @.b", {"a": [1, 2], "b": [2, 1]}, False),
    ("@.a == @.b", {"a": [], "b": {}}, False),
    ("@.a != @.b", {"a": [1], "b": [True]}, True),
    ("@.a != @.b", {"a": [1], "b": [1.0]}, False),
    ("@.a <= @.b", {"a": [1], "b": [True]}, False),
    ("@.a >= @.b", {"a": {"x": 1}, "b": {"x": 1}}, True),
    ("@.a < @.b", {"a": [1], "b": [2]}, False),
    ("@.a == @.missing", {"a": []}, False),
    ("@.missing == @.absent", {"a": []}, True),
    ("@.a == true", {"a": 1}, False),
    ("count(@.*) == 1", {"a": 1}, True),
]


def test_no_number_equals_a_boolean_at_any_depth_of_what_is_compared():
    for condition, value, found in EQUALITY:
        assert compile_path(f"$[?{condition}]").find([value]) == [value] * found


@pytest.mark.parametrize(
    ("expression", "document"),
    [
        *(pytest.param(*slow, id=name) for name, slow in TOO_SLOW.items()),
        *(pytest.param(*slow, id=name, marks=pytest.mark.battery) for name, slow in ALSO_TOO_SLOW.items()),
    ],
)
def test_a_path_that_takes_too_long_is_a_timeout_within_the_promised_two_seconds(expression, document):
    path = compile_path(expression)
    started = time.thread_time()  # not counting what other processes take
    with pytest.raises(CheckTimeoutError, match="did not finish within"):
        path.resolve(document)
    assert time.thread_time() - started < 2


# --- cost


def test_plain_paths_do_without_the_jsonpath_libraries():
    program = (
        "import sys; from fepflow.jsonpath.path import compile_path; "
        "assert compile_path('''$.output['a b'][0].日本''').find({}) == []; "
        "assert not {'jsonpath_ng', 'jsonpath_rfc9535', 'regex'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_path_is_compiled_once():
    assert compile_path("$.a[*]") is compile_path("$.a[*]")


def test_paths_that_may_take_long_are_not_looked_up_in_the_event_loop():
    for expression, quick in [
        ("$.a[0].b", True),
        ("$.a[*].b", True),
        ("$.a[1:3].b", True),
        ("$.a[*]['..??$$']", True),
        ("$.a[?@.b==3].c", False),
        ("$..c", False),
        ("$[0,0][0,0]", False),
        ("$.a[?match( @.b, 'x')]", False),
        ("$.a.`len`", False),
    ]:
        token = IN_LOOP.set(True)
        with nullcontext() if quick else pytest.raises(NotInLoopError):
            compile_path(expression).find({"a": [{"b": "c"}]})
        IN_LOOP.reset(token)
