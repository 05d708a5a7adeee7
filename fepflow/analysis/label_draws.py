"""Outputs of a run that people are to label, drawn at random from those that a judge has judged."""

from __future__ import annotations

from typing import Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.judge_errors import FIELD
from fepflow.analysis.labels import LabelSet
from fepflow.analysis.sampling import draw
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import UserError
from fepflow.store.records import LabelDraw, RunRecord
from fepflow.store.store import Store


def draw_for_labels(store: Store, run: RunRecord, judge: JudgeSpec, size: int, seed: int) -> LabelDraw:
    """Draw so many cases (all, if there are fewer) and remember them.

    Raises UserError for a run with repeats, as a label is about one output, and where nothing was judged.
    """
    if run.repeats > 1:
        raise UserError(f"Run {run.id[:8]} has {run.repeats} outputs for each case, and a label is about one.")
    if judge.fields.get(FIELD, ("",))[0] != "boolean":
        raise UserError(f"{judge.check_id} gives no {FIELD} that labels could be compared with.")
    judged = {
        case_index
        for case_index, results in store.results.completed_results(run.id, judge.check_id)
        if isinstance(results["response"].get(FIELD), bool)
    }
    if not judged:
        raise UserError(f"{judge.check_id} has judged nothing in run {run.id[:8]}, so there is nothing to label.")
    judged_ids = [case.id for index, case in enumerate(cases_of(store, run)) if index in judged]
    drawn = LabelDraw(run.id, judge.check_id, seed, draw(judged_ids, size, seed))
    store.labels.add_draw(drawn)
    return drawn


def outputs_to_label(store: Store, drawn: LabelDraw) -> list[dict[str, Any]]:
    """What people see of each drawn case, in its order; not what the judge said, which would sway them."""
    run = store.runs.get(drawn.run_id)
    wanted = set(drawn.case_ids)
    case_indices = [index for index, case in enumerate(cases_of(store, run)) if case.id in wanted]
    found = {
        result.case.id: {
            "id": result.case.id,
            "label": None,
            "check": drawn.check_id,
            "input": result.case.input,
            "expected": result.case.expected,
            "output": None if result.output is None else result.output.value,
        }
        for result in store.results.by_case(run.id, case_indices=case_indices)
    }
    return [found[case_id] for case_id in drawn.case_ids]


def labelled_draw(store: Store, run: RunRecord, labelled: LabelSet) -> tuple[LabelDraw | None, str | None]:
    """The largest draw from the run of which each case has a label; else None, and why, if a draw is labelled in part.

    Of a draw that is labelled in part those labels are no random sample: the hard cases may be the ones without. Nor
    are labels of cases that were shown for another reason than a draw, where that is known.
    """
    if labelled.field != FIELD:
        return None, None
    draws = store.labels.draws(run.id, labelled.judge.check_id)
    counting = labelled.labels.keys() if labelled.as_drawn is None else labelled.labels.keys() & labelled.as_drawn
    whole = [each for each in draws if all(case_id in counting for case_id in each.case_ids)]
    if whole:
        return max(whole, key=lambda each: len(each.case_ids)), None
    for each in draws:
        without = sum(case_id not in counting for case_id in each.case_ids)
        if without < len(each.case_ids):
            there = "" if labelled.as_drawn is None else " that counts and was given where the draw showed them"
            return None, (
                f"{without} of the {len(each.case_ids)} cases that were drawn at random have no label{there}: as long "
                "as that is so, the labels are no random sample of the run."
            )
    return None, None
