import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.json.values import MAX_STORED_DEPTH, NotJsonError, decode, encode
from fepflow.protocol.test_case import Output

# A high surrogate before a low one is the pair that JSON reads as one character, so one half is enough here.
texts = st.text(st.characters(exclude_categories=[])).filter(
    lambda text: text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
keys = st.one_of(texts, st.from_regex(r"\$*float", fullmatch=True))
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts, st.sampled_from(["NaN", "x"])
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(keys, inner, max_size=3)),
)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@given(values)
def test_every_json_value_comes_back_as_it_was_and_its_text_is_ascii_json_without_nul(value):
    text = encode(value)

    assert decode(text) == value
    assert text.isascii()
    assert "\0" not in text
    json.loads(text, parse_constant=pytest.fail)


def test_nan_and_the_infinities_survive_at_any_depth():
    back = decode(encode({"scores": [math.nan, math.inf, -math.inf, 0.5], "deep": {"er": math.nan}}))

    assert math.isnan(back["scores"][0])
    assert back["scores"][1:] == [math.inf, -math.inf, 0.5]
    assert math.isnan(back["deep"]["er"])


def test_awkward_text_survives():
    for text in ["\0", "a\0b", "\ud800", "\udfff!", "日本 😀", "\u2028", '"\\']:
        assert decode(encode([text, {text: text}])) == [text, {text: text}]


def test_data_that_looks_like_the_tag_survives():
    for value in [
        {"$float": "NaN"},
        {"$float": "anything"},
        {"$float": {"$float": "Infinity"}},
        {"$$float": 1},
        {"$float": 1, "other": 2},
        [{"$$$float": None}],
        '{"$float":"NaN"}',
    ]:
        assert decode(encode(value)) == value


def test_data_that_looks_like_the_tag_survives_around_a_real_nan():
    back = decode(encode({"$float": math.nan}))

    assert list(back) == ["$float"]
    assert math.isnan(back["$float"])


def test_dates_sets_and_models_are_written_as_pydantic_writes_them():
    value = {"at": datetime(2026, 1, 2, tzinfo=UTC), "words": {"one"}, "output": Output(value=1, id="o", metadata={})}

    assert decode(encode(value)) == {
        "at": "2026-01-02T00:00:00Z",
        "words": ["one"],
        "output": {"value": 1, "id": "o", "metadata": {}},
    }


def test_the_deepest_value_that_is_stored_can_be_read():
    assert decode(encode(nested(MAX_STORED_DEPTH))) == nested(MAX_STORED_DEPTH)


def test_what_has_no_json_form_is_refused_with_its_reason():
    for value, reason in [
        (nested(MAX_STORED_DEPTH + 1), "nested more than"),
        (nested(100_000), "nested more than"),
        ({"number": 10**5_000}, "digits"),
        ({(1, 2): 3}, "keys"),
        ([object()], "object"),
        ({math.nan: 1}, "float"),
    ]:
        with pytest.raises(NotJsonError, match=reason):
            encode(value)


def test_a_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)

    with pytest.raises(NotJsonError, match="contains itself"):
        encode(value)


def test_brackets_inside_text_are_not_depth():
    assert decode(encode("[" * 10_000)) == "[" * 10_000
