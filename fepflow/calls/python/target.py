"""The system under test as a Python function, class or generator of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fepflow.calls.base import (
    Conversation,
    TargetResponse,
    Turn,
    pass_traceparent,
    refuse_reserved_names,
    sent_fields,
    template_context,
)
from fepflow.calls.python.executors import Failure, Processes, Threads, check, find_agent
from fepflow.calls.python.source import locate, open_entry, source_hash
from fepflow.calls.python.worker import CASE, TRACEPARENT
from fepflow.calls.response_parser import describe, metadata_in
from fepflow.errors import JSONPathError, TargetError
from fepflow.json.codec import decode
from fepflow.jsonpath.path import compile_path
from fepflow.jsonpath.template import Template, compile_template
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.suite import target

_LARGE = 1_000_000


class PythonTarget:
    """A target that calls `config.python`, `config.concurrency` times at once at most, in threads or processes.

    Opening it loads the code, which executes the file. Answers and errors are redacted: `secrets`, and values of
    environment variables with names of secrets. Raises InputError for code that cannot be loaded or called,
    JSONPathError for an invalid path.
    """

    def __init__(
        self, config: target.Target, folder: Path, roots: Sequence[Path], secrets: frozenset[str] = frozenset()
    ) -> None:
        assert config.python is not None  # the factory has looked
        self._python: Final = config.python
        self.secrets = secrets | known_secrets()
        names = None if self._python.arguments is None else sorted(self._python.arguments)
        self._input = compile_template(self._python.input, with_texts=True)
        self._messages = compile_template("$.turn.messages") if "input" not in self._python.model_fields_set else None
        self._arguments = compile_template(self._python.arguments, with_texts=True)
        refuse_reserved_names(self._python.metadata, "target.python.metadata")
        self._output = None if self._python.output is None else compile_path(self._python.output)
        self._metadata = {name: compile_path(path) for name, path in self._python.metadata.items()}
        python = self._python
        self._executor: Processes | Threads
        if python.isolate == "thread" and python.interpreter is None:
            source = locate(python.function, folder, roots)
            entry = open_entry(source, names)
            self._wants_case = entry.arguments.wants_case
            self._executor = Threads(entry, source.folder, python.max_bytes, config.concurrency)
        else:
            agent = find_agent(python, folder, roots, names, config.trace)
            source, self._wants_case = check(agent)
            self._executor = Processes(agent, config.concurrency)
        asked = [source.name, python.input, python.arguments, python.output, python.metadata]
        if python.interpreter is not None:
            asked.append(python.interpreter)
        self.fingerprint = content_hash("python", source_hash(source), redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the data for the call, `{input, arguments, test_case}`. Raises JSONPathError."""
        return self._request(case, template_context(case), self._input)

    def _request(self, case: TestCase, context: dict[str, Any], argument: Template) -> dict[str, Any]:
        if self._python.arguments is not None:
            request = {"arguments": self._arguments.render(context)}
        else:
            request = {"input": argument.render(context)}
        return {**request, CASE: sent_fields(case)} if self._wants_case else request

    @property
    def conversation_problem(self) -> str | None:
        """Reason why no conversation is possible (all turns would be the same call), or None."""
        where, template = "input", self._messages or self._input
        if self._python.arguments is not None:
            where, template = "arguments", self._arguments
        if any(path.expression.startswith("$.turn") for _, path in template.paths):
            return None
        return f"each turn would be the same call: put $.turn.messages or $.turn.input into target.python.{where}"

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation; each turn is a call with the messages until then."""

        async def say(turn: Turn) -> TargetResponse:
            return await self.call(self._request(case, template_context(case, turn), self._messages or self._input))

        yield Conversation(say)

    async def call(self, request: Any) -> TargetResponse:
        """Call the function once. Raises TargetError."""
        if (context := pass_traceparent()) is not None:
            request = {**request, TRACEPARENT: context}
        reply = await self._executor.ask(request)
        if isinstance(reply, Failure):
            raise reply.error(self.secrets)
        if len(reply) > _LARGE:  # parsing it would block all other calls
            return await asyncio.to_thread(self._answer, reply)
        return self._answer(reply)

    def _answer(self, text: str) -> TargetResponse:
        returned = decode(text)
        value = redact_json(returned["value"], self.secrets)
        metadata = redact_json({**returned["metadata"], **metadata_in(self._metadata, value)}, self.secrets)
        if self._output is None:
            return TargetResponse(value, metadata)
        try:
            return TargetResponse(self._output.resolve(value), metadata)
        except JSONPathError:
            message = f"there is nothing at {self._python.output} (target.python.output); it returned {describe(value)}"
            raise TargetError(message, kind="missing_output", retryable=False) from None

    async def aclose(self) -> None:
        """End the threads or processes."""
        await self._executor.aclose()
