"""OpenAI: samples and logs of the evals framework, datasets and output items of the Evals API, as JSONL or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    OUTPUT,
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    finite_number,
    known,
    listed,
    mapping,
    moment,
    run_of_all,
    text_or_none,
    unique_names,
)
from fepflow.imports.source import Source

Records = Sequence[tuple[int | None, Any]]

_EVENT = {"run_id", "event_id", "sample_id", "type", "data"}
MATCH = "match"
"""Scorer of a log's `match` events."""

_IDEAL = ("ideal", "answer", "expected", "expected_output", "reference", "label", "correct_label", "ground_truth")
"""Names under which items of the Evals API usually have the expected answer."""


def looks_like(source: Source) -> bool:
    """Return whether the file holds samples (`input`, `ideal`), a log (`spec`), items, or output items."""
    return _kind(mapping(source.first_of("data"))) is not None


def read(source: Source) -> Imported:
    """Read samples or items as test cases, a log or output items as a run."""
    records = list(source.items("data"))
    first = next((record for _, record in records if isinstance(record, dict)), {})
    readers = {"log": _read_log, "output items": _read_output_items, "items": _read_samples, "samples": _read_samples}
    if (kind := _kind(first)) is None:
        raise InputError(Problem("holds no samples, items or log of OpenAI's evals", source.name))
    return readers[kind](source, records)


def _kind(record: Mapping[str, Any]) -> str | None:
    if "run_id" in mapping(record.get("spec")) or record.keys() >= _EVENT:
        return "log"
    if record.get("object") == "eval.run.output_item" or {"datasource_item", "results"} <= record.keys():
        return "output items"
    if isinstance(record.get("item"), dict):
        return "items"
    return "samples" if {"input", "ideal"} <= record.keys() else None


def _read_samples(source: Source, records: Records) -> Imported:
    notes = Notes(source.name)
    cases: list[dict[str, Any]] = []
    outputs: list[ImportedOutput] = []
    has_items = has_several_ideals = False
    for line, record in records:
        if not isinstance(record, dict) or not ("input" in record or isinstance(record.get("item"), dict)):
            notes.by_hand("a record is not a sample, and is left out", line)
            continue
        if isinstance(record.get("item"), dict):
            has_items = True
            cases.append(_case_of_item(record["item"]))
            if (answer := mapping(record.get("sample")).get("output_text")) is not None:
                outputs.append(ImportedOutput(len(cases) - 1, answer))
            continue
        case = {"input": record["input"]}
        if "ideal" in record:
            case["expected"] = record["ideal"]
            has_several_ideals = has_several_ideals or isinstance(record["ideal"], list)
        metadata = {name: value for name, value in record.items() if name not in ("input", "ideal")}
        cases.append({**case, "metadata": metadata} if metadata else case)
    notes.came(test_case=len(cases))
    suite: dict[str, Any] = {}
    runs = run_of_all(outputs, cases, notes)
    if has_items:
        notes.by_hand("graders (testing_criteria) are not in this file", advice="write checks for them")
    else:
        # evals' Match: the answer begins with the ideal answer, or with one of several.
        notes.by_hand(
            "the eval class is not in this file: suite.yaml has exact_match, which is stricter than Match and Includes",
            advice="take contains for Includes",
        )
        arguments: dict[str, Any] = {"actual": OUTPUT, "expected": "$.test_case.expected"}
        arguments |= {"any": True} if has_several_ideals else {}
        suite["checks"] = [{"type": "exact_match", "arguments": arguments}]
    return Imported("openai-evals", "items" if has_items else "samples", source.stem, notes, cases, suite, runs)


def _case_of_item(item: Mapping[str, Any]) -> dict[str, Any]:
    expected = next((name for name in _IDEAL if name in item), None)
    asked = {name: value for name, value in item.items() if name != expected}
    case: dict[str, Any] = {"input": next(iter(asked.values())) if len(asked) == 1 else asked}
    return case if expected is None else {**case, "expected": item[expected]}


def _read_log(source: Source, records: Records) -> Imported:
    notes = Notes(source.name)
    spec: dict[str, Any] = {}
    samples: dict[str, dict[str, list[dict[str, Any]]]] = {}
    last = None
    has_report = False
    for line, record in records:
        record = mapping(record)
        if isinstance(record.get("spec"), dict):
            spec = record["spec"]
        elif "final_report" in record:
            has_report = True
        elif record.keys() >= _EVENT:
            last = record.get("created_at")
            data = record["data"] if isinstance(record["data"], dict) else {"value": record["data"]}
            samples.setdefault(str(record["sample_id"]), {}).setdefault(str(record["type"]), []).append(data)
        else:
            notes.by_hand("a line is not an event, and is left out", line)
    if not samples:
        raise InputError(Problem("is a log without events of samples", source.name))
    if not has_report:
        notes.by_hand("the log has no final report: the eval did not end, and samples may be missing")
    model = {"model": str(functions[0])} if (functions := listed(spec.get("completion_fns"))) else {}
    cases: list[dict[str, Any]] = []
    outputs: list[ImportedOutput] = []
    for sample_id, events in sorted(samples.items(), key=lambda pair: _sample_order(pair[0])):
        cases.append(_logged_case(sample_id, events))
        outputs.append(_logged_output(len(cases) - 1, events, model))
    notes.came(test_case=len(cases), output=len(outputs), run=1)
    name = text_or_none(spec.get("eval_name") or spec.get("base_eval")) or source.stem
    run = ImportedRun(outputs, times=[moment(spec.get("created_at")), moment(last)])
    return Imported("openai-evals", "log", name[:150], notes, cases, runs=[run])


def _sample_order(sample_id: str) -> tuple[str, int, str]:
    head, _, number = sample_id.rpartition(".")
    return head, int(number) if number.isdecimal() else 0, sample_id


def _logged_case(sample_id: str, events: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    asked = next((event["prompt"] for event in events.get("sampling", ()) if "prompt" in event), None)
    raw = next((event for event in events.get("raw_sample", ()) if "input" in event), {})
    answers = (event["expected"] for event in events.get(MATCH, ()) if event.get("expected") is not None)
    case_input = next((value for value in (asked, raw.get("input")) if value is not None), sample_id)
    return {"id": sample_id, "input": case_input, **known(expected=next(answers, raw.get("ideal")))}


def _logged_output(
    case: int, events: Mapping[str, Sequence[Mapping[str, Any]]], model: Mapping[str, str]
) -> ImportedOutput:
    sampled = [event["sampled"] for event in events.get("sampling", ()) if "sampled" in event]
    value: Any = sampled[-1] if sampled else None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    scores: dict[str, Score] = {}
    if matches := events.get(MATCH):
        answers = [event.get("correct") for event in matches]
        is_known = all(isinstance(answer, bool) for answer in answers)
        picked = matches[-1].get("picked")
        reason = None if picked is None else f"picked {picked!r}"
        scores[MATCH] = Score(all(answers), None, reason) if is_known else Score(error="match has no correct")
        if value is None:
            value = picked if picked is not None else matches[-1].get("sampled")
    for event in events.get("metrics", ()):
        scores |= {name: Score.of(value, value) for name, value in event.items() if isinstance(value, int | float)}
    error = None
    if (failures := events.get("error")) and not scores:  # with scores it was caught, and the sample went on
        error = text_or_none(failures[-1].get("message")) or str(failures[-1].get("type", "an error was logged"))
    elif value is None:
        error = "the log has no answer of this sample"
    metadata = {**model, **({"samplings": len(sampled)} if len(sampled) > 1 else {})}
    return ImportedOutput(case, value, 0, error, metadata, scores)


def _read_output_items(source: Source, records: Records) -> Imported:
    notes = Notes(source.name)
    cases, run = CaseList(), ImportedRun()
    for line, record in records:
        item = mapping(record).get("datasource_item")
        if not isinstance(item, dict):
            notes.by_hand("a record is not an output item, and is left out", line)
            continue
        run.times.append(moment(record.get("created_at")))
        asked = item["item"] if isinstance(item.get("item"), dict) else item
        case = cases.place(record.get("datasource_item_id", len(cases)), _case_of_item(asked))
        run.outputs.append(_output_of_item(case, run.next_repeat(case), record))
    notes.came(test_case=len(cases), output=len(run.outputs), run=1)
    runs = [run] if run.outputs else []
    return Imported("openai-evals", "output items", source.stem, notes, cases, runs=runs)


def _output_of_item(case: int, repeat: int, record: Mapping[str, Any]) -> ImportedOutput:
    sample = mapping(record.get("sample"))
    messages = [message for message in listed(sample.get("output")) if isinstance(message, dict)]
    value = messages[-1].get("content") if messages else sample.get("output_text")
    metadata = known(
        model=text_or_none(sample.get("model")),
        finish_reason=text_or_none(sample.get("finish_reason")),
        tokens=finite_number(mapping(sample.get("usage")).get("total_tokens")),
    )
    results = [result for result in listed(record.get("results")) if isinstance(result, dict)]
    names = unique_names([text_or_none(result.get("name")) or "grader" for result in results])
    scores = {name: _grade(result) for name, result in zip(names, results, strict=True)}
    error = _failure(sample, record) or ("the item has no output" if value is None else None)
    return ImportedOutput(case, value, repeat, error, metadata, scores)


def _grade(result: Mapping[str, Any]) -> Score:
    error = _failure(mapping(result.get("sample")), result)
    return Score(error=error) if error is not None else Score.of(result.get("passed"), result.get("score"))


def _failure(sample: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """Return why a sample of the model or of a grader failed."""
    failure = mapping(sample.get("error"))
    if failure.get("message") or failure.get("code"):
        return str(failure.get("message") or failure["code"])
    return "it ended in an error" if record.get("status") in ("error", "errored") else None
