"""inspect_ai: logs in both of its formats, `.eval` (a zip) and `.json`, and folders of logs of one task."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import Imported, ImportedOutput, ImportedRun, Notes, Score, known, mapping, moment
from fepflow.imports.source import Source
from fepflow.imports.values import ScorerValues, compare_means, milliseconds, plain_json
from fepflow.imports.zip_members import Archive, MemberError, open_archive
from fepflow.json.values import is_deep, map_leaves
from fepflow.text import brief, plural

NAME = "inspect_ai"
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
    """Return whether the source is a log, or a folder in which there are some."""
    if source.is_folder:
        return any(True for _ in _logs_in(source))
    if source.ending == ".eval":
        return source.head.startswith(_ZIP)
    return _is_log(source.data)


def _is_log(data: Any) -> bool:
    return isinstance(data, dict) and "status" in data and isinstance(data.get("eval"), dict) and "task" in data["eval"]


def _logs_in(folder: Source) -> Iterator[Source]:
    for path in sorted(folder.path.iterdir()):
        named = Source(path, f"{folder.name}/{path.name}")
        is_json = path.suffix == ".json" and path.is_file()
        if (path.suffix == ".eval" and path.is_file()) or (is_json and _may_be_log(named.head)):
            yield named


def _may_be_log(head: bytes) -> bool:
    return b'"eval"' in head and b'"status"' in head


def read(source: Source) -> Imported:
    """Read the samples of a log as cases, its epochs as repeats, and its scorers as checks; of a folder, each log."""
    notes = Notes(source.name)
    reader = _Reader(source.name, notes)
    logs = list(_logs_in(source)) if source.is_folder else [source]
    for log in logs:
        with _opened(log) as opened:
            reader.add(opened)
    return reader.imported()


@dataclass(frozen=True)
class _Log:
    """A log: its header, and its samples one after the other, a damaged one as the reason with its id and epoch."""

    name: str
    header: dict[str, Any]
    samples: Iterator[dict[str, Any] | _Damaged]


@dataclass(frozen=True)
class _Damaged:
    id: str
    epoch: int
    reason: str


@contextmanager
def _opened(source: Source) -> Iterator[_Log]:
    if source.ending != ".eval":
        data = source.data
        if not _is_log(data):
            raise InputError(Problem("is no log of inspect_ai: it has no eval with a task", source.name))
        header = {name: value for name, value in data.items() if name != "samples"}
        _require_version(header, source.name)
        samples = data.get("samples")
        _require_samples(isinstance(samples, list) and bool(samples), header, source.name)
        yield _Log(source.name, header, (each for each in samples if isinstance(each, dict)))
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
        raise InputError(Problem("is no log of inspect_ai: it has no header.json", archive.name))
    try:
        header = json.loads(archive.read(name))
    except (MemberError, ValueError, RecursionError) as error:
        raise InputError(Problem(f"{name} cannot be read: {brief(str(error), 200)}", archive.name)) from None
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise InputError(Problem(f"is no log of inspect_ai: {name} has no eval", archive.name))
    _require_version(header, archive.name)
    return {"status": "started", **header}


def _require_version(header: Mapping[str, Any], file: str) -> None:
    if header.get("version", VERSION) != VERSION:
        message = (
            f"is a log of inspect_ai in version {brief(str(header['version']), 40)}; version {VERSION} can be read"
        )
        raise InputError(Problem(message, file, path="version", advice="convert it: inspect log convert"))


def _require_samples(found: bool, header: Mapping[str, Any], file: str) -> None:
    if not found:
        status = header.get("status")
        message = f"holds no samples, only the header of an evaluation with the status {brief(str(status), 40)!r}"
        raise InputError(
            Problem(message, file, advice="run it with --log-samples, or name the log that has the samples")
        )


def _members(archive: Archive, names: list[str]) -> Iterator[dict[str, Any] | _Damaged]:
    # Ids that are the same text, and a sample written twice, have members of the same name.
    copies = [(name, copy) for name in names for copy in range(archive.copies(name))]
    for name, copy in copies:
        match = _SAMPLE.fullmatch(name)
        assert match is not None
        sample_id, epoch = match["id"], int(match["epoch"])
        try:
            sample = json.loads(archive.read(name, copy))
            # The newer layout of large samples: metadata and messages are members of their own.
            beside = name.removesuffix("sample.json") + "metadata.json"
            if name.endswith("/sample.json") and beside in archive:
                sample["metadata"] = json.loads(archive.read(beside))
            if not isinstance(sample, dict):
                raise ValueError("it is no object")
        except (MemberError, ValueError, RecursionError, TypeError) as error:
            yield _Damaged(sample_id, epoch, f"{name} {brief(str(error), 200)}")
        else:
            sample.pop("events", None)  # most of a log, and not read
            yield sample


class _Reader:
    """Collects the cases of all logs, and a run of each."""

    def __init__(self, name: str, notes: Notes) -> None:
        self._name, self._notes = name, notes
        self._task: str | None = None
        self._cases: list[dict[str, Any]] = []
        self._index: dict[tuple[str, str], int] = {}
        self._by_text: dict[str, int] = {}
        self._names: set[str] = set()
        self._claimed: set[int] = set()
        self._known: set[int] = set()
        self._kept = 0
        self._runs: list[tuple[str, str, ImportedRun]] = []

    def imported(self) -> Imported:
        """Return what was collected. Runs of the same model are told apart by their logs."""
        models = [model for model, _, _ in self._runs]
        runs = []
        for model, log, run in self._runs:
            variant = {"model": model} if models.count(model) == 1 else {"model": model, "log": Path(log).stem}
            runs.append(run if len(self._runs) == 1 else replace(run, variant=variant))
        self._notes.came(
            test_case=len(self._cases),
            output=sum(len(run.outputs) for run in runs),
            scorer=len({name for run in runs for name in run.checks}),
        )
        return Imported(NAME, str(VERSION), self._task or "inspect_ai", self._notes, self._cases, runs=runs)

    def add(self, log: _Log) -> None:
        """Add a log. Raises InputError for one of another task than the logs before, or with other inputs."""
        about = log.header["eval"]
        task = str(about.get("task_display_name") or about.get("task") or "inspect_ai").rpartition("/")[2]
        if self._task not in (None, task):
            message = f"holds logs of several tasks, {self._task} and {task}"
            raise InputError(Problem(message, self._name, advice="import each log by itself"))
        self._task = task
        config = mapping(about.get("config"))
        of_log = _LogReader(log, self._notes, str(about.get("model") or ""))
        indices = self._place_all(_sample_ids(about))
        outputs: dict[tuple[int, int], ImportedOutput] = {}
        for sample in log.samples:
            index, epoch, output = self._sample(sample, of_log)
            indices.append(index)
            if output is None:
                continue
            if (index, epoch) in outputs:
                what = "a sample appears twice in one epoch: the last output counts, and scores that differ are errors"
                self._notes.by_hand(what, path=f"sample {self._cases[index]['id']}, epoch {epoch}", file=log.name)
                output = _merged(outputs[index, epoch], output)
            outputs[index, epoch] = output
            self._keep(log.name, output.value, output.metadata)
        found = list(outputs.values())
        epochs = _whole(config.get("epochs")) or 1
        repeats = max([epochs, *(epoch for _, epoch in outputs)])
        checks = of_log.settle(found)
        missing = len(set(indices)) * repeats - len(found)
        if missing:
            what = f"{plural(missing, 'sample')} of the evaluation are not in the log: they are missing in the run"
            self._notes.by_hand(what, file=log.name)
        stats = mapping(log.header.get("stats"))
        started = moment(stats.get("started_at")) or moment(about.get("created"))
        run = ImportedRun(
            found,
            repeats,
            cases=sorted(set(indices)),
            started_at=started,
            completed_at=moment(stats.get("completed_at")),
            checks=checks,
        )
        self._runs.append((str(about.get("model") or "model"), log.name, run))
        for index in set(indices) - self._known:
            self._cases[index].setdefault("input", None)

    def _keep(self, file: str, *values: Any) -> None:
        """Count values that are kept. Raises InputError once all of them are too large."""
        self._kept += sum(len(json.dumps(value)) for value in values if value)
        if self._kept > _MOST_KEPT:
            message = f"holds more than {_MOST_KEPT:,} bytes of inputs, outputs and metadata"
            raise InputError(Problem(message, file, advice="import a log of fewer samples"))

    def _place_all(self, ids: list[Any]) -> list[int]:
        """Return the cases of the ids that the header lists; only those in two types are told apart by it."""
        types: dict[str, set[str]] = {}
        for each in ids:
            types.setdefault(str(each), set()).add(type(each).__name__)
        return [self._place(each, claims=len(types[str(each)]) > 1) for each in ids]

    def _place(self, sample_id: Any, *, claims: bool = True) -> int:
        """Return the case of an id. The number 1 and the text "1" are two ids, and the later gets a suffix."""
        text, key = str(sample_id), (type(sample_id).__name__, str(sample_id))
        index = self._index.get(key)
        if index is None and text in self._by_text:
            same_text = self._by_text[text]
            if not claims or same_text not in self._claimed:
                index = same_text
        if index is None:
            index = len(self._cases)
            name = next(name for name in _suffixed(text) if name not in self._names)
            if name != text:
                what = f"ids of samples are the same text, {brief(text, 60)!r}: a later one became {brief(name, 60)!r}"
                self._notes.by_hand(what, file=self._name)
            self._cases.append({"id": name})
            self._names.add(name)
            self._by_text.setdefault(text, index)
        if claims:
            self._index[key] = index
            self._claimed.add(index)
        return index

    def _sample(self, sample: dict[str, Any] | _Damaged, log: _LogReader) -> tuple[int, int, ImportedOutput | None]:
        """Return the case, the epoch and the output of a sample; no output if its epoch cannot be one."""
        if isinstance(sample, _Damaged):
            self._notes.by_hand(f"a sample cannot be read, and is an error: {sample.reason}", file=log.name)
            # Its id is known only from a name, as a text.
            index = self._place(sample.id, claims=False)
            if _whole(sample.epoch) is None:
                self._note_epoch(sample.id, sample.epoch, log.name)
                return index, 0, None
            return index, sample.epoch, ImportedOutput(index, None, sample.epoch - 1, error=sample.reason)
        epoch = _whole(sample.get("epoch", 1))
        if sample.get("id") is None:
            raise InputError(Problem(f"has a sample without id, in epoch {brief(str(epoch), 40)}", log.name))
        index = self._place(sample["id"])
        case = {**_case(sample), "id": self._cases[index]["id"]}
        if index not in self._known:
            self._known.add(index)
            self._cases[index] = case
            self._keep(log.name, case)
        elif case["input"] != self._cases[index]["input"]:
            message = f"the sample {case['id']!r} has another input in another epoch or log"
            raise InputError(Problem(message, log.name, advice="import each log by itself"))
        if epoch is None:
            self._note_epoch(sample["id"], sample["epoch"], log.name)
            return index, 0, None
        return index, epoch, log.output(sample, index, epoch - 1)

    def _note_epoch(self, sample_id: Any, epoch: Any, file: str) -> None:
        what = f"a sample has the epoch {brief(repr(epoch), 40)}, and is left out: epochs are 1 to {_MOST_EPOCHS:,}"
        self._notes.by_hand(what, path=f"sample {brief(str(sample_id), 60)}", file=file)


def _suffixed(text: str) -> Iterator[str]:
    yield text
    yield from (f"{text}-{number}" for number in count(2))


def _merged(first: ImportedOutput, second: ImportedOutput) -> ImportedOutput:
    """Return one output of two of the same sample and epoch: an error of either stays, scores that differ are one."""
    error = second.error or first.error
    if error is not None:
        return replace(second, value=None, error=error, scores={})
    scores = dict(second.scores)
    for name in first.scores.keys() | second.scores.keys():
        found = {(each.passed, each.score, each.error) for each in _scores_of(name, first, second)}
        if len(found) > 1:
            scores[name] = Score(error="the sample appears twice in this epoch, with scores that differ")
    return replace(second, scores=scores)


def _scores_of(name: str, *outputs: ImportedOutput) -> Iterator[Score]:
    for output in outputs:
        yield output.scores.get(name, Score(error=_NO_SCORE))


def _sample_ids(about: Mapping[str, Any]) -> list[Any]:
    dataset = about.get("dataset")
    ids = dataset.get("sample_ids") if isinstance(dataset, dict) else None
    return [each for each in ids if isinstance(each, str | int)] if isinstance(ids, list) else []


def _whole(value: Any) -> int | None:
    is_epoch = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_EPOCHS
    return value if is_epoch else None


def _case(sample: dict[str, Any]) -> dict[str, Any]:
    target, metadata = sample.get("target"), sample.get("metadata")
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    about = dict(metadata) if isinstance(metadata, dict) else {}
    if sample.get("choices"):
        about.setdefault("choices", sample["choices"])
    case = {"id": str(sample["id"]), "input": _input(sample.get("input"), sample)}
    if target not in (None, "", []):
        case["expected"] = target
    if about:
        case["metadata"] = about
    plain: dict[str, Any] = plain_json(case)
    return plain


def _input(given: Any, sample: dict[str, Any]) -> Any:
    if not isinstance(given, list):
        return _resolved(given, sample)
    messages = [_message(each, sample) for each in given if isinstance(each, dict)]
    only = messages[0] if len(messages) == 1 else {}
    return only["content"] if only.get("role") == "user" and isinstance(only.get("content"), str) else messages


def _message(message: dict[str, Any], sample: dict[str, Any]) -> dict[str, Any]:
    return {"role": message.get("role"), "content": _content(message.get("content"), sample)}


def _content(content: Any, sample: dict[str, Any]) -> Any:
    """Return a message's content: a text, also where it stands in parts; parts if others are among them."""
    if not isinstance(content, list):
        return _resolved(content, sample)
    parts = [part for part in content if not (isinstance(part, dict) and part.get("type") == "reasoning")]
    if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
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
        """Return the output of a sample. One with an error, or that somebody has declared invalid, is an error."""
        metadata = self._metadata(sample)
        error = _error(sample)
        scores = sample.get("scores")
        if scores is None and isinstance(sample.get("score"), dict):
            scores = {"score": sample["score"]}  # before there could be several scorers
        if error is not None:
            if scores:
                what = (
                    "a sample that ended in an error, or is invalid, has scores: they are left out, as it is an error"
                )
                self._notes.by_hand(what, path=f"sample {sample['id']}, epoch {repeat + 1}", file=self.name)
            return ImportedOutput(index, None, repeat, error, metadata)
        value = plain_json(_answer(sample))
        if is_deep(value) or is_deep(metadata):
            return ImportedOutput(index, None, repeat, "the output is nested deeper than 100 levels")
        output = ImportedOutput(index, value, repeat, None, metadata)
        for name, score in scores.items() if isinstance(scores, dict) else ():
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
            for key, each in value.items():
                yield f"{name}.{key}", self._values.read(f"{name}.{key}", each, reason)
        else:
            yield name, self._values.read(name, value, reason)

    def _metadata(self, sample: dict[str, Any]) -> dict[str, Any]:
        usage = mapping(sample.get("model_usage"))
        models = {name: used for name, used in usage.items() if isinstance(used, dict)}
        only = next(iter(models.values())) if len(models) == 1 else {}
        tokens = {name: used.get("total_tokens") for name, used in models.items()} if len(models) > 1 else None
        limit, retries, messages = (sample.get(name) for name in ("limit", "error_retries", "messages"))
        spent = sample.get("working_time") if sample.get("working_time") is not None else sample.get("total_time")
        output = mapping(sample.get("output"))
        found = known(
            model=self._model or None,
            latency_ms=milliseconds(spent),
            tokens=only.get("total_tokens"),
            usd=only.get("total_cost"),
            model_tokens=tokens,
            limit=limit if isinstance(limit, dict) else None,
            stop_reason=_first_choice(output).get("stop_reason"),
            model_error=output.get("error"),
            attempts=len(retries) + 1 if isinstance(retries, list) and retries else None,
            tool_calls=_tool_calls(messages, sample) if isinstance(messages, list) and messages else None,
        )
        plain: dict[str, Any] = plain_json(found)
        return plain

    def settle(self, outputs: list[ImportedOutput]) -> list[str]:
        """Return the imported scorers. Each has a result for every output that is no error."""
        right_or_wrong, means = set(), []
        for entry, scorer in _aggregates(self._header, self._values.names):
            metrics = mapping(entry.get("metrics"))
            if "accuracy" in metrics:
                right_or_wrong.add(scorer)
            if entry.get("reducer") in (None, "mean"):
                means += [(scorer, metrics[name]) for name in ("accuracy", "mean") if name in metrics]
            else:
                what = (
                    f"epochs were reduced by {brief(str(entry['reducer']), 60)!r}: the run has each epoch as a repeat"
                )
                self._notes.by_hand(what, file=self.name, advice="choose an aggregate for the metric, such as pass@k")
        names = self._values.settle(outputs, _NO_SCORE, right_or_wrong)
        for scorer, metric in means:
            recorded = metric.get("value") if isinstance(metric, dict) else None
            if scorer in names:
                compare_means(self._notes, scorer, outputs, recorded, "the accuracy or mean")
        self._note_status()
        return names

    def _note_status(self) -> None:
        status, error = self._header.get("status"), self._header.get("error")
        if self._header.get("invalidated"):
            what = "the log was declared invalid: samples that are not marked themselves keep their scores"
            self._notes.by_hand(what, file=self.name)
        if status != "success":
            message = error.get("message") if isinstance(error, dict) else None
            why = f": {brief(str(message), 300)}" if message else ""
            self._notes.by_hand(f"the evaluation has the status {brief(str(status), 40)!r}{why}", file=self.name)


def _error(sample: dict[str, Any]) -> str | None:
    error, invalid = sample.get("error"), sample.get("invalidation")
    if error is not None:
        return str(error.get("message") or error) if isinstance(error, dict) else str(error)
    if invalid is None:
        return None
    about = invalid if isinstance(invalid, dict) else {}
    reason = f": {about['reason']}" if about.get("reason") else ""
    return f"the sample was declared invalid{reason}"


def _first_choice(output: Mapping[str, Any]) -> dict[str, Any]:
    choices = output.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _answer(sample: dict[str, Any]) -> Any:
    output = sample.get("output")
    if not isinstance(output, dict):
        return None
    message = _first_choice(output).get("message")
    if isinstance(message, dict) and not output.get("completion"):
        return _content(message.get("content"), sample)
    return _resolved(output.get("completion"), sample)


def _tool_calls(messages: list[Any], sample: dict[str, Any]) -> list[dict[str, Any]]:
    said = [message for message in messages if isinstance(message, dict)]
    answers = {message.get("tool_call_id"): message for message in said if message.get("role") == "tool"}
    calls = []
    for message in said:
        asked = message.get("tool_calls")
        for call in asked if message.get("role") == "assistant" and isinstance(asked, list) else ():
            if isinstance(call, dict) and isinstance(call.get("function"), str):
                answer = answers.get(call.get("id"), {})
                error = answer.get("error")
                calls.append(
                    {
                        "name": call["function"],
                        "arguments": call.get("arguments"),
                        "result": _content(answer.get("content"), sample),
                        "error": error.get("message") if isinstance(error, dict) else None,
                        "ms": None,
                    }
                )
    return calls


def _aggregates(header: Mapping[str, Any], names: list[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the log's own results of each scorer, with the name that the scorer has here."""
    results = header.get("results")
    entries = results.get("scores") if isinstance(results, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            scorer = f"{entry.get('scorer')}.{entry.get('name')}"
            if scorer in names:
                yield entry, scorer
            elif entry.get("name") in names:
                yield entry, str(entry["name"])
