"""A trace in the form for checks: its spans, and the calls of tools and models in them.

Spans are read by OpenTelemetry's GenAI semantic conventions, with their earlier names, and by OpenInference. Parts that
a trace does not show are left out, and `unknown` has the reason: a missing part never counts as "none".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fepflow.json.values import finite, parse

MAX_SPANS, MAX_BYTES = 1_000, 4_000_000
"""Most spans of a trace that are kept, and most bytes."""


HANDLERS = ("server", "consumer")
"""Kinds of spans that handle the request of another process."""


@dataclass(slots=True)
class Span:
    """A received span: ids in hexadecimal, times in nanoseconds since 1970, `size` in bytes of protobuf."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    start: int
    end: int
    status: str
    status_message: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0


READ = ("spans", "tool_calls", "model_calls", "tokens", "usd")
"""Parts of a trace that checks read."""

PARTS = (*READ, "trace_id", "call_id", "unknown")
"""All parts of a trace."""

MAX_TEXT = 4_000
"""Most characters of a text in a stored attribute. Calls of tools and models are read before texts are cut."""

MAX_REQUESTS = 1_000
"""Most calls of tools that the models of a trace may ask for."""

_TOOL_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_arguments", "input.value", "tool.parameters")
_TOOL_RESULT = ("gen_ai.tool.call.result", "tool_response", "output.value")
_MODEL_OPERATIONS = ("chat", "text_completion", "generate_content", "completion", "embeddings")
_MODEL_KINDS = ("LLM", "EMBEDDING")
_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_ALL_TOKENS = ("llm.token_count.total", "gen_ai.usage.total_tokens", "llm.usage.total_tokens")
_COST = ("llm.cost.total", "gen_ai.usage.cost", "operation.cost")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.response.model_name", "llm.model_name")
_ASKS_FOR_TOOLS = ("tool_calls", "tool_call", "tool-calls", "tool_use", "function_call")

NO_SIGNS = (
    "no span shows a model, a tool or an agent by the GenAI semantic conventions or OpenInference: instrument the "
    "agent's model client and tools (docs/traces.md)"
)
TOOLS_UNTOLD = (
    "models asked for tools, and some of these have no span: instrument the tools, or let the instrumentation "
    "capture the content of messages (docs/traces.md)"
)


def read_trace(spans: Sequence[Span], trace_id: str, call_id: str | None, problem: str | None) -> dict[str, Any]:
    """Return a trace in the form for outputs: `{trace_id, spans, tool_calls, model_calls, tokens, usd, unknown}`.

    `call_id` is the span of the call, the parent of the agent's own; `problem` is a reason why nothing is certain.
    `unknown` has the reason for each part that the trace does not show. These parts are left out, except for received
    `spans`. Times are in milliseconds, `start_ms` from the beginning of the first span.
    """
    tree = _Tree(spans)
    began = min((span.start for span in tree.spans if span.start), default=0)
    trace: dict[str, Any] = {"trace_id": trace_id}
    if call_id is not None:
        trace["call_id"] = call_id
    if spans:
        trace["spans"] = [_shown(span, began) for span in tree.spans]
    if problem is not None:
        return {**trace, "unknown": dict.fromkeys(READ, problem)}
    known, unknown = tree.read()
    return {**trace, **known, **({"unknown": unknown} if unknown else {})}


def why_unknown(trace: Any, part: str | None) -> str | None:
    """Return why this part of an output's trace is unknown, or None. For the part None, any unknown part counts."""
    unknown = trace.get("unknown") if isinstance(trace, dict) else None
    if not isinstance(unknown, dict) or not unknown:
        return None
    # A path without a part's name, for example $.output.trace[*], may read anything.
    return unknown.get(part) if part in READ else next(iter(unknown.values()))


def summary_of(trace: Any) -> str:
    """Return a summary of a trace in a few words."""
    if not isinstance(trace, dict):
        return ""
    words = []
    for name, word in (("spans", "span"), ("tool_calls", "tool call"), ("model_calls", "model call")):
        items = trace.get(name)
        if isinstance(items, list):
            words.append(f"{len(items)} {word}{'' if len(items) == 1 else 's'}")
    words += [f"{trace[name]:,} {name}" for name in ("tokens", "usd") if isinstance(trace.get(name), int | float)]
    unknown = trace.get("unknown")
    reasons = unknown if isinstance(unknown, dict) else {}
    for why in dict.fromkeys(map(str, reasons.values())):
        names = ", ".join(name for name, reason in reasons.items() if reason == why)
        words.append(f"unknown: {names} ({why})")
    return "; ".join(words)


def ends_of(spans: Sequence[Span]) -> tuple[Span, dict[str, Any]]:
    """Return the first span of a trace, and the trace's `{input, value}`, as far as spans have them.

    The outermost span that has them counts; among models, the first one's input and the last one's output.
    """
    tree = _Tree(spans)
    ends: dict[str, Any] = {}
    models = [span for span in tree.spans if _is_model(span)]
    others = [span for span in tree.order if not _is_model(span) and not _is_tool(span)]
    for name, value_of, order in (
        ("input", _input_of, [*others, *models]),
        ("value", _output_of, [*others, *sorted(models, key=lambda span: -span.end)]),
    ):
        told = next((value for span in order if (value := value_of(span)) is not None), None)
        if told is not None:
            ends[name] = told
    return tree.order[0], ends


def _input_of(span: Span) -> Any:
    return _end_of(span, "input", "gen_ai.input.messages", "user")


def _output_of(span: Span) -> Any:
    return _end_of(span, "output", "gen_ai.output.messages", "assistant")


def _end_of(span: Span, end: str, messages: str, role: str) -> Any:
    value = span.attributes.get(f"{end}.value")
    if value is not None:
        return _json_of(value) if span.attributes.get(f"{end}.mime_type") == "application/json" else value
    of_role = [message for message in _messages(span.attributes.get(messages)) if message.get("role") == role]
    parts = of_role[-1].get("parts") if of_role else None
    texts = [part.get("content") for part in parts or () if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(map(str, texts)) if texts else None


class _Tree:
    """Spans in the order of their start, and their tree; a cycle of parents is cut."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: (span.start, span.end))
        self._by_id = {span.span_id: span for span in self.spans}
        self._named: dict[str | None, list[Span]] = {}
        for span in self.spans:
            self._named.setdefault(span.parent_id, []).append(span)
        self._inner: dict[str, list[Span]] = {}
        self._model_above: dict[str, Span | None] = {}
        self.order: list[Span] = []
        """All spans, each after its parent."""
        self._roots: list[Span] = []
        tops = [span for span in self.spans if span.parent_id not in self._by_id]
        for span in (*tops, *self.spans):  # spans of cycles come last
            self._place(span)

    def _place(self, top: Span) -> None:
        waiting: list[tuple[Span, Span | None, Span | None]] = [(top, None, None)]
        while waiting:
            span, parent, model = waiting.pop()
            if span.span_id in self._model_above:
                continue
            self._model_above[span.span_id] = model
            self.order.append(span)
            (self._roots if parent is None else self._inner.setdefault(parent.span_id, [])).append(span)
            inner_model = span if _is_model(span) else None if _begins_anew(span) else model
            waiting += [(child, span, inner_model) for child in reversed(self._named.get(span.span_id, ()))]

    def read(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the known parts of the trace, and the reasons for the others."""
        if not any(map(_tells, self.spans)):
            return {}, dict.fromkeys(READ[1:], NO_SIGNS)
        known: dict[str, Any] = {}
        unknown: dict[str, str] = {}
        every_model = [span for span in self.spans if _is_model(span)]
        models = [span for span in every_model if self._model_above[span.span_id] is None]
        calls = [_tool_call(span) for span in self.spans if _is_tool(span) and not self._repeats_tool(span)]
        asked = self._requested()
        calls += _without_match(asked[:MAX_REQUESTS], calls)
        if len(asked) > MAX_REQUESTS:
            unknown["tool_calls"] = f"models asked for more than {MAX_REQUESTS:,} calls of tools"
        elif len({self._outermost(span).span_id for span in every_model if _asks_for_tools(span)}) > len(calls):
            unknown["tool_calls"] = TOOLS_UNTOLD
        else:
            known["tool_calls"] = [{name: call[name] for name in call if name != "id"} for call in calls]
        (tokens, all_tokens), (costs, all_costs) = self._sums(_tokens), self._sums(_cost)
        known["model_calls"] = [
            {
                "model": _first(span, _MODEL),
                "operation": _text(span, "gen_ai.operation.name") or _text(span, "openinference.span.kind").lower(),
                "tokens": tokens.get(span.span_id),
                "usd": costs.get(span.span_id),
                "error": _error(span),
                "ms": _milliseconds(span.end - span.start),
            }
            for span in models
        ]
        for name, own, total in (("tokens", tokens, all_tokens), ("usd", costs, all_costs)):
            untold = [span for span in models if span.span_id not in own and span.status != "error"]
            if untold:
                unknown[name] = f"{len(untold)} of {len(models)} calls of models do not report their {name}"
            elif total is None:
                unknown[name] = f"no span reports its {name}"
            else:
                known[name] = round(total, 9)
        return known, unknown

    def _outermost(self, span: Span) -> Span:
        """Return the outermost span of the model call that this span is a part of."""
        while (above := self._model_above[span.span_id]) is not None:
            span = above
        return span

    def _sums(self, reported: Callable[[Span], float | None]) -> tuple[dict[str, float], float | None]:
        """Return the sum of each span that has one, and the total; None if no span has one.

        A model's sum is its own report, else that of the spans inside. For other spans, the spans inside come first: an
        agent's span repeats the reports of its models, and a model's span those of the client inside. Tools and agents
        inside of a model's span do not belong to the model, so their sums are added.
        """
        sums: dict[str, float] = {}
        added: dict[str, list[float]] = {}
        roots = {span.span_id for span in self._roots}
        for span in reversed(self.order):
            inner = self._inner.get(span.span_id, ())
            more = [number for child in inner for number in added[child.span_id]]
            below = [sums[child.span_id] for child in inner if child.span_id in sums and not _begins_anew(child)]
            own = reported(span)
            if below and (own is None or not _is_model(span)):
                own = sum(below)
            elif more and not _is_model(span):
                own = None
            if own is not None:
                sums[span.span_id] = own
                more += [own] if _begins_anew(span) or span.span_id in roots else []
            added[span.span_id] = more
        total = [number for span in self._roots for number in added[span.span_id]]
        return sums, sum(total) if total else None

    def _repeats_tool(self, span: Span) -> bool:
        """Return whether a span is the MCP request of the tool's span around it."""
        around = self._by_id.get(span.parent_id or "")
        is_inside = around is not None and _is_tool(around) and _tool_name(around) == _tool_name(span)
        return is_inside and "mcp.method.name" in span.attributes

    def _requested(self) -> list[dict[str, Any]]:
        """Return the calls of tools that models asked for, without repetitions by clients inside of models' spans."""
        asked: list[dict[str, Any]] = []
        has_told: set[str] = set()
        for span in self.order:
            above = self._model_above[span.span_id]
            if _is_model(span) and (above is None or above.span_id not in has_told):
                requests = list(_requested(span))
                asked += requests
                has_told |= {span.span_id} if requests else set()
            elif above is not None and above.span_id in has_told:
                has_told.add(span.span_id)
        return asked


def _without_match(asked: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the requested calls that have no tool's span, because the tool is not instrumented."""
    unmatched, missing = list(calls), []
    for request in asked:
        match = next((call for call in unmatched if _is_same_call(request, call)), None)
        if match is None:
            missing.append(request)
        else:
            unmatched.remove(match)
            if match["arguments"] is None:
                match["arguments"] = request["arguments"]
    return missing


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)


def _shown(span: Span, began: int) -> dict[str, Any]:
    shown = {
        "name": _cut(span.name),
        "kind": span.kind,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "start_ms": max(0.0, _milliseconds(span.start - began)),
        "ms": _milliseconds(span.end - span.start),
        "status": span.status,
        "attributes": _cut(span.attributes),
        "events": [
            {
                "name": _cut(event["name"]),
                "start_ms": max(0.0, _milliseconds(event["time"] - began)),
                "attributes": _cut(event["attributes"]),
            }
            for event in span.events
        ],
    }
    return {**shown, "status_message": _cut(span.status_message)} if span.status_message else shown


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {_cut(key): _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value


# --- kinds of spans --------------------------------------------------------------------------------------------------


def _text(span: Span, name: str) -> str:
    value = span.attributes.get(name)
    return value if isinstance(value, str) else ""


def _first(span: Span, names: Sequence[str]) -> Any:
    return next((span.attributes[name] for name in names if span.attributes.get(name) not in (None, "")), None)


def _is_tool(span: Span) -> bool:
    operation = _text(span, "gen_ai.operation.name")
    if operation or _text(span, "openinference.span.kind"):
        return operation == "execute_tool" or _text(span, "openinference.span.kind") == "TOOL"
    names = "gen_ai.tool.name" in span.attributes or _text(span, "mcp.method.name") == "tools/call"
    return names or _text(span, "traceloop.span.kind") == "tool"


def _is_model(span: Span) -> bool:
    operation, kind = _text(span, "gen_ai.operation.name"), _text(span, "openinference.span.kind")
    if operation or kind:
        return operation in _MODEL_OPERATIONS or kind in _MODEL_KINDS
    return not _is_tool(span) and _first(span, _MODEL) is not None


def _begins_anew(span: Span) -> bool:
    """Return whether a span does not belong to the model call around it: it is a tool's or an agent's."""
    operation, kind = _text(span, "gen_ai.operation.name"), _text(span, "openinference.span.kind")
    return operation == "invoke_agent" or kind == "AGENT" or _is_tool(span)


def _tells(span: Span) -> bool:
    """Return whether a span follows one of the conventions."""
    names = ("gen_ai.operation.name", "openinference.span.kind")
    return any(_text(span, name) for name in names) or _is_tool(span) or _is_model(span)


def _tool_name(span: Span) -> str:
    name = _first(span, ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    return str(name) if name is not None else span.name.removeprefix("execute_tool ").removeprefix("tools/call ")


def _tool_call(span: Span) -> dict[str, Any]:
    call_id = _first(span, ("gen_ai.tool.call.id", "tool_call.id", "tool.id"))
    return {
        "id": call_id,
        "name": _tool_name(span),
        "arguments": arguments_of(_first(span, _TOOL_ARGUMENTS)),
        "result": _json_of(_first(span, _TOOL_RESULT)),
        "error": _error(span),
        "ms": _milliseconds(span.end - span.start),
        "span_id": span.span_id,
    }


def _json_of(value: Any) -> Any:
    """Return the JSON value of a text, or the text itself if it is not JSON."""
    if not isinstance(value, str) or value[:1] not in '{["-0123456789tfn':
        return value
    try:
        return parse(value)
    except ValueError:
        return value


def arguments_of(value: Any) -> dict[str, Any] | None:
    """Return the arguments of a tool; a value that is not an object becomes the argument `input`.

    None if no attribute has them: most instrumentations leave them out by default.
    """
    arguments = _json_of(value)
    if arguments in (None, ""):
        return None if arguments is None else {}
    return arguments if isinstance(arguments, dict) else {"input": arguments}


def _error(span: Span) -> str | None:
    if span.status != "error":
        return None
    raised: dict[str, Any] = next((event["attributes"] for event in span.events if event["name"] == "exception"), {})
    name, message = raised.get("exception.type"), raised.get("exception.message")
    words = [str(part) for part in (name, message) if part]
    return span.status_message or ": ".join(words) or _text(span, "error.type") or "error"


def _number(span: Span, names: Sequence[str]) -> float | None:
    value = _first(span, names)
    number = None if isinstance(value, bool) else finite(value)
    return number if number is not None and number >= 0 else None


def _tokens(span: Span) -> float | None:
    """Return the tokens of a span; None if it reports none, or a count that is not one: the rest would be too few."""
    parts = {names: _number(span, names) for names in (_INPUT_TOKENS, _OUTPUT_TOKENS)}
    if None in parts.values():
        total = _number(span, _ALL_TOKENS)
        if total is not None:
            return int(total)
        if any(part is None and _first(span, names) is not None for names, part in parts.items()):
            return None
    known = [part for part in parts.values() if part is not None]
    return int(sum(known)) if known else None


def _cost(span: Span) -> float | None:
    return _number(span, _COST)


# --- tools that models asked for --------------------------------------------------------------------------------------


def _asks_for_tools(span: Span) -> bool:
    reasons = [_json_of(span.attributes.get(name)) for name in ("gen_ai.response.finish_reasons", "llm.finish_reason")]
    reasons += [value for key, value in span.attributes.items() if _FINISH_REASON.fullmatch(key)]
    reasons += [choice.get("finish_reason") for choice in _choices(span)]
    listed = [item for reason in reasons for item in (reason if isinstance(reason, list) else [reason])]
    return any(reason in _ASKS_FOR_TOOLS for reason in listed)


_FINISH_REASON = re.compile(r"gen_ai\.completion\.[0-9]{1,6}\.finish_reason")


def _choices(span: Span) -> Iterator[dict[str, Any]]:
    """Yield a model's answers in the form of the conventions before 1.37: events of the span, or their texts."""
    for event in span.events:
        if event["name"] == "gen_ai.choice":
            content = _json_of(event["attributes"].get("gen_ai.event.content"))
            yield content if isinstance(content, dict) else event["attributes"]
    for listed in _messages(span.attributes.get("events")):
        if listed.get("event.name") == "gen_ai.choice":
            yield listed


def _requested(span: Span) -> Iterator[dict[str, Any]]:
    """Yield the calls of tools in a model's answer, if the instrumentation captures it."""
    for message in _messages(span.attributes.get("gen_ai.output.messages")):
        for part in message.get("parts") or ():
            if isinstance(part, dict) and part.get("type") == "tool_call" and isinstance(part.get("name"), str):
                yield _request(span, part.get("id"), part["name"], part.get("arguments"))
    for choice in _choices(span):
        message = _json_of(choice.get("message"))
        for call in _messages(message.get("tool_calls") if isinstance(message, dict) else choice.get("tool_calls")):
            function = call.get("function")
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                yield _request(span, call.get("id"), function["name"], function.get("arguments"))
    for prefix, id_name, name, arguments in _FLAT:
        for start in _starts(span, prefix, name):
            values = [span.attributes.get(start + end) for end in (id_name, name, arguments)]
            yield _request(span, values[0], str(values[1]), values[2])


_FLAT = (
    ("llm.output_messages.", "tool_call.id", "tool_call.function.name", "tool_call.function.arguments"),
    ("gen_ai.completion.", "id", "name", "arguments"),
)
"""Attributes of OpenInference and of early GenAI instrumentations: the prefix and the ends of their names."""


def _starts(span: Span, prefix: str, name: str) -> Iterator[str]:
    for key in span.attributes:
        if key.startswith(prefix) and ".tool_calls." in key and key.endswith(f".{name}"):
            yield key.removesuffix(name)


def _is_same_call(request: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    """Return whether a call is the requested one: by their ids, or by the name if one has no id."""
    if request["id"] is not None and call["id"] is not None:
        return bool(request["id"] == call["id"])
    return bool(request["name"] == call["name"])


def _messages(value: Any) -> list[dict[str, Any]]:
    messages = _json_of(value)
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _request(span: Span, call_id: Any, name: str, arguments: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "name": name,
        "arguments": arguments_of(arguments),
        "result": None,
        "error": None,
        "ms": None,
        "span_id": span.span_id,
    }
