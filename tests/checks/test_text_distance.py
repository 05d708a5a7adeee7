"""`text_distance`: golden values by known formulas, what counts as a word, and bounds on time."""

from __future__ import annotations

import time
import unicodedata

import pytest

from fepflow.checks.engine import evaluate
from fepflow.checks.text_distance import TextDistanceCheck
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase


def score(text: str, expected: str, metric: str = "ratio", **arguments: bool) -> float:
    return float(TextDistanceCheck(text=text, expected=expected, metric=metric, **arguments)()["score"])


def test_levenshtein_is_one_minus_the_edits_by_the_longer_text() -> None:
    assert score("kitten", "sitting", "levenshtein") == pytest.approx(1 - 3 / 7)
    assert score("flaw", "lawn", "levenshtein") == 0.5
    assert score("", "abc", "levenshtein") == 0


def test_ratio_is_that_of_the_longest_common_subsequence() -> None:
    # "ittn" is common to both: 2 * 4 / (6 + 7)
    assert score("kitten", "sitting") == pytest.approx(8 / 13)
    assert score("abc", "xyz") == 0


def test_token_f1_is_that_of_squad_without_its_articles() -> None:
    # 3 of 4 words are right, 3 of 5 are found: F1 = 2 * 3/4 * 3/5 / (3/4 + 3/5)
    assert score("cat on the roof", "the cat was on top", "token_f1") == pytest.approx(2 / 3)
    assert score("b a", "a b", "token_f1") == 1
    assert score("a a a", "a", "token_f1") == 0.5, "a word counts as often as both have it"


def test_rouge_l_is_the_f1_of_words_in_order() -> None:
    # Lin 2004: "police the gunman" and "gunman police killed" keep one word in order with "police killed the gunman".
    assert score("police kill the gunman", "police killed the gunman", "rouge_l") == pytest.approx(3 / 4)
    assert score("the gunman kill police", "police killed the gunman", "rouge_l") == pytest.approx(2 / 4)
    assert score("b a", "a b", "rouge_l") == 0.5


def test_words_have_no_punctuation_and_one_character_in_languages_without_spaces() -> None:
    assert score("Paris, France!", "Paris France", "token_f1") == 1
    assert score("東京都", "東京", "token_f1") == pytest.approx(0.8)


def test_case_and_composition_of_characters() -> None:
    assert score("PARIS", "paris") == 0
    assert score("PARIS", "paris", case_sensitive=False) == 1
    assert score(unicodedata.normalize("NFD", "café"), "café", "levenshtein") == 1


@pytest.mark.parametrize("metric", ["ratio", "levenshtein", "token_f1", "rouge_l"])
def test_texts_without_anything_in_common_never_score(metric: str) -> None:
    assert score("", "", metric) == 1, "two empty texts are equal"
    assert score("", "Paris", metric) == 0
    assert score("Paris", "", metric) == 0
    assert score("...", "Paris", metric) == 0
    assert score("...", "!!!", metric) == 0, "no word in either is nothing in common"


def test_a_text_as_alike_as_is_asked_passes() -> None:
    case, output = TestCase(id="a", input="?", expected="kitten"), Output(value="sitting")
    for pass_at, passed in (
        ({}, False),
        ({"pass_at": 0.6}, True),
        ({"pass_at": 8 / 13}, True),
        ({"pass_at": 0.62}, False),
    ):
        (found,) = evaluate([case], [output], [Check(type="text_distance", arguments=pass_at)]).results[0].check_results
        assert (found.passed, found.results["score"]) == (passed, pytest.approx(8 / 13))


def test_texts_of_a_megabyte_are_compared_by_words_or_refused_soon() -> None:
    one, other = "lorem ipsum " * 80_000, "dolor ipsum " * 80_000
    for metric in ("ratio", "levenshtein", "token_f1", "rouge_l"):
        case, check = (
            TestCase(id="a", input="?", expected=other),
            Check(type="text_distance", arguments={"metric": metric}),
        )
        start = time.process_time()
        (found,) = evaluate([case], [Output(value=one)], [check]).results[0].check_results
        assert time.process_time() - start < 5
        if metric == "token_f1":
            assert found.results["score"] == pytest.approx(0.5)
        else:
            assert found.error is not None
            assert "take too long to compare" in found.error.message
