"""Records of traces in files: OTLP spans in JSON, and ATIF trajectories.

A record is `{id, input, value, trace}`, for OTLP with the `attributes` of the first span. Test cases and recorded
outputs are read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from fepflow.extras import require
from fepflow.json.values import finite
from fepflow.text import plural
from fepflow.traces.conventions import HANDLERS, MAX_SPANS, READ, Span, arguments_of, ends_of, read_trace

Documents = Iterable[tuple[int, Any]]
Complain = Callable[[str, int], None]
"""Takes the problem of a document, and its line."""

MAX_ALL_SPANS = 500_000
"""Most spans of a file. All are kept in memory, because those of a trace may be far apart."""


def otlp_records(documents: Documents, complain: Complain) -> Iterator[tuple[int, Any]]:
    """Yield a record for each trace in order of appearance; a document is an ExportTraceServiceRequest."""
    require("otel", "format: otlp", "opentelemetry.proto", "google.protobuf")
    from fepflow.traces.otlp import OtlpError, request_of_document, spans_of

    traces: dict[str, tuple[int, dict[str, Span]]] = {}
    count = 0
    for line, document in documents:
        if not isinstance(document, dict) or not {"resourceSpans", "resource_spans"} & document.keys():
            if not isinstance(document, dict) or not {"resourceLogs", "resourceMetrics"} & document.keys():
                complain("is not an OTLP export of spans: it has no resourceSpans", line)
            continue
        try:
            spans = list(spans_of(request_of_document(document)))
        except OtlpError as error:
            complain(str(error), line)
            continue
        count += len(spans)
        if count > MAX_ALL_SPANS:
            complain(f"has more than {MAX_ALL_SPANS:,} spans", line)
            return
        for span in spans:
            if span is None:
                complain("has a span with invalid ids", line)
            else:
                traces.setdefault(span.trace_id, (line, {}))[1].setdefault(span.span_id, span)
    for trace_id, (line, by_id) in traces.items():
        yield line, _record_of(trace_id, list(by_id.values()))


def _record_of(trace_id: str, spans: list[Span]) -> dict[str, Any]:
    problem = None
    if len(spans) > MAX_SPANS:
        problem = f"the trace is truncated: of {len(spans):,} spans the first {MAX_SPANS:,} are read"
        spans = spans[:MAX_SPANS]
    elif gaps := _gaps_in(spans):
        problem = f"the trace has gaps: {plural(gaps, 'parent')} of its spans are not in the file"
    first, ends = ends_of(spans)
    trace = read_trace(spans, trace_id, None, problem)
    return {"id": trace_id, **ends, "attributes": first.attributes, "trace": trace}


def _gaps_in(spans: list[Span]) -> int:
    """Return the number of missing parents, except for the parent of the request that the agent handled.

    That parent may belong to another service: it is the parent of a server's span, or the only missing one if no other
    span begins the trace.
    """
    known = {None, *(span.span_id for span in spans)}
    orphans = [span for span in spans if span.parent_id not in known]
    missing = {span.parent_id for span in orphans if span.kind not in HANDLERS}
    begins = any(span.parent_id is None for span in spans) or any(span.kind in HANDLERS for span in orphans)
    return len(missing) if begins or len(missing) > 1 else 0


def atif_records(documents: Documents, complain: Complain) -> Iterator[tuple[int, Any]]:
    """Yield a record for each trajectory (Agent Trajectory Interchange Format)."""
    for line, document in documents:
        try:
            if not isinstance(document, dict) or not str(document.get("schema_version", "")).startswith("ATIF-v1."):
                raise ValueError("is not a trajectory: its schema_version is not ATIF-v1.…")
            record = _trajectory(document)
        except ValueError as error:
            complain(str(error), line)
        else:
            yield line, record


def _trajectory(document: dict[str, Any]) -> dict[str, Any]:
    steps = document.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError("is not a trajectory: its steps are not a list of objects")
    asked = [_words(step.get("message")) for step in steps if step.get("source") == "user"]
    agent = [step for step in steps if step.get("source") == "agent"]
    answers = [words for step in agent if (words := _words(step.get("message")))]
    own = [step for step in agent if step.get("is_copied_context") is not True]
    trace = {"trace_id": str(document.get("session_id", "")), **_calls_of(own, document)}
    if _goes_on_elsewhere(document, steps):
        problem = "the trajectory refers to others (its continuation, or its subagents), which are not read"
        trace = {**{name: trace[name] for name in ("trace_id", "spans")}, "unknown": dict.fromkeys(READ[1:], problem)}
    record = {"id": document.get("session_id") or document.get("trajectory_id"), "trace": trace}
    if asked:
        record["input"] = asked[0] if len(asked) == 1 else [{"role": "user", "content": words} for words in asked]
    return {**record, "value": answers[-1]} if answers else record


def _goes_on_elsewhere(document: dict[str, Any], steps: list[dict[str, Any]]) -> bool:
    refers = any(result.get("subagent_trajectory_ref") for step in steps for result in _results(step))
    return refers or any(document.get(name) for name in ("continued_trajectory_ref", "subagent_trajectories"))


def _calls_of(steps: list[dict[str, Any]], document: dict[str, Any]) -> dict[str, Any]:
    began = [_moment(step.get("timestamp")) for step in steps]
    first = next((moment for moment in began if moment is not None), 0.0)
    agent = document.get("agent") if isinstance(document.get("agent"), dict) else {}
    model = (agent or {}).get("model_name")
    known: dict[str, Any] = {
        "spans": [
            {
                "name": f"step {step.get('step_id', number)}",
                "kind": "internal",
                "span_id": f"{number:016x}",
                "parent_id": None,
                "start_ms": max(0.0, round(((moment or first) - first) * 1000, 3)),
                "ms": 0.0,
                "status": "unset",
                "attributes": {},
                "events": [],
            }
            for number, (step, moment) in enumerate(zip(steps, began, strict=True), 1)
        ],
        "tool_calls": [call for step in steps for call in _tool_calls(step)],
        "model_calls": [
            {
                "model": step.get("model_name", model),
                "operation": "chat",
                "tokens": _sum(_metrics(step), "prompt_tokens", "completion_tokens"),
                "usd": _sum(_metrics(step), "cost_usd"),
                "error": None,
                "ms": None,
            }
            for step in steps
            if step.get("llm_call_count") != 0
        ],
    }
    final = document.get("final_metrics") if isinstance(document.get("final_metrics"), dict) else {}
    totals = {
        "tokens": _sum(final or {}, "total_prompt_tokens", "total_completion_tokens"),
        "usd": _sum(final or {}, "total_cost_usd"),
    }
    unknown = {}
    for name, total in totals.items():
        parts = [call[name] for call in known["model_calls"]]
        if total is None and parts and None not in parts:
            total = sum(parts)
        if total is None:
            unknown[name] = f"not all steps of the trajectory report their {name}"
        else:
            known[name] = total
    return {**known, **({"unknown": unknown} if unknown else {})}


def _tool_calls(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    calls = step.get("tool_calls") or []
    by_id = {str(result.get("source_call_id")): result for result in _results(step)}
    if not isinstance(calls, list):
        raise ValueError("has a step whose tool_calls are not a list")
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("function_name"), str):
            raise ValueError("has a tool call without function_name")
        arguments, result = call.get("arguments"), by_id.get(str(call.get("tool_call_id")), {})
        yield {
            "name": call["function_name"],
            "arguments": arguments_of(arguments),
            "result": _words(result.get("content")),
            "error": None,
            "ms": None,
        }


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    return [result for result in results if isinstance(result, dict)] if isinstance(results, list) else []


def _metrics(step: dict[str, Any]) -> dict[str, Any]:
    metrics = step.get("metrics")
    return metrics if isinstance(metrics, dict) else {}


def _sum(metrics: dict[str, Any], *names: str) -> float | None:
    """Return the sum of these metrics, or None if one is not a number from 0 on."""
    figures = [None if isinstance(metrics.get(name), bool) else finite(metrics.get(name)) for name in names]
    numbers = [figure for figure in figures if figure is not None and figure >= 0]
    return sum(numbers) if len(numbers) == len(names) else None


def _words(message: Any) -> Any:
    """Return a message as text: text parts are joined, other parts are left out."""
    if not isinstance(message, list):
        return message
    return "\n".join(str(part["text"]) for part in message if isinstance(part, dict) and "text" in part)


def _moment(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
