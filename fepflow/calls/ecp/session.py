"""A conversation with one agent: it is set up, asked step by step, and reset."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, NamedTuple

from fepflow.calls.base import Progress, progress_of_call
from fepflow.calls.ecp.connection import Connection
from fepflow.calls.ecp.protocol import VERSION, AgentInfo, Step, agent_info, incompatible, step_result
from fepflow.calls.ecp.rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    VERSION_UNSUPPORTED,
    Request,
    RpcError,
    malformed,
    result_of,
)
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.suite import target

logger = logging.getLogger("fepflow.calls")


class Warnings:
    """What is said once a run, however many scenarios it has."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, message: str) -> None:
        """Log it, unless it was."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message)


class Limit(NamedTuple):
    """How many seconds a request may take, by which field of the suite; None: as long as the scenario."""

    name: str
    seconds: float | None


class Session:
    """An agent behind a connection, after `initialize`. A request that fails leaves it in a state that nobody knows."""

    def __init__(
        self, connection: Connection, warnings: Warnings, secrets: frozenset[str], ecp: target.EcpTarget
    ) -> None:
        self.connection: Final = connection
        self.agent = AgentInfo("", None, frozenset())
        self._ecp = ecp
        self._step_limit = Limit("step_timeout", ecp.step_timeout)
        self._start_limit = Limit("start_timeout", ecp.start_timeout)
        self._secrets = secrets
        self._warnings = warnings
        self._ids = count(1)

    async def initialize(self) -> None:
        """Set the agent up, and agree on a version. Raises TargetError, `incompatible` for an agent of another version,
        or one that does not declare the capabilities that the suite requires."""
        with _naming("agent/initialize"):
            self.agent = agent_info(await self._initialized())
            if self.agent.version is None:
                self._warnings.say("the agent names no protocol_version: it is taken for one of before ECP 1.0")
            if missing := [name for name in self._ecp.require_capabilities if name not in self.agent.capabilities]:
                declared = ", ".join(sorted(self.agent.capabilities)[:20]) or "none"
                lacking = f"{', '.join(missing)} (target.ecp.require_capabilities)"
                raise incompatible(f"the agent does not declare {lacking}; it declares {declared}")

    async def _initialized(self) -> Any:
        config = self._ecp.config
        try:
            return await self._ask(
                "agent/initialize", {"protocol_version": VERSION, "config": config}, self._start_limit
            )
        except RpcError as error:
            if error.code == VERSION_UNSUPPORTED:
                raise incompatible(str(error)) from None
            if error.code != INVALID_PARAMS:
                raise
        return await self._ask("agent/initialize", {"config": config}, self._start_limit)  # of an older agent

    async def step(self, text: str) -> Step:
        """The result of one step; raises TargetError."""
        tells_calls = "tool_calls" in self.agent.capabilities
        return step_result(await self._ask("agent/step", {"input": text}, self._step_limit), tells_calls=tells_calls)

    async def reset(self) -> None:
        """Have the agent forget what was; raises TargetError. One that knows no reset is warned of once."""
        with _naming("agent/reset"):
            try:
                result = await self._ask("agent/reset", {}, self._step_limit)
            except RpcError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                self._warnings.say("the agent knows no agent/reset: what it remembers goes from scenario to scenario")
                return
            if result is False:
                raise malformed("the agent answered with false, so it was not reset")
            if result is not True:
                self._warnings.say(
                    "the agent does not answer agent/reset with true; it is taken for reset all the same"
                )

    async def _ask(self, method: str, params: dict[str, Any], limit: Limit) -> Any:
        progress = progress_of_call.get(None) or Progress()
        progress.fault = ""
        request = Request(next(self._ids), method, params, progress)
        try:
            async with asyncio.timeout(limit.seconds) as deadline:
                message = await self.connection.ask(request)
        except TimeoutError:
            if not deadline.expired():
                raise
            late, fault = f"no answer within {limit.seconds:g} s (target.ecp.{limit.name})", progress.fault
            raise TargetTimeoutError(f"{late}: {fault}" if fault else late, retryable=not fault) from None
        except TargetError as error:
            if progress.fault and progress.fault not in str(error):
                error.args = (f"{error}; {progress.fault}",)
            raise
        return result_of(message, self._secrets)


@contextmanager
def _naming(method: str) -> Iterator[None]:
    """Have errors say which request they are about: one that is no step."""
    try:
        yield
    except TargetError as error:
        error.args = (f"{method}: {error}",)
        raise
