"""JSON by the standard, and nothing beside it."""

from __future__ import annotations

import pytest

from fepflow.json.values import parse


def test_json_is_read() -> None:
    for text, value in [
        ('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
        ('"\\ud800 \\u0000"', "\ud800 \x00"),
        ("12345678901234567890123", 12345678901234567890123),
        ("7", 7),
        ('"' + "[" * 500 + '"', "[" * 500),
    ]:
        assert parse(text) == value


def test_invalid_json_is_refused_with_the_reason() -> None:
    for text, why in [
        ("", "Expecting value at column 1"),
        ('{"a": 1,\n "b" 2}', "Expecting ':' delimiter at line 2, column 6"),
        ('{"a": "b', "Unterminated string starting at column 7"),
        ('"a\nb"', "Invalid control character at column 3"),
        ("-Infinity", "-Infinity is not a JSON value"),
        ("-1e999", "-1e999 is too large for a number"),
        ("9" * 4301, "a number has too many digits"),
        ('{"k": 1, "k": 2}', "the key 'k' appears twice in one object"),
        ('{"a":' * 101 + "1" + "}" * 101, "it is nested deeper than 100 levels"),
        ("[" * 1_000_000, "it is nested deeper than 100 levels"),
    ]:
        with pytest.raises(ValueError, match=r".") as raised:
            parse(text)
        assert str(raised.value) == why


def test_a_hundred_levels_are_read_and_one_more_is_not() -> None:
    assert parse("[" * 100 + "]" * 100)
    with pytest.raises(ValueError, match="100 levels"):
        parse("[" * 101 + "]" * 101)
