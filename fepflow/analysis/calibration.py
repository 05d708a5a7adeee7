"""The calibration of a judge: agreement of its verdicts with people's labels, and of people with each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.labels import Label, LabelSet, field_named, judge_named, labelled_draw
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import InfrastructureError, UserError
from fepflow.statistics.judges import ConfusionMatrix, Kappa, cohen_kappa, tabulate
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import Calibration, LabelDraw, RunRecord, StoredLabel
from fepflow.store.store import Store

MOST_VALUES = 50
"""Different numbers that may be compared: kappa is for scales."""

CONFIDENCE = 0.95

Statistics = dict[str, Any]


def calibrate(store: Store, run: RunRecord, labelled: LabelSet) -> Calibration:
    """Compare the judge's verdicts in a run with the labels, and store how far they agree.

    Raises UserError for a run with repeats (a label is about one output) and for numbers that are no scale,
    InfrastructureError if there is no verdict at all.
    """
    if run.repeats > 1:
        raise UserError(
            f"Run {run.id[:8]} has {run.repeats} outputs for each case, and a label is about one: label those of a run "
            "without repeats."
        )
    verdicts = _verdicts(store, run, labelled)
    pairs = [(label, verdicts[case_id]) for case_id, label in labelled.labels.items() if case_id in verdicts]
    drawn, why_not_drawn = labelled_draw(store, run, labelled)
    judge = labelled.judge
    if not pairs:
        raise InfrastructureError(
            f"None of the {len(labelled.labels)} labelled cases has a verdict of {judge.check_id}: `fepflow show "
            f"{run.id[:8]} --failed` says why."
        )
    calibration = Calibration(
        judge=judge.judge,
        rubric=judge.rubric,
        model=judge.model,
        parameters=judge.parameters,
        check_id=judge.check_id,
        field=labelled.field,
        run_id=run.id,
        n=len(pairs),
        missing=len(labelled.labels) - len(pairs),
        statistics={
            **_statistics(pairs, labelled),
            **({"draw": _of_draw(drawn, labelled, verdicts)} if drawn else {}),
            **({"no_draw": why_not_drawn} if why_not_drawn else {}),
            **({"people": labelled.people} if labelled.people else {}),
        },
    )
    store.labels.add_calibration(calibration)
    return calibration


def _of_draw(drawn: LabelDraw, labelled: LabelSet, verdicts: dict[str, Label]) -> Statistics:
    pairs = [(labelled.labels[case_id], verdicts[case_id]) for case_id in drawn.case_ids]
    matrix = tabulate(pairs, [True, False]).counts
    return {"id": drawn.id, "seed": drawn.seed, "n": len(pairs), "matrix": [list(row) for row in matrix]}


def _verdicts(store: Store, run: RunRecord, labelled: LabelSet) -> dict[str, Label]:
    """Return the judge's verdicts on the labelled cases, by id."""
    ids = {index: case.id for index, case in enumerate(cases_of(store, run)) if case.id in labelled.labels}
    found = {}
    for case_index, results in store.results.completed_results(run.id, labelled.judge.check_id):
        value = results["response"].get(labelled.field)
        if case_index in ids and value is not None:
            found[ids[case_index]] = float(value) if labelled.kind == "number" else value
    return found


def _statistics(pairs: Sequence[tuple[Label, Label]], labelled: LabelSet) -> Statistics:
    values = categories(*labelled.judge.fields[labelled.field], pairs)
    quadratic = labelled.kind == "number"
    if quadratic and len(values) > MOST_VALUES:
        raise UserError(
            f"{labelled.field} and its labels take {len(values)} different values, and kappa is for scales of a few: "
            "have the judge answer on the scale that people use, such as integers from 1 to 5."
        )
    table = tabulate(pairs, values)
    statistics: Statistics = {
        "kappa": kappa_data(cohen_kappa(table, quadratic=quadratic, confidence=CONFIDENCE), quadratic=quadratic),
        "agreement": _share(table.agreed, table.n),
        "confidence": CONFIDENCE,
        "categories": list(table.categories),
        "matrix": [list(row) for row in table.counts],
    }
    if labelled.kind == "boolean":
        statistics |= _rates(table)
    return statistics


def _rates(table: ConfusionMatrix) -> Statistics:
    """True positive rate and true negative rate, by people's labels."""
    (true_yes, false_no), (false_yes, true_no) = table.counts
    return {"tpr": _share(true_yes, true_yes + false_no), "tnr": _share(true_no, false_yes + true_no)}


def _share(count: int, n: int) -> Statistics:
    if not n:
        return {"value": None, "low": None, "high": None, "n": 0}
    low, high = wilson_interval(count / n, n, CONFIDENCE)
    return {"value": count / n, "low": low, "high": high, "n": n}


ENOUGH_IN_COMMON = 10
"""Outputs that two people have to have labelled both for their agreement to be told."""

MOST_PAIRS = 10

_UNDECIDED = None

ByOutput = dict[tuple[str, int], list[StoredLabel]]


def stored_labels(
    store: Store, run: RunRecord, judges: Sequence[JudgeSpec], check: str | None = None, field: str | None = None
) -> LabelSet:
    """The labels of a run that count, for one of its judges. Of several people's it is what more than half of them say.

    They are those of the check, and of the field, that are named, or the only ones there are. Raises UserError if it
    is open which are meant, and where there is none.
    """
    labels = store.labels.current(run.id)
    labelled_checks = {label.check_id for label in labels} & {judge.check_id for judge in judges}
    judge = judge_named(judges, check or (labelled_checks.pop() if len(labelled_checks) == 1 else None))
    labels = [label for label in labels if label.check_id == judge.check_id]
    fields = {label.field for label in labels} & set(judge.fields)
    named = field_named(judge, field or (fields.pop() if len(fields) == 1 else None))
    by_output = _by_output([label for label in labels if label.field == named])
    counting = {output: label for output, given in by_output.items() if (label := majority(given)) is not _UNDECIDED}
    if not counting:
        raise UserError(_no_labels(run, judge, named, by_output, fields - {named}))
    drawn = {case_id for case_id, repeat in counting if any(each.draw_id for each in by_output[case_id, repeat])}
    return LabelSet(
        judge,
        named,
        {case_id: label for (case_id, _), label in counting.items()},
        frozenset(drawn),
        _people(by_output, len(by_output) - len(counting), judge, named),
    )


def majority(labels: Sequence[StoredLabel]) -> Label | None:
    """Return the label that more than half of the people gave an output; None if there is no such label."""
    ((label, votes),) = Counter(label.label for label in labels).most_common(1)
    return label if 2 * votes > len(labels) else _UNDECIDED


def _by_output(labels: Sequence[StoredLabel]) -> ByOutput:
    found: ByOutput = defaultdict(list)
    for label in labels:
        found[label.case_id, label.repeat].append(label)
    return found


def _no_labels(run: RunRecord, judge: JudgeSpec, field: str, by_output: ByOutput, others: set[str]) -> str:
    of = f"of {judge.check_id}, {field},"
    if by_output:
        return (
            f"None of the labels {of} of run {run.id[:8]} counts: of each output more than half of its people have to "
            "say the same."
        )
    more = f"; there are labels of {' and '.join(sorted(others))} (--field)" if others else ""
    return f"Run {run.id[:8]} has no labels {of} in the store: label its outputs, or give a file (--labels){more}."


def _people(by_output: ByOutput, undecided: int, judge: JudgeSpec, field: str) -> dict[str, Any]:
    """Return as JSON how many people labelled, on how many outputs they are divided, and their agreement by pairs."""
    names = {label.labelled_by for labels in by_output.values() for label in labels}
    pairs = sorted(_pairs(by_output, judge, field), key=lambda pair: (-pair["n"], pair["people"]))
    return {"count": len(names), "undecided": undecided, "pairs": pairs[:MOST_PAIRS]}


def _pairs(by_output: ByOutput, judge: JudgeSpec, field: str) -> Iterator[dict[str, Any]]:
    both: dict[tuple[str, str], list[tuple[Label, Label]]] = defaultdict(list)
    for labels in by_output.values():
        said = {label.labelled_by: label.label for label in labels if label.label is not None}
        for one, other in combinations(sorted(said), 2):
            both[one, other].append((said[one], said[other]))
    kind, words = judge.fields[field]
    for people, pairs in both.items():
        if len(pairs) >= ENOUGH_IN_COMMON:
            table = tabulate(pairs, categories(kind, words, pairs))
            kappa = kappa_data(cohen_kappa(table, quadratic=kind == "number"), quadratic=kind == "number")
            yield {"people": list(people), "n": table.n, "agreed": table.agreed, "kappa": kappa}


def categories(kind: str, words: Sequence[str], pairs: Sequence[tuple[Label, Label]]) -> Sequence[Label]:
    """Return the categories of both raters; for numbers, those that occur."""
    if kind == "boolean":
        return [True, False]
    return words if kind == "word" else sorted({float(label) for pair in pairs for label in pair})


def kappa_data(kappa: Kappa, *, quadratic: bool) -> dict[str, Any]:
    """A kappa as JSON."""
    return {
        "value": kappa.value,
        "low": kappa.low,
        "high": kappa.high,
        "weights": "quadratic" if quadratic else "none",
        "why": kappa.why,
    }


def exported_labels(store: Store, run: RunRecord, check: str | None = None) -> list[dict[str, Any]]:
    """A row for each output and field that has labels, of one check or all, in the order of the cases.

    `label` is the one that counts, None if there is none; `repeat` counts from 1; `draw` is the draw that showed the
    output; `by_person` has what each person said. Raises UserError if there is none.
    """
    labels = store.labels.current(run.id, check)
    if not labels:
        raise UserError(f"Run {run.id[:8]} has no labels{f' of {check}' if check else ''} in the store.")
    by_field: dict[tuple[str, int, str, str], list[StoredLabel]] = defaultdict(list)
    for label in labels:
        by_field[label.case_id, label.repeat, label.check_id, label.field].append(label)
    return [
        {
            "id": case_id,
            "label": majority(given),
            "check": check_id,
            "field": field,
            "repeat": repeat + 1,
            "draw": next((each.draw_id for each in given if each.draw_id), None),
            "by_person": [
                {
                    "by": each.labelled_by,
                    "at": each.created_at.isoformat().replace("+00:00", "Z"),
                    "label": each.label,
                    "note": each.note,
                }
                for each in given
            ],
        }
        for (case_id, repeat, check_id, field), given in by_field.items()
    ]
