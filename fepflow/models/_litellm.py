"""The one file that imports litellm: its set-up, and single requests through it, which run in the client's thread."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import warnings
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any

from fepflow.errors import ModelError
from fepflow.models import transport
from fepflow.models.errors import model_error, secrets_of
from fepflow.models.model import ChatResponse, EmbeddingResponse, Model, Usage
from fepflow.models.request_context import RequestContext
from fepflow.models.transport import EMBEDDING_BYTES, EMBEDDING_VALUES, Exchange
from fepflow.security.redaction import hide_addresses_in_logs, redact

CLIENT_TIMEOUT = 600.0
"""Seconds, the same for all: litellm keeps a client for each time-out that it sees. Our own deadline is around it."""

MOST_TOKENS = 100_000_000
"""Of one response: larger numbers count as not reported."""

MOST_OF_A_NAME = 200
"""Characters of a model's name in a response."""

_ENVIRONMENT = {
    # Without these it fetches a list of prices, and one of headers, over the network when it is imported.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Otherwise it reads whatever `.env` it finds.
    "LITELLM_MODE": "PRODUCTION",
    # Its search for secrets takes minutes for megabytes of an odd answer. Its logs are off, and we look ourselves.
    "LITELLM_DISABLE_REDACT_SECRETS": "true",
}

_loading = Lock()


def load() -> Any:
    """litellm, set up: quiet, without retries of its own, without the network. Takes seconds the first time."""
    with _loading:  # several clients may begin at once, each in its thread
        return _load()


@cache
def _load() -> Any:
    os.environ.update(_ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside of it, and of what it imports; nothing of ours is here
        import litellm
        from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
    # It makes classes of its own as late as at the first request, and means to keep quiet about them.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier.*")
    # It serializes answers for its logs, also those that are not as they should be, and would print parts of them.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what it logs may hold texts and keys
    hide_addresses_in_logs("httpx")  # some models take their key in the query
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.telemetry = False
    litellm.drop_params = False
    litellm.num_retries = 0
    litellm.DEFAULT_MAX_RETRIES = 0  # without it embeddings make three requests
    _without_afterthoughts()
    litellm.module_level_aclient = _ClientOfLoop()
    transport.guard(AsyncHTTPHandler, LiteLLMAiohttpTransport)
    return litellm


class _ClientOfLoop:
    """The HTTP client that litellm has for a few providers, one for each event loop: its own would be one for all, and
    close a loop's connections as soon as it is used in another."""

    def __getattr__(self, name: str) -> Any:
        from litellm.llms.custom_httpx.http_handler import get_async_httpx_client

        # litellm caches it by the event loop and these arguments.
        return getattr(get_async_httpx_client("fepflow", {"timeout": CLIENT_TIMEOUT}), name)


def _without_afterthoughts() -> None:
    """Nothing is to happen after an answer: it tells others of each one, of whom there are none, and to that end asks
    an Ollama server about its models, in a way that holds up the event loop for as long as that server likes."""
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    def drop(async_coroutine: Coroutine[Any, Any, Any]) -> None:
        async_coroutine.close()

    GLOBAL_LOGGING_WORKER.ensure_initialized_and_enqueue = drop


async def complete(
    model: Model,
    messages: list[dict[str, str]],
    response_format: dict[str, Any] | None,
    parameters: dict[str, Any],
    context: RequestContext,
) -> ChatResponse:
    """One request to a chat model, recorded in the context. Raises ModelError."""
    litellm = load()
    form = {} if response_format is None else {"response_format": response_format}
    exchange = _exchange(Exchange())
    try:
        answer = await litellm.acompletion(messages=messages, **form, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange, with_format=bool(form)) from None
    usage = _usage(answer, model)
    context.record(usage)  # it is paid for, of use or not
    try:
        choice = answer.choices[0]
        reported = str(getattr(answer, "model", None) or "")
        text = _text_of(choice, model)
    except (AttributeError, IndexError, TypeError):
        raise ModelError(f"{model.name} answered without a message", kind="connect", retryable=True) from None
    secrets = secrets_of(model)
    return ChatResponse(redact(text, secrets), redact(reported, secrets)[:MOST_OF_A_NAME], usage)


async def embed(
    model: Model, texts: list[str], parameters: dict[str, Any], context: RequestContext
) -> EmbeddingResponse:
    """One request to an embedding model, for all texts, recorded in the context. Raises ModelError."""
    litellm = load()
    exchange = _exchange(Exchange(EMBEDDING_BYTES, EMBEDDING_VALUES))
    try:
        answer = await litellm.aembedding(input=texts, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange) from None
    usage = _usage(answer, model)
    context.record(usage)  # it is paid for, of use or not
    try:
        # A provider may answer in any order; `index` says which text a vector is of.
        found = {int(item["index"]): [float(number) for number in item["embedding"]] for item in answer.data}
        vectors = [found[index] for index in range(len(answer.data))]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        vectors = []
    if len(vectors) != len(texts) or not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
        raise ModelError(f"{model.name} did not answer with a vector for each text", kind="invalid", retryable=True)
    reported = redact(str(getattr(answer, "model", None) or ""), secrets_of(model))
    return EmbeddingResponse(vectors, reported[:MOST_OF_A_NAME], usage)


def _exchange(exchange: Exchange) -> Exchange:
    """The record of the request that is about to be made."""
    transport.current.set(exchange)
    return exchange


def _connection(model: Model) -> dict[str, Any]:
    where = {"api_base": model.api_base, "api_key": model.api_key, "api_version": model.api_version}
    given = {name: value for name, value in where.items() if value is not None}
    return {"model": model.name, "timeout": CLIENT_TIMEOUT, "num_retries": 0, "max_retries": 0, **given}


def _text_of(choice: Any, model: Model) -> str:
    """The text of a response; raises ModelError for a refusal, a truncated response, and none."""
    details = getattr(choice.message, "provider_specific_fields", None) or {}
    if details.get("refusal") or choice.finish_reason == "content_filter":
        raise ModelError(f"{model.name} refused to answer", kind="refused")
    if choice.finish_reason == "length":
        advice = "raise max_tokens in model_config"
        raise ModelError(f"the answer of {model.name} was cut off ({advice})", kind="cut_off")
    text = choice.message.content
    if not isinstance(text, str) or not text.strip():
        raise ModelError(f"{model.name} gave an empty answer", kind="empty")
    return text


def _usage(answer: Any, model: Model) -> Usage:
    reported = getattr(answer, "usage", None)
    prompt_tokens, completion_tokens = (
        _count(getattr(reported, "prompt_tokens", None)),
        _count(getattr(reported, "completion_tokens", None)),
    )
    # Usage that was not reported comes as 0; a chat response has completion tokens, and only vectors have none.
    if not prompt_tokens or (not completion_tokens and hasattr(answer, "choices")):
        return Usage(prompt_tokens or None, completion_tokens or None)
    return Usage(prompt_tokens, completion_tokens or 0, cost(model, prompt_tokens, completion_tokens or 0))


def _count(reported: Any) -> int | None:
    """A number of tokens; None for what cannot be one, as if it were not reported."""
    is_count = isinstance(reported, int) and not isinstance(reported, bool) and 0 <= reported <= MOST_TOKENS
    return reported if is_count else None


def cost(model: Model, prompt_tokens: int, completion_tokens: int) -> float | None:
    """USD by litellm's price list and the model's name; None if it has no price: one of nothing is not known either."""
    try:
        paid = load().cost_per_token(model=model.name, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    except Exception:
        return None
    return float(sum(paid)) or None


async def close() -> None:
    """Close the connections that litellm keeps for the running event loop: other loops have their own."""
    cache = load().in_memory_llm_clients_cache
    of_loop = f"-{id(asyncio.get_running_loop())}"  # how LLMClientCache ends its keys
    for key in [key for key in list(cache.cache_dict) if key.endswith(of_loop)]:
        handler = cache.cache_dict.pop(key, None)
        cache.ttl_dict.pop(key, None)
        client: Any = getattr(handler, "_client", None) or getattr(handler, "client", None)
        with suppress(Exception):
            await client.aclose()
