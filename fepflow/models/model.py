"""A model with its address and parameters, and its responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from fepflow.security.secret_names import is_secret_parameter

TIMEOUT = 60.0
"""Seconds for one response, unless the suite says otherwise."""

ATTEMPTS = 4

_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Model:
    """A model as litellm names it (`openai/gpt-4o-mini`), and the settings of its requests.

    `parameters` go with every request (temperature, max_tokens, dimensions). `timeout` is that of one request, in
    seconds. `usual_bases` are what the environment says of the provider's address, which counts without `api_base`.
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
        """Its name and address."""
        return self.name, self.api_base

    @property
    def bare_base(self) -> str | None:
        """The address without its credentials; what may be the address, if the environment says it."""
        return " ".join(map(_bare, [self.api_base] if self.api_base else self.usual_bases)) or None


def _bare(base: str) -> str:
    parts = urlsplit(base)
    query = [(name, value) for name, value in parse_qsl(parts.query) if not is_secret_parameter(name)]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query)))


@dataclass(frozen=True)
class Usage:
    """Usage of a response; None is what was not reported, which is not zero."""

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
    """An unknown part makes the whole unknown."""
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class ChatResponse:
    """The response of a chat model; `model` is the name that the provider gives as the one that responded.

    `dropped_params` are parameters that the model rejects, and was asked without. `requests` includes those that
    failed; `seconds` does not include waiting for a free slot.
    """

    text: str
    model: str
    usage: Usage
    dropped_params: tuple[str, ...] = ()
    requests: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class EmbeddingResponse:
    """The response of an embedding model: a vector for each text, in the texts' order; the rest as in ChatResponse.

    A `cached` one took no request now, and `usage` is that of the request which it came from.
    """

    vectors: list[list[float]]
    model: str
    usage: Usage
    dropped_params: tuple[str, ...] = ()
    requests: int = 1
    seconds: float = 0.0
    cached: bool = False


def sendable(text: str) -> str:
    """The text as it can be sent: JSON lets halves of characters through, which no request can hold."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)
