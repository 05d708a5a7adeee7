"""inspect_ai: logs in both of its formats, `.eval` (a zip) and `.json`, and folders of logs of one task."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    ScorerValues,
    compare_means,
    known,
    listed,
    mapping,
    milliseconds,
    moment,
)
from fepflow.imports.source import Archive, MemberError, Source, open_archive
from fepflow.json.values import is_deep, map_leaves, with_named_floats
from fepflow.text import brief, plural

VERSION = 2
_ZIP = b"PK\x03\x04"
_SAMPLE = re.compile(r"samples/(?P<id>.*)_epoch_(?P<epoch>-?\d{1,20})(?:\.json|/sample\.json)", re.DOTALL)
_ATTACHMENT = "attachment://"
_NO_SCORE = "the log has no score of this scorer for the sample"
_MOST_EPOCHS = 10_000
_MOST_KEPT = 500_000_000
"""Characters of JSON that are kept of all samples: a log of a few megabytes may unpack to far more."""

GRADES: dict[str, tuple[bool | None, float]] = {
    "C": (True, 1.0),
    "I": (False, 0.0),
    "P": (None, 0.5),
    "N": (False, 0.0),
}
"""inspect_ai's letters: correct, incorrect, partially correct, no answer. Half right is neither a pass nor a fail."""


def looks_like(source: Source) -> bool:
    """Return whether the source is a log, or a folder with logs."""
    if source.is_folder:
        return any(True for _ in _logs_in(source))
    return source.head.startswith(_ZIP) if source.ending == ".eval" else _is_log(source.data)


def _is_log(data: Any) -> bool:
    return isinstance(data, dict) and "status" in data and isinstance(data.get("eval"), dict) and "task" in data["eval"]


def _logs_in(folder: Source) -> Iterator[Source]:
    for path in sorted(folder.path.iterdir()):
        log = Source(path, f"{folder.name}/{path.name}")
        is_json_log = path.suffix == ".json" and path.is_file() and b'"eval"' in log.head and b'"status"' in log.head
        if is_json_log or (path.suffix == ".eval" and path.is_file()):
            yield log


def read(source: Source) -> Imported:
    """Read the samples of a log as cases, its epochs as repeats, and its scorers as checks; of a folder, each log."""
    reader = _Reader(source.name)
    for log in list(_logs_in(source)) if source.is_folder else [source]:
        with _opened(log) as opened:
            reader.add(opened)
    return reader.imported()


@dataclass(frozen=True)
class _Sample:
    """A sample of a log; of a damaged one, the content is the reason, and id and epoch are those of its file's name."""

    id: Any
    epoch: Any
    content: dict[str, Any] | str


@dataclass(frozen=True)
class _Log:
    """A log: its header, and its samples one after the other."""

    name: str
    header: dict[str, Any]
    samples: Iterator[_Sample]


@contextmanager
def _opened(source: Source) -> Iterator[_Log]:
    if source.ending != ".eval":
        data = source.data
        if not _is_log(data):
            raise InputError(Problem("is not a log of inspect_ai: it has no eval with a task", source.name))
        header = {name: value for name, value in data.items() if name != "samples"}
        samples = [sample for sample in listed(data.get("samples")) if isinstance(sample, dict)]
        _require_samples(bool(samples), header, source.name)
        yield _Log(source.name, header, (_Sample(each.get("id"), each.get("epoch", 1), each) for each in samples))
        return
    with open_archive(source) as archive:
        header = _header(archive)
        names = [name for name in archive.names if _SAMPLE.fullmatch(name)]
        _require_samples(bool(names), header, source.name)
        yield _Log(source.name, header, _members(archive, names))


def _header(archive: Archive) -> dict[str, Any]:
    """Return the header; of a log whose evaluation was killed, what was written at its start."""
    name = next((name for name in ("header.json", "_journal/start.json") if name in archive), None)
    if name is None:
        raise InputError(Problem("is not a log of inspect_ai: it has no header.json", archive.name))
    try:
        header = mapping(json.loads(archive.read(name)))
    except (MemberError, ValueError, RecursionError) as error:
        raise InputError(Problem(f"{name} cannot be read: {brief(str(error), 200)}", archive.name)) from None
    if not isinstance(header.get("eval"), dict):
        raise InputError(Problem(f"is not a log of inspect_ai: {name} has no eval", archive.name))
    return {"status": "started", **header}


def _require_samples(has_samples: bool, header: Mapping[str, Any], file: str) -> None:
    """Raise InputError for a log in another version, and for one without samples."""
    if header.get("version", VERSION) != VERSION:
        version = brief(str(header["version"]), 40)
        message = f"is a log of inspect_ai in version {version}; version {VERSION} can be read"
        raise InputError(Problem(message, file, path="version", advice="convert it: inspect log convert"))
    if not has_samples:
        status = brief(str(header.get("status")), 40)
        message = f"holds no samples, only the header of an evaluation with the status {status!r}"
        advice = "run it with --log-samples, or name the log that has the samples"
        raise InputError(Problem(message, file, advice=advice))


def _members(archive: Archive, names: list[str]) -> Iterator[_Sample]:
    # A sample that was written twice has two members of the same name.
    copies = [(name, copy) for name in names for copy in range(archive.copies(name))]
    for name, copy in copies:
        match = _SAMPLE.fullmatch(name)
        assert match is not None
        try:
            sample = json.loads(archive.read(name, copy))
            # The newer layout of large samples: metadata and messages are members of their own.
            beside = name.removesuffix("sample.json") + "metadata.json"
            if name.endswith("/sample.json") and beside in archive:
                sample["metadata"] = json.loads(archive.read(beside))
            if not isinstance(sample, dict):
                raise ValueError("it is not an object")
        except (MemberError, ValueError, RecursionError, TypeError) as error:
            yield _Sample(match["id"], int(match["epoch"]), f"{name} {brief(str(error), 200)}")
        else:
            sample.pop("events", None)  # most of a log, and not read
            yield _Sample(sample.get("id"), sample.get("epoch", 1), sample)


class _Reader:
    """Collects the cases of all logs, and a run of each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._notes = Notes(name)
        self._task: str | None = None
        self._cases = CaseList()
        self._known: set[int] = set()
        """Indices of the cases whose sample was read; the others are only listed in a header, or damaged."""

        self._kept = 0
        self._runs: list[tuple[str, str, ImportedRun]] = []

    def imported(self) -> Imported:
        """Return what was collected. Runs of the same model are told apart by their logs."""
        models = [model for model, _, _ in self._runs]
        for model, log, run in self._runs if len(models) > 1 else ():
            run.variant = {"model": model} if models.count(model) == 1 else {"model": model, "log": Path(log).stem}
        runs = [run for _, _, run in self._runs]
        self._notes.came(
            test_case=len(self._cases),
            output=sum(len(run.outputs) for run in runs),
            scorer=len({name for run in runs for name in run.checks}),
        )
        return Imported("inspect_ai", str(VERSION), self._task or "inspect_ai", self._notes, self._cases, runs=runs)

    def add(self, log: _Log) -> None:
        """Add a log. Raises InputError for one of another task than the logs before, or with other inputs."""
        about = log.header["eval"]
        task = str(about.get("task_display_name") or about.get("task") or "inspect_ai").rpartition("/")[2]
        if self._task not in (None, task):
            message = f"holds logs of several tasks, {self._task} and {task}"
            raise InputError(Problem(message, self._name, advice="import each log by itself"))
        self._task = task
        of_log = _LogReader(log, self._notes, str(about.get("model") or ""))
        ids = [id_ for id_ in listed(mapping(about.get("dataset")).get("sample_ids")) if isinstance(id_, str | int)]
        written = {str(id_): id_ for id_ in ids}
        if len(written) < len(set(ids)):
            raise self._ambiguous(next(id_ for id_ in ids if id_ != written[str(id_)]), log.name)
        indices = {self._place(id_) for id_ in ids}
        types: dict[str, type] = {}
        outputs: dict[tuple[int, int], ImportedOutput] = {}
        for sample in log.samples:
            is_read = isinstance(sample.content, dict)
            if is_read and not isinstance(sample.id, types.setdefault(str(sample.id), type(sample.id))):
                raise self._ambiguous(sample.id, log.name)
            index, output = self._sample(sample, of_log)
            indices.add(index)
            if output is None:
                continue
            if (place := (index, output.repeat)) in outputs:
                what = "a sample appears twice in one epoch: the last output counts, and scores that differ are errors"
                path = f"sample {self._cases[index]['id']}, epoch {output.repeat + 1}"
                self._notes.by_hand(what, path=path, file=log.name)
                output = _merged(outputs[place], output)
            outputs[place] = output
            self._keep(log.name, output.value, output.metadata)
        epochs = mapping(about.get("config")).get("epochs")
        repeats: int = max([epochs if _is_epoch(epochs) else 1, *(repeat + 1 for _, repeat in outputs)])
        run = ImportedRun(list(outputs.values()), repeats, sorted(indices))
        run.checks = of_log.settle(run.outputs)
        if missing := len(indices) * repeats - len(run.outputs):
            what = f"missing in the log, and so in the run: {plural(missing, 'sample')} of the evaluation"
            self._notes.by_hand(what, file=log.name)
        stats = mapping(log.header.get("stats"))
        run.times = [moment(stats.get("started_at")) or moment(about.get("created")), moment(stats.get("completed_at"))]
        self._runs.append((str(about.get("model") or "model"), log.name, run))

    def _ambiguous(self, sample_id: Any, file: str) -> InputError:
        message = f"has two samples with the id {brief(str(sample_id), 60)!r}, one as a number and one as a text"
        return InputError(Problem(message, file, advice="give the samples of the dataset different ids"))

    def _place(self, sample_id: Any) -> int:
        return self._cases.place(str(sample_id), {"id": str(sample_id), "input": None})

    def _keep(self, file: str, *values: Any) -> None:
        """Count values that are kept. Raises InputError once all of them are too large."""
        self._kept += sum(len(json.dumps(value)) for value in values if value)
        if self._kept > _MOST_KEPT:
            message = f"holds more than {_MOST_KEPT:,} bytes of inputs, outputs and metadata"
            raise InputError(Problem(message, file, advice="import a log of fewer samples"))

    def _sample(self, sample: _Sample, log: _LogReader) -> tuple[int, ImportedOutput | None]:
        """Return the case and the output of a sample; no output if its epoch is not valid."""
        content, epoch = sample.content, sample.epoch
        if sample.id is None:
            raise InputError(Problem(f"has a sample without id, in epoch {brief(str(epoch), 40)}", log.name))
        index = self._place(sample.id)
        if isinstance(content, str):
            self._notes.by_hand(f"a sample cannot be read, and is an error: {content}", file=log.name)
        else:
            case = _case(content)
            if index not in self._known:
                self._known.add(index)
                self._cases[index] = case
                self._keep(log.name, case)
            elif case["input"] != self._cases[index]["input"]:
                message = f"the sample {case['id']!r} has another input in another epoch or log"
                raise InputError(Problem(message, log.name, advice="import each log by itself"))
        if not _is_epoch(epoch):
            what = f"a sample has the epoch {brief(repr(epoch), 40)}, and is left out: epochs are 1 to {_MOST_EPOCHS:,}"
            self._notes.by_hand(what, path=f"sample {brief(str(sample.id), 60)}", file=log.name)
            return index, None
        if isinstance(content, str):
            return index, ImportedOutput(index, None, epoch - 1, error=content)
        return index, log.output(content, index, epoch - 1)


def _merged(first: ImportedOutput, second: ImportedOutput) -> ImportedOutput:
    """Return one output for two of the same sample and epoch. An error of either stays; scores that differ are one."""
    error = second.error or first.error
    if error is not None:
        return replace(second, value=None, error=error, scores={})

    def result(output: ImportedOutput, name: str) -> Any:
        score = output.scores.get(name)
        return score and (score.passed, score.score, score.error)

    differs = Score(error="the sample appears twice in this epoch, with scores that differ")
    names = [*second.scores, *(name for name in first.scores if name not in second.scores)]
    scores = {name: second.scores[name] if result(first, name) == result(second, name) else differs for name in names}
    return replace(second, scores=scores)


def _is_epoch(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_EPOCHS


def _case(sample: dict[str, Any]) -> dict[str, Any]:
    target = sample.get("target")
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    metadata = {**({"choices": sample["choices"]} if sample.get("choices") else {}), **mapping(sample.get("metadata"))}
    case = {"id": str(sample["id"]), "input": _input(sample.get("input"), sample)}
    case |= known(expected=None if target in ("", []) else target, metadata=metadata or None)
    plain: dict[str, Any] = with_named_floats(case)
    return plain


def _input(value: Any, sample: dict[str, Any]) -> Any:
    """Return a sample's input: a text, or messages; a single message of the user as its text."""
    if not isinstance(value, list):
        return _resolved(value, sample)
    messages = [
        {"role": message.get("role"), "content": _content(message.get("content"), sample)}
        for message in value
        if isinstance(message, dict)
    ]
    only = messages[0] if len(messages) == 1 else {}
    return only["content"] if only.get("role") == "user" and isinstance(only.get("content"), str) else messages


def _content(content: Any, sample: dict[str, Any]) -> Any:
    """Return a message's content: a text if it is one or all its parts are texts, else its parts."""
    if not isinstance(content, list):
        return _resolved(content, sample)
    parts = [part for part in content if mapping(part).get("type") != "reasoning"]
    if all(isinstance(mapping(part).get("text"), str) for part in parts):
        return "\n".join(str(_resolved(part["text"], sample)) for part in parts)
    return [_resolved(part, sample) for part in parts]


def _resolved(value: Any, sample: dict[str, Any]) -> Any:
    """Return a value with the large texts that the log keeps apart put back."""
    attachments = mapping(sample.get("attachments"))

    def resolve(leaf: Any) -> Any:
        is_reference = isinstance(leaf, str) and leaf.startswith(_ATTACHMENT)
        kept = attachments.get(leaf.removeprefix(_ATTACHMENT)) if is_reference else None
        return kept if isinstance(kept, str) else leaf

    return map_leaves(value, resolve)


class _LogReader:
    """Reads the outputs and scores of one log."""

    def __init__(self, log: _Log, notes: Notes, model: str) -> None:
        self.name = log.name
        self._header, self._notes, self._model = log.header, notes, model
        self._values = ScorerValues(notes, GRADES)

    def output(self, sample: dict[str, Any], index: int, repeat: int) -> ImportedOutput:
        """Return the output of a sample. A sample with an error, or that was declared invalid, is an error."""
        metadata = self._metadata(sample)
        error = _error(sample)
        scores = sample.get("scores")
        if scores is None and isinstance(sample.get("score"), dict):
            scores = {"score": sample["score"]}  # before there could be several scorers
        if error is not None:
            if scores:
                what = "a sample that ended in an error, or is invalid, has scores: they are left out"
                self._notes.by_hand(what, path=f"sample {sample['id']}, epoch {repeat + 1}", file=self.name)
            return ImportedOutput(index, None, repeat, error, metadata)
        value = with_named_floats(_answer(sample))
        if is_deep(value) or is_deep(metadata):
            return ImportedOutput(index, None, repeat, "the output is nested deeper than 100 levels")
        output = ImportedOutput(index, value, repeat, None, metadata)
        for name, score in mapping(scores).items():
            output.scores.update(self._scores(str(name), score, value))
        return output

    def _scores(self, name: str, score: Any, answer: Any) -> Iterator[tuple[str, Score]]:
        if not isinstance(score, dict) or "value" not in score:
            yield name, Score(error="the log has no value of the score")
            return
        value, reason = score["value"], score.get("explanation") or score.get("answer")
        if not isinstance(reason, str) or reason == answer:
            reason = None
        if value is None or value != value:  # unscored: then the reason says why
            reason = score.get("reason") or reason
        if isinstance(value, dict):
            for key, part in value.items():
                yield f"{name}.{key}", self._values.read(f"{name}.{key}", part, reason)
        else:
            yield name, self._values.read(name, value, reason)

    def _metadata(self, sample: dict[str, Any]) -> dict[str, Any]:
        usage = mapping(sample.get("model_usage"))
        models = {name: used for name, used in usage.items() if isinstance(used, dict)}
        only = next(iter(models.values())) if len(models) == 1 else {}
        tokens = {name: used.get("total_tokens") for name, used in models.items()} if len(models) > 1 else None
        spent = sample.get("working_time") if sample.get("working_time") is not None else sample.get("total_time")
        output, messages = mapping(sample.get("output")), listed(sample.get("messages"))
        retries = len(listed(sample.get("error_retries")))
        metadata: dict[str, Any] = with_named_floats(
            known(
                model=self._model or None,
                latency_ms=milliseconds(spent),
                tokens=only.get("total_tokens"),
                usd=only.get("total_cost"),
                model_tokens=tokens,
                limit=mapping(sample.get("limit")) or None,
                stop_reason=_first_choice(output).get("stop_reason"),
                model_error=output.get("error"),
                attempts=retries + 1 if retries else None,
                tool_calls=_tool_calls(messages, sample) if messages else None,
            )
        )
        return metadata

    def settle(self, outputs: list[ImportedOutput]) -> list[str]:
        """Return the imported scorers. Each has a result for every output that is not an error."""
        right_or_wrong, means = set(), []
        for entry, scorer in _aggregates(self._header, self._values.names):
            metrics = mapping(entry.get("metrics"))
            if "accuracy" in metrics:
                right_or_wrong.add(scorer)
            if entry.get("reducer") in (None, "mean"):
                means += [(scorer, mapping(metrics[name])) for name in ("accuracy", "mean") if name in metrics]
            else:
                reducer = brief(str(entry["reducer"]), 60)
                what = f"epochs were reduced by {reducer!r}: the run has each epoch as a repeat"
                self._notes.by_hand(what, file=self.name, advice="choose an aggregate for the metric, such as pass@k")
        names = self._values.settle(outputs, _NO_SCORE, right_or_wrong)
        for scorer, metric in means:
            if scorer in names:
                compare_means(self._notes, scorer, outputs, metric.get("value"), "the accuracy or mean")
        self._note_status()
        return names

    def _note_status(self) -> None:
        status, error = self._header.get("status"), mapping(self._header.get("error"))
        if self._header.get("invalidated"):
            what = "the log was declared invalid: samples that are not marked themselves keep their scores"
            self._notes.by_hand(what, file=self.name)
        if status != "success":
            why = f": {brief(str(error['message']), 300)}" if error.get("message") else ""
            self._notes.by_hand(f"the evaluation has the status {brief(str(status), 40)!r}{why}", file=self.name)


def _error(sample: dict[str, Any]) -> str | None:
    error, invalid = sample.get("error"), sample.get("invalidation")
    if error is not None:
        return str(mapping(error).get("message") or error)
    if invalid is None:
        return None
    reason = mapping(invalid).get("reason")
    return f"the sample was declared invalid{f': {reason}' if reason else ''}"


def _first_choice(output: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(next(iter(listed(output.get("choices"))), None))


def _answer(sample: dict[str, Any]) -> Any:
    output = mapping(sample.get("output"))
    message = _first_choice(output).get("message")
    if isinstance(message, dict) and not output.get("completion"):
        return _content(message.get("content"), sample)
    return _resolved(output.get("completion"), sample)


def _tool_calls(messages: list[Any], sample: dict[str, Any]) -> list[dict[str, Any]]:
    messages = list(map(mapping, messages))
    answers = {message.get("tool_call_id"): message for message in messages if message.get("role") == "tool"}
    calls = []
    for message in messages:
        for call in listed(message.get("tool_calls")) if message.get("role") == "assistant" else ():
            if isinstance(call, dict) and isinstance(call.get("function"), str):
                answer = answers.get(call.get("id"), {})
                calls.append(
                    {
                        "name": call["function"],
                        "arguments": call.get("arguments"),
                        "result": _content(answer.get("content"), sample),
                        "error": mapping(answer.get("error")).get("message"),
                        "ms": None,
                    }
                )
    return calls


def _aggregates(header: Mapping[str, Any], names: list[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the log's own results of each scorer, with the name that the scorer has here."""
    for entry in map(mapping, listed(mapping(header.get("results")).get("scores"))):
        for scorer in (f"{entry.get('scorer')}.{entry.get('name')}", entry.get("name")):
            if scorer in names:
                yield entry, str(scorer)
                break
