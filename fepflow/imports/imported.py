"""Evaluations of other tools, as their readers return them: a suite, its test cases, outputs, and scorers' results.

Readers of formats share what is here: readers of single values, results of scorers as passes and scores without
guessing a threshold, and the checks of imported suites.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from fepflow.errors import Problem
from fepflow.json.values import finite, is_deep, map_leaves
from fepflow.jsonpath.path import is_path
from fepflow.text import brief, plural


def known(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return a JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def member(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first member with one of these names that is not None: exports write `traceId` or `trace_id`."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_or_none(value: Any) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def finite_number(value: Any) -> float | None:
    """Return a number; None for booleans, NaN, infinities and all that is not a number."""
    return None if isinstance(value, bool) else finite(value)


def number_of(value: Any) -> float | None:
    """Return a number as `finite_number` does, also if a table's cell holds it as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


def milliseconds(seconds: Any) -> float | None:
    """Return a duration in seconds as milliseconds; None if it is not a number, or negative."""
    number = finite_number(seconds)
    return None if number is None or number < 0 else round(number * 1000, 3)


def moment(value: Any) -> datetime | None:
    """Return a time as files write it: ISO 8601, or seconds or milliseconds since 1970; None for anything else.

    A time without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
        elif (seconds := finite_number(value)) is not None:
            time = datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def cell(value: Any) -> Any:
    """Return the value of a table's cell: JSON if it is an object, a list or a quoted text; None if it is empty.

    A bare number stays a text, because it may be an answer such as `007`.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("", "null"):
        return None
    if text[0] + text[-1] not in ("{}", "[]", '""'):
        return value
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return value
    return value if is_deep(parsed) else parsed


def unique_names(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Return the names; one that is taken already gets a number: `a`, `a-2`."""
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
        try:
            number = float(score) if is_number else None
        except OverflowError:  # JSON has integers of any length
            number = math.inf
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


OUTPUT = "$.output.value"
JUDGE_MODEL = "openai/gpt-5-mini"
EMBEDDING_MODEL = "openai/text-embedding-3-small"


def literal(value: Any) -> Any:
    """Return a value as an argument of a check: a text that reads like a path is escaped."""
    return map_leaves(value, lambda leaf: f"\\{leaf}" if is_path(str(leaf).removeprefix("\\")) else leaf)


def fit_ids(names: Sequence[str]) -> list[str]:
    """Return unique ids of checks that are as much like the names as an id can be."""
    return unique_names([re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:90] or "score" for name in names])


def rubric(criteria: str, *, pass_at: float | None = None) -> dict[str, Any]:
    """Return a check that judges an output by criteria in plain words."""
    limit = {} if pass_at is None else {"pass_at": pass_at}
    return {"type": "rubric", "arguments": {"criteria": criteria, **limit}}


def add_models(suite: dict[str, Any], types: set[str], notes: Notes) -> None:
    """Name the models that checks of these types ask; both are placeholders, which is noted."""
    if types & {"rubric", "faithfulness", "answer_relevancy", "context_precision", "context_recall"}:
        suite["judge"] = {"model_config": {"model": JUDGE_MODEL}}
        notes.by_hand(f"suite.yaml asks {JUDGE_MODEL} as the judge, whose scores are not those of another judge")
    if "semantic_similarity" in types:
        suite["embedding"] = {"model_config": {"model": EMBEDDING_MODEL}}
        notes.by_hand(f"suite.yaml has {EMBEDDING_MODEL} as the model for embeddings", advice="name the one you used")
