"""A model as the target: behind an OpenAI-compatible endpoint, or of any provider that litellm knows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fepflow.calls.base import Conversation, TargetResponse, Turn, pass_traceparent, progress_of_call, template_context
from fepflow.calls.models import _litellm
from fepflow.calls.models.answers import is_hosted
from fepflow.calls.models.client import ModelClient
from fepflow.calls.models.model import Model, ModelOutput, usual_bases
from fepflow.documents.files import read_text
from fepflow.errors import (
    CheckArgumentsError,
    InputError,
    JSONPathError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    Problem,
    TargetError,
    TargetTimeoutError,
)
from fepflow.extras import require
from fepflow.jsonpath.path import Template, compile_template
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import known_secrets, redact, redact_json, remember, secrets_in_address
from fepflow.suite import target
from fepflow.suite.reader import resolve_inside
from fepflow.suite.target import prompt_file

MAX_PROMPT_BYTES = 1_000_000
"""Largest file with a prompt."""

_NO_KEY = "no-api-key-was-given"
"""Sent where a suite names an address and no key: a key of the environment belongs to another address."""

_REFUSALS = ("refusal", "content_filter")
_KINDS = {
    **dict.fromkeys(("rate_limited", "parameter_refused", "format_refused"), "http_status"),
    "invalid": "malformed",
}
"""Kinds of errors of a target for those of models that judge."""

_WORDS = {"provider_config: {api_key: ${NAME}}": "target.openai.api_key: ${NAME}", "api_base": "target.openai.base_url"}
"""Settings of the target for those of models that judge, in messages about either."""


class OpenAITarget:
    """A target that asks the model of `config.openai` once for each call; its caller retries.

    Its requests are rendered as `{messages, ...}`, with tools and parameters. The run's client of models sends them;
    its library is loaded here. Without `models`, nothing can be called. Raises InputError for a file that cannot be
    read, or has an invalid path in it.
    """

    def __init__(
        self,
        config: target.Target,
        folder: Path,
        roots: Sequence[Path],
        secrets: frozenset[str] = frozenset(),
        models: ModelClient | None = None,
    ) -> None:
        assert config.openai is not None  # the factory has looked
        openai: Final = config.openai
        self._api = openai.api
        self.secrets = secrets | secrets_in_address(openai.base_url or "") | known_secrets()
        remember(secrets)
        self._models = models
        if models is not None:
            _litellm.load_for_calls()
        self._model = None if models is None else model_of(openai)
        self.texts = {name: _text(openai, name, folder, roots) for name in ("system", "prompt")}
        """The system message and the prompt, whether they stand in the suite or in a file."""
        system, prompt = self.texts.values()
        opening = openai.messages or (None if prompt is None else [{"role": "user", "content": prompt}])
        self._system = None if system is None else compile_template(system, with_texts=True)
        self._opening: Template | None = None if opening is None else compile_template(opening, with_texts=True)
        self._rest = compile_template({**openai.parameters, "tools": openai.tools}, with_texts=True)
        base = Model(openai.model, openai.base_url, usual_bases=usual_bases(openai.model)).bare_base
        asked = [openai.model, base, openai.api, system, opening, openai.tools, openai.parameters]
        self.fingerprint = content_hash("openai", redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the request for `case`. Raises JSONPathError, and TargetError if the prompt has no place in it."""
        return self._request(case, case.input if _are_messages(case.input) else [_by_user(case.input)])

    def _request(self, case: TestCase, messages: Sequence[Mapping[str, Any]], turn: Turn | None = None) -> Any:
        """Return the request with these messages; a prompt replaces the user's first message."""
        context = template_context(case, turn)
        first = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
        if first is not None:
            context["test_case"]["input"] = messages[first]["content"]
        if self._opening is not None:
            if first is None:
                message = "the test case has no message of the user, in whose place the prompt would stand"
                raise TargetError(message, kind="request", retryable=False)
            opened = template_context(case, Turn(1, messages[first]["content"], [messages[first]]))
            opened["test_case"] = context["test_case"]  # else each turn would say something else at the beginning
            messages = [*messages[:first], *self._opening.render(opened), *messages[first + 1 :]]
        if self._system is not None:
            messages = [{"role": "system", "content": self._system.render(context)}, *messages]
        return {"messages": list(map(_as_sent, messages)), **self._rest.render(context)}

    async def call(self, request: Any) -> TargetResponse:
        """Ask the model once. Raises TargetError."""
        if self._models is None or self._model is None:
            raise RuntimeError("the target was opened without a client of models")
        parent = pass_traceparent()
        headers = {} if parent is None else {"traceparent": parent}
        try:
            return self._response(await self._models.output(self._model, self._api, request, headers))
        except ModelTimeoutError as error:
            raise TargetTimeoutError(_in_words_of_target(error)) from None
        except CheckArgumentsError as error:
            raise TargetError(_in_words_of_target(error), kind="request", retryable=False) from None
        except ModelError as error:
            raise TargetError(
                _in_words_of_target(error),
                kind=_KINDS.get(error.kind, error.kind),
                retryable=error.retryable,
                retry_after=error.retry_after,
                status=error.status,
            ) from None

    def _response(self, output: ModelOutput) -> TargetResponse:
        usage = output.usage
        is_known = usage.prompt_tokens is not None and usage.completion_tokens is not None
        metadata = {
            "model": output.model or None,
            "finish_reason": output.finish_reason or None,
            "tool_calls": output.tool_calls,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "tokens": (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if is_known else None,
            "usd": usage.cost_usd,
        }
        known = {name: value for name, value in metadata.items() if value is not None}
        known = redact_json(known, self.secrets)
        is_asked = not all(map(is_hosted, output.tool_calls))
        if not (output.text.strip() or is_asked or output.finish_reason in _REFUSALS):
            advice = ": raise max_tokens in target.openai.parameters" if output.finish_reason == "length" else ""
            if (progress := progress_of_call.get(None)) is not None:
                progress.response = TargetResponse(None, known)  # it is paid for
            message = f"the model gave an empty answer (finish_reason {known.get('finish_reason', 'unknown')}){advice}"
            raise TargetError(message, kind="missing_output", retryable=False)
        return TargetResponse(redact(output.text, self.secrets), known)

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation; the model gets all messages with each turn."""

        async def say(turn: Turn) -> TargetResponse:
            return await self.call(self._request(case, turn.messages, turn))

        yield Conversation(say)

    async def aclose(self) -> None:
        """Do nothing: the connections are those of the client of models."""


def model_of(openai: target.OpenAITarget) -> Model:
    """Return the model in a suite as litellm names it."""
    name = _litellm.full_name(openai.model, openai.base_url)
    return Model(name, openai.base_url, openai.api_key or (None if openai.base_url is None else _NO_KEY))


def model_problem(openai: target.OpenAITarget) -> str | None:
    """Return why the model cannot be asked: no litellm, an unknown provider, a missing key or address."""
    try:
        require("run", f"asking the model {openai.model}", "litellm", "tenacity")
    except MissingExtraError as error:
        return str(error)
    problem = _litellm.problem(model_of(openai))
    return None if problem is None else _in_words_of_target(problem)


def _text(openai: target.OpenAITarget, name: str, folder: Path, roots: Sequence[Path]) -> str | None:
    """Return the text of the system message or the prompt, perhaps from a file. Raises InputError."""
    text: str | None = getattr(openai, name)
    path = prompt_file(text or "")
    if path is None:
        return text
    place = f"target.openai.{name}"
    try:
        text = read_text(resolve_inside(folder, path, roots), path, MAX_PROMPT_BYTES).rstrip()
    except ValueError as error:
        raise InputError(Problem(f"{path} {error}", path=place)) from None
    except InputError as error:
        advice = "a single line that ends in .md or .txt names a file, from the suite's folder"
        message = f"{path} cannot be read: {error.problems[0].message}"
        raise InputError(Problem(message, path=place, advice=advice)) from None
    if not text:
        raise InputError(Problem(f"{path} is empty", path=place))
    try:
        compile_template(text, with_texts=True)
    except JSONPathError as error:
        before = text.partition(error.expression)[0] if error.expression != text else text.partition("{{")[0]
        raise InputError(Problem(str(error), str(folder / path), before.count("\n") + 1, path=place)) from None
    return text


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    has_role = isinstance(value, dict) and isinstance(value.get("role"), str)
    return has_role and not value.keys().isdisjoint(("content", "tool_calls"))


def _by_user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _as_sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose content is a text or a list of parts; any other value becomes JSON text."""
    content = message.get("content")
    if content is None and not message.get("tool_calls"):
        raise TargetError("a message of this test case has no content", kind="request", retryable=False)
    are_parts = isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
    if content is None or isinstance(content, str) or are_parts:
        return dict(message)
    return {**message, "content": json.dumps(content, ensure_ascii=False)}


def _in_words_of_target(problem: Exception | str) -> str:
    message = str(problem)
    for words, own in _WORDS.items():
        message = message.replace(words, own)
    return message
