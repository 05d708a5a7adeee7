"""Evaluation reports as files hold them (EvalGuard 4.4), and the values in them that can be used.

Values are taken as they are, as in the other definitions. Upstream's own tools write tasks and results by name, too
(`{task: {metric: {value: …}}}`); `flattened` brings those into the form of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from fepflow.evalguard.models import Definition, Identifier
from fepflow.json.values import finite
from fepflow.text import brief


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "must be a number")
    if finite(value) is None:
        raise PydanticCustomError("finite_number", "must be a finite number")
    return value


def _not_negative(value: Any) -> Any:
    if _finite(value) < 0:
        raise PydanticCustomError("negative", "must not be negative")
    return value


Numeric = Annotated[int | float, PlainValidator(_finite)]
"""A number that stays whole where it is, so that a report is written as it was read."""


class MetricResult(Definition):
    """A metric's value and its standard error, None where it is not known (4.4.6)."""

    value: Numeric
    stderr: Annotated[int | float, PlainValidator(_not_negative)] | None = None


class Execution(Definition):
    """The arguments that the model was instantiated with (4.4.4)."""

    model_args_plain: str | None = None
    model_args_dict: dict[str, str] | None = None


class Context(Definition):
    """The model and tools of an evaluation, and its `date` in seconds since the epoch (4.4.3)."""

    model_name: str | None = None
    model_source: str | None = None
    git_hash: str | None = None
    date: Numeric | None = None
    execution: Execution | None = None
    tools: dict[str, Any] | None = None


class ReportTask(Definition):
    """A task as it was evaluated (4.4.5)."""

    task_ref: str | None = None
    dataset_path: str | None = None
    dataset_name: str | None = None
    output_type: str | None = None
    repeats: Numeric | None = None
    should_decontaminate: bool | None = None
    unsafe_code: bool | None = None
    n_shot: Numeric | None = None
    n_samples: dict[str, Numeric] | None = None
    version: Numeric | None = None
    metadata: dict[str, Any] | None = None


class Report(Definition):
    """Results of the evaluation of a model (4.4.2); which task a result belongs to, `pairs` says."""

    id: str | None = None
    metadata: dict[str, Any] | None = None
    context: Context | None = None
    tasks: list[ReportTask] | None = None
    results: list[dict[Identifier, MetricResult]] | None = None

    def pairs(self) -> Iterator[tuple[ReportTask, dict[str, MetricResult]]]:
        """Yield each task with its results: those at its index, or all of them if it is the only task.

        Raises ValueError, with a sentence, if it cannot be told to which task a result belongs.
        """
        tasks, results = self.tasks or [], self.results or []
        if len(tasks) == 1 and len(results) != 1:
            yield from ((tasks[0], result) for result in results)
        elif len(tasks) == len(results):
            yield from zip(tasks, results, strict=True)
        elif results:
            raise ValueError(f"it is unclear to which of {len(tasks)} tasks the {len(results)} results belong")

    def to_json(self) -> dict[str, Any]:
        """Return the report as a document holds it, without unknown fields."""
        return self.model_dump(mode="json", exclude_none=True)


def metrics_of(document: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None, Mapping[str, Any]]]:
    """Yield the tasks' references and metrics of a report's document, with value and standard error.

    A task without values is there once, with None as its metric; None is the task of what belongs to none.
    """
    tasks, results = document.get("tasks") or [], document.get("results") or []
    refs: list[str | None] = [task.get("task_ref") for task in tasks]
    if len(refs) == 1:
        refs *= max(len(results), 1)
    elif len(refs) != len(results):
        results = [*({} for _ in refs), *results]
    for ref, metrics in zip_longest(refs, results, fillvalue=None):
        yield from ((ref, name, fields) for name, fields in (metrics or {}).items())
        if not metrics:
            yield ref, None, {}


def flattened(data: Any) -> Any:
    """Return a report whose tasks or results are mappings by name in the form of the specification; anything else as it
    is."""
    if not isinstance(data, Mapping):
        return data
    tasks = _flat_tasks(data.get("tasks"))
    by_name = _results_by_name(data.get("results"))
    if by_name is None:
        return {**data, "tasks": tasks} if tasks is not data.get("tasks") else data
    if tasks is None:
        tasks = []
    if not isinstance(tasks, list):
        return data
    known = [_ref(task) for task in tasks]
    tasks = [*tasks, *({"task_ref": name} for name in by_name if name not in known)]
    refs = [*known, *(name for name in by_name if name not in known)]
    return {**data, "tasks": tasks, "results": [by_name.get(ref, {}) if ref is not None else {} for ref in refs]}


def _ref(task: Any) -> str | None:
    ref = task.get("task_ref") if isinstance(task, Mapping) else None
    return ref if isinstance(ref, str) else None


def _flat_tasks(tasks: Any) -> Any:
    if isinstance(tasks, Mapping):
        tasks = [{name: task} for name, task in tasks.items()]
    elif not isinstance(tasks, list) or not any(map(_is_named_task, tasks)):
        return tasks
    return [flat for task in tasks for flat in (_with_refs(task) if _is_named_task(task) else [task])]


def _with_refs(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"task_ref": name, **fields} for name, fields in task.items()]


def _is_named_task(task: Any) -> bool:
    return (
        isinstance(task, Mapping)
        and bool(task)
        and all(isinstance(fields, Mapping) for fields in task.values())
        and set(task).isdisjoint(ReportTask.model_fields)
    )


def _results_by_name(results: Any) -> dict[str, Any] | None:
    """Return the metrics by task; None if results are not by name."""
    items = [results] if isinstance(results, Mapping) else results
    if not isinstance(items, list) or not items or not all(map(_is_named_result, items)):
        return None
    by_name: dict[str, Any] = {}
    for item in items:
        for name, metrics in item.items():
            by_name[name] = {**by_name.get(name, {}), **metrics}
    return by_name


def _is_named_result(result: Any) -> bool:
    """Return whether a result has metrics by task: a mapping of mappings, none of which is a value itself."""
    return (
        isinstance(result, Mapping)
        and bool(result)
        and all(isinstance(metrics, Mapping) and "value" not in metrics for metrics in result.values())
        and all(isinstance(fields, Mapping) for metrics in result.values() for fields in metrics.values())
        and any(metrics for metrics in result.values())
    )


NO_VALUE = "no_value."
"""Prefix of the entries of `metadata` that say why a metric has no value."""

MISSING = "missing."
"""Prefix of the entries of `metadata` that say how many results of a metric are missing, as in `3 of 120`."""

RANGE = "range."
"""Prefix of the entries of `metadata` that say between which values a metric's single values lie, as in `0 to 5`."""

EVALUATOR = "fepflow"
"""The `evaluator` in the `metadata` of a report that was made of a run of ours."""

NOT_AVAILABLE = "N/A"
"""Word of lm-evaluation-harness where there is no standard error."""


def why_no_number(value: Any) -> str | None:
    """Say why a value is not a finite number; return None if it is one."""
    if value is None:
        return "there is none"
    is_number = not isinstance(value, bool) and finite(value) is not None
    return None if is_number else f"{brief(repr(value), 40)} is not a finite number"


def usable_results(raw: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the metrics that have a value, why the others have none, and warnings."""
    results: dict[str, Any] = {}
    no_value: dict[str, str] = {}
    warnings = []
    for metric, fields in raw.items():
        if problem := why_no_number(fields.get("value")):
            no_value[f"{NO_VALUE}{metric}"] = problem
            warnings.append(f"{metric} has no value: {problem}")
            continue
        results[metric] = {name: value for name, value in fields.items() if name != "stderr"}
        stderr = fields.get("stderr")
        if stderr is None or stderr == NOT_AVAILABLE:
            continue
        problem = why_no_number(stderr) or ("it is negative" if stderr < 0 else None)
        if problem:
            warnings.append(f"the standard error of {metric} is not used: {problem}")
        else:
            results[metric]["stderr"] = stderr
    return results, no_value, warnings
