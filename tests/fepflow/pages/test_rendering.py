"""Texts on a page: what would not be seen is an escape, and long ones are not compared for long."""

from __future__ import annotations

import pytest

from fepflow.pages.rendering import MAX_DIFF_PAIRS, MAX_DIFF_WORDS, MAX_TEXT, differences, shown, snippet, visible

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
    assert marked("it is on its way", "it is on the way") == ("it is on [its] way", "it is on [the] way")
    assert marked("42", "It is 42, I think.") == ("42", "[It is ]42[, I think.]")
    assert marked("a b c", "x y c") == ("[a b] c", "[x y] c")


def test_spaces_alone_are_a_difference_too() -> None:
    assert marked("on the way", "on  the way\n") == ("on[ ]the way", "on[  ]the way[\n]")
    assert marked(" a", "a") == ("[ ]a", "a")
    assert marked("", "a") == ("", "[a]")


@pytest.mark.parametrize("texts", [("a b\n", " a  c"), ("", ""), ("x\x1c\u3000y", "y \n\n"), ("a. b; c", "a; b. c")])
def test_nothing_of_a_text_is_lost_where_it_is_marked(texts: tuple[str, str]) -> None:
    assert tuple("".join(part.text for part in parts) for parts in differences(*texts) or ()) == texts


def test_texts_that_would_take_long_to_compare_are_not() -> None:
    assert differences("a " * MAX_DIFF_WORDS, "b") is None
    alike = int(MAX_DIFF_PAIRS**0.5)
    assert differences("." * alike, ".;" * alike)
    assert differences("." * (alike + 1), ".;" * (alike + 1)) is None


def marked(one: str, other: str) -> tuple[str, ...]:
    """Both texts, what differs in brackets."""
    found = differences(one, other)
    assert found is not None
    return tuple(
        "".join(f"[{part.text}]" if part.change == "changed" else part.text for part in parts) for parts in found
    )
