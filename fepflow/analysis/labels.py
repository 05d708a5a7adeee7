"""People's labels of test cases: read from a file, or given to outputs of a run that were drawn or queued for them."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.judge_reliability import FIELD, judges_of_run
from fepflow.analysis.sampling import draw
from fepflow.checks.models.judge_spec import JudgeSpec, judgement_of
from fepflow.checks.registry import LABELLED
from fepflow.datasets.records import ErrorCollector, format_of, records
from fepflow.errors import JSONPathError, NotFoundError, UserError
from fepflow.json.values import finite
from fepflow.jsonpath.path import TextTemplate
from fepflow.protocol.test_case import Context, Output, evaluation_context
from fepflow.store.records import LabelDraw, NewLabel, RunRecord, StoredLabel
from fepflow.store.store import Store
from fepflow.suite.test_cases import id_text
from fepflow.text import known_names, percent

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


Order = Literal["random", "disagreement"]
"""The order in which outputs are shown: `random` shows those of a draw as it drew them, a sample once all are labelled;
`disagreement` begins with those on which the judge's samples, and then the judge and other checks, agree least: that is
no sample of anything."""

MAX_NOTE = 10_000
MAX_NAME = 200

OutputKey = tuple[str, int]
"""The id of its case, and its repeat, from 0."""


@dataclass(frozen=True)
class ToLabel:
    """An output to label: the `number`th, from 1, of `count`."""

    case_id: str
    repeat: int
    number: int
    count: int
    draw_id: str | None


@dataclass(frozen=True)
class LabelQueue:
    """Outputs in the order in which one person is to label them, and those that this person has labelled.

    `draw` is the draw that they are of. Of an order by disagreement the first `disputed` are disputed at all.
    `said` are the labels of those labelled, oldest first.
    """

    order: Order
    outputs: list[OutputKey]
    labelled: frozenset[OutputKey]
    draw: LabelDraw | None = None
    disputed: int = 0
    said: tuple[StoredLabel, ...] = ()

    def next(self, after: int = 0) -> ToLabel | None:
        """Return the first output without a label after this number, else from the beginning; None if there is none."""
        count = len(self.outputs)
        for place in (*range(after, count), *range(min(after, count))):
            if self.outputs[place] not in self.labelled:
                return self._at(place)
        return None

    def find(self, case_id: str, repeat: int) -> ToLabel | None:
        """Return that output, labelled or not; None if it is not in the queue."""
        key = (case_id, repeat)
        return self._at(self.outputs.index(key)) if key in self.outputs else None

    def label_of(self, output: ToLabel) -> StoredLabel | None:
        """Return the person's label of an output."""
        return next((label for label in self.said if _key(label) == (output.case_id, output.repeat)), None)

    def _at(self, place: int) -> ToLabel:
        case_id, repeat = self.outputs[place]
        return ToLabel(case_id, repeat, place + 1, len(self.outputs), self.draw.id if self.draw else None)


LABELS_AT_ONCE = 5
"""Number of labels after which agreement is shown again: after each one, it would give the judge's verdict away."""


def agreement_so_far(store: Store, run: RunRecord, judge: JudgeSpec, queue: LabelQueue) -> str | None:
    """Say how far a person agrees with the judge, over whole groups of `LABELS_AT_ONCE` labels; None before that.

    Once all outputs are labelled it is over all of them. Outputs without a verdict of the judge count in none.
    """
    labels = queue.said if queue.next() is None else queue.said[: len(queue.said) // LABELS_AT_ONCE * LABELS_AT_ONCE]
    if not labels:
        return None
    verdicts = {}
    for row in store.results.whole_check_rows(run.id, {label.case_index for label in labels}):
        if row["check_id"] == judge.check_id and row["status"] == "completed":
            judgement = judgement_of(json.loads(row["result"])["results"])
            verdicts[row["case_index"], row["repeat"]] = judgement.get(labels[0].field)
    judged = [(label.label, verdicts.get((label.case_index, label.repeat))) for label in labels]
    same = [label == verdict for label, verdict in judged if verdict is not None]
    if not same:
        return None
    share = percent(round(sum(same) / len(same), 2))
    return f"You agree with the judge in {sum(same)} of {len(same)} so far ({share})."


def _key(label: StoredLabel) -> OutputKey:
    return label.case_id, label.repeat


def label_queue(
    store: Store, run: RunRecord, judge: JudgeSpec, order: Order, *, who: str, field: str = "passed"
) -> LabelQueue:
    """Return the outputs that this person is to label for a field of a judge's response.

    By `random` it is the newest draw of the run (see `label_draws.draw_for_labels`), and empty if there is none. What
    the person has labelled without being shown it by a draw is asked for once more there.
    """
    mine = [
        label
        for label in store.labels.current(run.id, judge.check_id)
        if (label.labelled_by, label.field) == (who, field)
    ]
    if order == "random":
        draw = next(iter(store.labels.draws(run.id, judge.check_id)), None)
        drawn = [(case_id, 0) for case_id in draw.case_ids] if draw else []
        said = _said([label for label in mine if label.draw_id is not None], drawn)
        return LabelQueue(order, drawn, frozenset(map(_key, said)), draw, said=said)
    outputs, disputed = _by_disagreement(store, run, judge, field)
    said = _said(mine, outputs)
    return LabelQueue(order, outputs, frozenset(map(_key, said)), disputed=disputed, said=said)


def _said(labels: list[StoredLabel], outputs: list[OutputKey]) -> tuple[StoredLabel, ...]:
    wanted = set(outputs)
    return tuple(sorted((label for label in labels if _key(label) in wanted), key=lambda label: label.id))


@dataclass(frozen=True)
class ShownOutput:
    """An output as a person sees it: nothing of it is from the judge's answer, which would sway them.

    `asked` is the question that the judge was asked, `steps` those by which it was to judge, and `seen` what else it
    was shown, by name, where it is not the case's own `input`, `expected` or the `output`.
    """

    input: Any
    expected: Any
    output: Any
    asked: str
    steps: tuple[str, ...] = ()
    seen: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def output_to_label(store: Store, run: RunRecord, judge: JudgeSpec, output: ToLabel) -> ShownOutput:
    """Return an output as the person sees it.

    Raises NotFoundError if there is no output to label.
    """
    case_index = _case_index(store, run, output.case_id)
    case = store.runs.cases(run.id, case_index, case_index + 1)[0]
    answer = _output(store, run, output.case_id, case_index, output.repeat)
    rows = store.results.whole_check_rows(run.id, [case_index])
    results = [
        json.loads(row["result"]) for row in rows if (row["check_id"], row["repeat"]) == (judge.check_id, output.repeat)
    ]
    arguments, metadata = _arguments(results[0] if results else {})
    asked = next((arguments[name] for name in ("prompt", "criteria") if isinstance(arguments.get(name), str)), None)
    steps = next(
        (value for value in (arguments.get("steps"), metadata.get("steps")) if isinstance(value, list)),
        [],
    )
    known = (case.input, case.expected, answer.value)
    seen = {name: arguments[name] for name in _SHOWN_TO_JUDGES if arguments.get(name) is not None}
    return ShownOutput(
        case.input,
        case.expected,
        answer.value,
        asked if asked is not None else _asked(judge.prompt, evaluation_context(case, answer)),
        tuple(map(str, steps)),
        {name: value for name, value in seen.items() if value not in known},
    )


_SHOWN_TO_JUDGES = ("question", "context", "reference", "answer")
"""Arguments that a judge sees beside its question."""


def _arguments(result: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the arguments of a judge's result by name, as they were resolved, and its metadata."""
    resolved = result.get("resolved_arguments") or {}
    arguments = {name: argument.get("value") for name, argument in resolved.items() if isinstance(argument, dict)}
    return arguments, (result.get("results") or {}).get("metadata") or {}


def _asked(prompt: str, context: Context) -> str:
    """Return the prompt with its placeholders filled, or as it is written where one finds nothing."""
    try:
        return TextTemplate(prompt).resolve(context)
    except JSONPathError:
        return prompt


def _by_disagreement(store: Store, run: RunRecord, judge: JudgeSpec, field: str) -> tuple[list[OutputKey], int]:
    """Return the judged outputs, the most disputed first, in random order where that is the same, and how many are
    disputed."""
    of_samples: dict[tuple[int, int], float] = {}
    passes: dict[tuple[int, int], dict[str, bool]] = defaultdict(dict)
    for row in store.results.check_rows(run.id, types=LABELLED):
        results = (row.result or {}).get("results", {})
        is_judged = row.check_id == judge.check_id and row.status == "completed"
        if is_judged and judgement_of(results).get(field) is not None:
            metadata = results.get("metadata") or {}
            votes = metadata.get("jury") or metadata.get("samples") or {}
            of_samples[row.case_index, row.repeat] = _dispute_of_samples(votes, field)
    for row in store.results.check_rows(run.id, results=False):
        if row.passed is not None and (row.case_index, row.repeat) in of_samples:
            passes[row.case_index, row.repeat][row.check_id] = row.passed
    disputes = {key: (share, _dispute_of_checks(passes[key], judge)) for key, share in of_samples.items()}
    ids = list(store.runs.ids_of_cases(run.id))
    ordered = sorted(disputes, key=lambda key: ([-degree for degree in disputes[key]], _at_random(ids[key[0]], key[1])))
    return [(ids[index], repeat) for index, repeat in ordered], sum(any(degree) for degree in disputes.values())


def _dispute_of_samples(samples: Mapping[str, Any], field: str) -> float:
    """Return the share of samples that differ; for numbers, their distance. 0 for a single sample."""
    if field in samples.get("spread", {}):
        low, high = samples["spread"][field]
        return float(high - low)
    return 1.0 - float(samples.get("agreement", {}).get(field, 1.0))


def _dispute_of_checks(passes: Mapping[str, bool], judge: JudgeSpec) -> float:
    """Return the share of the output's other checks whose verdict differs from the judge's."""
    others = [passed for check_id, passed in passes.items() if check_id != judge.check_id]
    mine = passes.get(judge.check_id)
    return sum(passed != mine for passed in others) / len(others) if others and mine is not None else 0.0


def _at_random(case_id: str, repeat: int) -> bytes:
    """Return a sort key for a random order that is always the same; the file's order may be by subject."""
    return sha256(f"{repeat}:{case_id}".encode(errors="surrogatepass")).digest()


def add_label(
    store: Store, run_id: str, case_id: str, repeat: int, check_id: str, field: str, label: Any, note: str, who: str,
    draw_id: str | None = None, *, disputed: bool = False,
) -> NewLabel:  # fmt: skip
    """Store what `who` says of an output; None as a label withdraws what they said before.

    `label` is JSON or text, as in a file of labels; `repeat` counts from 0. `draw_id` is of the draw that showed the
    output, `disputed` says that it came first as a disputed one; a label that replaces one keeps both. Raises
    NotFoundError for an unknown run, case, output, check or draw, UserError for a value that is not a label of this
    field, for a bad name, and for a note that is too long.
    """
    run = store.runs.get(run_id)
    judge = _judge(run, check_id)
    if field not in judge.fields:
        raise UserError(f"{check_id} gives no {field} to label: it gives {', '.join(judge.fields) or 'nothing'}.")
    if not who.strip() or len(who) > MAX_NAME:
        raise UserError(f"A label needs its author's name, in at most {MAX_NAME} characters.")
    if len(note) > MAX_NOTE:
        raise UserError(f"The note has {len(note):,} characters, and {MAX_NOTE:,} at most are kept: shorten it.")
    case_index = _case_index(store, run, case_id)
    _output(store, run, case_id, case_index, repeat)
    _require_drawn(store, run, judge, case_id, draw_id)
    before = [
        stored
        for stored in store.labels.of_case(run.id, case_index)
        if (stored.repeat, stored.check_id, stored.field, stored.labelled_by) == (repeat, check_id, field, who)
    ]
    if label is None and (not before or before[-1].label is None):
        raise UserError(f"{who} has no label of {check_id}, {field}, of the case {case_id!r} to withdraw.")
    read = None if label is None else read_label(label, judge, field)
    draw_id = draw_id or (before[-1].draw_id if before else None)
    disputed = disputed or bool(before and before[-1].disputed)
    added = NewLabel(run.id, case_index, repeat, check_id, field, read, who, note, draw_id, disputed)
    store.labels.add(added)
    return added


def _judge(run: RunRecord, check_id: str) -> JudgeSpec:
    for judge in judges_of_run(run):
        if judge.check_id == check_id:
            return judge
    raise NotFoundError(f"Run {run.id[:8]} has no judge {check_id!r} that all its cases share.")


def _case_index(store: Store, run: RunRecord, case_id: str) -> int:
    case_index = store.runs.index_of_case(run.id, case_id)
    if case_index is None:
        raise NotFoundError(f"Run {run.id[:8]} has no case with the id {case_id!r}.")
    return case_index


def _output(store: Store, run: RunRecord, case_id: str, case_index: int, repeat: int) -> Output:
    """Return a judged output, even if it has only the first steps."""
    stored = store.results.outputs(run.id, case_index, case_index + 1).get((case_index, repeat))
    if stored is None or (stored.failed and not stored.output.is_partial):
        raise NotFoundError(f"Run {run.id[:8]} has no output {repeat + 1} of the case {case_id!r} to label.")
    return stored.output


def _require_drawn(store: Store, run: RunRecord, judge: JudgeSpec, case_id: str, draw_id: str | None) -> None:
    draws = store.labels.draws(run.id, judge.check_id) if draw_id else []
    if draw_id and not any(draw.id == draw_id and case_id in draw.case_ids for draw in draws):
        raise NotFoundError(f"No draw {draw_id!r} of run {run.id[:8]} has shown the case {case_id!r} for a label.")
