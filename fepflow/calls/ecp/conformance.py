"""Conformance checks of an agent with the Evaluation Context Protocol, made by talking to it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from fepflow.calls.ecp.conversation import Answer, Conversation, HttpWire, Observations, ProcessWire, Wire
from fepflow.calls.ecp.protocol import VERSION, agent_info, step_result
from fepflow.calls.ecp.target import Agents, open_agents
from fepflow.calls.processes import EOF_SECONDS, find_command
from fepflow.calls.responses import INVALID_PARAMS, METHOD_NOT_FOUND, shown
from fepflow.errors import TargetError
from fepflow.security.redaction import known_secrets, remember, secrets_in_address
from fepflow.suite.target import Target

Status = Literal["pass", "fail", "skip"]

CHECKS: Mapping[str, str] = {
    "initialize": "agent/initialize gives name and capabilities",
    "version": "a version is agreed on, and one that does not exist refused",
    "step": "agent/step gives status, texts or null, and nothing else in their place",
    "tool_calls": "tool calls are objects with name and arguments",
    "usage": "usage is an object of counts",
    "two_steps": "a second step is answered in the same process",
    "unknown_params": "unknown params are ignored",
    "unicode": "texts of any language come through",
    "long_input": "an input of 300 kB is answered",
    "reset": "agent/reset gives true",
    "reset_effect": "after a reset the agent answers as after a start",
    "unknown_method": "an unknown method gives the error -32601",
    "malformed_json": "a line that is not JSON does not end it",
    "notification": "a request without id is not answered",
    "ids": "answers have the ids of their requests, with their types",
    "json_rpc": "answers are objects of JSON-RPC 2.0",
    "only_answers": "stdout has nothing but answers: one for each request, no prints",
    "fresh_process": "another process can be started, and answers",
    "end_of_input": "the process ends by itself when its stdin is closed",
}
"""The checks, by name."""


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """The result of one check; `skip` if it cannot be decided, or does not apply."""

    name: str
    status: Status
    message: str = ""


@dataclass
class ConformanceReport:
    """The results of all checks, and the agent's description of itself."""

    agent: str = ""
    protocol_version: str | None = None
    capabilities: list[str] = field(default_factory=list)
    checks: list[ConformanceCheck] = field(default_factory=list)

    @property
    def is_conformant(self) -> bool:
        """True if no check failed."""
        return all(check.status != "fail" for check in self.checks)


async def check_conformance(target: Target, folder: Path, text: str, seconds: float) -> ConformanceReport:
    """Start the agent of an `ecp` target from `folder`, or call its address, and check what it does.

    Its steps have the input `text`, and each request the time limit `seconds`. Raises InputError for a command or an
    address that cannot be used, TargetError if no process can be started.
    """
    assert target.ecp is not None  # the caller has made it
    remember(secrets_in_address(target.ecp.url or ""))
    if target.ecp.command is not None:
        find_command(target.ecp, folder)
    async with aclosing(open_agents(target, folder, known_secrets())) as agents:

        async def connect() -> Wire:
            if isinstance(agents, Agents):
                return ProcessWire(await agents.start())
            return HttpWire(agents, seconds)

        return await Examination(connect, text, seconds, is_process=isinstance(agents, Agents)).run()


NO_VERSION = "99.0"
LONG_CHARACTERS = 300_000
UNICODE = 'Grüße, 日本語, \N{SLIGHTLY SMILING FACE} \u2028 «"quoted" \\ \t»'
_DAMAGED = ("\ufffd", "GrÃ", "\udce2", "\udcc3")
"""Parts of UNICODE as a wrong encoding would show them."""

_OVER_ALL = ("step", "tool_calls", "usage", "ids", "json_rpc", "only_answers")
"""Checks of all answers together."""

_DIGITS = re.compile(r"[0-9]{1,15}")

_NOT_TRIED = "not tried: the agent did not get so far"

Connect = Callable[[], Awaitable[Wire]]


class Examination:
    """An examination of an agent: its steps have the input `text`, and each request the time limit `seconds`.

    An agent at an address cannot be restarted.
    """

    def __init__(self, connect: Connect, text: str, seconds: float, *, is_process: bool) -> None:
        self._connect = connect
        self._text = text
        self._seconds = seconds
        self._is_process = is_process
        self._observations = Observations()
        self._results: dict[str, tuple[Status, str]] = {}
        self._report = ConformanceReport()
        self._open: list[Conversation] = []
        self._cheap = ("agent/step", {"input": text})

    async def run(self) -> ConformanceReport:
        """Run all checks. Raises TargetError if no process can be started."""
        try:
            conversation = await self._begin("initialize")
            if conversation is not None:
                await self._examine(conversation)
        finally:
            for left in self._open:
                await left.wire.aclose()
        for name in CHECKS:
            self._report.checks.append(ConformanceCheck(name, *self._outcome(name)))
        return self._report

    def _outcome(self, name: str) -> tuple[Status, str]:
        if count := self._observations.counts[name]:
            more = f" (and {count - 1} more)" if count > 1 else ""
            return "fail", self._observations.first[name] + more
        if name in _OVER_ALL and "step" not in self._results:
            return self._results.get(name, ("skip", _NOT_TRIED))
        return self._results.get(name, ("pass", "") if name in _OVER_ALL else ("skip", _NOT_TRIED))

    async def _examine(self, conversation: Conversation) -> None:
        first = await self._step(conversation, "step")
        await self._step(conversation, "two_steps")
        conversation = await self._going_on(conversation)
        after_reset = await self._examine_reset(conversation)
        for name, text, more in (
            ("unknown_params", self._text, {"fepflow_unknown": {"a": 1}}),
            ("unicode", UNICODE, {}),
            ("long_input", "x" * LONG_CHARACTERS, {}),
        ):
            conversation = await self._going_on(conversation)
            await self._step(conversation, name, text, more)
        for examine in (self._examine_methods, self._examine_malformed, self._examine_notification, self._examine_ids):
            conversation = await self._going_on(conversation)
            await examine(conversation)
        await self._examine_processes(conversation, first, after_reset)
        await self._examine_version()

    def _set(self, name: str, status: Status, message: str = "") -> None:
        """Set the result of a check, unless it has failed before."""
        if not self._has_failed(name):
            self._results[name] = status, message

    def _has_failed(self, name: str) -> bool:
        return self._results.get(name, ("skip", ""))[0] == "fail"

    async def _open_conversation(self) -> Conversation:
        conversation = Conversation(await self._connect(), self._seconds, self._observations)
        self._open.append(conversation)
        return conversation

    async def _begin(self, name: str) -> Conversation | None:
        """Return a new conversation with the agent, and note the result as the check `name`; None if it failed."""
        try:
            conversation = await self._open_conversation()
        except TargetError as error:
            if error.retryable:  # no process can be started, which is not the agent's fault
                raise
            self._set(name, "fail", str(error))
            return None
        answer = await conversation.ask("agent/initialize", {"protocol_version": VERSION, "config": {}})
        if answer.error_code == INVALID_PARAMS:
            answer = await conversation.ask("agent/initialize", {"config": {}})
        if not isinstance(answer.result, dict):
            self._set(name, "fail", str(answer))
            return None
        fault = self._fault_of_start(answer.result) if name == "initialize" else ""
        self._set(name, "fail" if fault else "pass", fault)
        return conversation

    def _fault_of_start(self, result: dict[str, Any]) -> str:
        """Return the fault in the agent's answer to `initialize`, except for its version, which has its own check."""
        try:
            info = agent_info({**result, "protocol_version": None})
        except TargetError as error:
            return str(error)
        self._report.agent, self._report.capabilities = info.name, sorted(info.capabilities)
        try:
            self._report.protocol_version = agent_info(result).version
        except TargetError as error:
            self._set("version", "fail", str(error))
        else:
            missing = "none is named: it is treated as older than 1.0"
            self._set("version", "pass", "" if self._report.protocol_version else missing)
        lacking = [name for name in ("name", "capabilities") if name not in result]
        return f"the result has no {' and no '.join(lacking)}" if lacking else _fault_of_names(result)

    async def _going_on(self, conversation: Conversation) -> Conversation:
        """Return the conversation, or a new one if the agent has not answered."""
        if not conversation.is_broken:
            return conversation
        return await self._begin("fresh_process") or conversation

    async def _step(
        self, conversation: Conversation, name: str, text: str | None = None, more: dict[str, Any] | None = None
    ) -> Any:
        """Return the result of a step, and note it as the check `name`."""
        answer = await conversation.ask("agent/step", {"input": self._text if text is None else text, **(more or {})})
        result = answer.result
        if not isinstance(result, dict):
            self._set(name, "fail", f"no result: {answer}")
            if name == "step":
                self._observations.note("step", f"no result: {answer}")
            return None
        faults = list(faults_of_step(result))
        for check, fault in faults:
            self._observations.note(check, fault)
        output = str(result.get("public_output"))
        if name == "unicode" and any(mark in output for mark in _DAMAGED):
            self._set(name, "fail", f"it came back damaged: {shown(output)}")
        else:
            self._set(name, "pass")
        return result

    async def _examine_reset(self, conversation: Conversation) -> Any:
        """Return the result of the step after a reset."""
        answer = await conversation.ask("agent/reset")
        is_reset = answer.result is True
        self._set("reset", "pass" if is_reset else "fail", "" if is_reset else _unexpected(answer))
        if not is_reset or conversation.is_broken:
            self._set("reset_effect", "skip", "there is no reset")
            return None
        self._cheap = ("agent/reset", {})
        after = await self._step(conversation, "two_steps")
        if not self._is_process:
            results = [after]
            for _ in range(2):
                await conversation.ask("agent/reset")
                results.append(await self._step(conversation, "two_steps"))
            self._compare_resets(results)
        return after

    def _compare_resets(self, results: list[Any]) -> None:
        """Judge whether an agent that cannot be restarted answers the same after each reset."""
        answers = [_visible_part(result) for result in results]
        if all(answer == answers[0] for answer in answers):
            self._set("reset_effect", "pass")
        elif goes_on(answers):
            self._set("reset_effect", "fail", f"after three resets the step gives {', '.join(map(shown, answers))}")
        else:
            self._set("reset_effect", "skip", "cannot be told: the agent answers differently from reset to reset")

    def _compare(self, starts: list[Any], after_reset: Any) -> None:
        """Judge whether the agent answers after a reset as after a start."""
        if any(_visible_part(start) != _visible_part(starts[0]) for start in starts):
            self._set("reset_effect", "skip", "cannot be told: the agent answers differently from start to start")
        elif _visible_part(after_reset) == _visible_part(starts[0]):
            self._set("reset_effect", "pass")
        else:
            both = f"{shown(_visible_part(after_reset))}, and after a start {shown(_visible_part(starts[0]))}"
            self._set("reset_effect", "fail", f"after a reset the step gives {both}")

    async def _examine_methods(self, conversation: Conversation) -> None:
        answer = await conversation.ask("agent/fepflow_unknown")
        is_right = answer.error_code == METHOD_NOT_FOUND
        self._set("unknown_method", "pass" if is_right else "fail", "" if is_right else _unexpected(answer))

    async def _examine_malformed(self, conversation: Conversation) -> None:
        answer = await conversation.ask(*self._cheap, before=['{"jsonrpc": "2.0", "method": '])
        codes = [Answer(other).error_code for other in answer.others]
        if answer.message is None:
            self._set("malformed_json", "fail", f"after a line that is not JSON: {answer}")
        else:
            self._set("malformed_json", "pass", "" if not codes else f"it is answered with {codes[0]}")

    async def _examine_notification(self, conversation: Conversation) -> None:
        method, params = self._cheap
        notification = json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
        answer = await conversation.ask(method, params, before=[notification])
        if answer.message is None:
            self._set("notification", "fail", f"after a request without id: {answer}")
        elif answer.others:
            self._set("notification", "fail", f"it was answered with {shown(answer.others[0])}")
        else:
            self._set("notification", "pass")

    async def _examine_ids(self, conversation: Conversation) -> None:
        answer = await conversation.ask(*self._cheap, name="fepflow-1")
        if answer.message is None:
            self._observations.note("ids", f"a request whose id is a text: {answer}")

    async def _examine_processes(self, conversation: Conversation, first: Any, after_reset: Any) -> None:
        if not self._is_process:
            for name in ("fresh_process", "end_of_input"):
                self._set(name, "skip", "does not apply to an address")
            await conversation.rest()
            return
        if isinstance(conversation.wire, ProcessWire) and not conversation.is_broken:
            seconds = await conversation.wire.end_of_input()
            if seconds is None:
                self._set("end_of_input", "fail", "it has to be ended by SIGTERM")
            else:
                late = f"after {seconds:.1f} s; a run sends SIGTERM after {EOF_SECONDS:g} s"
                self._set("end_of_input", "pass", late if seconds > EOF_SECONDS else "")
            await conversation.rest()
        starts = [first]
        for _ in range(2):
            fresh = await self._begin("fresh_process")
            if fresh is None:
                return
            starts.append(await self._step(fresh, "fresh_process"))
            await fresh.wire.aclose()
        if after_reset is not None:
            self._compare(starts, after_reset)

    async def _examine_version(self) -> None:
        """Ask for a version that does not exist, unless the agent names no version at all."""
        if self._has_failed("fresh_process") or self._report.protocol_version is None:
            return
        conversation = await self._open_conversation()
        answer = await conversation.ask("agent/initialize", {"protocol_version": NO_VERSION, "config": {}})
        if answer.message is None:
            self._set("version", "fail", f"asked for the version {NO_VERSION}: {answer}")
        elif isinstance(answer.result, dict) and answer.result.get("protocol_version") == NO_VERSION:
            self._set("version", "fail", f"it agrees to the version {NO_VERSION}, which does not exist")


def goes_on(answers: Sequence[Any]) -> bool:
    """Return whether answers show a memory: a number grows by 1 each time, or a text gets longer.

    Nothing else may differ, so that a random answer, or one with the time, does not count.
    """
    texts = [json.dumps(one, ensure_ascii=False) for one in answers]
    rests = {_DIGITS.sub("0", text) for text in texts}
    if len(rests) == 1:
        rows = zip(*([int(number) for number in _DIGITS.findall(text)] for text in texts), strict=True)
        return any(all(after - before == 1 for before, after in pairwise(row)) for row in rows)
    outputs = [str(one.get("public_output")) if isinstance(one, dict) else "" for one in answers]
    return all(len(after) > len(before) > 0 and after.startswith(before) for before, after in pairwise(outputs))


def _fault_of_names(result: dict[str, Any]) -> str:
    """Return the fault in the name and the capabilities, by stricter rules than those of runs."""
    name, capabilities = result["name"], result["capabilities"]
    if not isinstance(name, str) or not name:
        return f"name is {shown(name)}, and not a text with content"
    if capabilities is None:
        return "capabilities is null, and not an object"
    wrong = [name for name, value in capabilities.items() if not isinstance(value, dict)]
    return f"the capability {wrong[0]} is {shown(capabilities[wrong[0]])}, and not an object" if wrong else ""


def _unexpected(answer: Answer) -> str:
    return answer.why if answer.message is None else f"the answer is {answer}"


def _visible_part(result: Any) -> Any:
    """Return the part of a step's result that shows whether the agent remembers."""
    if not isinstance(result, dict):
        return None
    return {name: result.get(name) for name in ("status", "public_output", "tool_calls")}


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def faults_of_step(result: Any) -> Iterator[tuple[str, str]]:
    """Yield each fault, with the conformance check that it belongs to."""
    rest = {name: value for name, value in result.items() if name not in ("tool_calls", "usage")}
    try:
        step_result(rest)
    except TargetError as error:
        yield "step", str(error)
    yield from (("tool_calls", fault) for fault in _faults_of_calls(result.get("tool_calls")))
    yield from (("usage", fault) for fault in _faults_of_usage(result.get("usage")))


def _faults_of_calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list | None):
        yield "tool_calls is not a list"
        return
    for index, call in enumerate(calls or ()):
        name = call.get("name", call.get("tool")) if isinstance(call, dict) else None
        if not isinstance(name, str) or not name:
            yield f"tool_calls[{index}] is not an object with a name"
        elif not isinstance(call.get("arguments", call.get("args", {})), dict):
            yield f"the arguments of tool_calls[{index}] are not an object"


def _faults_of_usage(usage: Any) -> Iterator[str]:
    if not isinstance(usage, dict | None):
        yield "usage is not an object"
        return
    for name in _COUNTS:
        value = (usage or {}).get(name)
        if value is not None and (type(value) is not int or value < 0):
            yield f"usage.{name} is not a count"
