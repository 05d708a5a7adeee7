"""lm-evaluation-harness: samples by case (`samples_TASK_DATE.jsonl`), with the results beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

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
    missing_cases,
    moment,
)
from fepflow.imports.source import Source
from fepflow.json.values import with_named_floats
from fepflow.text import plural

_SAMPLES = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT.+))?")
_FIELDS = frozenset(
    {
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "task_name", "prompt_0"),
    }
)
"""The fields of a sample that are not metrics, for older files without the list `metrics`."""

RIGHT_OR_WRONG = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")
"""Metrics that are 1 if a case is right and 0 if it is wrong."""


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
        raise InputError(Problem("holds results of whole tasks, but no cases", source.name, advice=advice))
    return _Reader(source).read()


def _only_samples(folder: Source) -> Source:
    paths = sorted(folder.path.glob("samples_*.jsonl"))
    if len(paths) != 1:
        message = f"holds samples of {plural(len(paths), 'task')}, but a suite has one task"
        raise InputError(Problem(message, folder.name, advice=f"import one of them, such as {paths[0].name}"))
    return Source(paths[0], f"{folder.name}/{paths[0].name}")


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes = Notes(source.name)
        match = _SAMPLES.fullmatch(source.path.name.removesuffix(".gz").rpartition(".")[0])
        self._task = match["task"] if match else source.path.stem
        self._results = self._results_beside(match["date"] if match else None)
        self._values = ScorerValues(self._notes)
        self._cases = CaseList()
        self._outputs: dict[int, ImportedOutput] = {}
        self._seen: set[tuple[int, str]] = set()
        """Cases with the filters that they appeared with."""

    def _results_beside(self, date: str | None) -> dict[str, Any]:
        """Return the results of the same evaluation, from the file beside the samples; an empty dict without it."""
        path = self._source.beside(f"results_{date}.json" if date else "results.json")
        if path is None:
            what = "results_….json is missing: model, higher_is_better and the task's means are not known"
            self._notes.by_hand(what, advice="put it beside the samples")
            return {}
        data = mapping(Source(path, path.name).data)
        if not _is_results(data) or self._task not in mapping(data.get("configs")):
            self._notes.by_hand(f"{path.name} has no results of {self._task}: it is not read")
            return {}
        return data

    def read(self) -> Imported:
        """Return the samples as a suite with a run."""
        for line, record in self._source.records():
            if _is_sample(record):
                self._add(line, record)
            else:
                self._notes.by_hand("a record is not a sample, and is left out", line)
        outputs = list(self._outputs.values())
        if len({filtered for _, filtered in self._seen}) == 1:  # then metrics are called by their own name
            for output in outputs:
                scores = {name.rpartition(",")[0]: score for name, score in output.scores.items()}
                output.scores.clear()
                output.scores.update(scores)
            self._values.rename(lambda name: name.rpartition(",")[0])
        checks = self._settle(outputs)
        dataset = mapping(mapping(self._results.get("configs")).get(self._task)).get("dataset_path")
        self._notes.came(test_case=len(self._cases), output=len(outputs), metric=len(checks))
        run = ImportedRun(outputs, checks=checks, times=[moment(self._results.get("date"))])
        version = self._results.get("lm_eval_version")
        description = f"Task {self._task} of lm-evaluation-harness, data {dataset}."
        suite = {"description": description} if isinstance(dataset, str) else {}
        return Imported(
            "lm-eval", str(version) if version else None, self._task, self._notes, self._cases, suite, [run]
        )

    def _add(self, line: int, record: dict[str, Any]) -> None:
        case_id, filtered = str(record["doc_id"]), str(record.get("filter", "none"))
        case = _case(case_id, record)
        index = self._cases.place(case_id, case)
        if case["input"] != self._cases[index]["input"]:
            raise InputError(Problem(f"the doc_id {case_id} appears twice with other prompts", self._source.name, line))
        if (index, filtered) in self._seen:
            self._notes.by_hand("a doc_id appears twice with the same filter: the last one counts", line)
        self._seen.add((index, filtered))
        output = self._outputs.get(index)
        if output is None:
            metadata = known(model=self._results.get("model_name") or None)
            output = self._outputs[index] = ImportedOutput(index, _answer(record), metadata=metadata)
        if filtered != "none":
            output.metadata.setdefault("filtered", {})[filtered] = with_named_floats(record.get("filtered_resps"))
        names = record.get("metrics")
        for metric in names if isinstance(names, list) else [name for name in record if name not in _FIELDS]:
            name = f"{metric},{filtered}"
            score = Score(error="the sample has no value of this metric")
            output.scores[name] = self._values.read(name, record[metric]) if metric in record else score

    def _settle(self, outputs: list[ImportedOutput]) -> list[str]:
        higher, means, counts = (
            mapping(mapping(self._results.get(section)).get(self._task))
            for section in ("higher_is_better", "results", "n-samples")
        )
        names = self._values.names
        metric_of = {name: name.partition(",")[0] for name in names}
        lower = [name for name in names if higher.get(metric_of[name]) is False]
        yes_or_no = [name for name in names if metric_of[name] in RIGHT_OR_WRONG and name not in lower]
        checks = self._values.settle(outputs, "the samples have no value of this metric for the case", yes_or_no)
        for name in checks:
            filtered = name.partition(",")[2] or next(filtered for _, filtered in self._seen)
            if name in lower:
                advice = "give it a maximum in the gate, not a minimum"
                self._notes.by_hand(f"of {name!r} lower values are better", advice=advice)
            compare_means(self._notes, name, outputs, means.get(f"{metric_of[name]},{filtered}"), "the value")
        expected = counts.get("effective")
        if isinstance(expected, int) and expected > len(self._cases):
            message = f"the file has {len(self._cases):,} of {plural(expected, 'sample')}: the others are missing"
            self._notes.by_hand(f"{message} in the run")
            self._cases += missing_cases(expected - len(self._cases))
        return checks


def _case(case_id: str, record: dict[str, Any]) -> dict[str, Any]:
    prompt = next(_requests(record), [record["doc"]])[0]
    expected = record.get("target")
    case = {"id": case_id, "input": prompt, **({} if expected in (None, "") else {"expected": expected})}
    plain: dict[str, Any] = with_named_floats({**case, "metadata": {"doc": record["doc"]}})
    return plain


def _requests(record: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the arguments of each request of a sample: the prompt, then a continuation or options."""
    arguments = record.get("arguments")
    if isinstance(arguments, dict):  # {"gen_args_0": {"arg_0": …}}; before, a list of lists
        arguments = [list(mapping(request).values()) for request in arguments.values()]
    yield from (request for request in listed(arguments) if isinstance(request, list) and request)


def _answer(record: dict[str, Any]) -> Any:
    """Return the model's answer before filters: the text, all texts of repeats, or the likelihood of each choice."""
    responses = record["resps"]
    if not isinstance(responses, list):
        return with_named_floats(responses)
    texts = [text for response in responses for text in (response if isinstance(response, list) else [response])]
    if texts and all(isinstance(text, str) for text in texts) and len(responses) == 1:
        return texts[0] if len(texts) == 1 else texts
    requests = list(_requests(record))
    if len(requests) == len(texts) and all(isinstance(pair, list) and len(pair) == 2 for pair in texts):
        return [
            {
                "choice": request[1] if len(request) > 1 else None,
                "loglikelihood": with_named_floats(value),
                "greedy": greedy,
            }
            for request, (value, greedy) in zip(requests, texts, strict=True)
        ]
    return with_named_floats(responses)
