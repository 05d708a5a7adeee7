"""Raw conversations with an agent whose answers may be wrong in any way, and the faults in them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fepflow.calls.processes import EOF_SECONDS, ChildProcess, obituary
from fepflow.calls.responses import media_type, shown
from fepflow.errors import TargetError
from fepflow.json.values import parse
from fepflow.security.redaction import excerpt

if TYPE_CHECKING:
    from fepflow.calls.ecp.http import Endpoint


class Wire(Protocol):
    """A connection to an agent that sends any text, and returns everything that comes back."""

    async def send(self, text: str) -> None:
        """Send a text, as a line or as the body of a POST."""

    async def receive(self, seconds: float) -> str | None:
        """Return the next line or event, or None if none comes in time."""

    async def fault(self) -> str:
        """Return why nothing comes any more; empty if that is unknown."""

    async def aclose(self) -> None:
        """End it."""


_EOF_PATIENCE = 5 * EOF_SECONDS
"""Longer than a run waits before it sends SIGTERM: a busy machine is not the agent's fault."""


class ProcessWire:
    """The stdin and stdout of a process."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._is_over = False
        self._fault = ""

    async def send(self, text: str) -> None:
        """Write a line."""
        self._process.stdin.write(text.encode() + b"\n")

    async def receive(self, seconds: float) -> str | None:
        """See Wire."""
        await asyncio.sleep(0)  # lines that are there already would never let others have their turn
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.read_line()
        except TimeoutError:
            return None
        except asyncio.LimitOverrunError:  # no answer can be read behind it
            self._fault = "the agent wrote a line that is too long"
            return None
        self._is_over = not line
        return line.rstrip(b"\n").decode("utf-8", "replace") if line else None

    async def fault(self) -> str:
        """See Wire: how the process has ended."""
        return str(await obituary(self._process, frozenset())) if self._is_over else self._fault

    async def end_of_input(self) -> float | None:
        """Close its stdin; return the seconds it took to end by itself, None if it has not for a while."""
        self._process.close_stdin()
        started = monotonic()
        return None if await self._process.wait(_EOF_PATIENCE) is None else monotonic() - started

    async def aclose(self) -> None:
        """See Wire."""
        await self._process.kill()


class HttpWire:
    """POSTs to an address one after the other, each within `seconds`, and the bodies or events of their responses."""

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._messages: deque[str] = deque()
        self._fault = ""

    async def send(self, text: str) -> None:
        """POST the text, and read the response to its end."""
        self._fault = ""
        try:
            async with asyncio.timeout(self._seconds), self._endpoint.post(text.encode()) as response:
                self._fault = f"HTTP {response.status_code} without an answer"
                if media_type(response) == "text/event-stream":
                    async for data in self._endpoint.events(response):
                        self._messages.append(data)
                elif (body := await self._endpoint.body(response)).strip():
                    self._messages.append(body)
        except TargetError as error:
            self._fault = str(error)
        except TimeoutError:
            self._fault = f"no complete response within {self._seconds:g} s"

    async def receive(self, seconds: float) -> str | None:
        """See Wire: all that comes is there already."""
        return self._messages.popleft() if self._messages else None

    async def fault(self) -> str:
        """See Wire."""
        return self._fault

    async def aclose(self) -> None:
        """Do nothing: each response was read."""


Id = int | str | None

_GRACE_SECONDS = 2.0


class Answer(NamedTuple):
    """An answer, an object with a result or an error; or None and the reason `why` there is none.

    `others` are earlier answers, to texts that were sent before the request.
    """

    message: dict[str, Any] | None
    why: str = ""
    others: Sequence[dict[str, Any]] = ()

    @property
    def result(self) -> Any:
        """The result; None for an error."""
        return None if self.message is None else self.message.get("result")

    @property
    def error_code(self) -> Any:
        """The code of the error, or None."""
        error = None if self.message is None else self.message.get("error")
        return error.get("code") if isinstance(error, dict) else None

    def __str__(self) -> str:
        return self.why if self.message is None else shown(self.message.get("error", self.message.get("result")))


@dataclass
class Observations:
    """Faults in answers by conformance check: the first one, and their number."""

    first: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, check: str, fault: str) -> None:
        """Note a fault."""
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
        self, method: str, params: dict[str, Any] | None = None, *, name: str | None = None, before: Sequence[str] = ()
    ) -> Answer:
        """Return the answer to a request, whose id is `name` or the next number. Lines in `before` are sent first."""
        await self.rest(0)
        for text in before:
            await self.wire.send(text)
        own: Id = name or next(self._numbers)
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
            its_id = message.get("id")
            if _same(its_id, own):
                self._look_at(message)
                self._note_again(again)
                return Answer(message, others=others)
            if any(_same(its_id, asked) for asked in self._asked):
                self._note_again(again)
                again, deadline = message, min(deadline, monotonic() + self._grace)
            elif is_alone or str(its_id) == str(own):
                return self._wrong(message, own)
            else:
                others.append(message)
        if again is not None:
            return self._wrong(again, own, others)
        return Answer(None, await self.wire.fault() or f"no answer within {self._seconds:g} s", others)

    @property
    def _grace(self) -> float:
        """Seconds to wait for the right answer after one with the id of an earlier request."""
        return 0.0 if "ids" in self._observations.first else _GRACE_SECONDS

    def _note_again(self, message: dict[str, Any] | None) -> None:
        if message is not None:
            self._observations.note("only_answers", f"the request {shown(message['id'])} was answered again")

    def _wrong(self, message: dict[str, Any], own: Id, others: Sequence[dict[str, Any]] = ()) -> Answer:
        """Note and return an answer with a wrong id."""
        self._observations.note("ids", f"{shown(own)} was asked, and {shown(message.get('id'))} answered")
        return Answer(message, others=others)

    def _message(self, text: str) -> dict[str, Any] | None:
        """Return the answer in a text, or None."""
        try:
            message = parse(text)
        except ValueError:
            message = None
        if isinstance(message, dict) and "method" not in message and {"result", "error"} & message.keys():
            return message
        if text.strip():
            self._observations.note("only_answers", f"this came, too: {excerpt(text, frozenset(), 100)}")
        return None

    def _look_at(self, message: dict[str, Any]) -> None:
        """Note faults in the form of an answer."""
        error = message.get("error")
        if message.get("jsonrpc") != "2.0":
            self._observations.note("json_rpc", f"jsonrpc is {shown(message.get('jsonrpc'))}")
        if "error" in message and "result" in message:
            self._observations.note("json_rpc", "an answer has both result and error")
        is_whole = isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
        if error is not None and not is_whole:
            self._observations.note("json_rpc", f"an error is not an object with code and message: {shown(error)}")

    async def _next(self, deadline: float) -> str | None:
        """Return the next text before the deadline, which also stops an agent that writes without end."""
        left = deadline - monotonic()
        return await self.wire.receive(left) if left > 0 else None

    async def rest(self, seconds: float = 0.1) -> None:
        """Note texts that come without a request, for at most `seconds` of silence and two seconds in all."""
        deadline = monotonic() + seconds + _GRACE_SECONDS
        while monotonic() < deadline and (text := await self.wire.receive(seconds)) is not None:
            if (message := self._message(text)) is not None:
                self._observations.note("only_answers", f"an answer came that nothing asked for: {shown(message)}")


def _same(its_id: Any, own: Id) -> bool:
    """Return whether two ids are the same, and of the same type: "3" is not 3."""
    return type(its_id) is type(own) and its_id == own
