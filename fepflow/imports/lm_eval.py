"""lm-evaluation-harness: samples by case (`samples_TASK_DATE.jsonl`), with the results beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import Imported, ImportedOutput, ImportedRun, Notes, Score, known, moment
from fepflow.imports.source import Source
from fepflow.imports.values import ScorerValues, compare_means, missing_cases, plain_json
from fepflow.text import plural

NAME = "lm-eval"

_SAMPLES = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT.+))?")
_FIELDS = frozenset(
    {
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "task_name", "prompt_0"),
    }
)
"""The fields of a sample that are no metrics, for files of before `metrics` listed those."""
RIGHT_OR_WRONG = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")
"""Metrics that say right (1) or wrong (0) of a case."""


def looks_like(source: Source) -> bool:
    """Return whether the source is a file of samples, of results, or a folder with samples."""
    if source.is_folder:
        return any(True for _ in source.path.glob("samples_*.jsonl"))
    return _is_sample(source.first_record) or _is_results(source.data)


def _is_sample(record: Any) -> bool:
    return isinstance(record, dict) and {"doc_id", "doc", "resps"} <= record.keys()


def _is_results(data: Any) -> bool:
    """Return whether this is a file of results: with configurations, or, as before 0.4, with versions only."""
    if not isinstance(data, dict) or not isinstance(data.get("results"), dict):
        return False
    return {"configs", "n-shot"} <= data.keys() or isinstance(data.get("versions"), dict)


def read(source: Source) -> Imported:
    """Read samples as cases with their outputs; each metric is a check, or each metric of each filter."""
    if source.is_folder:
        source = _only_samples(source)
    elif _is_results(source.data):
        advice = (
            "import samples_TASK_….jsonl, which lm_eval writes with --log_samples; `fepflow evalguard` reads results"
        )
        raise InputError(Problem("holds results of whole tasks, and no case", source.name, advice=advice))
    match = _SAMPLES.fullmatch(source.path.name.removesuffix(".gz").rpartition(".")[0])
    notes = Notes(source.name)
    task = match["task"] if match else source.path.stem
    results = _results(source, match["date"] if match else None, task, notes)
    return _Reader(source, task, results, notes).read()


def _only_samples(folder: Source) -> Source:
    paths = sorted(folder.path.glob("samples_*.jsonl"))
    if len(paths) != 1:
        message = f"holds samples of {plural(len(paths), 'task')}, and a suite is of one"
        raise InputError(Problem(message, folder.name, advice=f"import one of them, such as {paths[0].name}"))
    return Source(paths[0], f"{folder.name}/{paths[0].name}")


def _results(source: Source, date: str | None, task: str, notes: Notes) -> dict[str, Any]:
    """Return the results of the same evaluation, from the file beside the samples; without it nothing of them."""
    path = source.beside(f"results_{date}.json" if date else "results.json")
    if path is None:
        advice = "put it beside the samples"
        what = "results_….json is not there: model, higher_is_better and the task's means are not known"
        notes.by_hand(what, advice=advice)
        return {}
    data = Source(path, path.name).data
    if not _is_results(data) or task not in (data.get("configs") or {}):
        notes.by_hand(f"{path.name} has no results of {task}: it is not read")
        return {}
    found: dict[str, Any] = data
    return found


class _Reader:
    def __init__(self, source: Source, task: str, results: dict[str, Any], notes: Notes) -> None:
        self._source, self._task, self._results, self._notes = source, task, results, notes
        self._values = ScorerValues(notes)
        self._cases: list[dict[str, Any]] = []
        self._index: dict[str, int] = {}
        self._outputs: dict[int, ImportedOutput] = {}
        self._filters: set[str] = set()
        self._seen: set[tuple[int, str]] = set()

    def read(self) -> Imported:
        for line, record in self._source.json_lines():
            if not _is_sample(record):
                self._notes.by_hand("a record is no sample, and is left out", line)
                continue
            self._add(line, record)
        outputs = list(self._outputs.values())
        if len(self._filters) == 1:  # then metrics are called by their own name
            self._rename(outputs)
        checks = self._settle(outputs)
        started = moment(self._results.get("date"))
        config = self._results.get("configs", {}).get(self._task, {})
        dataset = config.get("dataset_path") if isinstance(config, dict) else None
        about = known(dataset=dataset) if isinstance(dataset, str) else {}
        self._notes.came(test_case=len(self._cases), output=len(outputs), metric=len(checks))
        run = ImportedRun(outputs, started_at=started, completed_at=started, checks=checks)
        version = self._results.get("lm_eval_version")
        suite = {"description": f"Task {self._task} of lm-evaluation-harness, data {dataset}."} if about else {}
        return Imported(NAME, str(version) if version else None, self._task, self._notes, self._cases, suite, [run])

    def _add(self, line: int, record: dict[str, Any]) -> None:
        case_id, filtered = str(record["doc_id"]), str(record.get("filter", "none"))
        case = _case(case_id, record)
        if case_id not in self._index:
            self._index[case_id] = len(self._cases)
            self._cases.append(case)
        index = self._index[case_id]
        if case["input"] != self._cases[index]["input"]:
            raise InputError(Problem(f"the doc_id {case_id} appears twice with other prompts", self._source.name, line))
        if (index, filtered) in self._seen:
            what = "a doc_id appears twice with the same filter: the last one counts"
            self._notes.by_hand(what, line)
        self._seen.add((index, filtered))
        self._filters.add(filtered)
        output = self._outputs.get(index)
        if output is None:
            metadata = known(model=self._results.get("model_name") or None)
            output = self._outputs[index] = ImportedOutput(index, _answer(record), metadata=metadata)
        if filtered != "none":
            output.metadata.setdefault("filtered", {})[filtered] = plain_json(record.get("filtered_resps"))
        names = record.get("metrics")
        metrics = names if isinstance(names, list) else [name for name in record if name not in _FIELDS]
        for name in metrics:
            output.scores[f"{name},{filtered}"] = self._score(f"{name},{filtered}", record, str(name))

    def _score(self, name: str, record: dict[str, Any], metric: str) -> Score:
        if metric not in record:
            return Score(error="the sample has no value of this metric")
        return self._values.read(name, record[metric])

    def _rename(self, outputs: list[ImportedOutput]) -> None:
        for output in outputs:
            for name in list(output.scores):
                output.scores[name.rpartition(",")[0]] = output.scores.pop(name)
        self._values.rename(lambda name: name.rpartition(",")[0])

    def _settle(self, outputs: list[ImportedOutput]) -> list[str]:
        higher = _of_task(self._results, "higher_is_better", self._task)
        means = _of_task(self._results, "results", self._task)
        names = self._values.names
        metric_of = {name: name.partition(",")[0] for name in names}
        lower = [name for name in names if higher.get(metric_of[name]) is False]
        yes_or_no = [name for name in names if metric_of[name] in RIGHT_OR_WRONG and name not in lower]
        checks = self._values.settle(outputs, "the samples have no value of this metric for the case", yes_or_no)
        for name in checks:
            filtered = name.partition(",")[2] or next(iter(self._filters))
            if name in lower:
                self._notes.by_hand(
                    f"of {name!r} lower values are better", advice="give it a maximum in the gate, no minimum"
                )
            compare_means(self._notes, name, outputs, means.get(f"{metric_of[name]},{filtered}"), "the value")
        counts = _of_task(self._results, "n-samples", self._task)
        expected = counts.get("effective")
        if isinstance(expected, int) and expected > len(self._cases):
            what = (
                f"of {plural(expected, 'sample')} the file has {len(self._cases):,}: the others are missing in the run"
            )
            self._notes.by_hand(what)
            self._cases += missing_cases(expected - len(self._cases))
        return checks


def _of_task(results: dict[str, Any], section: str, task: str) -> dict[str, Any]:
    by_task = results.get(section)
    found = by_task.get(task) if isinstance(by_task, dict) else None
    return found if isinstance(found, dict) else {}


def _case(case_id: str, record: dict[str, Any]) -> dict[str, Any]:
    prompts = list(_requests(record))
    case = {"id": case_id, "input": prompts[0][0] if prompts else record["doc"]}
    if record.get("target") not in (None, ""):
        case["expected"] = record["target"]
    case["metadata"] = {"doc": record["doc"]}
    plain: dict[str, Any] = plain_json(case)
    return plain


def _requests(record: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the arguments of each request of a sample: the prompt, then a continuation or options."""
    arguments = record.get("arguments")
    if isinstance(arguments, dict):  # {"gen_args_0": {"arg_0": …}}; before, a list of lists
        for request in arguments.values():
            if isinstance(request, dict) and request:
                yield list(request.values())
    elif isinstance(arguments, list):
        for request in arguments:
            if isinstance(request, list) and request:
                yield request


def _answer(record: dict[str, Any]) -> Any:
    """Return what the model said, before filters: the text, all texts of repeats, or the likelihood of each choice."""
    responses = record["resps"]
    if not isinstance(responses, list):
        return plain_json(responses)
    texts = [text for each in responses for text in (each if isinstance(each, list) else [each])]
    if texts and all(isinstance(text, str) for text in texts) and len(responses) == 1:
        return texts[0] if len(texts) == 1 else texts
    requests = list(_requests(record))
    if len(requests) == len(texts) and all(isinstance(each, list) and len(each) == 2 for each in texts):
        pairs = zip(requests, texts, strict=True)
        return [
            {
                "choice": request[1] if len(request) > 1 else None,
                "loglikelihood": plain_json(each[0]),
                "greedy": each[1],
            }
            for request, each in pairs
        ]
    return plain_json(responses)
