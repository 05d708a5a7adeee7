"""Reading reports: EvalGuard's own, in either layout, and result files of lm-evaluation-harness.

A metric without a usable value does not make a report unreadable: it is left without one, and said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.documents.files import read_text
from fepflow.documents.loader import Document, parse_document
from fepflow.errors import InputError, Problem, dotted
from fepflow.evalguard.documents import is_bare_report, is_lm_eval, kind_of, validated
from fepflow.evalguard.models import Report, ReportTask, flattened, usable_results, why_no_number
from fepflow.security.redaction import MASK, is_secret_name, redact, secrets_in_address

MAX_BYTES = 50_000_000


@dataclass(frozen=True)
class ReadReport:
    """A report, the SHA-256 of the file that it comes from, and what could not be taken as it stands there."""

    report: Report
    content_hash: str
    warnings: list[str]


def report_document(path: Path) -> Document | None:
    """Return the document in a file of up to 50 MB (.json, .yaml or .yml); None if it is not a report.

    Raises InputError if it cannot be read.
    """
    document = parse_document(read_text(path, str(path), MAX_BYTES), str(path), nan=True)
    is_report = isinstance(document.data, Mapping) and bool({"results", "context"} & set(document.data))
    is_report = is_report or (kind_of(document.data, path) == "report" and is_bare_report(document.data))
    return document if is_report else None


def read_report(path: Path, document: Document | None = None) -> ReadReport:
    """Read a file, or the `document` in it. Raises InputError with every reason why it is not a report."""
    document = document or report_document(path)
    if document is None:
        advice = "a report has context, tasks and results"
        raise InputError(
            Problem("is not a report, neither of EvalGuard nor of lm-evaluation-harness", str(path), 1, None, advice)
        )
    if is_lm_eval(document.data):
        data, warnings = convert(document.data)
    else:
        data, warnings = _with_usable_values(flattened(document.data))
    report, errors = validated(Report, data)
    if report is None or errors:
        raise InputError([document.problem(error.path, error.message, error.advice) for error in errors])
    try:
        list(report.pairs())
    except ValueError as error:
        raise InputError(document.problem(("results",), str(error))) from None
    return ReadReport(report, hashlib.sha256(document.text.encode()).hexdigest(), warnings)


def _with_usable_values(data: Any) -> tuple[Any, list[str]]:
    """Return a report's document; metrics without a usable value are noted with their tasks."""
    tasks, results = data.get("tasks"), data.get("results")
    if not isinstance(results, list) or not all(_is_result(result) for result in results):
        return data, []
    tasks = [dict(task) if isinstance(task, Mapping) else task for task in tasks] if isinstance(tasks, list) else []
    taken, warnings = [], []
    for index, result in enumerate(results):
        usable, no_value, result_warnings = usable_results(result)
        owner = 0 if len(tasks) == 1 else index
        name = dotted(("results", index))
        warnings += [f"{name}: {warning}" for warning in result_warnings]
        taken.append(usable)
        if no_value and owner < len(tasks) and isinstance(tasks[owner], dict):
            metadata = tasks[owner].get("metadata")
            tasks[owner]["metadata"] = {**(metadata if isinstance(metadata, Mapping) else {}), **no_value}
    return {**data, "results": taken, **({"tasks": tasks} if tasks else {})}, warnings


def _is_result(result: Any) -> bool:
    return isinstance(result, Mapping) and all(isinstance(fields, Mapping) for fields in result.values())


FILTER = "filter"
"""The entry of a task's `metadata` that names the filter of its results."""

ORIGINAL_NAME = "name."
"""Prefix of the entries of `metadata` that have the harness's name of a metric that is not an identifier."""

_STDERR = "_stderr"
_CONFIGURED = ("dataset_path", "dataset_name", "output_type", "repeats", "should_decontaminate", "unsafe_code")
_SETTINGS = ("limit", "batch_size", "num_fewshot", "random_seed", "numpy_seed", "torch_seed", "fewshot_seed")


@dataclass
class _Conversion:
    """The report's lists as they are filled, and what could not be taken as it is."""

    data: Mapping[str, Any]
    tasks: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, raw: Any) -> None:
        """Take the results of a task in."""
        by_filter = _by_filter(raw) if isinstance(raw, Mapping) else {}
        if not by_filter:
            self.warnings.append(f"{name}: there is no metric in its results")
        for filter_name, metrics in by_filter.items() or [(None, {})]:
            identified, names = _identified(metrics)
            results, no_value, warnings = usable_results(identified)
            warnings += [
                f"{original} is not an identifier, and is called {metric}" for metric, original in names.items()
            ]
            self.warnings += [f"{name}: {warning}" for warning in warnings]
            metadata = {**({} if filter_name is None else {FILTER: filter_name}), **no_value}
            metadata |= {f"{ORIGINAL_NAME}{metric}": original for metric, original in names.items()}
            self.tasks.append(self._task(name, metadata))
            self.results.append(results)

    def _task(self, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
        config = _mapping(_mapping(self.data.get("configs")).get(name))
        version = _mapping(self.data.get("versions")).get(name)
        task = {
            "task_ref": name,
            **{name_of_field: config.get(name_of_field) for name_of_field in _CONFIGURED},
            "n_shot": _mapping(self.data.get("n-shot")).get(name, config.get("num_fewshot")),
            "n_samples": _mapping(self.data.get("n-samples")).get(name),
            "version": version,
        }
        _, errors = validated(ReportTask, task)
        unusable = {error.path[0] for error in errors}
        if version is not None and "version" in unusable:
            metadata = {**metadata, "version": str(version)}
        task = {name_of_field: value for name_of_field, value in task.items() if name_of_field not in unusable}
        return {**task, "metadata": metadata} if metadata else task


def convert(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert a result file to the document of a report; return it with warnings about what could not be taken as it
    is."""
    conversion = _Conversion(data)
    for name, raw in data["results"].items():
        conversion.add(str(name), raw)
    metadata = {"evaluator": "lm-evaluation-harness"}
    config = _mapping(data.get("config"))
    metadata |= {name: str(config[name]) for name in _SETTINGS if config.get(name) is not None}
    if data.get("total_evaluation_time_seconds") is not None:
        metadata["total_evaluation_time_seconds"] = str(data["total_evaluation_time_seconds"])
    report = {
        "metadata": metadata,
        "context": _context(data, config),
        "tasks": conversion.tasks,
        "results": conversion.results,
    }
    return report, conversion.warnings


def _by_filter(raw: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return `{filter: {metric: {value, stderr}}}`, in the file's order."""
    by_filter: dict[str, dict[str, dict[str, Any]]] = {}
    for key, value in raw.items():
        metric, comma, filter_name = key.rpartition(",")
        if not comma:
            continue
        base = metric.removesuffix(_STDERR)
        is_error = base != metric and f"{base},{filter_name}" in raw
        fields = by_filter.setdefault(filter_name, {}).setdefault(base if is_error else metric, {})
        fields["stderr" if is_error else "value"] = value
    return by_filter


def _identified(metrics: Mapping[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the metrics by names that are identifiers, and the original names of the renamed ones."""
    identified: dict[str, dict[str, Any]] = {}
    names = {}
    for metric, fields in metrics.items():
        name = stem = re.sub(r"[^A-Za-z0-9_-]", "_", metric) or "_"
        number = 2
        while name in identified or (name != metric and name in metrics):
            name, number = f"{stem}_{number}", number + 1
        identified[name] = fields
        if name != metric:
            names[name] = metric
    return identified, names


def _context(data: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    tools = {
        "lm_eval": {"version": data.get("lm_eval_version"), "git_hash": data.get("git_hash")},
        "transformers": {"version": data.get("transformers_version")},
    }
    context = {
        "model_name": data.get("model_name"),
        "model_source": data.get("model_source") or config.get("model"),
        "git_hash": config.get("model_sha"),
    }
    context = {name: value for name, value in context.items() if isinstance(value, str) and value}
    if why_no_number(data.get("date")) is None:
        context["date"] = data["date"]
    if execution := _execution(config.get("model_args")):
        context["execution"] = execution
    if known := {name: versions for name, tool in tools.items() if (versions := _texts(tool))}:
        context["tools"] = known
    return context


def _execution(arguments: Any) -> dict[str, Any]:
    """Return the model's arguments, without the values of those that are named like secrets."""
    if isinstance(arguments, str) and arguments:
        return {"model_args_plain": ",".join(_masked_arguments(arguments))}
    if isinstance(arguments, Mapping):
        return {"model_args_dict": {str(name): _masked(str(name), str(value)) for name, value in arguments.items()}}
    return {}


def _masked_arguments(arguments: str) -> Iterator[str]:
    for argument in arguments.split(","):
        name, equals, value = argument.partition("=")
        yield f"{name}{equals}{_masked(name, value)}"


def _masked(name: str, value: str) -> str:
    # A tokenizer is no token, and neither is `add_bos_token=True`.
    if is_secret_name(name) and "tokeniz" not in name.lower() and value.lower() not in ("true", "false", "none", ""):
        return MASK
    return redact(value, secrets_in_address(value)) if "://" in value else value


def _texts(tool: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in tool.items() if isinstance(value, str)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
