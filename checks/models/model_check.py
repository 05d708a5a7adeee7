"""The base of checks that call a model: a user's function, or one that a client makes requests to."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from inspect import getsource, isawaitable, iscoroutinefunction
from time import monotonic
from typing import Any, ClassVar, TypeVar

from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelRequests, nested_or_own
from fepflow.calls.models.model import EMBEDDING, ChatResponse, EmbeddingResponse, Model, Usage, parse_model_config
from fepflow.calls.thread_pool import EMBEDDERS, OTHERS_CALLS
from fepflow.checks.base import BaseAsyncCheck, JSONPath
from fepflow.errors import CheckArgumentsError, FepflowError, ModelError, ModelTimeoutError
from fepflow.protocol.content_hash import Kind, content_hash
from fepflow.security.redaction import words_of

Embedder = Callable[[list[str]], Any]
F = TypeVar("F", bound=Embedder)

ENTRY_POINTS = "fepflow.embedders"
PREFIX = "local:"

Known = tuple[Embedder, str | None]
"""A function, and the version under which its vectors are cached, or None."""

_registered: dict[str, Known] = {}


def register_embedder(name: str) -> Callable[[F], F]:
    """Return a decorator that registers a function as the model `local:NAME`.

    The function may be sync or async. It takes a list of texts, and returns as many vectors.
    """

    def add(function: F) -> F:
        source = _source(function)
        _registered[name] = function, source and content_hash(source)
        return function

    return add


def is_local(model: Model) -> bool:
    """Return whether the model is an embedder in the user's code."""
    return model.name.startswith(PREFIX)


def config_error_of(model: Model) -> str | None:
    """Load the embedder, and return why it cannot be used, or None."""
    try:
        _find(model)
    except CheckArgumentsError as error:
        return str(error)
    return None


def sender(model: Model) -> tuple[Callable[[list[str]], Awaitable[EmbeddingResponse]], str | None]:
    """Return a function that calls the embedder, and the hash of its package and source, or None.

    Raises CheckArgumentsError.
    """
    function, version = _find(model)

    async def send(texts: list[str]) -> EmbeddingResponse:
        started = monotonic()
        vectors = _vectors(model, await _call(model, function, texts), len(texts))
        return EmbeddingResponse(vectors, model.name, Usage(), seconds=round(monotonic() - started, 3))

    return send, version


async def _call(model: Model, function: Embedder, texts: list[str]) -> Any:
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # an object's method may be async
            async with asyncio.timeout(model.timeout):
                return await function(texts)
        answer = await EMBEDDERS.run(partial(function, texts), model.timeout, model.name)
        return await answer if isawaitable(answer) else answer
    except FepflowError:
        raise
    except TimeoutError:
        raise ModelTimeoutError(f"{model.name} gave no vectors within {model.timeout:g} s (timeout)") from None
    except Exception as error:
        raise ModelError(f"{model.name} failed: {type(error).__name__}: {words_of(error)}", kind="failed") from None


def _vectors(model: Model, answer: Any, count: int) -> list[list[float]]:
    try:
        vectors = [[float(number) for number in vector] for vector in answer]
    except (TypeError, ValueError, OverflowError):
        vectors = []
    if len(vectors) != count or not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
        raise ModelError(f"{model.name} must return a list of finite numbers for each text", kind="invalid")
    return vectors


def _find(model: Model) -> Known:
    if model.parameters or model.api_base or model.api_key or model.api_version:
        raise CheckArgumentsError(f"{model.name} runs here: it takes no dimensions, address or key (leave them out)")
    name = model.name.removeprefix(PREFIX)
    if name in _registered:
        return _registered[name]
    if name in _offered():
        return _load(name)
    known = ", ".join(sorted({*_registered, *_offered()}))
    raise CheckArgumentsError(
        f"there is no embedder {name} here (known are {known or 'none'}; a package offers one by an entry point of the "
        f"group {ENTRY_POINTS}, a plugin by @register_embedder)"
    )


@cache
def _offered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


@cache
def _load(name: str) -> Known:
    entry = _offered()[name]
    package = entry.dist.name if entry.dist else "a package"
    try:
        function = entry.load()
    except (Exception, SystemExit) as error:
        why = f"cannot be loaded: {type(error).__name__}: {words_of(error)}"
        raise CheckArgumentsError(f"the embedder {name} of {package} {why}") from None
    if not callable(function):
        raise CheckArgumentsError(f"the embedder {name} of {package} is not a function")
    return function, content_hash(package, entry.dist.version, _source(function)) if entry.dist else None


def _source(function: Embedder) -> str | None:
    """Return the source of the function, or of the class of a callable object."""
    for kind in (function, type(function)):
        try:
            return getsource(kind)
        except (OSError, TypeError):
            continue
    return None


NO_VERDICTS = "{} is an embedder, and gives no verdicts"


class ModelCheck(BaseAsyncCheck):
    """A check that calls a model. Neither model nor endpoint is ever read from a test case or an output."""

    check_kind: ClassVar[Kind]

    async def __call__(self) -> dict[str, Any]:
        """Return the results, by the requests of the user's check that calls it, else by a new client."""
        async with nested_or_own() as requests:
            return await self.check_call(requests)

    @abstractmethod
    async def check_call(self, requests: ModelRequests) -> dict[str, Any]:
        """Return the results, by these requests."""

    @abstractmethod
    def check_models(self) -> list[Model]:
        """Return the models with their keys; an empty list if a function is used. Raises ValueError without either."""

    def check_config_error(self) -> str | None:
        """Return why a model cannot be called with its configuration, or None. Takes seconds the first time."""
        problems = (_litellm.problem(model) for model in self.check_models())
        return next((problem for problem in problems if problem is not None), None)

    def check_config_warnings(self) -> list[str]:
        """Return warnings about the model's configuration."""
        return []

    def check_unpriced(self) -> list[str]:
        """Return the names of models without a known price."""
        return [model.name for model in self.check_models() if not is_local(model) and not _litellm.has_price(model)]


def model_of(
    function: object, model_config: Any, provider_config: Any, known: Mapping[str, Any], needed: str
) -> Model | None:
    """Return the model that arguments describe; None with a function. Raises ValueError, `needed` without both."""
    if function is not None:
        return None
    refuse_paths("model_config", model_config)
    refuse_paths("provider_config", provider_config)
    if not model_config:
        raise ValueError(needed)
    model = parse_model_config(model_config, provider_config, known)
    if is_local(model) and known is not EMBEDDING:
        raise ValueError(f"model_config: {NO_VERDICTS.format(model.name)}")
    return model


def refuse_paths(name: str, value: Any) -> None:
    """Raise ValueError for an argument that is, or holds, a path."""
    if isinstance(value, JSONPath):
        raise ValueError(f"{name} must be in the check: a path must not choose the model or its address")


ADDRESSES = ("api_base", "base_url")
OF_PROVIDER = frozenset({*ADDRESSES, "api_key", "api_version", "provider_name"})
"""Settings of one provider, which are wrong for another one or would disclose a key to it."""


def completed_configs(
    own_model: Mapping[str, Any],
    own_provider: Mapping[str, Any],
    usual_model: Mapping[str, Any],
    usual_provider: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a `model_config` and a `provider_config`, completed by the usual ones; their own members win.

    A model of another provider gets no settings of the usual provider.
    """
    if _provider(own_model) not in (None, _provider(usual_model)):
        left_out = OF_PROVIDER
    elif any(name in value for name in ADDRESSES for value in (own_model, own_provider)):
        left_out = frozenset(ADDRESSES)
    else:
        left_out = frozenset()
    model = {name: value for name, value in usual_model.items() if name not in left_out}
    provider = {name: value for name, value in usual_provider.items() if name not in left_out}
    return {**model, **own_model}, {**provider, **own_provider}


def _provider(llm_config: Mapping[str, Any]) -> str | None:
    """Return the provider in a model's name: the part before the first slash."""
    name = llm_config.get("model")
    return str(name).partition("/")[0] if name is not None else None


def response_metadata(model: Model, response: ChatResponse | EmbeddingResponse) -> dict[str, Any]:
    """Return a result's metadata about a response; None means unknown."""
    return {
        "model": model.name,
        "model_answered": response.model,
        "prompt_tokens": response.usage.prompt_tokens,
        "completion_tokens": response.usage.completion_tokens,
        "cost_usd": response.usage.cost_usd,
        "seconds": response.seconds,
        "attempts": response.requests,
        "cached": response.cached,
        "not_honoured": list(response.dropped_params),
    }


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function. A sync one runs in a thread, many at a time."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # an object's method may be async
        return await function(*arguments)
    answer = await OTHERS_CALLS.run(partial(function, *arguments))
    return await answer if isawaitable(answer) else answer
