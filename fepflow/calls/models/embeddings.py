"""Vectors of texts, from the cache or from requests for batches.

The vector of each text is cached by itself. Its key has everything that may change it: the model and its address, its
parameters, the text, and the version of a user's embedder.
"""

from __future__ import annotations

import asyncio
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fepflow.calls.models.client import ModelRequests, SendTexts
from fepflow.calls.models.model import EmbeddingResponse, Model, Usage
from fepflow.protocol.content_hash import CachedResponse, content_hash


async def embed(
    requests: ModelRequests, model: Model, texts: Sequence[str], send: SendTexts | None = None, version: str | None = ""
) -> EmbeddingResponse:
    """Return the vectors of the texts in their order, with `requests` and `seconds` of the slowest text.

    `send` replaces the request to the model; its vectors are cached under `version`, or not at all if that is None.
    `usage` is that of the texts sent for this caller; if none was sent, that of all texts, and they are `cached`.
    Raises ModelError, and the exceptions of `send`.
    """
    return await requests.client.at_home(_Embedding(requests, model, send, version).of_all(texts))


@dataclass(frozen=True)
class _Embedding:
    """The request of one caller."""

    requests: ModelRequests
    model: Model
    own_send: SendTexts | None
    version: str | None

    async def of_all(self, texts: Sequence[str]) -> EmbeddingResponse:
        different = list(dict.fromkeys(texts))
        by_text = dict(zip(different, await _gathered(self._of_one(text) for text in different), strict=True))
        cached = all(vector.cached for vector in by_text.values())
        paid = [vector for vector in by_text.values() if cached or not vector.cached]
        return replace(
            paid[0],
            vectors=[by_text[text].vectors[0] for text in texts],
            usage=sum((vector.usage for vector in paid), Usage(0, 0, 0.0)),
            requests=max(vector.requests for vector in paid),
            seconds=max(vector.seconds for vector in paid),
        )

    async def _of_one(self, text: str) -> EmbeddingResponse:
        """Return the vector of one text, with its share of the usage."""
        client, key, first = self.requests.client, self._batch_key(), False

        async def work() -> EmbeddingResponse:
            nonlocal first
            first = True
            if self.version is None:
                return await client.batcher.embed(key, text, self._send)
            cache_key = self._cache_key(text)
            stored = (await client.cached([cache_key])).get(cache_key)
            if stored is not None and (vector := _from_cache(stored)) is not None:
                return vector
            vector = await client.batcher.embed(key, text, self._send)
            await client.store(cache_key, _to_cache(self.model, vector))
            return vector

        vector = await client.batcher.single_flight.join((key, text), work)
        return vector if first else replace(vector, requests=0, seconds=0.0, cached=True)

    async def _send(self, texts: list[str]) -> EmbeddingResponse:
        if self.own_send is not None:
            return await self.own_send(texts)
        return await self.requests.client.embed(self.model, texts, self.requests.context)

    def _batch_key(self) -> Hashable:
        """Return the key of texts that may share a request. A caller without retries must not wait for those of
        others."""
        model = self.model
        parameters = tuple(sorted((name, repr(value)) for name, value in model.parameters.items()))
        where = model.name, model.api_base, model.api_key, model.api_version
        return (*where, parameters, self.version, model.timeout, model.attempts, self.requests.context.retry)

    def _cache_key(self, text: str) -> str:
        model = self.model
        return content_hash("embedding", model.name, model.bare_base, dict(model.parameters), self.version, text)


async def _gathered(work: Iterable[Coroutine[Any, Any, EmbeddingResponse]]) -> list[EmbeddingResponse]:
    """Return all results. Raises the first failure after all have ended, so that the others are cached."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in done if isinstance(outcome, EmbeddingResponse)]


def _to_cache(model: Model, one: EmbeddingResponse) -> CachedResponse:
    vector, usage = one.vectors[0], one.usage
    text = b64encode(struct.pack(f"<{len(vector)}d", *vector)).decode("ascii")
    tokens = usage.prompt_tokens, usage.completion_tokens
    return CachedResponse("embedding", model.name, one.model, None, text, *tokens, usage.cost_usd, one.dropped_params)


def _from_cache(response: CachedResponse) -> EmbeddingResponse | None:
    """Return the vector in a cached response, or None if it is invalid."""
    try:
        packed = b64decode(response.text, validate=True)
        vector = list(struct.unpack(f"<{len(packed) // 8}d", packed))
    except (ValueError, struct.error):
        return None
    if not vector or not all(map(math.isfinite, vector)):
        return None
    usage = Usage(response.prompt_tokens, response.completion_tokens, response.cost_usd)
    return EmbeddingResponse([vector], response.response_model, usage, response.dropped_params, 0, 0.0, cached=True)
