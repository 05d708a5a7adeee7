"""Traces that were written to files, as test cases and as recorded outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.factory import open_target
from fepflow.datasets import records
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import Dataset
from fepflow.suite.target import Target
from fepflow.suite.test_cases import read_test_cases

FIRST, SECOND = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def span(trace_id: str, number: int, parent: int | None, name: str, **attributes: str) -> dict[str, Any]:
    ids = {"traceId": trace_id, "spanId": f"{number:016x}"}
    if parent is not None:
        ids["parentSpanId"] = f"{parent:016x}"
    start = 1_700_000_000_000_000_000 + number * 1_000_000
    return {
        **ids,
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 500_000),
        "attributes": [attribute(key.replace("__", "."), value) for key, value in attributes.items()],
    }


def line(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}) + "\n"


@pytest.fixture
def otlp(tmp_path: Path) -> Path:
    """A file as the collector's file exporter writes it: spans of a trace in several lines."""
    tool = span(
        FIRST, 2, 1, "lookup", openinference__span__kind="TOOL", tool__name="lookup", input__value='{"id": "A1"}'
    )
    agent = {"openinference__span__kind": "AGENT", "input__value": "Where is A1?", "output__value": "On its way."}
    other = {"openinference__span__kind": "AGENT", "input__value": "Hello", "output__value": "Hello!"}
    lines = line(tool), line(span(SECOND, 1, None, "agent", **other)), line(span(FIRST, 1, None, "agent", **agent))
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(lines))
    return file


TRAJECTORY: dict[str, Any] = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s1",
    "agent": {"name": "a", "version": "1", "model_name": "small"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Where is A1?", "timestamp": "2026-01-01T00:00:00Z"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "timestamp": "2026-01-01T00:00:01Z",
            "tool_calls": [{"tool_call_id": "c", "function_name": "lookup", "arguments": {"id": "A1"}}],
            "observation": {"results": [{"source_call_id": "c", "content": "shipped"}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 2},
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "On its way.",
            "metrics": {"prompt_tokens": 20, "completion_tokens": 3, "cost_usd": 0.5},
        },
    ],
}


async def output_of(path: Path, format: str, case_id: str, by: str | None = "$.id") -> tuple[Any, dict[str, Any]]:
    config = Target.model_validate({"recorded": {"path": path.name, "format": format, "id": by}})
    opened = open_target(config, folder=path.parent, case_ids=list)
    answer = await opened.call(opened.render(TestCase(id=case_id, input="")))
    return answer.value, answer.metadata["trace"]


async def test_traces_in_otlp_are_cases_and_their_outputs(otlp: Path) -> None:
    cases = list(read_test_cases(Dataset(path=otlp.name, format="otlp"), otlp, otlp.name).cases)
    assert [(case.id, case.input) for case in cases] == [(FIRST, "Where is A1?"), (SECOND, "Hello")]
    assert cases[0].metadata is None
    value, trace = await output_of(otlp, "otlp", FIRST)
    assert value == "On its way."
    assert [(call["name"], call["arguments"]) for call in trace["tool_calls"]] == [("lookup", {"id": "A1"})]
    assert [one["name"] for one in trace["spans"]] == ["agent", "lookup"]
    _, other = await output_of(otlp, "otlp", SECOND)
    assert other["tool_calls"] == []


@pytest.mark.parametrize(
    ("spans", "is_whole"),
    [
        ([span(FIRST, 2, 1, "agent"), span(FIRST, 3, 2, "chat")], True),  # another service called the agent
        ([span(FIRST, 2, 1, "ask") | {"kind": 2}, span(FIRST, 4, 3, "ask") | {"kind": 2}], True),  # twice
        ([span(FIRST, 1, None, "agent"), span(FIRST, 3, 2, "chat")], False),
        ([span(FIRST, 2, 1, "ask") | {"kind": 2}, span(FIRST, 4, 3, "chat")], False),
        ([span(FIRST, 2, 1, "agent"), span(FIRST, 4, 3, "chat")], False),
    ],
)
async def test_a_recorded_trace_with_gaps_does_not_tell_what_was_called(
    spans: list[dict[str, Any]], is_whole: bool, tmp_path: Path
) -> None:
    told = [attribute("gen_ai.operation.name", "chat"), attribute("output.value", "On its way.")]
    file = tmp_path / "traces.jsonl"
    file.write_text(line(*({**one, "attributes": told} for one in spans)))
    _, trace = await output_of(file, "otlp", FIRST)
    assert ("tool_calls" in trace) is is_whole
    assert is_whole or "has gaps" in trace["unknown"]["tool_calls"]
    assert len(trace["spans"]) == 2


@pytest.mark.parametrize("name", ["trajectory.json", "trajectories.jsonl"])
async def test_trajectories_in_atif_are_cases_and_their_outputs(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(json.dumps(TRAJECTORY))
    (case,) = read_test_cases(Dataset(path=name, format="atif"), file, name).cases
    assert (case.id, case.input) == ("s1", "Where is A1?")
    value, trace = await output_of(file, "atif", "s1")
    assert (value, trace["tokens"]) == ("On its way.", 35)
    (call,) = trace["tool_calls"]
    assert (call["name"], call["arguments"], call["result"]) == ("lookup", {"id": "A1"}, "shipped")
    assert trace["unknown"] == {"usd": "not all steps of the trajectory report their usd"}
    assert [one["start_ms"] for one in trace["spans"]] == [0.0, 0.0]


@pytest.mark.parametrize(
    "more",
    [
        {"continued_trajectory_ref": "trajectory-2.json"},
        {"subagent_trajectories": [{**TRAJECTORY, "trajectory_id": "child"}]},
        {"steps": [*TRAJECTORY["steps"], {"observation": {"results": [{"subagent_trajectory_ref": [{}]}]}}]},
    ],
)
async def test_a_trajectory_that_others_belong_to_does_not_tell_all_calls(more: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps({**TRAJECTORY, **more}))
    value, trace = await output_of(file, "atif", "s1")
    assert value == "On its way."
    assert len(trace["spans"]) == 2
    assert "tool_calls" not in trace
    assert "are not read" in trace["unknown"]["tool_calls"]


async def test_a_step_that_asked_no_model_has_no_tokens_to_tell(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    dispatched = {"source": "agent", "message": "", "llm_call_count": 0}
    file.write_text(json.dumps({**TRAJECTORY, "steps": [*TRAJECTORY["steps"], dispatched]}))
    _, trace = await output_of(file, "atif", "s1")
    assert trace["tokens"] == 35
    assert len(trace["model_calls"]) == 2


@pytest.mark.parametrize("observation", [3, {"results": 3}, {"results": [3, {"source_call_id": []}]}])
async def test_observations_of_other_shapes_are_no_results(observation: Any, tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    step = {**TRAJECTORY["steps"][1], "observation": observation, "message": "Done."}
    file.write_text(json.dumps({**TRAJECTORY, "steps": [step]}))
    _, trace = await output_of(file, "atif", "s1")
    assert [(call["name"], call["result"]) for call in trace["tool_calls"]] == [("lookup", None)]


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("otlp", '{"id": 1}', "has no resourceSpans"),
        ("otlp", '{"resourceSpans": 3}', "resourceSpans that is not a list"),
        ("otlp", line(span("zz", 1, None, "a")), "invalid ids"),
        ("atif", '{"steps": []}', "schema_version is not ATIF"),
        ("atif", '{"schema_version": "ATIF-v1.4", "steps": 3}', "steps are not a list"),
    ],
)
def test_a_file_of_something_else_is_an_error_with_its_line(
    format: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_test_cases(Dataset.model_validate({"path": file.name, "format": format}), file, file.name)


def test_a_document_of_traces_is_limited_as_other_json_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps(TRAJECTORY, indent=1))
    monkeypatch.setattr(records, "MAX_JSON_BYTES", 100)
    with pytest.raises(InputError, match="is larger than 100 bytes"):
        read_test_cases(Dataset(path=file.name, format="atif"), file, file.name)


def test_a_suite_of_traces_is_valid_and_a_path_to_a_trace_that_is_not_there_is_found(otlp: Path) -> None:
    source = {"path": otlp.name, "format": "otlp"}
    check = {"type": "tool_usage", "arguments": {"calls": "$.output.trace.tool_calls", "name": "lookup"}}
    suite = {"name": "s", "target": {"recorded": source}, "test_cases": source, "checks": [check]}
    file = otlp.parent / "suite.json"
    file.write_text(json.dumps(suite))
    assert not validate_suite(file).errors
    misspelt = {**check, "arguments": {"calls": "$.output.trace.toolcalls"}}
    file.write_text(json.dumps({**suite, "checks": [misspelt]}))
    (problem,) = validate_suite(file).errors
    assert "finds nothing: a trace has spans, tool_calls," in problem.message
    assert problem.advice == "did you mean tool_calls?"
    file.write_text(json.dumps({**suite, "target": {"http": {"url": "http://127.0.0.1:9"}}}))
    (problem,) = validate_suite(file).errors
    assert "the calls are not traced" in problem.message
    assert "set target.trace" in str(problem.advice)
