"""Evaluations of other tools, as their readers return them: a suite, its test cases, outputs, and scorers' results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fepflow.errors import Problem
from fepflow.imports.values import known, text_or_none
from fepflow.text import brief, plural

PLACEHOLDER_URL = "http://127.0.0.1:8000/answer"
"""The address of a target that the source lacks."""

MOST_LINES = 5
"""Lines that are listed for one thing that needs attention."""

MOST_NOTES = 200
"""Different things that are listed."""

LONGEST_REASON = 20_000
"""Characters of a scorer's reason that are kept."""


@dataclass(frozen=True, slots=True)
class Score:
    """A scorer's result for one output. One with an `error`, or with neither a yes or no nor a number, is an error.

    Readers set `passed` only where the file says it: no threshold is guessed.
    """

    passed: bool | None = None
    score: float | None = None
    reason: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, passed: Any, score: Any = None, reason: Any = None, error: str | None = None) -> Score:
        """Return the score that members of a file hold. Members of a wrong type are ignored."""
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        number = float(score) if is_number else None
        return cls(passed if isinstance(passed, bool) else None, number, text_or_none(reason), error)

    def data(self) -> dict[str, Any]:
        """Return what the check `recorded_score` reads."""
        error, score = self.error, self.score
        if error is None and score is not None and not math.isfinite(score):
            error = f"the score is {score}, which is not a number"
        if error is None and self.passed is None and score is None:
            error = "neither a score nor a yes or no was recorded"
        if error is not None:
            return {"error": brief(error, LONGEST_REASON)}
        return known(passed=self.passed, score=score, reason=self.reason and brief(self.reason, LONGEST_REASON))


@dataclass(frozen=True, slots=True)
class ImportedOutput:
    """An output of the case at index `case`, counted from 0 as `repeat` is, with the scores by scorer.

    With an `error` the call failed: the value is None, and every check of the case ends in error. `metadata` has the
    names that targets give: `latency_ms`, `tokens`, `usd`, `model`, `tool_calls`.
    """

    case: int
    value: Any
    repeat: int = 0
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)
    asserts_nothing: bool = False
    """True if the source says that no scorer judges this output."""


@dataclass
class ImportedRun:
    """Results of one system under test, which become one run. An output that is missing is missing in the run."""

    outputs: list[ImportedOutput] = field(default_factory=list)
    repeats: int = 1
    cases: Sequence[int] | None = None
    """Indices of its cases; None: all cases of the import."""

    variant: dict[str, str] | None = None
    """Tells the runs of one file apart, for example `{"provider": "openai:gpt-5"}`."""

    checks: Sequence[str] = ()
    """Scorers that every case has, even where no output has a score of theirs."""

    times: list[datetime | None] = field(default_factory=list)
    """Times at which it ran, as far as the source has them."""

    results: Counter[int] = field(default_factory=Counter)
    """Number of results by the index of their case, as `next_repeat` counts them."""

    def next_repeat(self, case: int) -> int:
        """Return the number of the next result of a case: results of one case are its repeats."""
        self.results[case] += 1
        self.repeats = max(self.repeats, self.results[case])
        return self.results[case] - 1

    @property
    def started_at(self) -> datetime | None:
        """The first known time."""
        return min((time for time in self.times if time is not None), default=None)

    @property
    def completed_at(self) -> datetime | None:
        """The last known time."""
        return max((time for time in self.times if time is not None), default=None)


class CaseList(list[dict[str, Any]]):
    """Test cases by a key that their source has for them."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Any, int] = {}

    def place(self, key: Any, case: dict[str, Any]) -> int:
        """Return the index of the case with this key, after adding it if it is new."""
        if key not in self.places:
            self.places[key] = len(self)
            self.append(case)
        return self.places[key]


@dataclass(frozen=True)
class Imported:
    """Content of a file, as a reader returns it.

    `suite` has the sections of a suite document other than `name` and `test_cases`; without `target`, a placeholder is
    written, or the recorded outputs. `cases` are test cases as dicts (FEP 2.1), with or without an id. Without `runs`,
    the file has no results.
    """

    format: str
    version: str | None
    name: str
    notes: Notes
    cases: list[dict[str, Any]]
    suite: dict[str, Any] = field(default_factory=dict)
    runs: Sequence[ImportedRun] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Further files of the suite, such as prompts, by name."""


class Notes:
    """The report of an import: what was imported, and what needs attention, with the lines."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._came: Counter[str] = Counter()
        self._left: dict[tuple[str, str | None, str], list[tuple[int | None, str | None]]] = {}
        self._places: Counter[tuple[str, str | None, str]] = Counter()
        self._more = 0

    def came(self, **counts: int) -> None:
        """Count imported things by singular nouns, such as `test_case=3`."""
        self._came.update(counts)

    def by_hand(
        self,
        what: str,
        line: int | None = None,
        path: str | None = None,
        advice: str | None = None,
        file: str | None = None,
    ) -> None:
        """Note something that was not imported, or only in part; the same thing in many places is one note."""
        key = (what, advice, file or self.file)
        if key not in self._left and len(self._left) >= MOST_NOTES:
            self._more += 1
            return
        self._places[key] += 1
        if self._places[key] <= MOST_LINES:
            self._left.setdefault(key, []).append((line, path))

    @property
    def is_complete(self) -> bool:
        """True if nothing needs attention."""
        return not self._left

    def what_came(self) -> list[str]:
        """Return phrases such as `3 test cases`."""
        return [plural(count, noun.replace("_", " ")) for noun, count in self._came.items() if count]

    def problems(self) -> Iterator[Problem]:
        """Yield the things that need attention, each with its first place; further places are in the message."""
        for key, [(line, path), *others] in self._left.items():
            what, advice, file = key
            if others:
                lines = list(dict.fromkeys(str(other) for other, _ in others if other not in (None, line)))
                where = f", such as lines {', '.join(lines)}" if lines else ""
                what = f"{what}; also in {plural(self._places[key] - 1, 'more place')}{where}"
            yield Problem(what, file, line, path, advice, severity="warning")
        if self._more:
            yield Problem(f"... and {self._more:,} more things need attention", self.file, severity="warning")


def run_of_all(outputs: list[ImportedOutput], cases: Sequence[Any], notes: Notes) -> list[ImportedRun]:
    """Return the run of the outputs that stand beside the cases, if each case has one."""
    if outputs and len(outputs) < len(cases):
        what = f"{len(outputs)} of {len(cases)} test cases have an output, which is left out"
        notes.by_hand(what, advice="give all of them one, or ask your agent")
        return []
    notes.came(output=len(outputs))
    return [ImportedRun(outputs)] if outputs else []
