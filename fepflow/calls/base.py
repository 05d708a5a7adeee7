"""The interface of a target, the context of its calls, and the form of outputs of several steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from fepflow.calls.policy import RunBudget
from fepflow.errors import InputError, JSONPathError, Problem, TargetError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import REUSED_FROM, TestCase
from fepflow.security.redaction import redact_json

RESERVED_METADATA = ("error", "attempts", "attempt_log", "latency_ms", "last_attempt_ms", "trace", REUSED_FROM)
"""Names in an output's metadata that describe the call; a response cannot set them."""


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def without_negative_costs(metadata: dict[str, Any]) -> dict[str, Any]:
    """Leave out negative costs, which some agents write for unknown ones: every limit on them would pass."""
    costs: dict[str, Any] = {name: metadata.get(name) for name in ("tokens", "usd")}
    invalid = [name for name, cost in costs.items() if is_number(cost) and cost < 0]
    return {name: value for name, value in metadata.items() if name not in invalid} if invalid else metadata


@dataclass(frozen=True, slots=True)
class TargetResponse:
    """The response of a target for one test case: any JSON value, and metadata.

    `has_own_time` is true if `latency_ms` in its metadata, if any, is the call's time, because it was recorded.
    """

    value: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    has_own_time: bool = False

    def __post_init__(self) -> None:
        """Leave out negative costs."""
        object.__setattr__(self, "metadata", without_negative_costs(self.metadata))


@dataclass(slots=True)
class Progress:
    """Progress of a call of several steps, for its record if it fails or is cut off.

    `response` is the output so far (with the value None before the first answer), `place` the present step
    (`step 2 of 3`), and `fault` a known mistake in the awaited answer.
    """

    response: TargetResponse = TargetResponse(None)
    place: str = ""
    fault: str = ""

    def describe(self, message: str) -> str:
        """Return the message of an error, with the step, and any known mistake."""
        return ": ".join(part for part in (self.place, message, self.fault) if part)


progress_of_call: ContextVar[Progress] = ContextVar("fepflow_call")
"""The progress of the attempt under way. Not an argument: most targets have only one step."""


@dataclass(frozen=True, slots=True)
class AttemptUnderWay:
    """The present attempt: its case and repeat, its number from 1, and the run's budget.

    `pace` waits until one more request may be sent; the first one has waited already.
    """

    case: TestCase
    repeat: int
    budget: RunBudget
    pace: Callable[[], Awaitable[None]]
    number: int = 1


attempt_under_way: ContextVar[AttemptUnderWay] = ContextVar("fepflow_attempt")
"""Set by the client of the target. Not an argument: for most targets the request is enough."""


traceparent: ContextVar[str | None] = ContextVar("fepflow_traceparent", default=None)
"""The W3C trace context that the attempt under way sends, or None without a trace."""

traced_requests: ContextVar[list[str] | None] = ContextVar("fepflow_traced_requests", default=None)
"""The requests of the attempt under way that carry its trace context: a span of the agent is expected for each."""


def pass_traceparent() -> str | None:
    """Return the trace context for one more request to the agent; None without a trace."""
    context, requests = traceparent.get(), traced_requests.get()
    if context is not None and requests is not None:
        requests.append(context)
    return context


class Target(Protocol):
    """A target: the agent, model or server that is evaluated. One object serves a whole run, many calls at once."""

    @property
    def fingerprint(self) -> str:
        """The content hash of the request and of how the response is read, without secrets and timeouts."""

    @property
    def secrets(self) -> frozenset[str]:
        """The values that a request may contain, but no hash, message or record may show."""

    def render(self, case: TestCase) -> Any:
        """Return the request for `case` as JSON. Raises JSONPathError or TargetError if there can be none."""

    async def call(self, request: Any) -> TargetResponse:
        """Send a rendered request once. Raises TargetError.

        It has no deadline; its caller sets one (`TargetClient.ask` does).
        """

    async def aclose(self) -> None:
        """Close connections. The target cannot be called afterwards."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation: its `number`, from 1, the user's input, and all `messages` so far.

    Messages are `{role: user | assistant, content}`; the user's `input` is the content of the last one.
    """

    number: int
    input: Any
    messages: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with the target about one test case.

    `say` sends the user's message of a turn, and returns the answer. It raises TargetError, and has no deadline.
    `facts` returns what is known of the target, for the output's metadata, also after a failed turn.
    """

    say: Callable[[Turn], Awaitable[TargetResponse]]
    facts: Callable[[], dict[str, Any]] = dict


class ConversationalTarget(Target, Protocol):
    """A target that can have conversations of several turns.

    If its suite can make that impossible, it has a property `conversation_problem`: the reason, or None.
    """

    def converse(self, case: TestCase) -> AbstractAsyncContextManager[Conversation]:
        """Open a conversation, which ends with the context. Raises TargetError."""


UNSENT: Any = object()
"""Stands for the request of a case that was never rendered, for the target was down."""


def output_hash(target: Target, case: TestCase, repeat: int, request: Any = UNSENT) -> str:
    """Return the content hash of an output, 64 hexadecimal digits.

    `request` is the rendered request; if there can be none, the reason is hashed instead. `expected` is included only
    if the request contains it.
    """
    try:
        asked = redact_json(target.render(case) if request is UNSENT else request, target.secrets)
    except (JSONPathError, TargetError) as error:
        asked = str(error)
    return content_hash(target.fingerprint, case.id, asked, repeat)


def template_context(case: TestCase, turn: Turn | None = None, session: Any = None) -> dict[str, Any]:
    """Return the data for paths in a target's section: the sent parts of the test case, and the turn.

    Without turns, a case counts as a conversation of one turn.
    """
    turn = turn or Turn(1, case.input, ({"role": "user", "content": case.input},))
    seen = {"number": turn.number, "input": turn.input, "messages": list(turn.messages)}
    return {"test_case": {"expected": None, "metadata": {}, **sent_fields(case)}, "turn": seen, "session": session}


def sent_fields(case: TestCase) -> dict[str, Any]:
    """Return the fields of a test case, without its checks."""
    return {
        name: getattr(case, name) for name in ("id", "input", "expected", "metadata") if name in case.model_fields_set
    }


def refuse_reserved_names(metadata: Mapping[str, str], where: str) -> None:
    """Raise InputError if `metadata` maps to a name that fepflow sets itself."""
    if taken := [name for name in metadata if name in RESERVED_METADATA]:
        message = f"{', '.join(taken)} in an output's metadata is set by fepflow"
        raise InputError(Problem(message, path=where, advice="choose another name"))


# --- outputs of several steps ----------------------------------------------------------------------------------------


COSTS = ("cost_usd", "usd")
"""Names that agents give the price of a step, in US dollars; ECP 1.0 has none."""

Step = dict[str, Any]
"""A step of an output: `status`, `public_output`, and `tool_calls` and `usage`, both null if the agent reports none.

ECP agents add `evaluation_context`, `private_thought` and `logs`; conversations add `latency_ms`, and the rest of the
answer's metadata as `metadata`."""


@dataclass(frozen=True, slots=True)
class StepResponse(TargetResponse):
    """The answer of a turn that already has the form of a step."""

    step: Step = field(default_factory=dict)


def step_of(response: TargetResponse, latency_ms: float) -> Step:
    """Return the answer of a turn as a step."""
    if isinstance(response, StepResponse):
        step = dict(response.step)
    else:
        rest = dict(response.metadata)
        step = {"status": "done", "public_output": response.value}
        step |= {name: rest.pop(name, None) for name in ("tool_calls", "usage")}
        step |= {"metadata": rest} if rest else {}
    return {**step, "latency_ms": latency_ms}


def usage_of(steps: Iterable[Step]) -> dict[str, Any]:
    """Return the sums over the steps that report their usage: all numbers as `usage`, and those that budgets count."""
    usage: dict[str, Any] = {}
    tokens: dict[str, Any] = {}
    for step in steps:
        told = {name: value for name, value in _object(step.get("usage")).items() if is_number(value)}
        reported = {name: value for name, value in told.items() if value >= 0}
        for name, value in reported.items():
            usage[name] = usage.get(name, 0) + value
        parts = [told[name] for name in ("input_tokens", "output_tokens") if name in told]
        if "total_tokens" in reported or (parts and min(parts) >= 0):
            tokens["tokens"] = tokens.get("tokens", 0) + reported.get("total_tokens", sum(parts))
    cost = next(({"usd": usage[name]} for name in COSTS if name in usage), {})
    return {"usage": usage, **tokens, **cost} if usage else {}


def totals_of(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the usage of all steps, including mapped `tokens` and `usd`, and all tool calls.

    Tool calls are included only if each step reports its own.
    """
    totals = usage_of(steps)
    for name in ("tokens", "usd"):
        numbers = [value for step in steps if is_number(value := _object(step.get("metadata")).get(name))]
        if numbers:
            totals[name] = sum(numbers)
    if steps and all(isinstance(step.get("tool_calls"), list) for step in steps):
        totals["tool_calls"] = [call for step in steps for call in step["tool_calls"]]
    return totals


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
