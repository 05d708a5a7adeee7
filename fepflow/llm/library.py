"""The one file that knows litellm. Everything here runs in the door's own thread, see `door`."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Coroutine
from functools import cache
from typing import Any

from fepflow.errors import CheckArgumentsError, ModelError
from fepflow.llm import transport
from fepflow.llm.failures import model_error, secrets_of
from fepflow.llm.model import Model, Reply, Usage, Vectors
from fepflow.llm.spending import terms
from fepflow.llm.transport import EMBEDDING_BYTES, EMBEDDING_VALUES, Exchange
from fepflow.redaction import hide_addresses_in_logs, redact

CLIENT_TIMEOUT = 600.0
"""Seconds, the same for all: litellm keeps a client for each time-out that it sees. Our own deadline is around it."""

MOST_TOKENS = 100_000_000
"""Of one answer: whoever tells more tells nothing."""

MOST_OF_A_NAME = 200
"""Characters of the name by which a model says that it answered."""

_ENVIRONMENT = {
    # Without these it fetches a list of prices, and one of headers, over the network when it is imported.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Otherwise it reads whatever `.env` it finds.
    "LITELLM_MODE": "PRODUCTION",
    # Its search for secrets takes minutes for megabytes of an odd answer. Its logs are off, and we look ourselves.
    "LITELLM_DISABLE_REDACT_SECRETS": "true",
}

_YOUR_OWN = frozenset({"hosted_vllm", "custom_openai", "openai_like", "lm_studio", "llamafile", "litellm_proxy"})
"""Providers that are servers of one's own. Without an address litellm would ask OpenAI instead."""


@cache
def load() -> Any:
    """litellm, set up: quiet, without retries of its own, without the network. Takes seconds the first time."""
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
    transport.guard(AsyncHTTPHandler, LiteLLMAiohttpTransport)
    return litellm


def _without_afterthoughts() -> None:
    """Nothing is to happen after an answer: it tells others of each one, of whom there are none, and to that end asks
    an Ollama server about its models, in a way that holds up the event loop for as long as that server likes."""
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    def drop(async_coroutine: Coroutine[Any, Any, Any]) -> None:
        async_coroutine.close()

    GLOBAL_LOGGING_WORKER.ensure_initialized_and_enqueue = drop


def problem(model: Model) -> str | None:
    """Why the model cannot be asked at all: its provider is not known, or its key or address is missing."""
    litellm = load()
    try:
        _, provider, _, base = litellm.get_llm_provider(model=model.name, api_base=model.api_base)
    except Exception:
        return (
            f"no provider is known for the model {model.name} (write it as provider/model, such as openai/{model.name})"
        )
    if provider in _YOUR_OWN and not (model.api_base or base):
        return f"{model.name} is a server of your own: say where, with api_base"
    try:
        found = litellm.validate_environment(model.name, api_key=model.api_key, api_base=model.api_base)
    except Exception:  # a provider that it cannot look up: the request itself will tell
        return None
    missing = found.get("missing_keys") or []
    if not missing:
        return None
    advice = "export it, or name another variable: provider_config: {api_key: ${NAME}}"
    return f"{model.name} needs {' and '.join(missing)}, not set in the environment ({advice})"


def provider_of(model: Model) -> str:
    """The family that litellm counts the model to; empty if it knows none."""
    return _provider_of(*model.place)


@cache
def _provider_of(name: str, api_base: str | None) -> str:
    try:
        return str(load().get_llm_provider(model=name, api_base=api_base)[1])
    except Exception:
        return ""


async def complete(
    model: Model, messages: list[dict[str, str]], response_format: dict[str, Any] | None, parameters: dict[str, Any]
) -> Reply:
    """One request to a chat model. Raises ModelError."""
    litellm = load()
    form = {} if response_format is None else {"response_format": response_format}
    exchange = _exchange(Exchange())
    try:
        answer = await litellm.acompletion(messages=messages, **form, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange, with_format=bool(form)) from None
    usage = _paid(litellm, answer, model)
    try:
        choice = answer.choices[0]
        told = str(getattr(answer, "model", None) or "")
        text = _text_of(choice, model)
    except (AttributeError, IndexError, TypeError):
        raise ModelError(f"{model.name} answered without a message", kind="connect", retryable=True) from None
    secrets = secrets_of(model)
    return Reply(redact(text, secrets), redact(told, secrets)[:MOST_OF_A_NAME], usage)


async def embed(model: Model, texts: list[str], parameters: dict[str, Any]) -> Vectors:
    """One request to an embedding model, for all texts. Raises ModelError."""
    litellm = load()
    exchange = _exchange(Exchange(EMBEDDING_BYTES, EMBEDDING_VALUES))
    try:
        answer = await litellm.aembedding(input=texts, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange) from None
    usage = _paid(litellm, answer, model)
    try:
        # A provider may answer in any order; `index` says which text a vector is of.
        found = {int(item["index"]): [float(number) for number in item["embedding"]] for item in answer.data}
        vectors = [found[index] for index in range(len(answer.data))]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        vectors = []
    if len(vectors) != len(texts) or not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
        raise ModelError(f"{model.name} did not answer with a vector for each text", kind="invalid", retryable=True)
    told = redact(str(getattr(answer, "model", None) or ""), secrets_of(model))
    return Vectors(vectors, told[:MOST_OF_A_NAME], usage)


def _exchange(exchange: Exchange) -> Exchange:
    """The record of the request that is about to be made."""
    transport.current.set(exchange)
    return exchange


def _connection(model: Model) -> dict[str, Any]:
    where = {"api_base": model.api_base, "api_key": model.api_key, "api_version": model.api_version}
    given = {name: value for name, value in where.items() if value is not None}
    return {"model": model.name, "timeout": CLIENT_TIMEOUT, "num_retries": 0, "max_retries": 0, **given}


def _text_of(choice: Any, model: Model) -> str:
    """What was said; raises ModelError for a refusal, an answer that is cut off, and none."""
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


def _paid(litellm: Any, answer: Any, model: Model) -> Usage:
    """What an answer took. It is paid for, of use or not."""
    usage = _usage(litellm, answer, model)
    terms().paid(usage)
    return usage


def _usage(litellm: Any, answer: Any, model: Model) -> Usage:
    told = getattr(answer, "usage", None)
    asked, said = _count(getattr(told, "prompt_tokens", None)), _count(getattr(told, "completion_tokens", None))
    # What was not told comes as 0; an answer in words has some, and only vectors have none.
    if not asked or (not said and hasattr(answer, "choices")):
        return Usage(asked or None, said or None)
    return Usage(asked, said or 0, _cost(litellm, model, asked, said or 0))


def _count(told: Any) -> int | None:
    """A number of tokens; None for what cannot be one, which is as good as not told."""
    is_count = isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= MOST_TOKENS
    return told if is_count else None


def _cost(litellm: Any, model: Model, asked: int, said: int) -> float | None:
    """By the list of prices that came with litellm, and the model's name; a price of nothing is one not known."""
    try:
        paid = litellm.cost_per_token(model=model.name, prompt_tokens=asked, completion_tokens=said)
    except Exception:
        return None
    return float(sum(paid)) or None


def has_price(model: Model) -> bool:
    """Whether the list of prices has the model."""
    return _cost(load(), model, 1_000, 1_000) is not None


async def close() -> None:
    """Close the connections that litellm keeps."""
    await load().close_litellm_async_clients()


_can_be_asked: set[tuple[str, str | None, str]] = set()
"""Models, by name, address and key, that had no problem: looking takes a tenth of a request's computing."""


def require(model: Model) -> None:
    """Raises CheckArgumentsError for a model that cannot be asked at all."""
    known = model.api_key and (*model.place, model.api_key)  # without a key of its own it depends on the environment
    if known in _can_be_asked:
        return
    if (why := problem(model)) is not None:
        raise CheckArgumentsError(why)
    if known:
        _can_be_asked.add(known)
