"""The wire to models, for chat and embeddings alike: limits on responses and redirects, and a record of each request.

litellm makes all its clients over one kind of transport, which is guarded here: an answer is read whole, its bytes
counted as they come and as they are decompressed, and no redirect leads to another host.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    import httpx

# httpx is imported where a model is asked: what only reads suites and results does without it.

from fepflow.calls.response_body import ACCEPT_ENCODING, BodyError, read_beginning, read_body
from fepflow.json.limits import has_more_values
from fepflow.security.addresses import host_and_port, is_same_host

CHAT_BYTES = 4_000_000
"""Of a chat response. A judgement has kilobytes."""

EMBEDDING_BYTES = 48_000_000
"""Of the vectors of a whole request: 64 texts, of 8,192 numbers each, of 20 digits, are 11 million."""

CHAT_VALUES = 20_000
EMBEDDING_VALUES = 600_000
"""JSON values: reading each takes several microseconds."""

SMALL_BYTES = 65_536
"""What is no answer may have so many: litellm takes minutes to look at megabytes of it, and blocks its thread."""


@dataclass
class Exchange:
    """Record of one request: `host` is the host and port of the request, `status` and `media_type` of the response.

    `refusal` is why the answer was not taken: a kind of ModelError, and a sentence.
    """

    most_bytes: int = CHAT_BYTES
    most_values: int = CHAT_VALUES
    host: str = ""
    status: int | None = None
    media_type: str = ""
    refusal: tuple[str, str] | None = None

    def refuse(self, kind: str, why: str, request: httpx.Request) -> httpx.ProtocolError:
        """The error to raise; litellm makes one of its own of it, so the reason is kept here."""
        import httpx

        self.refusal = kind, why
        return httpx.ProtocolError(why, request=request)


current: ContextVar[Exchange] = ContextVar("fepflow_exchange")
"""The request under way, set before each one."""


def guard(litellm_handler: Any, litellm_transport: Any) -> None:
    """Have all of litellm's clients use its aiohttp transport, and that transport be guarded."""
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
            exchange.media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()[:60]
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
        return httpx.Response(response.status_code, headers=headers, content=body, request=request)

    handle_async_request.guarded = True  # type: ignore[attr-defined]  # a function takes any
    litellm_transport.handle_async_request = handle_async_request


async def _read(response: httpx.Response, exchange: Exchange, request: httpx.Request) -> bytes:
    """The decoded body, of an error its beginning.

    Raises httpx.ProtocolError for an answer that is too large, and for what cannot be decoded.
    """
    # The stream itself: `aiter_raw` wants a request, which a transport's response has not got yet.
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


def _answer_in(body: bytes, exchange: Exchange, request: httpx.Request) -> bytes:
    """Return a large body that is JSON, and a small one whatever it is; nothing, of a large one that is none.

    Raises httpx.ProtocolError for JSON with too many values, and for choices of which none is the first.
    """
    is_small = len(body) <= SMALL_BYTES
    if not is_small and has_more_values(body.decode("utf-8", "replace"), exchange.most_values):
        raise exchange.refuse("too_large", f"answers with more than {exchange.most_values:,} JSON values", request)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body if is_small else b""
    return _with_one_choice(answer, exchange, request) or body


def _with_one_choice(answer: Any, exchange: Exchange, request: httpx.Request) -> bytes | None:
    """Return an answer of several choices with the one of index 0 only; None for an answer that stays as it is.

    litellm numbers the choices anew, in the order in which they are listed. Raises httpx.ProtocolError where it cannot
    be said which choice is meant.
    """
    for name in ("choices", "candidates") if isinstance(answer, dict) else ():  # OpenAI's name, and Google's
        choices = answer.get(name)
        if not isinstance(choices, list) or len(choices) < 2:
            continue
        indexes = [choice.get("index") if isinstance(choice, dict) else None for choice in choices]
        first = [choice for choice, index in zip(choices, indexes, strict=True) if index == 0 and index is not False]
        if all(index is None for index in indexes):
            first = choices[:1]
        if len(first) != 1:
            raise exchange.refuse("invalid", f"gives {len(choices)} choices, and not one of index 0", request)
        return json.dumps({**answer, name: first}).encode()
    return None


def _joined(here: str, location: str) -> str:
    try:
        return urljoin(here, location)
    except ValueError:
        return ""
