"""Calibration: agreement of a judge's verdicts in a run with people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.label_draws import labelled_draw
from fepflow.analysis.labels import Label, LabelSet
from fepflow.analysis.people import categories, kappa_data
from fepflow.errors import InfrastructureError, UserError
from fepflow.statistics.judges import ConfusionMatrix, cohen_kappa, tabulate
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import Calibration, LabelDraw, RunRecord
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
    """What the judge said of the labelled cases, by id."""
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
