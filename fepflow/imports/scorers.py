"""Results of other tools' scorers, read as passes and scores without guessing a threshold."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fepflow.imports.imported import ImportedOutput, Notes, Score
from fepflow.imports.values import finite_number, number_of
from fepflow.text import brief

CLOSE = 1e-4
"""Difference between a mean in the file and the mean of the imported scores that is due to rounding."""

MOST_MISSING = 100_000
"""Test cases that stand for those which a file does not have."""

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_BAD_NEWS = re.compile(
    r"toxic|hallucinat|harm(?!less)|bias(?!_free)|unsafe|error|fail|leak|jailbreak|violat|pii\b", re.IGNORECASE
)
"""Names of scorers whose true is probably bad, so that an imported pass would be a fail."""


@dataclass
class _Seen:
    """The kinds of values that one scorer gave."""

    has_scores: bool = False
    has_booleans: bool = False
    is_binary: bool = True
    labels: list[str] = field(default_factory=list)
    """The first texts that are not scores."""

    containers: set[str] = field(default_factory=set)


class ScorerValues:
    """Reads the values of all scorers of a file, and decides at its end what the values of each one mean.

    `grades` are texts with a fixed meaning, as a yes or no and a score. A scorer with any other text gives labels: it
    is left out, because its letters may be choices and not grades.
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
        """Give each scorer a new name; the new names must be unique."""
        self._seen = {new_name(name): seen for name, seen in self._seen.items()}

    def read(self, name: str, value: Any, reason: str | None = None) -> Score:
        """Return the score of a value. None and NaN are an error, and neither a fail nor a zero."""
        seen = self._seen.setdefault(name, _Seen())
        if value is None or value != value:
            return Score(error=f"the scorer gave no score{f': {reason}' if reason else ''}")
        passed: bool | None = value if isinstance(value, bool) else None
        number: float | None
        if isinstance(value, str) and value in self._grades:
            passed, number = self._grades[value]
        elif isinstance(value, str):
            text = value.strip().lower()
            number = _WORDS[text] if text in _WORDS else number_of(text)
        else:
            number = float(value) if isinstance(value, bool) else finite_number(value)
        if number is None:
            if isinstance(value, str) and len(seen.labels) < 3:
                seen.labels.append(brief(value, 60))
            elif isinstance(value, list | dict):
                seen.containers.add("lists" if isinstance(value, list) else "objects")
            return Score(error=f"the recorded value is not a score: {brief(repr(value), 200)}")
        seen.has_scores = True
        seen.has_booleans |= isinstance(value, bool)
        seen.is_binary = seen.is_binary and (passed is not None or number in (0, 1))
        return Score(passed, number, reason)

    def settle(self, outputs: Sequence[ImportedOutput], missing: str, yes_or_no: Collection[str] = ()) -> list[str]:
        """Return the imported scorers, and note the others, whose scores are removed from the outputs.

        A scorer in `yes_or_no`, for which 1 is right and 0 is wrong, gives passes and fails if it has no other value.
        An output without a score of a scorer gets the error `missing` from it.
        """
        left = {name for name, seen in self._seen.items() if self._is_left_out(name, seen)}
        names = [name for name in self._seen if name not in left]
        binary = {name for name in names if name in yes_or_no and self._seen[name].is_binary}
        for output in outputs:
            for name in left:
                output.scores.pop(name, None)
            for name in binary & output.scores.keys():
                score = output.scores[name]
                if score.passed is None and score.score is not None:
                    output.scores[name] = replace(score, passed=score.score == 1)
            for name in names if output.error is None else ():
                output.scores.setdefault(name, Score(error=missing))
        for name in names:
            if self._seen[name].has_booleans and _BAD_NEWS.search(name):
                what = f"true of {name!r} was imported as a pass, but its name suggests the opposite"
                self._notes.by_hand(what, advice="if true is bad, invert the score in the tool and export it again")
        return names

    def _is_left_out(self, name: str, seen: _Seen) -> bool:
        if seen.labels:
            advice = "keep them in the output, and check them with exact_match or classification"
            labels = ", ".join(map(repr, dict.fromkeys(seen.labels)))
            self._notes.by_hand(f"the scores of {name!r} are left out: they are labels such as {labels}", advice=advice)
        elif seen.containers and not seen.has_scores:
            what = f"the scores of {name!r} are left out: they are {' and '.join(sorted(seen.containers))}"
            self._notes.by_hand(what, advice="export single numbers")
        else:
            return False
        return True


def compare_means(notes: Notes, name: str, outputs: Sequence[ImportedOutput], recorded: Any, what: str) -> None:
    """Note a mean in the file that differs from the mean of the imported scores: the scorer counts in its own way."""
    by_case: dict[int, list[float]] = defaultdict(list)
    for output in outputs:
        score = output.scores.get(name)
        if output.error is None and score is not None and score.error is None and score.score is not None:
            by_case[output.case].append(score.score)
    theirs = finite_number(recorded)
    if not by_case or theirs is None:
        return
    ours = sum(sum(scores) / len(scores) for scores in by_case.values()) / len(by_case)
    if not math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=CLOSE):
        advice = "look at how the tool counts this score before a gate rests on it"
        notes.by_hand(f"{what} of {name!r} is {theirs:.4g} in the file, but {ours:.4g} by its cases", advice=advice)


def missing_cases(count: int) -> list[dict[str, Any]]:
    """Return placeholders for test cases that a file mentions but does not have: none of them passes."""
    return [{"id": f"not-in-the-file-{number}", "input": None} for number in range(1, min(count, MOST_MISSING) + 1)]
