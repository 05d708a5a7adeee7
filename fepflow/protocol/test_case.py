"""Test cases, outputs, and the evaluation context that checks see (FEP 2.1, 2.2, 2.3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from fepflow.errors import JSONPathError
from fepflow.protocol.check import Check, Checks, checks_in_full, id_of_type, to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import FepModel

REUSED_FROM = "reused_from"
"""Name in an output's metadata of the earlier run that the output is of."""

ERASED = "erased_at"
"""Name in the metadata of a case and its outputs of the time at which their contents were erased."""


class ScriptedTurn(FepModel):
    """A turn of a conversation: the user's message, and checks that see its answer as the output."""

    input: Any
    checks: Checks | None = None


class SimulatedUser(FepModel):
    """A user played by a model until it says that the goal is reached or given up, for at most `max_turns` turns."""

    goal: Annotated[str, Field(min_length=1, max_length=20_000, description="What the user wants to achieve.")]
    persona: Annotated[str, Field(max_length=20_000)] | None = Field(default=None, description="Who the user is.")
    max_turns: Annotated[int, Field(ge=1, le=100)] = Field(default=8, description="Maximum number of turns.")
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Model that plays the user; default: that of the suite's user section."
    )


def _turn(value: Any) -> Any:
    return value if isinstance(value, dict | ScriptedTurn) else {"input": value}


def _alternatives(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"required": [name]} for name in ("input", "turns", "user")]
    schema.pop("required", None)


class TestCase(FepModel):
    """A test case (FEP 2.1). Any JSON value may be `input` and `expected`.

    Without an `id`, it gets one from its content, so the same case always has the same id. `checks` are its own, in
    addition to the shared ones (FEP 2.3.3, pattern 2).

    A conversation has `turns`, or a simulated `user`, instead of `input`. Its `input` is then made from them: a list of
    the user's messages, or the object that describes the user. Checks of a turn become checks of the case.
    """

    __test__ = False  # pytest would take the name for a class of tests
    model_config = ConfigDict(json_schema_extra=_alternatives)

    # The default is for type checkers only: a case without an id has got one before it is validated.
    id: Annotated[str, Field(min_length=1, json_schema_extra=lambda schema: schema.pop("default", None))] = ""
    input: Any
    expected: Any = None
    metadata: dict[str, Any] | None = None
    checks: Checks | None = None
    turns: (
        Annotated[
            list[Annotated[ScriptedTurn, BeforeValidator(_turn, json_schema_input_type=ScriptedTurn | Any)]],
            Field(min_length=1, max_length=1000, description="The user's messages, turn by turn, instead of input."),
        ]
        | None
    ) = None
    user: SimulatedUser | None = Field(default=None, description="A simulated user, in place of input.")

    @property
    def is_conversation(self) -> bool:
        """True if the target is called turn by turn."""
        return self.turns is not None or self.user is not None

    @classmethod
    def trusted(cls, data: dict[str, Any]) -> Self:
        """See FepModel."""
        models = dict(data)
        if data.get("checks") is not None:
            models["checks"] = [Check.trusted(check) for check in data["checks"]]
        if data.get("turns") is not None:
            models["turns"] = [ScriptedTurn.trusted(turn) for turn in data["turns"]]
        if data.get("user") is not None:
            models["user"] = SimulatedUser.trusted(data["user"])
        return super().trusted(models)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Add the input of a conversation, and the id of a case that has none."""
        if not isinstance(data, dict):
            return data
        if (conversation := _input_of_conversation(data)) is not None:
            if "input" in data and data["input"] != conversation[0]:
                message = "a test case has input or turns, not both: the input of a conversation is made of its turns"
                raise ValueError(message if data.get("turns") is not None else message.replace("turns", "user"))
            if data.get("turns") is not None and data.get("user") is not None:
                raise ValueError("a test case has turns or a user, not both: a simulated user says what comes to mind")
            data = {**data, "input": conversation[0]}
        if data.get("id") is None and "input" in data:
            content = {key: data.get(key) for key in ("input", "expected", "metadata")}
            return {**data, "id": "case-" + content_hash(content)[:12]}
        return data

    @model_validator(mode="after")
    def _take_checks_of_turns(self) -> Self:
        if any(turn.checks for turn in self.turns or ()):
            self.checks = [*(self.checks or ()), *_checks_of_turns(self.turns or [])]
            self.turns = [ScriptedTurn(input=turn.input) for turn in self.turns or ()]
        return self


def _input_of_conversation(data: dict[str, Any]) -> tuple[Any] | None:
    """Return the input made from the turns or the user; None for other cases.

    For invalid turns it may be anything, because they have their own error.
    """
    if (turns := data.get("turns")) is not None:
        items = turns if isinstance(turns, list) else []
        return ([item.get("input") if isinstance(item, dict) else getattr(item, "input", item) for item in items],)
    if (user := data.get("user")) is not None:
        if isinstance(user, dict):  # in the order of the model, so that a case that is read back has the same hash
            return ({**{name: user[name] for name in SimulatedUser.model_fields if name in user}, **user},)
        return (user.model_dump() if isinstance(user, SimulatedUser) else user,)
    return None


def _checks_of_turns(turns: list[ScriptedTurn]) -> Iterator[Check]:
    """Yield the checks of turns as checks of their case, with ids like `turn-2-contains`."""
    for number, turn in enumerate(turns, 1):
        types: Counter[str] = Counter()
        for check in map(to_check, turn.checks or ()):
            types[check.type] += 1
            count = f"-{types[check.type]}" if types[check.type] > 1 else ""
            name = check.id or f"turn-{number}-{id_of_type(check.type)}{count}"
            yield check.model_copy(update={"id": name, "turn": number})


def case_in_full(case: Any) -> Any:
    """Return the document of a test case with its checks, and those of its turns, in full; see `in_full`."""
    case = checks_in_full(case)
    if isinstance(case, dict) and isinstance(case.get("turns"), list):
        case = {**case, "turns": [checks_in_full(turn) for turn in case["turns"]]}
    return case


class Output(FepModel):
    """The answer of the target to one test case (FEP 2.2). Any JSON value may be `value`.

    If the call failed, `value` is null and the cause is in `metadata.error`. If it failed at a later step, the value
    has the steps before it, `{steps: [...]}`, and `metadata.error.partial` is true.
    """

    value: Any
    id: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def failure(self) -> dict[str, Any] | None:
        """The cause, `{type, message, ...}`, if the call failed."""
        error = (self.metadata or {}).get("error")
        if not isinstance(error, dict) or "message" not in error:
            return None
        return error if self.value is None or error.get("partial") is True else None

    @property
    def is_partial(self) -> bool:
        """True if this output is what the call had before it failed."""
        return self.value is not None and self.failure is not None


Context = dict[str, Any]


def evaluation_context(case: TestCase, output: Output) -> Context:
    """Build the context of one output. Without `expected`, a path to it is an error."""
    test_case = {"id": case.id, "input": case.input, "metadata": case.metadata or {}}
    if "expected" in case.model_fields_set:
        test_case["expected"] = case.expected
    return {"test_case": test_case, "output": output_context(output)}


def output_context(output: Output) -> Context:
    """Build the output's part of the context. The trace of its call is beside the metadata."""
    metadata = output.metadata or {}
    seen = {"value": output.value, "metadata": metadata}
    return {**seen, "trace": metadata["trace"]} if "trace" in metadata else seen


def turn_context(context: Context, number: int) -> Context:
    """Return the context of a check of one turn: the turn's answer as value, and its metadata.

    Raises JSONPathError for a turn that did not happen. A trace belongs to the whole conversation, so it is left out.
    """
    value = context["output"]["value"]
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or len(steps) < number or not isinstance(steps[number - 1], dict):
        happened = (
            f"the conversation has {len(steps)}" if isinstance(steps, list) else "the output is not a conversation"
        )
        raise JSONPathError(f"there was no turn {number}: {happened}", f"$.output.value.steps[{number - 1}]")
    step = steps[number - 1]
    known = {name: step[name] for name in ("tool_calls", "usage", "latency_ms") if step.get(name) is not None}
    metadata = {**(step.get("metadata") or {}), **known}
    return {**context, "output": {"value": step.get("public_output"), "metadata": metadata}}


# --- conversations in outputs, turn by turn, for display -------------------------------------------------------------


_ENDINGS = {
    "reached": "the user reached the goal",
    "given_up": "the user gave up",
    "max_turns": "the user had no turns left",
}


class Exchange(NamedTuple):
    """A turn: the user's message, and the step that answered it, or None."""

    message: Any
    step: Mapping[str, Any] | None


def exchanges(value: Any) -> list[Exchange]:
    """Return the turns of a conversation; empty for any other output, which may look similar."""
    steps, messages = (value.get(name) if isinstance(value, dict) else None for name in ("steps", "messages"))
    if not isinstance(steps, list) or not isinstance(messages, list):
        return []
    if not all(isinstance(step, dict) and "public_output" in step for step in steps):
        return []
    contents = [
        message.get("content") for message in messages if isinstance(message, dict) and message.get("role") == "user"
    ]
    if not 0 <= len(contents) - len(steps) <= 1:
        return []
    return [Exchange(content, step) for content, step in zip_longest(contents, steps)]


def ending(metadata: Mapping[str, Any] | None) -> str | None:
    """Return in words how a simulated user ended the conversation, and why, or None."""
    user = (metadata or {}).get("user")
    words = _ENDINGS.get(str(user.get("ended"))) if isinstance(user, dict) else None
    if words is None or not isinstance(user, dict):
        return None
    return f"{words}: {user['reason']}" if isinstance(user.get("reason"), str) and user["reason"] else words
