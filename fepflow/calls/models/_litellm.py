"""The one file that imports litellm: its set-up, and single requests, which run in the client's thread."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from fepflow.calls.models.answers import (
    MOST_OF_A_NAME,
    chat_output,
    model_error,
    response_items,
    response_output,
    response_tool,
    secrets_of,
)
from fepflow.calls.models.model import (
    EMBEDDING_BYTES,
    EMBEDDING_VALUES,
    Api,
    ChatResponse,
    EmbeddingResponse,
    Exchange,
    Model,
    ModelOutput,
    RequestContext,
    Usage,
)
from fepflow.calls.responses import ACCEPT_ENCODING, BodyError, media_type, read_beginning, read_body
from fepflow.errors import MissingExtraError, ModelError
from fepflow.extras import require
from fepflow.json.values import has_more_values
from fepflow.security.addresses import host_and_port, is_same_host
from fepflow.security.redaction import hide_addresses_in_logs, redact

if TYPE_CHECKING:
    import httpx

# httpx is imported only where a model is asked: reading suites and results does not need it.


SMALL_BYTES = 65_536
"""Largest response that is not an answer: litellm takes minutes to search megabytes, and blocks its thread."""


current: ContextVar[Exchange] = ContextVar("fepflow_exchange")
"""The request under way, set before each one."""


def guard(litellm_handler: Any, litellm_transport: Any) -> None:
    """Make all of litellm's clients use its aiohttp transport, and guard that transport."""
    if getattr(litellm_transport.handle_async_request, "guarded", False):
        return
    import httpx

    litellm_handler.should_use_aiohttp_transport = staticmethod(lambda: True)
    send = litellm_transport.handle_async_request

    async def handle_async_request(self: Any, request: httpx.Request) -> httpx.Response:
        exchange, requested = current.get(None) or Exchange(), str(request.url)
        exchange.host, exchange.status = host_and_port(requested), None
        request.headers["Accept-Encoding"] = ACCEPT_ENCODING
        response = await send(self, request)
        try:
            exchange.status = response.status_code
            exchange.media_type = media_type(response)[:60]
            if response.has_redirect_location:
                location = _joined(requested, response.headers["Location"])
                if not is_same_host(requested, location):
                    why = f"redirects to {host_and_port(location)}, and no other host is asked"
                    raise exchange.refuse("redirect", f"{why}; put the final address into api_base", request)
            body = await _read(response, exchange, request)
            if not response.is_error:
                body = _answer_in(body, exchange, request)
        finally:
            await response.aclose()
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return httpx.Response(exchange.status or 0, headers=headers, content=body, request=request)

    handle_async_request.guarded = True  # type: ignore[attr-defined]  # a function takes any
    litellm_transport.handle_async_request = handle_async_request


async def _read(response: httpx.Response, exchange: Exchange, request: httpx.Request) -> bytes:
    """Return the decoded body, or the beginning of an error's body.

    Raises httpx.ProtocolError for an answer that is too large or cannot be decoded.
    """
    # The stream itself: `aiter_raw` needs a request, which a transport's response does not have yet.
    stream: Any = response.stream
    encoding = response.headers.get("Content-Encoding", "")
    try:
        if response.is_error:
            return await read_beginning(stream, encoding, SMALL_BYTES)
        return await read_body(stream, encoding, exchange.most_bytes)
    except BodyError as error:
        large = f"answers with more than {exchange.most_bytes:,} bytes"
        why = large if error.kind == "too_large" else f"gives an answer that {error}"
        raise exchange.refuse(error.kind, why, request) from None
    except Exception:
        exchange.status = None  # the connection broke in the middle of the answer
        raise


def _answer_in(body: bytes, exchange: Exchange, request: httpx.Request) -> bytes:
    """Return the body, or nothing in place of a large one that is not JSON.

    An error with a status of its own, as gateways send it with HTTP 200, gives the exchange this status. Raises
    httpx.ProtocolError for one without, for JSON with too many values, and for choices of which none is the first.
    """
    is_small = len(body) <= SMALL_BYTES
    if not is_small and has_more_values(body.decode("utf-8", "replace"), exchange.most_values):
        raise exchange.refuse("too_large", f"answers with more than {exchange.most_values:,} JSON values", request)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body if is_small else b""
    if not isinstance(answer, dict):
        return body
    if error := _error_in(answer):
        status = error.get("code")
        if is_small and isinstance(status, int) and 400 <= status < 600:
            exchange.status = status
            return body
        why = f"answers HTTP {exchange.status} with an error: {error.get('message') or status}"
        raise exchange.refuse("failed", why, request, retryable=True)
    simple = _with_a_text(_with_one_choice(answer, exchange, request))
    choice, exchange.ended = _end_of(simple)
    if choice.get("error") or exchange.ended == "error":  # OpenRouter's, beside half an answer
        broke_off = _error_in({"error": choice.get("error")}) or {}
        why = f"gives an answer that broke off: {broke_off.get('message') or 'it does not say why'}"
        raise exchange.refuse("failed", why, request, retryable=True)
    return body if simple is answer else json.dumps(simple).encode()


def _error_in(answer: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error, with `message` or `code`, of an answer that has nothing else; None for other answers."""
    error = answer.get("error")
    if isinstance(error, str):
        error = {"message": error}
    has_answer = any(isinstance(answer.get(name), list | dict) and answer[name] for name in _ANSWERS)
    if has_answer or "output" in answer or not isinstance(error, dict):  # the Responses API has a status of its own
        return None
    return error if error.get("message") or error.get("code") else None


def _end_of(answer: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the choice in an answer, and the provider's word for its end: "stop" for a whole one, empty without one.

    litellm turns each word that it does not know into "stop", also those for answers that were cut off.
    """
    choice, word = answer, "stop_reason"
    for name, own_word in (("candidates", "finishReason"), ("choices", "finish_reason")):
        if isinstance(choices := answer.get(name), list) and choices:
            choice, word = choices[0] if isinstance(choices[0], dict) else {}, own_word
    if choice is answer and word not in answer:
        return {}, "stop"
    ended = choice.get(word)
    if not isinstance(ended, str):
        return choice, ""
    return choice, "stop" if ended.lower() in _WHOLE else ended[:MOST_OF_A_NAME]


_WHOLE = frozenset({"stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"})

_ANSWERS = ("choices", "candidates", "content", "message", "data")
"""The members that hold an answer, by provider."""


def _with_a_text(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with a text in place of a message that is a list of text parts: litellm reads only texts."""
    match answer:
        case {"choices": [{"message": {"content": [_, *_] as parts} as message} as choice]}:
            texts = [part["text"] for part in parts if _is_text(part)]
            if len(texts) == len(parts):
                message = {**message, "content": "".join(texts)}
                return {**answer, "choices": [{**choice, "message": message}]}
    return answer


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _with_one_choice(answer: dict[str, Any], exchange: Exchange, request: httpx.Request) -> dict[str, Any]:
    """Return an answer of several choices with the one of index 0 only; any other answer as it is.

    litellm numbers the choices anew, in the order in which they are listed. Raises httpx.ProtocolError where it cannot
    be said which choice is meant.
    """
    for name in ("choices", "candidates"):  # OpenAI's name, and Google's
        choices = answer.get(name)
        if not isinstance(choices, list) or len(choices) < 2:
            continue
        indexes = [choice.get("index") if isinstance(choice, dict) else None for choice in choices]
        first = [choice for choice, index in zip(choices, indexes, strict=True) if index == 0 and index is not False]
        if all(index is None for index in indexes):
            first = choices[:1]
        if len(first) != 1:
            raise exchange.refuse("invalid", f"gives {len(choices)} choices, and not one of index 0", request)
        return {**answer, name: first}
    return answer


def _joined(here: str, location: str) -> str:
    try:
        return urljoin(here, location)
    except ValueError:
        return ""


CLIENT_TIMEOUT = 600.0
"""Seconds, the same for all requests, because litellm keeps a client for each time-out. Our deadline is shorter."""

MOST_TOKENS = 100_000_000
"""Most tokens of one response: larger numbers count as not reported."""

_ENVIRONMENT = {
    # Without these it fetches lists of prices and headers over the network when it is imported.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Otherwise it reads any `.env` file.
    "LITELLM_MODE": "PRODUCTION",
    # Its search for secrets takes minutes for megabytes of an answer. Its logs are off, and we redact ourselves.
    "LITELLM_DISABLE_REDACT_SECRETS": "true",
}

_loading = Lock()


def load() -> Any:
    """Return litellm: quiet, without its own retries, without the network. Takes seconds the first time."""
    with _loading:  # several clients may start at once, each in its thread
        return _load()


def load_for_calls() -> None:
    """Load litellm and the library for OpenAI-compatible endpoints, which takes half a second.

    Without this, the first answers would have that latency.
    """
    load()
    import openai.resources  # noqa: F401


@cache
def _load() -> Any:
    os.environ.update(_ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations in litellm and its imports
        import litellm
        from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
    # It defines classes as late as at the first request.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier.*")
    # It serializes even malformed answers for its logs, and would print parts of them.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # its records may contain texts and keys
    hide_addresses_in_logs("httpx")  # some models take their key in the query
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.telemetry = False
    litellm.drop_params = False
    litellm.num_retries = 0
    litellm.DEFAULT_MAX_RETRIES = 0  # without it embeddings make three requests
    _without_afterthoughts()
    litellm.module_level_aclient = _ClientOfLoop()
    guard(AsyncHTTPHandler, LiteLLMAiohttpTransport)
    return litellm


class _ClientOfLoop:
    """The HTTP client that litellm uses for a few providers, one for each event loop.

    litellm's own is one for all loops, and closes a loop's connections when it is used in another.
    """

    def __getattr__(self, name: str) -> Any:
        from litellm.llms.custom_httpx.http_handler import get_async_httpx_client

        # litellm caches it by the event loop and these arguments.
        return getattr(get_async_httpx_client("fepflow", {"timeout": CLIENT_TIMEOUT}), name)


def _without_afterthoughts() -> None:
    """Keep litellm from work after an answer: for its log, it asks an Ollama server about its models, and blocks the
    event loop until that answers.
    """
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
    """Make one request to a chat model, and record it in the context. Raises ModelError."""
    litellm = load()
    form = {} if response_format is None else {"response_format": response_format}
    exchange = _exchange(Exchange())
    try:
        answer = await litellm.acompletion(messages=messages, **form, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange, with_format=bool(form)) from None
    usage = _usage(answer, model)
    context.record(usage)  # the answer is paid for even if it is useless
    try:
        choice = answer.choices[0]
        reported = str(getattr(answer, "model", None) or "")
        text = _text_of(choice, model)
    except (AttributeError, IndexError, TypeError):
        raise ModelError(f"{model.name} answered without a message", kind="connect", retryable=True) from None
    secrets = secrets_of(model)
    return ChatResponse(redact(text, secrets), redact(reported, secrets)[:MOST_OF_A_NAME], usage)


async def output(model: Model, api: Api, request: Mapping[str, Any], headers: Mapping[str, str]) -> ModelOutput:
    """Make one request to a model that is evaluated: `messages`, `tools`, and parameters. Raises ModelError."""
    litellm = load()
    exchange = _exchange(Exchange())
    more = {"extra_headers": dict(headers)} if headers else {}
    sent = {name: value for name, value in request.items() if name != "messages" and value not in ([], {})}
    try:
        if api == "chat":
            answer = await litellm.acompletion(messages=request["messages"], **sent, **more, **_connection(model))
        else:
            if tools := sent.get("tools"):
                sent["tools"] = list(map(response_tool, tools))
            items = response_items(request["messages"])
            answer = await litellm.aresponses(input=items, **sent, **more, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange) from None
    read = chat_output if api == "chat" else response_output
    result = read(answer, model.name, _usage(answer, model))
    return result if result.finish_reason != "stop" else replace(result, finish_reason=exchange.ended)


async def embed(
    model: Model, texts: list[str], parameters: dict[str, Any], context: RequestContext
) -> EmbeddingResponse:
    """Make one request to an embedding model for all texts, and record it in the context. Raises ModelError."""
    litellm = load()
    exchange = _exchange(Exchange(EMBEDDING_BYTES, EMBEDDING_VALUES))
    try:
        answer = await litellm.aembedding(input=texts, **parameters, **_connection(model))
    except Exception as error:
        raise model_error(error, model, exchange) from None
    usage = _usage(answer, model)
    context.record(usage)  # the answer is paid for even if it is useless
    try:
        # A provider may answer in any order; `index` is the number of the text.
        by_index = {int(item["index"]): [float(number) for number in item["embedding"]] for item in answer.data}
        vectors = [by_index[index] for index in range(len(answer.data))]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        vectors = []
    if len(vectors) != len(texts) or not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
        raise ModelError(f"{model.name} did not answer with a vector for each text", kind="invalid", retryable=True)
    reported = redact(str(getattr(answer, "model", None) or ""), secrets_of(model))
    return EmbeddingResponse(vectors, reported[:MOST_OF_A_NAME], usage)


def _exchange(exchange: Exchange) -> Exchange:
    """Set and return the record of the next request."""
    current.set(exchange)
    return exchange


def _connection(model: Model) -> dict[str, Any]:
    where = {"api_base": model.api_base, "api_key": model.api_key, "api_version": model.api_version}
    given = {name: value for name, value in where.items() if value is not None}
    return {"model": model.name, "timeout": CLIENT_TIMEOUT, "num_retries": 0, "max_retries": 0, **given}


def _text_of(choice: Any, model: Model) -> str:
    """Return the text of a response. Raises ModelError for a refusal, and for a truncated or empty response."""
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
        _count(getattr(reported, "prompt_tokens", getattr(reported, "input_tokens", None))),  # the Responses API's name
        _count(getattr(reported, "completion_tokens", getattr(reported, "output_tokens", None))),
    )
    # Unreported usage comes as 0. Every chat response has completion tokens; vectors have none.
    if not prompt_tokens or (not completion_tokens and not hasattr(answer, "data")):
        return Usage(prompt_tokens or None, completion_tokens or None)
    return Usage(prompt_tokens, completion_tokens or 0, cost(model, prompt_tokens, completion_tokens or 0))


def _count(reported: Any) -> int | None:
    """Return a number of tokens; None for an impossible one, as if it were not reported."""
    is_count = isinstance(reported, int) and not isinstance(reported, bool) and 0 <= reported <= MOST_TOKENS
    return reported if is_count else None


def cost(model: Model, prompt_tokens: int, completion_tokens: int) -> float | None:
    """Return the cost in USD by litellm's price list, or None if it has no price; a price of 0 counts as unknown."""
    try:
        paid = load().cost_per_token(model=model.name, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    except Exception:
        return None
    return float(sum(paid)) or None


async def close() -> None:
    """Close litellm's connections in the running event loop; other loops have their own."""
    cache = load().in_memory_llm_clients_cache
    of_loop = f"-{id(asyncio.get_running_loop())}"  # how LLMClientCache ends its keys
    for key in [key for key in list(cache.cache_dict) if key.endswith(of_loop)]:
        handler = cache.cache_dict.pop(key, None)
        cache.ttl_dict.pop(key, None)
        client: Any = getattr(handler, "_client", None) or getattr(handler, "client", None)
        with suppress(Exception):
            await client.aclose()


_SELF_HOSTED = frozenset({"hosted_vllm", "custom_openai", "openai_like", "lm_studio", "llamafile", "litellm_proxy"})
"""Providers that are the user's own servers. Without an address litellm would ask OpenAI instead."""


_NEEDED = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "ollama": "OLLAMA_API_BASE",
    "ollama_chat": "OLLAMA_API_BASE",
    "hosted_vllm": "HOSTED_VLLM_API_BASE",
}
"""Variable that each usual provider needs: with it, `fepflow validate` does not load litellm, which takes seconds."""


def _has_what_it_needs(model: Model) -> bool:
    """Return whether one of the most usual providers can be asked for the model, as far as can be told at once."""
    provider, _, name = model.name.partition("/")
    if not name or (variable := _NEEDED.get(provider)) is None:
        return False
    setting = model.api_base if variable.endswith("_BASE") else model.api_key
    return bool(setting or os.environ.get(variable))


def full_name(name: str, api_base: str | None) -> str:
    """Return a model's name with its provider.

    At an address of the suite, a name without a provider known to litellm (`Qwen/Qwen3-8B`) is OpenAI-compatible.
    """
    if api_base is None:
        return name
    provider, slash, _ = name.partition("/")
    is_known = slash and (provider in _NEEDED or provider in _providers())
    return name if is_known else f"openai/{name}"


@cache
def _providers() -> frozenset[str]:
    """Return the providers that litellm knows, from the text of its list: loading litellm takes seconds."""
    spec = find_spec("litellm")
    text = ""
    if spec is not None and spec.origin is not None:
        with suppress(OSError):
            text = Path(spec.origin).with_name("types").joinpath("utils.py").read_text(encoding="utf-8")
    members = text.partition("class LlmProviders(")[2].partition("\nclass ")[0]
    names = re.findall(r'^    \w+ = "(.+?)"', members, re.MULTILINE)
    return frozenset(names or (str(getattr(known, "value", known)) for known in load().provider_list))


def problem(model: Model) -> str | None:
    """Return why the model cannot be called: no litellm, an unknown provider, a missing key or address; or None."""
    try:
        require("run", f"asking the model {model.name}", "litellm", "tenacity")
    except MissingExtraError as error:
        return str(error)
    if _has_what_it_needs(model):
        return None
    litellm = load()
    try:
        _, provider, _, base = litellm.get_llm_provider(model=model.name, api_base=model.api_base)
    except Exception:
        return (
            f"no provider is known for the model {model.name} (write it as provider/model, such as openai/{model.name})"
        )
    if provider in _SELF_HOSTED and not (model.api_base or base):
        return f"{model.name} is a server of your own: say where, with api_base"
    try:
        report = litellm.validate_environment(model.name, api_key=model.api_key, api_base=model.api_base)
    except Exception:  # litellm cannot look the provider up: the request itself will fail
        return None
    missing = report.get("missing_keys") or []
    if not missing:
        return None
    advice = "export it, or name another variable: provider_config: {api_key: ${NAME}}"
    return f"{model.name} needs {' and '.join(missing)}, not set in the environment ({advice})"


def provider_of(model: Model) -> str:
    """Return litellm's name of the provider; empty if it knows none."""
    try:
        return str(load().get_llm_provider(model=model.name, api_base=model.api_base)[1])
    except Exception:
        return ""


def has_price(model: Model) -> bool:
    """Return whether litellm's price list has the model."""
    return cost(model, 1_000, 1_000) is not None
