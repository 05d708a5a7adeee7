"""People's labels of test cases: read from a file, or given to outputs that were drawn at random from a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.judge_reliability import FIELD
from fepflow.analysis.sampling import draw
from fepflow.checks.models.judge_spec import JudgeSpec, judgement_of
from fepflow.datasets.records import ErrorCollector, format_of, records
from fepflow.errors import UserError
from fepflow.json.values import finite
from fepflow.store.records import LabelDraw, RunRecord
from fepflow.store.store import Store
from fepflow.suite.test_cases import id_text
from fepflow.text import known_names

Label = bool | float | str

YES = ("yes", "true", "1", "pass")
NO = ("no", "false", "0", "fail")

ENOUGH_OF_A_KIND = 10
"""Least number of outputs in a draw that the judge passed, and that it failed, if the run has as many."""

_IDS = ("id", "case_id")


@dataclass(frozen=True)
class LabelSet:
    """Labels of test cases, by id, and the field of a judge's response that they are compared with.

    `as_drawn` are the cases that were labelled where a draw showed them; None if that is not known, as of a file that
    people fill. `people` is what is known of those who labelled, as JSON. `disputed` if cases were shown because they
    are disputed.
    """

    judge: JudgeSpec
    field: str
    labels: dict[str, Label]
    as_drawn: frozenset[str] | None = None
    people: dict[str, Any] | None = None
    disputed: bool = False

    @property
    def kind(self) -> str:
        """The type of the field: `boolean`, `number` or `word`."""
        return self.judge.fields[self.field][0]


@dataclass(frozen=True)
class _Row:
    line: int
    case_id: str
    label: Any
    check: str | None
    field: str | None
    drawn: bool | None
    disputed: bool


def read_labels(
    path: Path,
    judges: Sequence[JudgeSpec],
    case_ids: Collection[str],
    check: str | None = None,
    field: str | None = None,
) -> LabelSet:
    """Read labels from a file: `id` or `case_id`, `label`, and `check` and `field` where there are labels of several.

    A column `draw` says of each label by which draw its case was shown, `disputed` whether it was shown as a disputed
    one. A row without a label is left out. Raises InputError with all errors, each with its line: ids that no case has
    or that stand twice, values that are not labels. UserError if it is unclear which judge, or which field, is meant.
    """
    errors = ErrorCollector(str(path))
    rows = list(_rows(path, errors))
    errors.raise_if_any()
    known = [judge.check_id for judge in judges]
    for row in rows if judges else ():
        if row.check is not None and row.check not in known:
            errors.add(f"there is no judge {row.check}", row.line, "check", f"name one of {known_names(known)}")
    errors.raise_if_any()
    checks = {row.check for row in rows if row.check}
    judge = judge_named(judges, check or (checks.pop() if len(checks) == 1 else None))
    rows = [row for row in rows if row.check in (None, judge.check_id)]
    fields = {row.field for row in rows} - {None}
    field_name = field_named(judge, field or (fields.pop() if len(fields) == 1 else None))
    labels: dict[str, Label] = {}
    lines: dict[str, int] = {}
    for row in rows:
        if row.field not in (None, field_name):
            continue
        if row.case_id in lines:
            advice = "a case has one label: where several people have judged it, let them agree first"
            errors.add(f"the id {row.case_id!r} stands in line {lines[row.case_id]} already", row.line, advice=advice)
        elif row.case_id not in case_ids:
            errors.add(f"there is no test case with the id {row.case_id!r}", row.line)
        else:
            label = _read(row.label, *judge.fields[field_name])
            if label is None:
                errors.add(_unreadable(row.label, judge, field_name), row.line)
            else:
                labels[row.case_id] = label
        lines.setdefault(row.case_id, row.line)
    if not labels and not errors:
        errors.add(f"holds no label for {judge.check_id}", advice="add one a line: id,label")
    errors.raise_if_any()
    drawn = {row.case_id for row in rows if row.drawn and row.case_id in labels and row.field in (None, field_name)}
    tells = any(row.drawn is not None for row in rows)
    disputed = any(row.disputed for row in rows)
    return LabelSet(judge, field_name, labels, frozenset(drawn) if tells else None, disputed=disputed)


def _rows(path: Path, errors: ErrorCollector) -> Iterator[_Row]:
    for line, record in records(path, format_of(path, None, errors.file), errors):
        if not isinstance(record, dict):
            errors.add("a label is an object with id and label", line)
            continue
        ids = [name for name in _IDS if name in record]
        if len(ids) != 1 or "label" not in record:
            columns = ", ".join(map(repr, record))
            errors.add(f"there must be a column id (or case_id) and a column label, not {columns}", line)
            return
        if record["label"] in (None, ""):
            continue
        try:
            yield _Row(
                line,
                id_text(record[ids[0]]),
                record["label"],
                record.get("check") or None,
                record.get("field") or None,
                bool(record["draw"]) if "draw" in record else None,
                str(record.get("disputed")).lower() == "true",
            )
        except ValueError as error:
            errors.add(str(error), line, ids[0])


def judge_named(judges: Sequence[JudgeSpec], check: str | None) -> JudgeSpec:
    """Return the judge with that check id, or the only one. Raises UserError."""
    if not judges:
        raise UserError(
            "The suite has no judge to calibrate (each judge that a test case carries itself has its own rubric)."
        )
    known = {judge.check_id: judge for judge in judges}
    if check is not None and check not in known:
        raise UserError(f"There is no judge {check} (--check): name one of {known_names(known)}.")
    if check is None and len(known) > 1:
        raise UserError(f"There are several judges: say which one with --check ({', '.join(known)}).")
    return known[check] if check is not None else judges[0]


def field_named(judge: JudgeSpec, field: str | None) -> str:
    """Return the field of that name, or else `passed`, or the only one. Raises UserError."""
    fields = list(judge.fields)
    if field is not None and field not in fields:
        raise UserError(f"{judge.check_id} does not give {field} (--field): name one of {known_names(fields)}.")
    if not fields:
        raise UserError(f"{judge.check_id} gives nothing that can be compared: no boolean, number or word of an enum.")
    if field is None and FIELD not in fields and len(fields) > 1:
        raise UserError(f"{judge.check_id} gives {known_names(fields)}: say what the labels are about with --field.")
    return field or (FIELD if FIELD in fields else fields[0])


def read_label(label: Any, judge: JudgeSpec, field: str) -> Label:
    """Return a label, from JSON or text, in the judge's form. Raises UserError for other values."""
    read = _read(label, *judge.fields[field])
    if read is None:
        raise UserError(f"The label {str(label)[:50]!r} is not {_wanted(judge, field)}.")
    return read


def _read(label: Any, kind: str, words: Sequence[str]) -> Label | None:
    """Return the label in the judge's form, or None."""
    text = str(label).strip()
    if kind == "word":
        unquoted = text.removeprefix("'")  # as a word stands in a spreadsheet that would be taken for a formula
        return text if text in words else unquoted if unquoted in words else None
    if kind == "number":
        try:
            return finite(float(text))
        except ValueError:
            return None
    return True if text.lower() in YES else False if text.lower() in NO else None


def _unreadable(label: Any, judge: JudgeSpec, field: str) -> str:
    others = [name for name in judge.fields if name != field]
    more = f"; --field compares {' or '.join(others)} instead" if others else ""
    return f"the label {str(label)[:50]!r} is not {_wanted(judge, field)}{more}"


def _wanted(judge: JudgeSpec, field: str) -> str:
    kind, words = judge.fields[field]
    wanted = {"boolean": f"one of {', '.join((*YES, *NO))}", "number": "a number", "word": f"one of {', '.join(words)}"}
    return f"{wanted[kind]}, as {judge.check_id} gives {field}"


def draw_for_labels(store: Store, run: RunRecord, judge: JudgeSpec, size: int, seed: int) -> LabelDraw:
    """Draw cases from those that a judge passed and those that it failed, and store the draw.

    Raises UserError for a run with repeats, because a label is about one output, and if nothing was judged.
    """
    if run.repeats > 1:
        raise UserError(f"Run {run.id[:8]} has {run.repeats} outputs for each case, and a label is about one.")
    if judge.fields.get(FIELD, ("",))[0] != "boolean":
        raise UserError(f"{judge.check_id} gives no {FIELD} that labels could be compared with.")
    verdicts = {
        case_index: verdict
        for case_index, results in store.results.completed_results(run.id, judge.check_id)
        if isinstance(verdict := judgement_of(results).get(FIELD), bool)
    }
    if not verdicts:
        raise UserError(f"{judge.check_id} has judged nothing in run {run.id[:8]}, so there is nothing to label.")
    by_verdict: dict[bool, list[str]] = {True: [], False: []}
    for case_index, case in enumerate(cases_of(store, run)):
        if case_index in verdicts:
            by_verdict[verdicts[case_index]].append(case.id)
    drawn = LabelDraw(
        run_id=run.id,
        check_id=judge.check_id,
        seed=seed,
        design="by_verdict",
        case_ids=draw_of_both(by_verdict[True], by_verdict[False], size, seed),
    )
    store.labels.add_draw(drawn)
    return drawn


def draw_of_both(passed: Sequence[str], failed: Sequence[str], size: int, seed: int) -> list[str]:
    """Draw as many of what the judge passed, and of what it failed, as there are of them in the run, but a few of
    either: without any, nothing would be known of it.

    In proportion tells most of the share that is right; half of each makes its interval about half as wide again.
    """
    size = min(size, len(passed) + len(failed))
    few = min(ENOUGH_OF_A_KIND, max(size // 4, 1))
    of_failed = round(size * len(failed) / (len(passed) + len(failed)))
    of_failed = min(max(of_failed, min(few, len(failed))), size - min(few, len(passed)))
    drawn = [*draw(passed, size - of_failed, seed), *draw(failed, of_failed, seed)]
    return draw(drawn, size, seed + 1)  # mixed anew: by the same seed the last ones would tell what the judge said


def outputs_to_label(store: Store, drawn: LabelDraw) -> list[dict[str, Any]]:
    """Return each drawn case as people see it, in the draw's order, without the judge's verdict."""
    run = store.runs.get(drawn.run_id)
    wanted = set(drawn.case_ids)
    case_indices = [index for index, case in enumerate(cases_of(store, run)) if case.id in wanted]
    outputs = {
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
    return [outputs[case_id] for case_id in drawn.case_ids]


def labelled_draw(store: Store, run: RunRecord, labelled: LabelSet) -> tuple[LabelDraw | None, str | None]:
    """Return the largest draw from the run of which each case has a label; else None, and why, if a draw is labelled in
    part.

    Of a draw that is labelled in part those labels are not a random sample: the hard cases may be the ones without. Nor
    are labels of cases that were shown for another reason than a draw, where that is known.
    """
    if labelled.field != FIELD:
        return None, None
    draws = store.labels.draws(run.id, labelled.judge.check_id)
    counting = labelled.labels.keys() if labelled.as_drawn is None else labelled.labels.keys() & labelled.as_drawn
    whole = [label_draw for label_draw in draws if all(case_id in counting for case_id in label_draw.case_ids)]
    if whole:
        return max(whole, key=lambda label_draw: len(label_draw.case_ids)), None
    for label_draw in draws:
        without = sum(case_id not in counting for case_id in label_draw.case_ids)
        if without < len(label_draw.case_ids):
            as_shown = "" if labelled.as_drawn is None else " that counts and was given where the draw showed them"
            return None, (
                f"{without} of the {len(label_draw.case_ids)} cases that were drawn at random have no label{as_shown}: "
                "as long as that is so, the labels are not a random sample of the run."
            )
    return None, None
