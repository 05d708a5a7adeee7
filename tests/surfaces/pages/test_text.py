"""Texts on a page: what would not be seen is an escape, and long ones are not compared for long."""

from __future__ import annotations

import pytest

from surfaces.pages.text import MAX_DIFF_TOKENS, MAX_TEXT, differences, shown, snippet, visible

UNSEEN = ["\x00", "\x1b", "\r", "\x9b", "\u00ad", "\u061c", "\u200b", "\u200f", "\u2028", "\u202e", "\u2060", "\u2066",
          "\ud83d", "\udc00", "\ufeff"]  # fmt: skip


@pytest.mark.parametrize("character", UNSEEN, ids=ascii)
def test_what_is_not_seen_is_an_escape(character: str) -> None:
    assert visible(f"a{character}b") == f"a\\u{ord(character):04x}b"


def test_tags_are_escapes_of_eight_digits() -> None:
    assert visible("\U000e0069") == "\\U000e0069"


@pytest.mark.parametrize("text", ["tab\tline\n", "👩\u200d🚀", "\u0645\u06cc\u200c\u062e\u0648", "é ü 漢字", "e\u0301"])
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text


def test_long_values_are_cut_and_say_how_long_they_are() -> None:
    assert shown("x" * (MAX_TEXT + 1)) == "x" * MAX_TEXT + f"… ({MAX_TEXT + 1:,} characters)"
    assert snippet("x " * 1000, 20) == "x x x x x x x x x x …"


def test_differences_are_marked_by_words() -> None:
    one, other = differences("it is on its way", "it is on the way") or ([], [])
    assert [part.text for part in one if part.change == "changed"] == ["its"]
    assert [part.text for part in other if part.change == "changed"] == ["the"]
    assert differences("a " * MAX_DIFF_TOKENS, "b") is None
