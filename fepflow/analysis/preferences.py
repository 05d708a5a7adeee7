"""Preferences of a judge or of people between outputs, pair by pair, and what they show about runs.

A pair is the outputs of two runs for the same repeat of the same test case. A pair without a preference (an output or a
judgement is missing), and a case that was edited or removed since, could have gone either way. For a claim that a run
is better, they count at their worst.

People compare blindly. Pairs come in a random order that is the same for all people, so their answers are a random
sample, and overlap. The output on the left is random for each pair and person.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from fepflow.analysis.accumulation import cases_of, suite_of
from fepflow.analysis.comparison import Contents, MatchedCases, contents_of, match_cases
from fepflow.analysis.dependence import ClusteredCases, Dependence
from fepflow.checks.models.judge_check import AnswerPair, Position, Side
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.judges import Kappa, cohen_kappa, tabulate
from fepflow.statistics.means import CaseValue
from fepflow.statistics.preferences import Scores, Strength, WinRate, strengths, win_rate
from fepflow.statistics.proportions import holm
from fepflow.store.records import PreferenceRow, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.text import cut, listed_first, number, percent, plural, text_of

_CASES_AT_ONCE = 500

_SCORES: Mapping[Side, float] = {"one": 1.0, "tie": 0.5, "other": 0.0}

NAMED = 5
"""Pairs without a preference that a sentence names, and reasons for which they have none."""


@dataclass(frozen=True, slots=True)
class OutputPair:
    """The outputs of two runs for one repeat of one case; None if missing, with the reason in `why_none`."""

    case: TestCase
    content: str
    """The content hash of the case."""
    repeat: int
    texts: AnswerPair | None
    why_none: str | None = None

    @property
    def is_same(self) -> bool:
        """True if both outputs are equal, so that no question is needed."""
        return self.texts is not None and self.texts.one == self.texts.other

    @property
    def key(self) -> str:
        """The content hash of the case's input and reference and of both outputs, whichever comes first."""
        assert self.texts is not None
        return content_hash("pair", self.texts.input, self.texts.expected, *sorted(self.hashes))

    @property
    def hashes(self) -> tuple[str, str]:
        """The content hashes of both outputs."""
        assert self.texts is not None
        return content_hash(self.texts.one), content_hash(self.texts.other)


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """The pairs of two runs, of their matched cases, repeat by repeat; `absent` are cases of the one run that were
    edited or removed since."""

    one: RunRecord
    other: RunRecord
    matched: MatchedCases
    pairs: Sequence[OutputPair]
    absent: Sequence[str]
    repeats: int


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The preferred side of a pair; None without a preference, with the reason in `why_none`.

    `positions` are a judge's answers in both orders, or None if both outputs are equal and it was not asked.
    """

    pair: OutputPair
    preferred: Side | None
    positions: tuple[Position, Position] | None = None
    reasons: tuple[str, str] | None = None
    why_none: str | None = None

    @property
    def by_position(self) -> Position | None:
        """Return the position that was preferred in both orders, or None."""
        if self.positions is None or self.positions[0] != self.positions[1] or self.positions[0] == "neither":
            return None
        return self.positions[0]


@dataclass(frozen=True, slots=True)
class RunContents:
    """The cases of a run, by which they are matched, and their contents."""

    run: RunRecord
    cases: Sequence[TestCase]
    contents: Contents


def contents_of_run(store: Store, run: RunRecord) -> RunContents:
    """Read the cases of a run."""
    cases = list(cases_of(store, run))
    return RunContents(run, cases, contents_of(cases))


def pair_runs(store: Store, one: RunContents, other: RunContents, most: int | None = None) -> PairedRuns:
    """Return the pairs of outputs of two runs; of repeats, those that both have. Of more than `most` pairs, those of
    cases that are drawn at random, always the same ones."""
    matched = match_cases(one.contents, other.contents)
    repeats = min(one.run.repeats, other.run.repeats)
    wanted = matched.pairs
    if most is not None and len(wanted) * repeats > most:
        drawn = sorted(wanted, key=lambda indices: content_hash("draw", one.cases[indices[0]].id))
        wanted = sorted(drawn[: max(1, most // repeats)])
    pairs: list[OutputPair] = []
    names = one.run.short_name, other.run.short_name
    for start in range(0, len(wanted), _CASES_AT_ONCE):
        chunk = wanted[start : start + _CASES_AT_ONCE]
        ours, theirs = (
            _outputs(store, contents.run, [indices[side] for indices in chunk])
            for side, contents in enumerate((one, other))
        )
        for here, there in chunk:
            for repeat in range(repeats):
                case = one.cases[here]
                answers = ours.get((here, repeat)), theirs.get((there, repeat))
                pairs.append(_pair(case, one.contents[case.id][1], repeat, names, *answers))
    is_sampled = one.run.sample or other.run.sample
    absent = [*matched.changed, *(() if is_sampled else matched.only_base)]
    return PairedRuns(one.run, other.run, matched, pairs, absent, repeats)


_Answer = tuple[str | None, str | None]
"""The text of an output, and why there is none."""


def _outputs(store: Store, run: RunRecord, indices: Sequence[int]) -> dict[tuple[int, int], _Answer]:
    return {
        (row.case_index, repeat): (None, str(stored.output.failure["message"]))
        if stored.output.failure
        else (text_of(stored.output.value), None)
        for row in store.results.grid_rows(run.id, indices, whole=True)
        for repeat, stored in row.outputs.items()
    }


def _pair(
    case: TestCase,
    content: str,
    repeat: int,
    names: tuple[str, str],
    one: _Answer | None,
    other: _Answer | None,
) -> OutputPair:
    for name, answer in zip(names, (one, other), strict=True):
        text, why = answer or (None, "the run did not get to it")
        if text is None:
            return OutputPair(case, content, repeat, None, f"no output of {name}: {cut(str(why), 200)}")
    assert one
    assert other
    assert one[0] is not None
    assert other[0] is not None
    expected = None if case.expected is None else text_of(case.expected)
    return OutputPair(case, content, repeat, AnswerPair(text_of(case.input), expected, one[0], other[0]))


@dataclass(frozen=True, slots=True)
class Preference:
    """A summary of the preferences between two runs: of the `other` one over the `one`, which was listed before.

    `won` pairs went to the other run, `lost` to the one; of `tied`, `same` had the same outputs. `decided_by_position`
    were preferred in both orders for where they stood: `first_twice`, or `second_twice`. `p_adjusted` is Holm's, over
    all compared runs.
    """

    runs: PairedRuns
    verdicts: Sequence[PairVerdict]
    rate: WinRate
    confidence: float
    p_adjusted: float | None = None

    @property
    def counts(self) -> Counter[Side | None]:
        """The number of pairs by the side that is preferred."""
        return Counter(verdict.preferred for verdict in self.verdicts)

    @property
    def same(self) -> int:
        """The number of pairs whose outputs are the same."""
        return sum(verdict.pair.is_same for verdict in self.verdicts)

    @property
    def asked(self) -> int:
        """The number of pairs that a judge has answered in both orders."""
        return sum(verdict.positions is not None for verdict in self.verdicts)

    @property
    def by_position(self) -> Counter[Position]:
        """Number of pairs in which a position was preferred in both orders, by the position."""
        return Counter(verdict.by_position for verdict in self.verdicts if verdict.by_position is not None)

    @property
    def share_by_position(self) -> float | None:
        """The share of answered pairs that were decided by position; None if none was answered."""
        return self.by_position.total() / self.asked if self.asked else None

    @property
    def missing(self) -> list[PairVerdict]:
        """The pairs without a preference."""
        return [verdict for verdict in self.verdicts if verdict.preferred is None]

    @property
    def shown(self) -> int:
        """1 if the other run is shown to be preferred, -1 if the one is, 0 if neither."""
        counts = self.p_adjusted is not None and self.p_adjusted <= 1 - self.confidence
        return self.rate.shown if counts else 0

    @property
    def sentence(self) -> str:
        """Return what is shown, in a sentence."""
        one, other = self.runs.one.short_name, self.runs.other.short_name
        if self.rate.value is None or self.rate.low is None or self.rate.high is None:
            return f"No pair of {one} and {other} has a preference."
        interval = f"{number(self.rate.low)} to {number(self.rate.high)}"
        figures = f"win rate {number(self.rate.value, 0.5)}, {percent(self.confidence)} interval {interval}"
        if not self.shown:
            return f"No preference between {one} and {other} is shown ({figures} for {other})."
        better, worse = (other, one) if self.shown > 0 else (one, other)
        return f"{better} is preferred to {worse} ({figures} for {other})."

    @property
    def warnings(self) -> list[str]:
        """Return sentences about missing pairs, and about a judge that goes by position."""
        sentences = []
        if missing := self.missing:
            reasons = Counter(verdict.why_none for verdict in missing).most_common()
            for reason, count in reasons[:NAMED]:
                ids = [verdict.pair.case.id for verdict in missing if verdict.why_none == reason]
                sentences.append(
                    f"{plural(count, 'pair')} without a preference, which could have gone either way: "
                    f"{listed_first(ids, NAMED)} ({reason})."
                )
            if rest := sum(count for _, count in reasons[NAMED:]):
                sentences.append(f"{plural(rest, 'more pair')} without a preference, for other reasons.")
        if absent := self.runs.absent:
            sentences.append(
                f"{plural(len(absent), 'test case')} of {self.runs.one.short_name} edited or removed since, which "
                f"could have gone either way: {listed_first(absent, NAMED)}."
            )
        if self.runs.one.repeats != self.runs.other.repeats:
            sentences.append(
                f"Of the repeats, the first {self.runs.repeats} of each case are compared: one run has no more."
            )
        share = self.share_by_position
        if share is not None and share > MUCH_BY_POSITION:
            sentences.append(
                f"The judge chose by position in {percent(share)} of the pairs (the first answer "
                f"{self.by_position['first']} times, the second {self.by_position['second']} times): these are ties, "
                "and tell nothing. Take another judge, or ask a sharper question."
            )
        return sentences


MUCH_BY_POSITION = 0.2
"""Share of pairs decided by position from which on a judge is doubted."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences between all of several runs, each two of which were compared, and how strong each run is.

    `strengths` are those of Bradley and Terry, of more than two runs only; the first run has 0.
    """

    runs: Sequence[RunRecord]
    between: Sequence[Preference]
    strengths: Sequence[Strength] = ()
    confidence: float = 0.95

    @property
    def of_first(self) -> list[Preference]:
        """The preferences between the first run and each other one."""
        return [preference for preference in self.between if preference.runs.one.id == self.runs[0].id]


@dataclass(frozen=True, slots=True)
class JudgedPreferences:
    """A judge's preferences, and the cost of asking: `usage` as in RequestContext, `limit` why not all were asked."""

    question: str
    model: str
    preferences: Preferences
    usage: Mapping[str, Any] = field(default_factory=dict)
    limit: str | None = None


def pair_all(store: Store, runs: Sequence[RunRecord]) -> tuple[list[RunContents], list[PairedRuns]]:
    """Return the cases of the runs, and the pairs of each two of them, in their order."""
    contents = [contents_of_run(store, run) for run in runs]
    return contents, [pair_runs(store, one, other) for one, other in combinations(contents, 2)]


def preferences(
    contents: Sequence[RunContents], paired: Sequence[PairedRuns], verdicts: Sequence[Sequence[PairVerdict]]
) -> Preferences:
    """Return the preferences between each two runs, from the verdicts about their pairs."""
    runs = [each.run for each in contents]
    suite = suite_of(runs[-1])
    confidence = (suite.gate or Gate()).confidence
    clusters = _clusters(runs[-1], contents)
    between = [_preference(each, found, clusters, confidence) for each, found in zip(paired, verdicts, strict=True)]
    known = [index for index, each in enumerate(between) if each.rate.p is not None]
    adjusted = dict(zip(known, holm([between[index].rate.p or 0.0 for index in known]), strict=True))
    between = [
        Preference(each.runs, each.verdicts, each.rate, confidence, adjusted.get(index))
        for index, each in enumerate(between)
    ]
    found = _strengths(runs, between, clusters, confidence) if len(runs) > 2 else []
    return Preferences(runs, between, found, confidence)


@dataclass(frozen=True, slots=True)
class _Clusters:
    """The clusters of the cases of all runs, by id and contents; None if all are independent."""

    clusters: ClusteredCases | None
    places: Mapping[tuple[str, str], int]

    def number(self, case: tuple[str, str]) -> int:
        """Return the number of a case's cluster."""
        place = self.places[case]
        return place if self.clusters is None else self.clusters.numbers[place]


def _clusters(run: RunRecord, contents: Sequence[RunContents]) -> _Clusters:
    suite = suite_of(run)
    dependence = Dependence(run.suite, suite.cluster, suite.gate or Gate(), suite.thresholds, suite.slices)
    places: dict[tuple[str, str], int] = {}
    for run_contents in contents:
        for case in run_contents.cases:
            key = case.id, run_contents.contents[case.id][1]
            if key not in places:
                places[key] = len(places)
                dependence.add(case)
    return _Clusters(dependence.clusters, places)


_Case = tuple[str, str]
"""The id of a case, and the hash of its contents."""


def _case_scores(verdicts: Iterable[PairVerdict]) -> dict[_Case, CaseValue]:
    """Return the mean preference for the one run of each matched case, with the bounds that missing ones allow."""
    by_case: dict[_Case, list[Side | None]] = {}
    for verdict in verdicts:
        by_case.setdefault((verdict.pair.case.id, verdict.pair.content), []).append(verdict.preferred)
    return {case: _score(sides) for case, sides in by_case.items()}


def _score(sides: Sequence[Side | None]) -> CaseValue:
    known = [_SCORES[side] for side in sides if side is not None]
    missing, won = len(sides) - len(known), math.fsum(known)
    value = won / len(known) if known else None
    return CaseValue(value, won / len(sides), (won + missing) / len(sides))


def _preference(
    runs: PairedRuns, verdicts: Sequence[PairVerdict], clusters: _Clusters, confidence: float
) -> Preference:
    scores = _case_scores(verdicts)
    # Of the other run: 1 - score.
    values = [
        CaseValue(None if score.value is None else 1 - score.value, 1 - score.most, 1 - score.least)
        for score in scores.values()
    ]
    values += [CaseValue(None, 0.0, 1.0)] * len(runs.absent)
    numbers = None
    noun = "cluster"
    if clusters.clusters is not None:
        numbers = [clusters.number(case) for case in scores]
        numbers += [-1 - index for index in range(len(runs.absent))]
        noun = clusters.clusters.noun
    rate = win_rate(values, confidence, numbers, noun, repeated=runs.repeats > 1, unmatched=len(runs.absent))
    return Preference(runs, verdicts, rate, confidence)


def _strengths(
    runs: Sequence[RunRecord], between: Sequence[Preference], clusters: _Clusters, confidence: float
) -> list[Strength]:
    numbers_of_runs = {run.id: index for index, run in enumerate(runs)}
    cases: dict[_Case, Scores] = {}
    gone: dict[str, Scores] = {}
    for preference in between:
        pair = numbers_of_runs[preference.runs.one.id], numbers_of_runs[preference.runs.other.id]
        for case, score in _case_scores(preference.verdicts).items():
            cases[case] = {**cases.get(case, {}), pair: score}
        for case_id in preference.runs.absent:
            gone[case_id] = {**gone.get(case_id, {}), pair: CaseValue(None, 0.0, 1.0)}
    numbers = [*(clusters.number(case) for case in cases), *(-1 - index for index in range(len(gone)))]
    return strengths([*cases.values(), *gone.values()], len(runs), confidence, numbers)


MOST_PAIRS = 2_000
"""Pairs of a comparison that people are shown, and whose preferences a page reads."""

SIDES: tuple[Side, ...] = ("one", "other", "tie")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a judge with people: `agreed` of `n` pairs that both answered, and kappa."""

    judge: str
    n: int
    agreed: int
    kappa: Kappa


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """Answers of people and judges to a question about pairs of two runs.

    `people` is None if none has answered. `total` is how many pairs could be answered.
    """

    question: str
    people: Preference | None
    persons: Sequence[str]
    judges: Sequence[tuple[str, Preference]]
    agreements: Sequence[Agreement]
    total: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A pair as a person sees it: which output is on the left, and the number of the pair among all."""

    pair: OutputPair
    left: str
    right: str
    left_hash: str
    right_hash: str
    number: int


class BlindComparison:
    """The pairs of two runs, at most `MOST_PAIRS`, drawn at random if there are more."""

    def __init__(self, store: Store, one: RunRecord, other: RunRecord) -> None:
        self._store = store
        self.contents = contents_of_run(store, one), contents_of_run(store, other)
        self.paired = pair_runs(store, *self.contents, most=MOST_PAIRS)
        # The same outputs are a tie that nobody needs to be shown.
        pairs = [pair for pair in self.paired.pairs if pair.texts is not None and not pair.is_same]
        self.pairs = {pair.key: pair for pair in sorted(pairs, key=lambda pair: content_hash("order", pair.key))}

    def answers(self) -> Mapping[str, list[PreferenceRow]]:
        """Return all answers by question, the question with the newest answer first."""
        if not self._store.preferences.count():
            return {}
        by_question: dict[str, list[PreferenceRow]] = defaultdict(list)
        for row in self._store.preferences.of_pairs(list(self.pairs)):
            by_question[row.question].append(row)
        newest = {question: max(row.created_at for row in rows) for question, rows in by_question.items()}
        return {question: by_question[question] for question in sorted(newest, key=newest.__getitem__, reverse=True)}

    def next(self, person: str, question: str, after: int = 0) -> tuple[Shown | None, int]:
        """Return the next pair after a number that a person has not answered, and how many are answered."""
        rows = self._store.preferences.of_pairs(list(self.pairs), question)
        answered = {row.pair for row in rows if not row.is_judge and row.given_by == person}
        for place, (key, pair) in enumerate(self.pairs.items(), 1):
            if place > after and key not in answered:
                return self.shown(pair, person, place), len(answered)
        return None, len(answered)

    def shown(self, pair: OutputPair, person: str, number: int) -> Shown:
        """Return the pair as this person sees it, always in the same way."""
        assert pair.texts is not None
        sides = [(pair.texts.one, pair.hashes[0]), (pair.texts.other, pair.hashes[1])]
        if int(content_hash("side", pair.key, person)[:8], 16) % 2:
            sides.reverse()
        (left, left_hash), (right, right_hash) = sides
        return Shown(pair, left, right, left_hash, right_hash, number)

    def questions(self) -> list[AnsweredQuestion]:
        """Return the answers to each question, summarized."""
        return [self._answered(question, rows) for question, rows in self.answers().items()]

    def _answered(self, question: str, rows: Sequence[PreferenceRow]) -> AnsweredQuestion:
        by_people = [row for row in rows if not row.is_judge]
        sides = self._sides(by_people)
        judges: dict[str, list[PreferenceRow]] = defaultdict(list)
        for row in rows:
            if row.is_judge:
                judges[row.given_by].append(row)
        of_judges = {name: self._sides(answers) for name, answers in judges.items()}
        return AnsweredQuestion(
            question,
            self._of_people(sides) if sides else None,
            sorted({row.given_by for row in by_people}),
            [(name, self._of_judge(answers)) for name, answers in of_judges.items()],
            [_agreement(name, sides, answers) for name, answers in of_judges.items() if sides.keys() & answers.keys()],
            len(self.pairs),
        )

    def _sides(self, rows: Sequence[PreferenceRow]) -> dict[str, Side]:
        """Return the preferred side of each pair; if people are evenly divided, it is a tie."""
        votes: dict[str, int] = defaultdict(int)
        for row in rows:
            first = self.pairs[row.pair].hashes[0]
            votes[row.pair] += 0 if row.preferred is None else 1 if row.preferred == first else -1
        return {pair: "one" if vote > 0 else "other" if vote < 0 else "tie" for pair, vote in votes.items()}

    def _of_judge(self, sides: Mapping[str, Side]) -> Preference:
        """Summarize a judge's answers. It was asked about all pairs, so unanswered pairs are missing.

        Equal outputs are ties.
        """
        verdicts = [
            PairVerdict(pair, "tie" if pair.is_same else None if pair.texts is None else sides.get(pair.key))
            for pair in self.paired.pairs
        ]
        return self._preference(verdicts, self.paired.absent)

    def _of_people(self, sides: Mapping[str, Side]) -> Preference:
        """Summarize people's answers, which are a sample of the pairs with different outputs.

        The same share of the pairs without an output, and of cases edited or removed since, could have gone either way.
        """
        part = len(sides) / len(self.pairs)
        missing = [PairVerdict(pair, None, why_none=pair.why_none) for pair in self.paired.pairs if pair.texts is None]
        verdicts = [PairVerdict(self.pairs[key], side) for key, side in sides.items()]
        verdicts += missing[: math.ceil(part * len(missing))]
        return self._preference(verdicts, self.paired.absent[: math.ceil(part * len(self.paired.absent))])

    def _preference(self, verdicts: Sequence[PairVerdict], absent: Sequence[str]) -> Preference:
        paired = replace(self.paired, pairs=[verdict.pair for verdict in verdicts], absent=absent)
        return preferences(self.contents, [paired], [verdicts]).between[0]


def _agreement(judge: str, people: Mapping[str, Side], judge_sides: Mapping[str, Side]) -> Agreement:
    both = [(people[key], judge_sides[key]) for key in people.keys() & judge_sides.keys()]
    table = tabulate(both, SIDES)
    return Agreement(judge, len(both), int(table.agreed), cohen_kappa(table))


def judged_rows(question: str, model: str, verdicts: Sequence[PairVerdict]) -> list[PreferenceRow]:
    """Return a judge's preferences as rows of the store."""
    return [
        preference_row(verdict.pair.key, question, model, _hash_of(verdict), is_judge=True)
        for verdict in verdicts
        if verdict.positions is not None
    ]


def _hash_of(verdict: PairVerdict) -> str | None:
    one, other = verdict.pair.hashes
    return {"one": one, "other": other}.get(str(verdict.preferred))


def preference_row(
    pair: str, question: str, given_by: str, preferred: str | None, *, is_judge: bool, left: str | None = None
) -> PreferenceRow:
    """Return a preference as a row of the store; `left` is the hash of the output on the left."""
    return PreferenceRow(
        pair=pair,
        question_hash=content_hash(question),
        is_judge=is_judge,
        given_by=given_by,
        question=question,
        preferred=preferred,
        left_output=left,
    )
