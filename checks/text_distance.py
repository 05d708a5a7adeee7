"""`text_distance`: how alike two texts are, by their characters or words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, StrictBool

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath, PathText, as_text
from fepflow.checks.explanation import ResolvedArguments, number, shown
from fepflow.errors import CheckArgumentsError

TextMetric = Literal["ratio", "levenshtein", "token_f1", "rouge_l"]

MOST_COMPARED = 10**10
"""Largest product of two lengths that are compared: about 0.3 s for two texts of 100,000 characters."""

_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}]+")
"""A word: letters and digits; in Chinese and Japanese, which put no spaces between words, one character."""


class TextDistanceCheck(BaseCheck):
    """Measure how similar two texts are. Results: `{score: number, passed: bool}`.

    The score is 1 for equal texts and 0 for texts that share nothing. `metric` chooses how it is computed:

    - `ratio`: twice the number of characters in a longest common subsequence, divided by the length of both texts.
    - `levenshtein`: 1 minus the edit distance divided by the length of the longer text.
    - `token_f1`: F1 of the words that both texts have, in any order, as in SQuAD.
    - `rouge_l`: F1 of the longest common subsequence of words.

    Composed and decomposed characters are the same (Unicode NFC). SQuAD and ROUGE also ignore case: set
    `case_sensitive: false` to compare with their figures. SQuAD leaves out articles and reads `don't` as `dont`;
    `token_f1` keeps articles and reads two words. ROUGE's own code drops letters other than a to z. The score says how
    similar the words are, not whether the texts agree: a sentence and its negation are very similar. All metrics except
    `token_f1` compare texts of up to about 100,000 characters, or words, and end in an error for longer ones.
    """

    check_type: ClassVar[str] = "text_distance"
    check_range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    check_pass_at: ClassVar[float | None] = 0.7

    text: str | JSONPath = Field(default=OUTPUT, description="Text to check.")
    expected: str | JSONPath = Field(default=EXPECTED, description="Text to compare with.")
    metric: TextMetric | PathText = Field(default="ratio", description="Measure of similarity.")
    case_sensitive: StrictBool | PathText = Field(default=True, description="Whether case matters.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        text, expected = (unicodedata.normalize("NFC", as_text(value)) for value in (self.text, self.expected))
        if not self.case_sensitive:
            text, expected = text.casefold(), expected.casefold()
        if text == expected:  # two texts without a word, too
            return {"score": 1.0}
        if self.metric in ("token_f1", "rouge_l"):
            return {"score": _of_words(_WORD.findall(text), _WORD.findall(expected), str(self.metric))}
        return {"score": _of_characters(text, expected, str(self.metric))}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return (
            f"{resolved['metric']} {number(results['score'])}: got {shown(resolved['text'])}, "
            f"wanted {shown(resolved['expected'])}"
        )


def _of_characters(text: str, expected: str, metric: str) -> float:
    from rapidfuzz.distance import Indel, Levenshtein  # takes 60 ms to load

    _refuse_long(text, expected, metric, "characters")
    distance = Indel if metric == "ratio" else Levenshtein
    return float(distance.normalized_similarity(text, expected))


def _of_words(words: list[str], expected: list[str], metric: str) -> float:
    """Return the F1 of the words that are in common: 2 · common / (words + expected words)."""
    if metric == "token_f1":
        common = (Counter(words) & Counter(expected)).total()
    else:
        from rapidfuzz.distance import LCSseq

        _refuse_long(words, expected, metric, "words")
        common = LCSseq.similarity(words, expected)
    return 2 * common / (len(words) + len(expected)) if words or expected else 0.0


def _refuse_long(one: Sequence[str], other: Sequence[str], metric: str, units: str) -> None:
    if len(one) * len(other) > MOST_COMPARED:
        raise CheckArgumentsError(
            f"texts of {len(one):,} and {len(other):,} {units} take too long to compare by {metric} "
            "(token_f1 compares texts of any length)"
        )
