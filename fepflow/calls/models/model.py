"""A model with its address and parameters, and its responses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from fepflow.calls.policy import RunBudget
from fepflow.documents.messages import did_you_mean
from fepflow.security.addresses import address_problem
from fepflow.security.redaction import is_secret_name, is_secret_parameter
from fepflow.settings import BLOCK, SUITE_VARIABLES
from fepflow.suite.env_vars import Reference, address_holds_literal_secret, expand

if TYPE_CHECKING:
    import httpx

TIMEOUT = 60.0
"""Seconds for one response, unless the suite says otherwise."""

ATTEMPTS = 4

_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Model:
    """A model as litellm names it (`openai/gpt-4o-mini`), and the settings of its requests.

    `parameters` go with every request (temperature, max_tokens, dimensions). `timeout` is that of one request, in
    seconds. `usual_bases` are the provider's addresses in the environment, which count without `api_base`.
    """

    name: str
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_version: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = TIMEOUT
    attempts: int = ATTEMPTS
    usual_bases: tuple[str, ...] = ()

    @property
    def endpoint(self) -> tuple[str, str | None]:
        """The model's name and address."""
        return self.name, self.api_base

    @property
    def bare_base(self) -> str | None:
        """The address without credentials; without an `api_base`, the possible addresses in the environment."""
        return " ".join(map(_bare, [self.api_base] if self.api_base else self.usual_bases)) or None


def _bare(base: str) -> str:
    parts = urlsplit(base)
    query = [(name, value) for name, value in parse_qsl(parts.query) if not is_secret_parameter(name)]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query)))


@dataclass(frozen=True)
class Usage:
    """Usage of a response; None means not reported, which is not zero."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.prompt_tokens, other.prompt_tokens),
            _sum(self.completion_tokens, other.completion_tokens),
            _sum(self.cost_usd, other.cost_usd),
        )


def _sum(one: Any, other: Any) -> Any:
    """Add two numbers; an unknown part makes the whole unknown."""
    return None if one is None or other is None else one + other


Mode = Literal["json_schema", "json_object", "prompt"]
"""A way to ask for a response in the form of a JSON Schema."""


@dataclass(frozen=True)
class ChatResponse:
    """The response of a chat model; `model` is the provider's name of the model that responded.

    `dropped_params` are parameters that were left out because the model rejects them. `requests` includes failed ones;
    `seconds` does not include waiting for a free slot. A `cached` response took no request now; `usage` is that of its
    original requests.
    """

    text: str
    model: str
    usage: Usage
    dropped_params: tuple[str, ...] = ()
    requests: int = 1
    seconds: float = 0.0
    cached: bool = False
    mode: Mode = "prompt"


Api = Literal["chat", "responses"]
"""The API by which a model is asked: chat completions, or OpenAI's Responses API."""


@dataclass(frozen=True)
class ModelOutput:
    """The answer of an evaluated model, even if it was cut off, refused or empty.

    `tool_calls` are in the shape of chat completions. `finish_reason` is `stop`, `tool_calls`, `length`,
    `content_filter`, `refusal`, or another reason of the provider; empty if it gives none. `model` is the name of the
    model that answered.
    """

    text: str
    tool_calls: list[dict[str, Any]]
    finish_reason: str
    model: str
    usage: Usage


@dataclass(frozen=True)
class EmbeddingResponse:
    """The response of an embedding model: a vector for each text, in the texts' order; the rest as in ChatResponse.

    A `cached` response took no request now; `usage` is that of its original request.
    """

    vectors: list[list[float]]
    model: str
    usage: Usage
    dropped_params: tuple[str, ...] = ()
    requests: int = 1
    seconds: float = 0.0
    cached: bool = False


def sendable(text: str) -> str:
    """Return the text without lone surrogates, which JSON allows but no request can contain."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


_LONGEST_TIMEOUT = 600.0
_MOST_ATTEMPTS = 10
_OTHER_NAMES = {"base_url": "api_base"}
_PROVIDER = ("api_base", "api_key", "api_version", "base_url", "max_retries", "provider_name", "timeout")

CHAT: Mapping[str, Any] = {
    "temperature": 0.0,
    "max_tokens": 1024,
    "top_p": None,
    "seed": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "reasoning_effort": None,
}
"""Parameters of chat models; those with a value go with every request."""

EMBEDDING: Mapping[str, Any] = {"dimensions": None}


def parse_model_config(
    model_config: Mapping[str, Any],
    provider_config: Mapping[str, Any],
    known: Mapping[str, Any],
    env: Mapping[str, str] = SUITE_VARIABLES,
) -> Model:
    """Return the model that two arguments of a check describe; `known` are its parameters. Raises ValueError."""
    _refuse_unknown("model_config", model_config, ("model", "api_base", *known))
    _refuse_unknown("provider_config", provider_config, _PROVIDER)
    _refuse_literal_secrets(model_config, provider_config)
    where = {_OTHER_NAMES.get(name, name): _expanded(name, value, env) for name, value in provider_config.items()}
    if "api_base" in model_config:
        where["api_base"] = _expanded("api_base", model_config["api_base"], env)
    defaults = {name: value for name, value in known.items() if value is not None}
    given = {name: value for name, value in model_config.items() if name in known and value is not None}
    name = _name(model_config, where)
    if isinstance(where.get("api_base"), str) and (problem := address_problem(where["api_base"])):
        raise ValueError(f"api_base: {problem[0]} ({problem[1]})")
    return Model(
        name,
        _text("api_base", where),
        _text("api_key", where),
        _text("api_version", where),
        {**defaults, **given},
        _number("timeout", where, TIMEOUT, _LONGEST_TIMEOUT),
        1 + int(_number("max_retries", where, ATTEMPTS - 1, _MOST_ATTEMPTS - 1)),
        usual_bases(name),
    )


def usual_bases(name: str) -> tuple[str, ...]:
    """Return addresses that litellm may take from the environment; without a provider in the name, of any provider."""
    provider, slash, _ = name.partition("/")
    family = re.escape(provider.upper().replace("-", "_").removesuffix("_CHAT")) if slash else r"\w+"
    pattern = re.compile(rf"{family}_(API_BASE|BASE_URL)")
    return tuple(value for variable, value in sorted(os.environ.items()) if pattern.fullmatch(variable) and value)


def _name(model_config: Mapping[str, Any], where: Mapping[str, Any]) -> str:
    name, provider = model_config.get("model"), where.get("provider_name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("model_config must name a model, for example model: openai/gpt-4o-mini")
    return f"{provider}/{name}" if provider and not name.startswith(f"{provider}/") else name


def _refuse_unknown(argument: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name in known:
            continue
        if argument == "model_config" and name in _PROVIDER:
            raise ValueError(f"model_config: {name} belongs into provider_config")
        raise ValueError(f"{argument} does not know {name} ({did_you_mean(str(name), known)})")


def _refuse_literal_secrets(model_config: Mapping[str, Any], provider_config: Mapping[str, Any]) -> None:
    key = provider_config.get("api_key")
    if key is not None and not _is_reference(key):
        raise ValueError("provider_config.api_key: a secret must not stand in the suite: write it as ${NAME}")
    for base in (model_config.get("api_base"), provider_config.get("api_base"), provider_config.get("base_url")):
        if isinstance(base, str) and address_holds_literal_secret(base):
            raise ValueError("a secret must not stand in the address: write api_base as ${NAME}")


def _is_reference(text: Any) -> bool:
    """Return whether a value is `${NAME}`, without a default, and nothing else."""
    references: list[Reference] = []
    rest = expand(text, (), {}, references)
    return len(references) == 1 and references[0].missing and rest == f"${{{references[0].name}}}"


def _expanded(name: str, value: Any, env: Mapping[str, str]) -> Any:
    references: list[Reference] = []
    expanded = expand(value, (name,), env, references)
    for reference in references:
        if name != "api_key" and is_secret_name(reference.name):
            raise ValueError(
                f"provider_config.{name}: ${{{reference.name}}} is named like a secret, and is not sent there"
            )
        if reference.missing:
            message, advice = reference.problem
            if not reference.name.startswith(BLOCK):
                advice = f"export {reference.name}"
            raise ValueError(f"provider_config.{name}: {message} ({advice})")
    return expanded


def _text(name: str, where: Mapping[str, Any]) -> str | None:
    value = where.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"provider_config.{name} must be a text")
    return value


def _number(name: str, where: Mapping[str, Any], default: float, most: float) -> float:
    value = where.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"provider_config.{name} must be a number from 0 to {most:g}")
    return float(value) or default if name == "timeout" else float(value)


DEFAULT_CONCURRENCY = 16
"""Requests at once, for each provider, address and key."""


@dataclass
class RequestContext:
    """Limits and usage of the requests of one check.

    `concurrency` limits the requests under way at one endpoint, of all checks with the same limit. `repeat` counts the
    target's outputs for a case, from 0: judgements of two repeats never share a cached response. Without `retry` each
    prompt makes one request, and only the caller retries.
    """

    budget: RunBudget = field(default_factory=RunBudget)
    concurrency: int = DEFAULT_CONCURRENCY
    repeat: int = 0
    retry: bool = True
    requests: int = 0
    responses: int = 0
    tokens: int = 0
    usd: float = 0.0
    unknown_tokens: int = 0
    unknown_usd: int = 0
    """Responses of unknown cost, which is not in `tokens` and `usd`."""

    def record(self, usage: Usage) -> None:
        """Count a response, useful or not. A cached one costs nothing, and is not recorded."""
        self.responses += 1
        known = usage.prompt_tokens is not None and usage.completion_tokens is not None
        tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if known else None
        self.budget.spend({"tokens": tokens, "usd": usage.cost_usd})
        self.tokens += tokens or 0
        self.usd += usage.cost_usd or 0.0
        self.unknown_tokens += tokens is None
        self.unknown_usd += usage.cost_usd is None

    def usage(self) -> dict[str, Any]:
        """Return `{requests, answers, tokens, usd}` and numbers of responses without them; null if all are unknown."""
        usage: dict[str, Any] = {"requests": self.requests, "answers": self.responses}
        for name, known, unknown in (
            ("tokens", self.tokens, self.unknown_tokens),
            ("usd", self.usd, self.unknown_usd),
        ):
            usage[name] = None if unknown and unknown == self.responses else known
            if unknown:
                usage[f"without_{name}"] = unknown
        return usage


CHAT_BYTES = 4_000_000
"""Largest chat response. A judgement has kilobytes."""

EMBEDDING_BYTES = 48_000_000
"""Largest response with the vectors of a request: 64 texts, of 8,192 numbers each, of 20 digits, are 11 million."""

CHAT_VALUES = 20_000

EMBEDDING_VALUES = 600_000
"""JSON values: reading each takes several microseconds."""


@dataclass
class Exchange:
    """Record of one request: `host` is the host and port of the request, `status` and `media_type` of the response.

    `ended` is the provider's word for the end of the answer, "stop" for a whole one, empty without one. `refusal` is
    the reason why fepflow refused the answer: a kind of ModelError, a sentence, and whether another attempt may
    succeed.
    """

    most_bytes: int = CHAT_BYTES
    most_values: int = CHAT_VALUES
    host: str = ""
    status: int | None = None
    media_type: str = ""
    ended: str = "stop"
    refusal: tuple[str, str, bool] | None = None

    def refuse(self, kind: str, why: str, request: httpx.Request, *, retryable: bool = False) -> httpx.ProtocolError:
        """Return the error to raise. litellm replaces it by its own, so the reason is kept here."""
        import httpx

        self.refusal = kind, why, retryable
        return httpx.ProtocolError(why, request=request)
