"""The queue of judged outputs that a person labels, its order, and the labels that are stored."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from fepflow.analysis.judge_reliability import judges_of_run
from fepflow.analysis.labels import read_label
from fepflow.checks.models.judge_spec import JudgeSpec, judgement_of
from fepflow.checks.registry import LABELLED
from fepflow.errors import JSONPathError, NotFoundError, UserError
from fepflow.jsonpath.template import TextTemplate
from fepflow.protocol.test_case import Context, Output, evaluation_context
from fepflow.store.records import LabelDraw, NewLabel, RunRecord, StoredLabel
from fepflow.store.store import Store
from fepflow.text import percent

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
