"""pydantic-evals: datasets as YAML and JSON, and evaluation reports as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.imports.imported import (
    CaseList,
    CollectedRun,
    Imported,
    ImportedOutput,
    Notes,
    Score,
    finite_number,
    known,
    text_or_none,
    unique_names,
)
from fepflow.imports.judge_checks import add_models, rubric
from fepflow.imports.prepared import fit_ids
from fepflow.imports.source import Source
from fepflow.json.values import map_leaves
from fepflow.jsonpath.path import is_path
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
    data = source.data
    return isinstance(data, dict) and (_is_report(data) or _is_dataset(data))


def read(source: Source) -> Imported:
    """Read a dataset as a suite, a report as a run."""
    data = source.data
    if not isinstance(data, dict) or not (_is_report(data) or _is_dataset(data)):
        raise InputError(Problem("holds no dataset and no report of pydantic-evals", source.name))
    return _read_report(source, data) if _is_report(data) else _Dataset(source, data).read()


def _cases(data: Mapping[str, Any], name: str = "cases") -> list[dict[str, Any]]:
    cases = data.get(name)
    return [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []


def _is_dataset(data: Mapping[str, Any]) -> bool:
    cases = _cases(data)
    return bool(cases) and all("inputs" in case for case in cases[:10])


def _is_report(data: Mapping[str, Any]) -> bool:
    cases = _cases(data)
    if cases:
        return "inputs" in cases[0] and {"scores", "assertions"} <= cases[0].keys()
    failures = _cases(data, "failures")
    return bool(failures) and {"inputs", "error_message"} <= failures[0].keys()


class _Dataset:
    """Reads one dataset."""

    def __init__(self, source: Source, data: Mapping[str, Any]) -> None:
        self._source = source
        self._data = data
        self._notes = Notes(source.name)
        self._types: set[str] = set()
        self._came = 0

    def read(self) -> Imported:
        """Return the dataset as a suite: its evaluators are checks of all cases, a case's own are its own."""
        cases = []
        raw = self._data["cases"]
        for index, item in enumerate(raw):
            if not isinstance(item, dict) or "inputs" not in item:
                self._by_hand("a case without inputs is left out", ("cases", index))
                continue
            cases.append(self._case(item, index))
        shared: list[dict[str, Any]] = []
        all_expect = all("expected" in case for case in cases)
        for number, spec in enumerate(self._list(self._data, "evaluators")):
            name, check = self._check(spec, ("evaluators", number))
            if check is None:
                continue
            self._came += 1
            if name == "EqualsExpected" and not all_expect:  # it says nothing of cases without an expected output
                for case in cases:
                    if "expected" in case:
                        case.setdefault("checks", []).append(check)
            else:
                shared.append(check)
        for number, _ in enumerate(self._list(self._data, "report_evaluators")):
            self._by_hand("evaluators of reports have no counterpart", ("report_evaluators", number))
        suite: dict[str, Any] = {"checks": shared} if shared else {}
        add_models(suite, self._types, self._notes)
        self._notes.came(test_case=len(cases), evaluator=self._came)
        name = text_or_none(self._data.get("name")) or self._source.stem
        return Imported("pydantic-evals", "dataset", name[:150], self._notes, cases, suite)

    def _case(self, item: Mapping[str, Any], index: int) -> dict[str, Any]:
        case = _case_of(item)
        checks = []
        for number, spec in enumerate(self._list(item, "evaluators")):
            name, check = self._check(spec, ("cases", index, "evaluators", number))
            if check is not None and (name != "EqualsExpected" or "expected" in case):
                self._came += 1
                checks.append(check)
        return {**case, "checks": checks} if checks else case

    @staticmethod
    def _list(item: Mapping[str, Any], name: str) -> list[Any]:
        found = item.get(name)
        return found if isinstance(found, list) else []

    def _by_hand(self, what: str, path: DocumentPath, advice: str | None = None) -> None:
        self._notes.by_hand(what, self._source.line_of(path), dotted(path), advice)

    def _check(self, spec: Any, path: DocumentPath) -> tuple[str, dict[str, Any] | None]:
        """Return an evaluator's name and the check that it is; None, with a note, without a counterpart."""
        name, arguments = _spec(spec)
        if name not in _ARGUMENTS:
            advice = _NO_COUNTERPART.get(name, "write a check in Python")
            self._by_hand(f"the evaluator {brief(name, 60)} has no counterpart", path, advice)
            return name, None
        known = _ARGUMENTS[name]
        if isinstance(arguments, list):
            arguments = dict(zip(known, arguments, strict=False))
        unknown = [argument for argument in arguments if argument not in known]
        check = None if unknown else getattr(self, f"_{name.lower()}")(arguments)
        if check is None:
            what = f"its argument {brief(unknown[0], 60)}" if unknown else "these arguments"
            self._by_hand(f"the evaluator {name} has no counterpart for {what}", path, "write the check by hand")
            return name, None
        if isinstance(label := arguments.get("evaluation_name"), str):
            check = {**check, "id": fit_ids([label])[0]}
        self._types.add(check["type"])
        return name, check

    def _equalsexpected(self, _: Mapping[str, Any]) -> dict[str, Any]:
        arguments = {"actual": "$.output.value", "expected": "$.test_case.expected"}
        return {"type": "equals", "arguments": arguments}

    def _equals(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        if "value" not in arguments:
            return None
        return {"type": "equals", "arguments": {"actual": "$.output.value", "expected": literal(arguments["value"])}}

    def _contains(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        value = arguments.get("value")
        if not isinstance(value, str) or not value:
            return None
        found: dict[str, Any] = {"text": "$.output.value", "phrases": literal(value)}
        if arguments.get("case_sensitive") is False:
            found["case_sensitive"] = False
        return {"type": "contains", "arguments": found}

    def _maxduration(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        seconds = finite_number(arguments.get("seconds"))
        if seconds is None:
            return None
        limits = {"value": "$.output.metadata.latency_ms", "max_value": seconds * 1000}
        return {"type": "threshold", "id": "max_duration", "arguments": limits}

    def _llmjudge(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        criteria = arguments.get("rubric")
        if not isinstance(criteria, str) or not criteria.strip() or arguments.get("assertion") is False:
            return None
        return rubric(criteria)


def literal(value: Any) -> Any:
    """Return a value as an argument of a check: a text that reads like a path is escaped."""
    return map_leaves(value, lambda leaf: f"\\{leaf}" if is_path(str(leaf).removeprefix("\\")) else leaf)


def _spec(spec: Any) -> tuple[str, dict[str, Any] | list[Any]]:
    """Return name and arguments of an evaluator as datasets write it: a name, `{name: argument or arguments}`, or
    `{name:, arguments:}`."""
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, dict) or not spec:
        return "without a name", {}
    if set(spec) == {"name", "arguments"}:
        arguments = spec["arguments"]
        return str(spec["name"]), arguments if isinstance(arguments, dict | list) else {}
    if len(spec) != 1:
        return "without a name", {}
    name, given = next(iter(spec.items()))
    return str(name), given if isinstance(given, dict) else [given]


def _case_of(item: Mapping[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = {"input": item["inputs"]}
    if (name := text_or_none(item.get("source_case_name")) or text_or_none(item.get("name"))) is not None:
        case["id"] = name[:500]
    if item.get("expected_output") is not None:
        case["expected"] = item["expected_output"]
    metadata = item.get("metadata")
    if metadata is not None:
        case["metadata"] = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    return case


def _read_report(source: Source, data: Mapping[str, Any]) -> Imported:
    notes = Notes(source.name)
    cases, run = CaseList(), CollectedRun()
    for kind in ("cases", "failures"):
        for index, item in enumerate(data.get(kind) or ()):
            if not isinstance(item, dict) or "inputs" not in item:
                notes.by_hand("a case without inputs is left out", path=f"{kind}[{index}]")
                continue
            case = cases.place(text_or_none(item.get("source_case_name")) or f"{kind} {index}", _case_of(item))
            repeat = run.next_repeat(case)
            failure = text_or_none(item.get("error_message")) or "the task failed"
            run.outputs.append(
                ImportedOutput(case, None, repeat, failure) if kind == "failures" else _output(case, repeat, item)
            )
    for number, _ in enumerate(data.get("report_evaluator_failures") or ()):
        notes.by_hand("an evaluator of the report failed", path=f"report_evaluator_failures[{number}]")
    notes.came(test_case=len(cases), output=len(run.outputs), run=1)
    name = text_or_none(data.get("dataset_name")) or text_or_none(data.get("name")) or source.stem
    runs = [run.run()] if run.outputs else []
    return Imported("pydantic-evals", "report", name[:150], notes, cases, {}, runs)


def _output(case: int, repeat: int, item: Mapping[str, Any]) -> ImportedOutput:
    scores: dict[str, Score] = {}
    for kind in ("assertions", "scores"):
        for name, result in (item.get(kind) or {}).items():
            value, reason = (result.get("value"), result.get("reason")) if isinstance(result, dict) else (result, None)
            error = None if isinstance(value, int | float) else "neither a number nor true or false was recorded"
            scores[unique_names([name], list(scores))[0]] = Score.of(value, value, reason, error)
    for failure in item.get("evaluator_failures") or ():
        if isinstance(failure, dict):
            name = unique_names([text_or_none(failure.get("name")) or "evaluator"], list(scores))[0]
            scores[name] = Score(error=text_or_none(failure.get("error_message")) or "the evaluator failed")
    seconds = finite_number(item.get("task_duration"))
    labels = {
        name: result.get("value") for name, result in (item.get("labels") or {}).items() if isinstance(result, dict)
    }
    metadata = known(
        latency_ms=None if seconds is None else seconds * 1000,
        labels=labels or None,
        metrics=item.get("metrics") or None,
        attributes=item.get("attributes") or None,
    )
    return ImportedOutput(case, item.get("output"), repeat, None, metadata, scores)
