"""Blind comparisons of two runs by people, and how far people and judges agree.

Pairs come in a random order that is the same for all people, so their answers are a random sample, and overlap. The
output on the left is random for each pair and person.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fepflow.analysis.preferences import (
    OutputPair,
    PairVerdict,
    Preference,
    contents_of_run,
    pair_runs,
    preferences,
)
from fepflow.checks.models.pairwise import Side
from fepflow.protocol.content_hash import content_hash
from fepflow.statistics.agreement import Kappa, cohen_kappa, tabulate
from fepflow.store.records import PreferenceRow, RunRecord
from fepflow.store.store import Store

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
        for number, (key, pair) in enumerate(self.pairs.items(), 1):
            if number > after and key not in answered:
                return self.shown(pair, person, number), len(answered)
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
