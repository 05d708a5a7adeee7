"""The calibration of a judge: agreement of its verdicts with people's labels, and of people with each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.dependence import ClusteredCases, is_clustered
from fepflow.analysis.judge_reliability import FIELD
from fepflow.analysis.labels import Label, LabelSet, field_named, judge_named, labelled_draw
from fepflow.checks.models.judge_spec import JudgeSpec, judgement_of
from fepflow.errors import InfrastructureError, UserError
from fepflow.statistics.judges import (
    ConfusionMatrix,
    JudgeLabels,
    Kappa,
    cohen_kappa,
    krippendorff_alpha,
    label_worth,
    tabulate,
)
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import Calibration, LabelDraw, RunRecord, StoredLabel
from fepflow.store.store import Store

MOST_VALUES = 50
"""Different numbers that may be compared: kappa is for scales."""

CALIBRATION_TAG = "calibration"
"""The tag of a run of labelled cases only: they are all of the run, but somebody has picked them."""

CONFIDENCE = 0.95

Statistics = dict[str, Any]


def calibrate(store: Store, run: RunRecord, labelled: LabelSet) -> Calibration:
    """Compare the judge's verdicts in a run with the labels, and store how far they agree.

    Raises UserError for a run with repeats (a label is about one output) and for numbers that are not a scale,
    InfrastructureError if there is no verdict at all.
    """
    if run.repeats > 1:
        raise UserError(
            f"Run {run.id[:8]} has {run.repeats} outputs for each case, and a label is about one: label those of a run "
            "without repeats."
        )
    verdicts = verdicts_on(store, run, labelled)
    drawn, why_not_drawn = labelled_draw(store, run, labelled)
    judge = labelled.judge
    case_ids = [case_id for case_id in labelled.labels if case_id in verdicts]
    if not case_ids:
        raise InfrastructureError(
            f"None of the {len(labelled.labels)} labelled cases has a verdict of {judge.check_id}: `fepflow show "
            f"{run.id[:8]} --failed` says why."
        )
    missing, others = len(labelled.labels) - len(case_ids), 0
    passed, failed = _counts(store, run, labelled)
    design = "disputed" if labelled.disputed else "by_hand"
    if drawn is not None:
        others, case_ids, design = len(case_ids) - len(drawn.case_ids), drawn.case_ids, drawn.design
    elif labelled.field == FIELD and len(case_ids) == passed + failed and CALIBRATION_TAG not in run.tags:
        design, why_not_drawn = "all", None
    pairs = [(labelled.labels[case_id], verdicts[case_id]) for case_id in case_ids]
    share = passed / (passed + failed) if design == "by_verdict" else None
    calibration = Calibration(
        judge=judge.judge,
        rubric=judge.rubric,
        model=judge.model,
        parameters=judge.parameters,
        check_id=judge.check_id,
        field=labelled.field,
        run_id=run.id,
        n=len(pairs),
        missing=missing,
        statistics={
            **_statistics(pairs, labelled, share),
            "design": design,
            **_clusters(store, run, dict(zip(case_ids, pairs, strict=True)) if labelled.field == FIELD else {}),
            **({"draw": _of_draw(drawn, pairs, share)} if drawn else {}),
            **({"others": others} if others else {}),
            **({"no_draw": why_not_drawn} if why_not_drawn else {}),
            **({"people": labelled.people} if labelled.people else {}),
        },
    )
    store.labels.add_calibration(calibration)
    return calibration


def _clusters(store: Store, run: RunRecord, pairs: Mapping[str, tuple[Label, Label]]) -> Statistics:
    """Return the number of clusters of the labelled cases, and the worth of a label in each kind.

    The kinds are outputs that the judge passed or failed, and outputs that are right or wrong. Labels of one document
    tell less than labels of many.
    """
    path = run.suite.get("cluster")
    if not is_clustered(path) or not pairs:
        return {}
    cases = [case for case in cases_of(store, run) if case.id in pairs]
    numbers = ClusteredCases.of(path, cases).numbers
    rows = [(number, *pairs[case.id]) for number, case in zip(numbers, cases, strict=True)]
    worths = {
        "passed": label_worth([(number, float(bool(label))) for number, label, verdict in rows if verdict]),
        "failed": label_worth([(number, float(bool(label))) for number, label, verdict in rows if not verdict]),
        "right": label_worth([(number, float(bool(verdict))) for number, label, verdict in rows if label]),
        "wrong": label_worth([(number, float(bool(verdict))) for number, label, verdict in rows if not label]),
    }
    return {"clusters": {"n": len(set(numbers)), "worth": worths}}


def _counts(store: Store, run: RunRecord, labelled: LabelSet) -> tuple[int, int]:
    """Return how many outputs of the run the judge passed, and failed."""
    totals = {counts.check_id: counts for counts in store.results.check_totals(run.id)}
    counts = totals[labelled.judge.check_id]
    return counts.passed, counts.failed


def _of_draw(drawn: LabelDraw, pairs: Sequence[tuple[Label, Label]], share: float | None) -> Statistics:
    """Return a draw as JSON, with the share that the judge passed where it was drawn by the judge's verdict."""
    matrix = [list(row) for row in tabulate(pairs, [True, False]).counts]
    by_verdict = {} if share is None else {"share": share}
    return {"id": drawn.id, "seed": drawn.seed, "n": len(pairs), "matrix": matrix, **by_verdict}


def verdicts_on(store: Store, run: RunRecord, labelled: LabelSet) -> dict[str, Label]:
    """Return the judge's verdicts on the labelled cases, by id."""
    ids = {index: case.id for index, case in enumerate(cases_of(store, run)) if case.id in labelled.labels}
    verdicts = {}
    for case_index, results in store.results.completed_results(run.id, labelled.judge.check_id):
        value = judgement_of(results).get(labelled.field)
        if case_index in ids and value is not None:
            verdicts[ids[case_index]] = float(value) if labelled.kind == "number" else value
    return verdicts


def _statistics(pairs: Sequence[tuple[Label, Label]], labelled: LabelSet, share: float | None) -> Statistics:
    """Return the figures as JSON. `share` is the share that the judge passed, of labels that were drawn by its verdict:
    they are weighted by it, and only the matrix counts them as they are."""
    values = categories(*labelled.judge.fields[labelled.field], pairs)
    quadratic = labelled.kind == "number"
    if quadratic and len(values) > MOST_VALUES:
        raise UserError(
            f"{labelled.field} and its labels take {len(values)} different values, and kappa is for scales of a few: "
            "have the judge answer on the scale that people use, such as integers from 1 to 5."
        )
    counted = tabulate(pairs, values)
    table = counted if share is None else _weighted(counted, share)
    statistics: Statistics = {
        "kappa": kappa_data(cohen_kappa(table, quadratic=quadratic, confidence=CONFIDENCE), quadratic=quadratic),
        "agreement": _share(table.agreed, table.n, counted.n),
        "confidence": CONFIDENCE,
        "categories": list(counted.categories),
        "matrix": [list(row) for row in counted.counts],
    }
    if labelled.kind == "boolean":
        (true_yes, _), (_, true_no) = table.counts
        (yes, no), (people_yes, people_no) = map(sum, table.counts), map(sum, counted.counts)
        statistics |= {"tpr": _share(true_yes, yes, people_yes), "tnr": _share(true_no, no, people_no)}
    return statistics


def _weighted(table: ConfusionMatrix, share: float) -> ConfusionMatrix:
    """Return the table of yes and no as a random draw would have made it."""
    (true_yes, false_no), (false_yes, true_no) = table.counts
    drawn = JudgeLabels(true_yes + false_no, true_yes, false_yes + true_no, true_no, "by_verdict", share=share).weighted
    counts = (drawn.right_passed, drawn.right_failed), (drawn.wrong - drawn.wrong_failed, drawn.wrong_failed)
    return ConfusionMatrix(table.categories, counts)


def _share(count: float, n: float, labels: float) -> Statistics:
    """Return a share with its interval, if n labels are worth as many independent ones."""
    if not n:
        return {"value": None, "low": None, "high": None, "n": labels}
    low, high = wilson_interval(count / n, n, CONFIDENCE)
    return {"value": count / n, "low": low, "high": high, "n": labels}


ENOUGH_IN_COMMON = 10
"""Outputs that two people have to have labelled both for their agreement to be told."""

MOST_PAIRS = 10

ByOutput = dict[tuple[str, int], list[StoredLabel]]


def stored_labels(
    store: Store, run: RunRecord, judges: Sequence[JudgeSpec], check: str | None = None, field: str | None = None
) -> LabelSet:
    """Return the labels of a run that count, for one of its judges: those that more than half of the people gave.

    They are for the named check and field, or the only ones. Raises UserError if it is unclear which ones, or if there
    are none.
    """
    labels = store.labels.current(run.id)
    labelled_checks = {label.check_id for label in labels} & {judge.check_id for judge in judges}
    judge = judge_named(judges, check or (labelled_checks.pop() if len(labelled_checks) == 1 else None))
    labels = [label for label in labels if label.check_id == judge.check_id]
    fields = {label.field for label in labels} & set(judge.fields)
    field_name = field_named(judge, field or (fields.pop() if len(fields) == 1 else None))
    by_output = _by_output([label for label in labels if label.field == field_name])
    counting = {output: label for output, given in by_output.items() if (label := majority(given)) is not None}
    if not counting:
        raise UserError(_no_labels(run, judge, field_name, by_output, fields - {field_name}))
    drawn = {case_id for case_id, repeat in counting if any(stored.draw_id for stored in by_output[case_id, repeat])}
    return LabelSet(
        judge,
        field_name,
        {case_id: label for (case_id, _), label in counting.items()},
        frozenset(drawn),
        _people(by_output, len(by_output) - len(counting), judge, field_name),
        disputed=any(label.disputed for output in counting for label in by_output[output]),
    )


def majority(labels: Sequence[StoredLabel]) -> Label | None:
    """Return the label that more than half of the people gave an output; None if there is no such label."""
    ((label, votes),) = Counter(label.label for label in labels).most_common(1)
    return label if 2 * votes > len(labels) else None


def _by_output(labels: Sequence[StoredLabel]) -> ByOutput:
    by_output: ByOutput = defaultdict(list)
    for label in labels:
        by_output[label.case_id, label.repeat].append(label)
    return by_output


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
    people = {"count": len(names), "undecided": undecided, "pairs": pairs[:MOST_PAIRS]}
    return {**people, "alpha": _alpha(by_output, judge, field)} if len(names) > 2 else people


def _alpha(by_output: ByOutput, judge: JudgeSpec, field: str) -> dict[str, Any]:
    """Return the agreement of all people as JSON, over the outputs that at least two of them labelled."""
    units = [[label.label for label in labels] for labels in by_output.values() if len(labels) > 1]
    interval = judge.fields[field][0] == "number"
    value = krippendorff_alpha(units, interval=interval) if len(units) >= ENOUGH_IN_COMMON else None
    return {"value": value, "n": len(units), "weights": "quadratic" if interval else "none"}


def _pairs(by_output: ByOutput, judge: JudgeSpec, field: str) -> Iterator[dict[str, Any]]:
    both: dict[tuple[str, str], list[tuple[Label, Label]]] = defaultdict(list)
    for labels in by_output.values():
        label_by_person = {label.labelled_by: label.label for label in labels if label.label is not None}
        for one, other in combinations(sorted(label_by_person), 2):
            both[one, other].append((label_by_person[one], label_by_person[other]))
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
    """Return a kappa as JSON."""
    return {**asdict(kappa), "weights": "quadratic" if quadratic else "none"}


def exported_labels(store: Store, run: RunRecord, check: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each labelled output and field, of one check or all, in the order of the cases.

    `label` is the label that counts, or None; `repeat` counts from 1. `draw` is the draw that showed the output, and
    `disputed` is true if it was shown as a disputed one. `by_person` has each person's label. Raises UserError if there
    are none.
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
            "draw": next((label.draw_id for label in given if label.draw_id), None),
            "disputed": any(label.disputed for label in given),
            "by_person": [
                {
                    "by": stored.labelled_by,
                    "at": stored.created_at.isoformat().replace("+00:00", "Z"),
                    "label": stored.label,
                    "note": stored.note,
                }
                for stored in given
            ],
        }
        for (case_id, repeat, check_id, field), given in by_field.items()
    ]
