"""pydantic-evals: datasets as YAML and JSON, and evaluation reports as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.imports.imported import (
    OUTPUT,
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    add_models,
    finite_number,
    fit_ids,
    known,
    listed,
    literal,
    mapping,
    milliseconds,
    rubric,
    text_or_none,
    unique_names,
)
from fepflow.imports.source import Source
from fepflow.text import brief

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "EqualsExpected": ("evaluation_name",),
    "Equals": ("value", "evaluation_name"),
    "Contains": ("value", "case_sensitive", "as_strings", "evaluation_name"),
    "MaxDuration": ("seconds",),
    "LLMJudge": ("rubric", "model", "include_input", "include_expected_output", "model_settings", "score", "assertion"),
}
"""The parameters of evaluators that have a counterpart, in their order."""

_NO_COUNTERPART = {
    "IsInstance": "checks see the output as JSON and not as a Python object: take schema_validation",
    "HasMatchingSpan": "take tool_usage, or a check over $.output.trace",
}


def looks_like(source: Source) -> bool:
    """Return whether the document is a dataset (cases with `inputs`), or a report (cases with `assertions`)."""
    data = mapping(source.data)
    return _is_report(data) or _is_dataset(data)


def read(source: Source) -> Imported:
    """Read a dataset as a suite, a report as a run."""
    data = mapping(source.data)
    if _is_report(data):
        return _read_report(source, data)
    if _is_dataset(data):
        return _Dataset(source, data).read()
    raise InputError(Problem("holds no dataset and no report of pydantic-evals", source.name))


def _is_dataset(data: Mapping[str, Any]) -> bool:
    cases = [case for case in listed(data.get("cases")) if isinstance(case, dict)]
    return bool(cases) and all("inputs" in case for case in cases[:10])


def _is_report(data: Mapping[str, Any]) -> bool:
    cases, failures = (
        [case for case in listed(data.get(name)) if isinstance(case, dict)] for name in ("cases", "failures")
    )
    if cases:
        return {"inputs", "scores", "assertions"} <= cases[0].keys()
    return bool(failures) and {"inputs", "error_message"} <= failures[0].keys()


class _Dataset:
    """Reads one dataset."""

    def __init__(self, source: Source, data: Mapping[str, Any]) -> None:
        self._source, self._data = source, data
        self._notes = Notes(source.name)
        self._types: set[str] = set()
        self._came = 0

    def read(self) -> Imported:
        """Return the dataset as a suite. Its evaluators become checks of all cases, those of a case its own checks."""
        cases = []
        for index, item in enumerate(self._data["cases"]):
            if isinstance(item, dict) and "inputs" in item:
                cases.append(self._case(item, index))
            else:
                self._by_hand("a case without inputs is left out", ("cases", index))
        shared: list[dict[str, Any]] = []
        for number, spec in enumerate(listed(self._data.get("evaluators"))):
            name, check = self._check(spec, ("evaluators", number))
            if check is None:
                continue
            self._came += 1
            with_expected = [case for case in cases if "expected" in case]
            if name != "EqualsExpected" or len(with_expected) == len(cases):
                shared.append(check)
                continue
            for case in with_expected:  # it does not judge cases without an expected output
                case.setdefault("checks", []).append(check)
        for number, _ in enumerate(listed(self._data.get("report_evaluators"))):
            self._by_hand("evaluators of reports have no counterpart", ("report_evaluators", number))
        suite: dict[str, Any] = {"checks": shared} if shared else {}
        add_models(suite, self._types, self._notes)
        self._notes.came(test_case=len(cases), evaluator=self._came)
        name = text_or_none(self._data.get("name")) or self._source.stem
        return Imported("pydantic-evals", "dataset", name[:150], self._notes, cases, suite)

    def _case(self, item: Mapping[str, Any], index: int) -> dict[str, Any]:
        case = _case_of(item)
        checks = []
        for number, spec in enumerate(listed(item.get("evaluators"))):
            name, check = self._check(spec, ("cases", index, "evaluators", number))
            if check is not None and (name != "EqualsExpected" or "expected" in case):
                self._came += 1
                checks.append(check)
        return {**case, "checks": checks} if checks else case

    def _by_hand(self, what: str, path: DocumentPath, advice: str | None = None) -> None:
        self._notes.by_hand(what, self._source.line_of(path), dotted(path), advice)

    def _check(self, spec: Any, path: DocumentPath) -> tuple[str, dict[str, Any] | None]:
        """Return an evaluator's name and its check; None, with a note, without a counterpart."""
        name, arguments = _spec(spec)
        if name not in _ARGUMENTS:
            advice = _NO_COUNTERPART.get(name, "write a check in Python")
            self._by_hand(f"the evaluator {brief(name, 60)} has no counterpart", path, advice)
            return name, None
        if isinstance(arguments, list):
            arguments = dict(zip(_ARGUMENTS[name], arguments, strict=False))
        unknown = [argument for argument in arguments if argument not in _ARGUMENTS[name]]
        check = None if unknown else _check_of(name, arguments)
        if check is None:
            what = f"its argument {brief(unknown[0], 60)}" if unknown else "these arguments"
            self._by_hand(f"the evaluator {name} has no counterpart for {what}", path, "write the check by hand")
            return name, None
        if isinstance(label := arguments.get("evaluation_name"), str):
            check = {**check, "id": fit_ids([label])[0]}
        self._types.add(check["type"])
        return name, check


def _check_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the check of an evaluator; None if it has no counterpart with these arguments."""
    value, criteria = arguments.get("value"), text_or_none(arguments.get("rubric"))
    seconds = finite_number(arguments.get("seconds"))
    if name == "EqualsExpected":
        return {"type": "equals", "arguments": {"actual": OUTPUT, "expected": "$.test_case.expected"}}
    if name == "Equals" and "value" in arguments:
        return {"type": "equals", "arguments": {"actual": OUTPUT, "expected": literal(value)}}
    if name == "Contains" and isinstance(value, str) and value:
        case = {"case_sensitive": False} if arguments.get("case_sensitive") is False else {}
        return {"type": "contains", "arguments": {"text": OUTPUT, "phrases": literal(value), **case}}
    if name == "MaxDuration" and seconds is not None:
        limits = {"value": "$.output.metadata.latency_ms", "max_value": seconds * 1000}
        return {"type": "threshold", "id": "max_duration", "arguments": limits}
    if name == "LLMJudge" and criteria is not None and arguments.get("assertion") is not False:
        return rubric(criteria)
    return None


def _spec(spec: Any) -> tuple[str, dict[str, Any] | list[Any]]:
    """Return name and arguments of an evaluator.

    Datasets write it as a name, `{name: argument or arguments}`, or `{name:, arguments:}`.
    """
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, dict) and set(spec) == {"name", "arguments"}:
        arguments = spec["arguments"]
        return str(spec["name"]), arguments if isinstance(arguments, dict | list) else {}
    if isinstance(spec, dict) and len(spec) == 1:
        ((name, arguments),) = spec.items()
        return str(name), arguments if isinstance(arguments, dict) else [arguments]
    return "without a name", {}


def _case_of(item: Mapping[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = {"input": item["inputs"]}
    if (name := text_or_none(item.get("source_case_name")) or text_or_none(item.get("name"))) is not None:
        case["id"] = name[:500]
    metadata = item.get("metadata")
    about = metadata if isinstance(metadata, dict) or metadata is None else {"metadata": metadata}
    return {**case, **known(expected=item.get("expected_output"), metadata=about)}


def _read_report(source: Source, data: Mapping[str, Any]) -> Imported:
    notes = Notes(source.name)
    cases, run = CaseList(), ImportedRun()
    for kind in ("cases", "failures"):
        for index, item in enumerate(listed(data.get(kind))):
            if not isinstance(item, dict) or "inputs" not in item:
                notes.by_hand("a case without inputs is left out", path=f"{kind}[{index}]")
                continue
            case = cases.place(text_or_none(item.get("source_case_name")) or f"{kind} {index}", _case_of(item))
            repeat = run.next_repeat(case)
            failure = text_or_none(item.get("error_message")) or "the task failed"
            failed = ImportedOutput(case, None, repeat, failure)
            run.outputs.append(failed if kind == "failures" else _output(case, repeat, item))
    for number, _ in enumerate(listed(data.get("report_evaluator_failures"))):
        notes.by_hand("an evaluator of the report failed", path=f"report_evaluator_failures[{number}]")
    notes.came(test_case=len(cases), output=len(run.outputs), run=1)
    name = text_or_none(data.get("dataset_name")) or text_or_none(data.get("name")) or source.stem
    return Imported("pydantic-evals", "report", name[:150], notes, cases, runs=[run] if run.outputs else [])


def _output(case: int, repeat: int, item: Mapping[str, Any]) -> ImportedOutput:
    results: list[tuple[str, Score]] = []
    for kind in ("assertions", "scores"):
        for name, result in mapping(item.get(kind)).items():
            value, reason = (result.get("value"), result.get("reason")) if isinstance(result, dict) else (result, None)
            error = None if isinstance(value, int | float) else "neither a number nor true or false was recorded"
            results.append((name, Score.of(value, value, reason, error)))
    for failure in map(mapping, listed(item.get("evaluator_failures"))):
        message = text_or_none(failure.get("error_message")) or "the evaluator failed"
        results.append((text_or_none(failure.get("name")) or "evaluator", Score(error=message)))
    names = unique_names([name for name, _ in results])
    labels = {name: mapping(result).get("value") for name, result in mapping(item.get("labels")).items()}
    metadata = known(
        latency_ms=milliseconds(item.get("task_duration")),
        labels=labels or None,
        metrics=item.get("metrics") or None,
        attributes=item.get("attributes") or None,
    )
    scores = {name: score for name, (_, score) in zip(names, results, strict=True)}
    return ImportedOutput(case, item.get("output"), repeat, None, metadata, scores)
