"""The agreement of judges with people, in the words of a colleague, and the labels that lead to knowing it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fepflow.analysis.calibration import verdicts_on
from fepflow.analysis.judge_reliability import (
    ENOUGH,
    FEW_LABELS,
    FEW_OF_A_KIND,
    JudgeReliability,
    reliability_of_judges,
    youden_of,
)
from fepflow.analysis.labels import Label, LabelSet
from fepflow.store.records import Calibration, RunRecord
from fepflow.store.store import Store
from fepflow.text import four_digits, plural

MOST_DISAGREEMENTS = 200


def label_words(label: Any, *, is_verdict: bool = False) -> str:
    """Return a label in words; that of a yes or no says what the person, or the judge, makes of the output."""
    if isinstance(label, bool):
        return {True: "passed", False: "failed"}[label] if is_verdict else {True: "right", False: "wrong"}[label]
    return four_digits(label) if isinstance(label, float) else str(label)


def _agreed(calibration: Calibration) -> str:
    matrix = calibration.statistics["matrix"]
    same = sum(row[place] for place, row in enumerate(matrix))
    return f"it says the same as people of {same} of {plural(sum(map(sum, matrix)), 'labelled output')}"


def _rates(calibration: Calibration) -> str:
    rates = [calibration.statistics.get(name, {}).get("value") for name in ("tpr", "tnr")]
    if None in rates:
        return ""
    right, wrong = (f"{rate * 100:.0f} %" for rate in rates)
    return f". It passes {right} of what people call right, and fails {wrong} of what they call wrong"


def missing_labels(calibration: Calibration) -> int:
    """Return about how many more labels it takes to tell whether the judge can be trusted; 0 if that is told.

    An interval narrows with the root of their number.
    """
    figure = youden_of(calibration) or calibration.statistics["kappa"]
    value, low, high, n = figure["value"], figure["low"], figure["high"], calibration.n
    kinds = [calibration.statistics[name]["n"] for name in ("tpr", "tnr") if name in calibration.statistics]
    at_least: int = max([FEW_LABELS - n, *(FEW_OF_A_KIND - of_a_kind for of_a_kind in kinds), 0])
    if value is None or low is None or value == ENOUGH:
        return max(at_least, FEW_LABELS)
    if not low < ENOUGH <= high:
        return at_least
    half = value - low if value > ENOUGH else high - value
    enough = math.ceil(n * float(half / (value - ENOUGH)) ** 2)
    return max(at_least, enough - n)


def trust_words(calibration: Calibration) -> str:
    """Return how far the judge can be trusted and how many labels are missing, as sentences."""
    figure = youden_of(calibration) or calibration.statistics["kappa"]
    value, missing = figure["value"], missing_labels(calibration)
    agreement = f"{_agreed(calibration)}{_rates(calibration)}."
    if value is None:
        why = _capital(calibration.statistics["kappa"]["why"])
        return f"Nothing can be told yet: {agreement} {why}. Label outputs of both kinds."
    more = f" About {plural(missing, 'more label')} would tell." if missing <= _MANY else _TOO_MANY
    if missing:
        return f"It cannot be told yet whether this judge can be trusted: {agreement}{more}"
    if value < ENOUGH:
        advice = "No more labels are needed to see that; its prompt or model has to change."
        return f"Do not rely on this judge: {agreement} {advice}"
    return f"This judge can be trusted on outputs like these: {agreement} No more labels are needed."


_MANY = 2_000
_TOO_MANY = " It is at the border, and no number of labels that people give would tell: look at where they differ."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


class Disagreement(NamedTuple):
    """An output of which a person and the judge say different things."""

    case_id: str
    label: str
    verdict: str


def disagreements(store: Store, run: RunRecord, labelled: LabelSet) -> list[Disagreement]:
    """Return the labelled outputs on which the judge says otherwise, those it passed though they are wrong first."""
    verdicts = verdicts_on(store, run, labelled)
    differing = [
        (case_id, label, verdicts[case_id])
        for case_id, label in labelled.labels.items()
        if case_id in verdicts and verdicts[case_id] != label
    ]
    return [
        Disagreement(case_id, label_words(label), label_words(verdict, is_verdict=True))
        for case_id, label, verdict in sorted(differing, key=lambda row: _order(row[1], row[2]))
    ]


def _order(label: Label, verdict: Label) -> float:
    numbers = [value for value in (label, verdict) if not isinstance(value, str)]
    if len(numbers) < 2:  # words
        return 0.0
    return float(label) if isinstance(label, bool) else -abs(float(numbers[0]) - float(numbers[1]))


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """A judge of a run: how far it is known, and what to do next. `labelled` are outputs of this run with a label."""

    judge: JudgeReliability
    labelled: int
    trust: str
    todo: str
    can_label: bool


def judges_view(store: Store) -> list[tuple[RunRecord, list[JudgeRow]]]:
    """Return the newest run of each suite that has judges, with them."""
    rows = [(summary, store.runs.get(summary.id)) for summary, _ in store.runs.newest_of_suites()]
    judged = [(summary, list(_judge_rows(store, run))) for summary, run in rows]
    return [(summary, judges) for summary, judges in judged if judges]


def _judge_rows(store: Store, run: RunRecord) -> Iterator[JudgeRow]:
    for judge in reliability_of_judges(store, run, all_recorded=True):
        labels = store.labels.current(run.id, judge.check_id)
        labelled = len({(label.case_index, label.repeat) for label in labels})
        trust = (
            trust_words(judge.calibration) if judge.calibration else "Nobody knows yet how far it agrees with people."
        )
        can_label = judge.judge is not None and bool(judge.judge.fields)
        yield JudgeRow(judge, labelled, trust, _todo(run, judge, labelled, can_label=can_label), can_label)


def _todo(run: RunRecord, each: JudgeReliability, labelled: int, *, can_label: bool) -> str:
    if not can_label:
        own = "The test cases declare it themselves: declare it once for the suite, so that labels can be kept for it"
        return f"{'Give its answer a field that is a yes or no, a number or a word' if each.judge else own}."
    if run.repeats > 1:
        return f"This run has {run.repeats} outputs of each case: label those of a run without repeats."
    if each.calibration is None:
        return "Compare the judge with its labels." if labelled else "Label a draw of outputs."
    missing = missing_labels(each.calibration)
    if missing > _MANY:
        return "Look at where it differs from people."
    if missing:
        return f"Label about {missing:,} more."
    figure = youden_of(each.calibration) or each.calibration.statistics["kappa"]
    good = figure["value"] is not None and figure["value"] >= ENOUGH
    return "Nothing." if good else "Change its prompt or model, and label again."
