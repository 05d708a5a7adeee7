"""Values that scorers of other tools wrote down, read as passes and scores without guessing a threshold."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fepflow.imports.imported import ImportedOutput, Notes, Score, finite_number
from fepflow.json.values import map_leaves
from fepflow.text import brief

CLOSE = 1e-4
"""Difference between a mean in the file and the mean of the imported scores that is due to rounding."""

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_SHOWN = 3
_BAD_NEWS = re.compile(
    r"toxic|hallucinat|harm(?!less)|bias(?!_free)|unsafe|error|fail|leak|jailbreak|violat|pii\b", re.IGNORECASE
)
"""Names of scorers whose true is probably bad, so that an imported pass would be a fail."""
_NUMBERS = {"float", "int"}
"""Kinds of values that are numbers, but too large or infinite: their scorer stays, in error."""


@dataclass
class _Seen:
    """The values of one scorer: how many became a score, were left open, and the texts that mean nothing known."""

    known: int = 0
    binary: bool = True
    has_booleans: bool = False
    labels: dict[str, int] = field(default_factory=dict)
    strange: dict[str, int] = field(default_factory=dict)


class ScorerValues:
    """Reads the values of all scorers of a file, and decides at its end what the values of each one mean.

    `grades` are texts with a fixed meaning, as a yes or no and a score. A scorer with any other text gives labels: it
    is left out, since its letters may be choices and no grades.
    """

    def __init__(self, notes: Notes, grades: Mapping[str, tuple[bool | None, float]] | None = None) -> None:
        self._notes = notes
        self._grades = grades or {}
        self._seen: dict[str, _Seen] = {}

    @property
    def names(self) -> list[str]:
        """The names of the scorers, in the order in which they were seen."""
        return list(self._seen)

    def rename(self, new_name: Callable[[str], str]) -> None:
        """Give each scorer a new name; the names stay different ones."""
        self._seen = {new_name(name): seen for name, seen in self._seen.items()}

    def read(self, name: str, value: Any, reason: str | None = None) -> Score:
        """Return the score of a value. None and NaN are no score, and neither a fail nor a zero."""
        seen = self._seen.setdefault(name, _Seen())
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return Score(error=f"the scorer gave no score{f': {reason}' if reason else ''}")
        if isinstance(value, bool):
            seen.known += 1
            seen.has_booleans = True
            return Score(value, float(value), reason)
        if isinstance(value, str):
            return self._text(seen, value, reason)
        number = finite_number(value)
        if number is None:
            kind = type(value).__name__
            seen.strange[kind] = seen.strange.get(kind, 0) + 1
            return Score(error=f"the recorded value is no score: {brief(repr(value), 200)}")
        seen.known += 1
        seen.binary = seen.binary and number in (0, 1)
        return Score(None, number, reason)

    def _text(self, seen: _Seen, text: str, reason: str | None) -> Score:
        if text in self._grades:
            seen.known += 1
            passed, score = self._grades[text]
            seen.binary = seen.binary and passed is not None
            return Score(passed, score, reason)
        try:
            number = _WORDS[text.strip().lower()] if text.strip().lower() in _WORDS else finite_number(float(text))
        except ValueError:
            number = None
        if number is not None:
            seen.known += 1
            seen.binary = seen.binary and number in (0, 1)
            return Score(None, number, reason)
        if len(seen.labels) < 1000 or text in seen.labels:
            seen.labels[brief(text, 60)] = seen.labels.get(brief(text, 60), 0) + 1
        return Score(error=f"the recorded value is no score: {brief(text, 200)!r}")

    def settle(self, outputs: Sequence[ImportedOutput], missing: str, yes_or_no: Collection[str] = ()) -> list[str]:
        """Return the imported scorers, and note the others, whose scores are taken out of the outputs.

        Of `yes_or_no`, which say that 1 is right and 0 is wrong, those with no other value say so of each output. An
        output that a scorer says nothing of gets the error `missing` from it.
        """
        left = {
            name
            for name, seen in self._seen.items()
            if seen.labels or (seen.strange.keys() - _NUMBERS and not seen.known)
        }
        for name in left:
            self._note(name, self._seen[name])
        binary = {name for name in yes_or_no if name in self._seen and self._seen[name].binary} - left
        if left or binary:
            for output in outputs:
                for name in left & output.scores.keys():
                    del output.scores[name]
                for name in binary & output.scores.keys():
                    score = output.scores[name]
                    if score.passed is None and score.score is not None:
                        output.scores[name] = replace(score, passed=score.score == 1)
        for name, seen in self._seen.items():
            if seen.has_booleans and name not in left and _BAD_NEWS.search(name):
                what = (
                    f"of {name!r} true was imported as a pass and false as a fail, but its name suggests the opposite"
                )
                self._notes.by_hand(what, advice="if true is bad, invert the score in the tool and export it again")
        names = [name for name in self._seen if name not in left]
        for output in outputs:
            for name in names if output.error is None else ():
                output.scores.setdefault(name, Score(error=missing))
        return names

    def _note(self, name: str, seen: _Seen) -> None:
        if seen.strange:
            self._notes.by_hand(
                f"the scores of {name!r} are left out: they are no single values but {_list(seen.strange)}"
            )
            return
        shown = ", ".join(repr(label) for label in list(seen.labels)[:_SHOWN])
        advice = "keep them in the output, and check them with exact_match or classification"
        self._notes.by_hand(f"the scores of {name!r} are left out: they are labels such as {shown}", advice=advice)


def _list(kinds: Iterable[str]) -> str:
    words = {"list": "lists", "dict": "objects", "float": "infinite numbers", "int": "numbers too large for a float"}
    return " and ".join(words.get(kind, kind) for kind in kinds)


def mean_by_case(outputs: Sequence[ImportedOutput], name: str) -> float | None:
    """Return the mean over cases of the mean over their repeats, of the outputs that have a score; None without any."""
    by_case: dict[int, list[float]] = defaultdict(list)
    for output in outputs:
        score = output.scores.get(name)
        if output.error is None and score is not None and score.error is None and score.score is not None:
            by_case[output.case].append(score.score)
    return sum(sum(scores) / len(scores) for scores in by_case.values()) / len(by_case) if by_case else None


def compare_means(notes: Notes, name: str, outputs: Sequence[ImportedOutput], recorded: Any, what: str) -> None:
    """Note a mean in the file that differs from the mean of the imported scores: the scorer counts in its own way."""
    ours, theirs = mean_by_case(outputs, name), finite_number(recorded)
    if ours is not None and theirs is not None and not math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=CLOSE):
        advice = "look at how the tool counts this score before a gate rests on it"
        notes.by_hand(f"{what} of {name!r} is {theirs:.4g} in the file, but {ours:.4g} by its cases", advice=advice)


def plain_json(value: Any) -> Any:
    """Return a JSON value in which NaN and infinities are texts, as JSON has no such numbers."""
    return map_leaves(value, lambda leaf: leaf if not isinstance(leaf, float) or math.isfinite(leaf) else str(leaf))


def milliseconds(seconds: Any) -> float | None:
    """Return a duration in seconds as milliseconds; None for what is none."""
    number = finite_number(seconds)
    return None if number is None or number < 0 else round(number * 1000, 3)


def missing_cases(count: int) -> list[dict[str, Any]]:
    """Return test cases in place of those that a file says there were, and does not have: none of them was passed."""
    return [{"id": f"not-in-the-file-{number}", "input": None} for number in range(1, min(count, MOST_MISSING) + 1)]


MOST_MISSING = 100_000
