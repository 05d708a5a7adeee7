"""Evaluations of other tools, as their readers give them: a suite, its test cases, outputs, and what scorers said."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fepflow.errors import Problem
from fepflow.text import brief, plural

PLACEHOLDER_URL = "http://127.0.0.1:8000/answer"
"""The address of a target that the source lacks."""

MOST_LINES = 5
"""Places that are listed for one thing that needs attention."""
MOST_NOTES = 200
"""Different things that are listed."""
LONGEST_REASON = 20_000
"""Characters of a scorer's reason that are kept."""


@dataclass(frozen=True, slots=True)
class Score:
    """A scorer's result for one output. One with an `error`, or with neither a yes or no nor a number, is an error.

    A number that is not finite is no score. Readers set `passed` only where the file says it: no threshold is guessed.
    """

    passed: bool | None = None
    score: float | None = None
    reason: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, passed: Any, score: Any = None, reason: Any = None, error: str | None = None) -> Score:
        """Return the score that members of a file hold; whatever has another type says nothing."""
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        number = float(score) if is_number else None
        return cls(passed if isinstance(passed, bool) else None, number, text_or_none(reason), error)

    def data(self) -> dict[str, Any]:
        """Return what the check `recorded_score` reads."""
        error, score = self.error, self.score
        if score is not None and not math.isfinite(score):
            error, score = error or f"the score is {score}, which is no number", None
        if error is None and self.passed is None and score is None:
            error = "neither a score nor a yes or no was recorded"
        found = {"passed": self.passed, "score": score, "reason": self.reason and brief(self.reason, LONGEST_REASON)}
        known = {name: value for name, value in found.items() if value is not None}
        return known if error is None else {"error": brief(error, LONGEST_REASON)}


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
    """True if the source says that no scorer was to say anything."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """Results of one system under test, which become one run. `cases` are indices; None: all cases of the import.

    `variant` tells the runs of one file apart, such as `{"provider": "openai:gpt-5"}`. An output that is missing is
    missing in the run. `checks` are scorers that every case has even where no output tells of them.
    """

    outputs: Sequence[ImportedOutput]
    repeats: int = 1
    cases: Sequence[int] | None = None
    variant: dict[str, str] | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    checks: Sequence[str] = ()


@dataclass
class CollectedRun:
    """The outputs of a run as they come, in whatever order: those of one case are its repeats."""

    outputs: list[ImportedOutput] = field(default_factory=list)
    times: list[datetime | None] = field(default_factory=list)
    """When it was at work, as far as the source tells."""
    repeats: Counter[int] = field(default_factory=Counter)
    """Number of results by the index of their case."""

    def next_repeat(self, case: int) -> int:
        """Return the number of the next result of a case."""
        self.repeats[case] += 1
        return self.repeats[case] - 1

    def run(self, checks: Sequence[str] = (), variant: dict[str, str] | None = None) -> ImportedRun:
        """Return the run, with the scorers that every case has."""
        started, ended = span(self.times)
        return ImportedRun(self.outputs, max(self.repeats.values(), default=1), None, variant, started, ended, checks)


class CaseList(list[dict[str, Any]]):
    """Test cases by a key that their source has for them."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Any, int] = {}

    def place(self, key: Any, case: dict[str, Any]) -> int:
        """Return the index of the case with this key: this one, unless one came before."""
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
        self._came: dict[str, int] = {}
        self._left: dict[tuple[str, str | None, str], list[tuple[int | None, str | None]]] = {}
        self._counts: dict[tuple[str, str | None, str], int] = {}
        self._more = 0

    def came(self, **counts: int) -> None:
        """Count imported things by singular nouns, such as `test_case=3`."""
        for noun, count in counts.items():
            if count:
                self._came[noun] = self._came.get(noun, 0) + count

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
        places = self._left.setdefault(key, [])
        self._counts[key] = self._counts.get(key, 0) + 1
        if len(places) < MOST_LINES:
            places.append((line, path))

    @property
    def is_complete(self) -> bool:
        """True if nothing needs attention."""
        return not self._left

    def what_came(self) -> list[str]:
        """Return phrases such as `3 test cases`."""
        return [plural(count, noun.replace("_", " ")) for noun, count in self._came.items()]

    def problems(self) -> Iterator[Problem]:
        """Yield the things that need attention, each with its first place; further places are in the message."""
        for (what, advice, file), places in self._left.items():
            line, path = places[0]
            others = [str(place[0]) for place in places[1:] if place[0] is not None and place[0] != line]
            more = self._counts[what, advice, file] - 1
            where = ""
            if more:
                named = f"lines {', '.join(dict.fromkeys(others))}" if others else ""
                rest = more - len(others)
                where = f"; also {named}" if named else "; "
                if rest:
                    where += f"{' and ' if named else ''}{rest:,} more {'place' if rest == 1 else 'places'}"
            yield Problem(f"{what}{where}", file, line, path, advice, severity="warning")
        if self._more:
            yield Problem(f"... and {self._more:,} more things need attention", self.file, severity="warning")


def run_of_all(outputs: Sequence[ImportedOutput], cases: Sequence[Any], notes: Notes) -> list[ImportedRun]:
    """Return the run of the outputs that stand beside the cases, if each case has one."""
    if outputs and len(outputs) < len(cases):
        what = f"{len(outputs)} of {len(cases)} test cases have an output, which is left out"
        notes.by_hand(what, advice="give all of them one, or ask your agent")
        return []
    notes.came(output=len(outputs))
    return [ImportedRun(outputs)] if outputs else []


def unique_names(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Return the names, those that stand there already with a number: `a`, `a-2`."""
    used, unique = set(taken), []
    numbers: dict[str, int] = {}
    for name in names:
        candidate = name
        while candidate in used:
            numbers[name] = numbers.get(name, 1) + 1
            candidate = f"{name}-{numbers[name]}"
        used.add(candidate)
        unique.append(candidate)
    return unique


def finite_number(value: Any) -> float | None:
    """Return a number as readers take one: None for what is none, for a boolean, and for NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def text_or_none(value: Any) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def moment(value: Any) -> datetime | None:
    """Return a time as files write it: ISO 8601, or seconds or milliseconds since 1970; None for anything else.

    A time without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
        elif (seconds := finite_number(value)) is not None:
            found = datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def span(times: Iterable[datetime | None]) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last of the times that are known."""
    known_times = [time for time in times if time is not None]
    return min(known_times, default=None), max(known_times, default=None)


def known(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def mapping(value: Any) -> dict[str, Any]:
    """Return an object of JSON; an empty one for anything else."""
    return value if isinstance(value, dict) else {}
