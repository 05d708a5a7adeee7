"""Requests to an agent whose answers may be wrong in any way, and what is seen of that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

from fepflow.calls.ecp.conformance.wire import Wire
from fepflow.json import parser
from fepflow.security.redaction import excerpt

Id = int | str | None

_GRACE_SECONDS = 2.0


class Answer(NamedTuple):
    """What came as the answer: an object with a result or an error; None, and why not.

    `others` are answers that came before it to what was sent with it.
    """

    message: dict[str, Any] | None
    why: str = ""
    others: Sequence[dict[str, Any]] = ()

    @property
    def result(self) -> Any:
        """The result; None for an error, too."""
        return None if self.message is None else self.message.get("result")

    @property
    def error_code(self) -> Any:
        """The code of the error; None where there is none."""
        error = None if self.message is None else self.message.get("error")
        return error.get("code") if isinstance(error, dict) else None

    def __str__(self) -> str:
        return self.why if self.message is None else shown(self.message.get("error", self.message.get("result")))


@dataclass
class Observations:
    """What was seen of all answers that is wrong in itself: by which conformance check, and what."""

    first: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, check: str, fault: str) -> None:
        """Take note of a fault."""
        self.first.setdefault(check, fault)
        self.counts[check] += 1


class Conversation:
    """Requests over one wire, one at a time, each with a deadline."""

    def __init__(self, wire: Wire, seconds: float, observations: Observations) -> None:
        self.wire = wire
        self.is_broken = False
        self._seconds = seconds
        self._observations = observations
        self._numbers = count(1)
        self._asked: list[Id] = []

    async def ask(
        self, method: str, params: dict[str, Any] | None = None, *, named: str | None = None, before: Sequence[str] = ()
    ) -> Answer:
        """The answer to a request, which has `named` as id, else a number; `before` are lines that are sent first."""
        await self.rest(0)
        for text in before:
            await self.wire.send(text)
        own: Id = named or next(self._numbers)
        request = {"jsonrpc": "2.0", "id": own, "method": method, "params": params or {}}
        await self.wire.send(json.dumps(request, ensure_ascii=False))
        answer = await self._answer(own, is_alone=not before)
        self._asked.append(own)
        self.is_broken = answer.message is None
        return answer

    async def _answer(self, own: Id, *, is_alone: bool) -> Answer:
        deadline = monotonic() + self._seconds
        others: list[dict[str, Any]] = []
        again: dict[str, Any] | None = None
        while (text := await self._next(deadline)) is not None:
            message = self._message(text)
            if message is None:
                continue
            given = message.get("id")
            if _same(given, own):
                self._look_at(message)
                self._note_again(again)
                return Answer(message, others=others)
            if any(_same(given, asked) for asked in self._asked):
                self._note_again(again)
                again, deadline = message, min(deadline, monotonic() + self._grace)
            elif is_alone or str(given) == str(own):
                return self._wrong(message, own)
            else:
                others.append(message)
        if again is not None:
            return self._wrong(again, own, others)
        return Answer(None, await self.wire.fault() or f"no answer within {self._seconds:g} s", others)

    @property
    def _grace(self) -> float:
        """How long the answer is waited for after one that has the id of an earlier request, and may be it."""
        return 0.0 if "ids" in self._observations.first else _GRACE_SECONDS

    def _note_again(self, message: dict[str, Any] | None) -> None:
        if message is not None:
            self._observations.note("only_answers", f"the request {shown(message['id'])} was answered again")

    def _wrong(self, message: dict[str, Any], own: Id, others: Sequence[dict[str, Any]] = ()) -> Answer:
        """An answer whose id is another one."""
        self._observations.note("ids", f"{shown(own)} was asked, and {shown(message.get('id'))} answered")
        return Answer(message, others=others)

    def _message(self, text: str) -> dict[str, Any] | None:
        """The answer that a text is, if it is one."""
        try:
            message = parser.parse(text)
        except ValueError:
            message = None
        if isinstance(message, dict) and "method" not in message and {"result", "error"} & message.keys():
            return message
        if text.strip():
            self._observations.note("only_answers", f"this came, too: {excerpt(text, frozenset(), 100)}")
        return None

    def _look_at(self, message: dict[str, Any]) -> None:
        """Look at the form of an answer."""
        error = message.get("error")
        if message.get("jsonrpc") != "2.0":
            self._observations.note("json_rpc", f"jsonrpc is {shown(message.get('jsonrpc'))}")
        if "error" in message and "result" in message:
            self._observations.note("json_rpc", "an answer has both result and error")
        is_whole = isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
        if error is not None and not is_whole:
            self._observations.note("json_rpc", f"an error is no object with code and message: {shown(error)}")

    async def _next(self, deadline: float) -> str | None:
        """What comes next. An agent that writes without end does not get round the deadline."""
        left = deadline - monotonic()
        return await self.wire.receive(left) if left > 0 else None

    async def rest(self, seconds: float = 0.1) -> None:
        """Look at what comes though nothing is asked; not for long where it does not end."""
        deadline = monotonic() + seconds + _GRACE_SECONDS
        while monotonic() < deadline and (text := await self.wire.receive(seconds)) is not None:
            if (message := self._message(text)) is not None:
                self._observations.note("only_answers", f"an answer came that nothing asked for: {shown(message)}")


def _same(given: Any, own: Id) -> bool:
    """Whether an id is just that, and not a text that reads like the number."""
    return type(given) is type(own) and given == own


def shown(value: Any) -> str:
    """A JSON value for a message."""
    return excerpt(json.dumps(value, ensure_ascii=False), frozenset(), 120)
