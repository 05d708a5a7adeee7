"""Vectors are asked for in batches and kept text by text: over real sockets, looking at what is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fepflow.calls.models import client
from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.embeddings import embed
from fepflow.calls.models.model import EmbeddingResponse, Model, RequestContext, Usage
from fepflow.errors import ModelError

from .conftest import InMemory, of_repeat


@pytest.fixture
def model(model_server: Any) -> Model:
    return Model("openai/text-embedding-3-small", f"{model_server.address}/v1", "sk-1", timeout=20)


def with_knobs(model: Model, faults: str) -> Model:
    return replace(model, name=f"{model.name}?{faults}", attempts=1)


def sent(model_server: Any) -> list[list[str]]:
    return [body["input"] for body in model_server.bodies]


async def at_once(requests: ModelRequests, model: Model, *askers: Sequence[str]) -> list[Any]:
    work = (embed(requests, model, list(texts)) for texts in askers)
    return list(await asyncio.gather(*work, return_exceptions=True))


async def by_one_request(requests: ModelRequests, model: Model, texts: list[str]) -> EmbeddingResponse:
    return await requests.client.embed(model, texts, requests.context)


async def test_concurrent_callers_share_a_request_with_each_text_once(
    model: Model, requests: ModelRequests, model_server: Any
) -> None:
    found = await at_once(requests, model, ["red", "blue"], ["green", "blue"], ["blue", "blue"])

    assert sent(model_server) == [["red", "blue", "green"]]
    expected = await by_one_request(requests, model, ["red", "blue", "green"])
    red, blue, green = expected.vectors
    assert [answer.vectors for answer in found] == [[red, blue], [green, blue], [blue, blue]]
    assert [answer.cached for answer in found] == [False, False, True], "the last one's text had been sent already"


async def test_a_shuffled_answer_is_put_in_order(model: Model, requests: ModelRequests, model_server: Any) -> None:
    (found,) = await at_once(requests, with_knobs(model, "fault=shuffled"), ["red", "blue"])
    assert found.vectors == (await by_one_request(requests, model, ["red", "blue"])).vectors


async def test_only_texts_that_are_not_cached_are_sent(model: Model, model_server: Any, caching: ModelRequests) -> None:
    first = await embed(caching, model, ["red", "blue"])
    second = await embed(caching, model, ["red", "blue"])
    third = await embed(caching, model, ["red", "green"])

    assert sent(model_server) == [["red", "blue"], ["green"]]
    assert (first.cached, second.cached, third.cached) == (False, True, False)
    assert second == replace(first, cached=True, requests=0, seconds=0.0)
    assert third.vectors[0] == first.vectors[0], "to the last digit"
    assert third.usage.prompt_tokens == 1, "that of what was sent"


async def test_which_of_the_targets_answers_it_is_makes_no_difference(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    for number in range(3):
        await embed(of_repeat(caching, number), model, ["red"])
    assert len(model_server.seen) == 1


@pytest.mark.parametrize("other", [{"name": "openai/other"}, {"parameters": {"dimensions": 32}}])
async def test_another_model_is_another_request_and_another_vector(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory, other: dict[str, Any]
) -> None:
    await asyncio.gather(embed(caching, model, ["red"]), embed(caching, replace(model, **other), ["red"]))
    assert sent(model_server) == [["red"], ["red"]]
    assert len(memory.kept) == 2


async def test_outside_of_runs_nothing_is_cached(model: Model, requests: ModelRequests, model_server: Any) -> None:
    assert [(await embed(requests, model, ["red"])).cached for _ in range(2)] == [False, False]
    assert len(model_server.seen) == 2


async def test_a_request_has_64_texts_at_most(model: Model, requests: ModelRequests, model_server: Any) -> None:
    texts = [f"text {number}" for number in range(150)]
    found = await at_once(requests, model, *([text] for text in texts))
    assert sorted(len(some) for some in sent(model_server)) == [22, 64, 64]  # at once, so in any order
    assert all(isinstance(answer, EmbeddingResponse) for answer in found)


async def test_a_request_has_a_bound_of_characters(model: Model, requests: ModelRequests, model_server: Any) -> None:
    long = ["a" * 60_000, "b" * 60_000, "c" * (client.MAX_CHARACTERS + 1), "d"]
    await at_once(requests, model, *([text] for text in long))
    assert sorted([text[0] for text in some] for some in sent(model_server)) == [["a"], ["b"], ["c"], ["d"]]


async def test_a_batch_that_fails_is_everybodys_error(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    found = await at_once(caching, with_knobs(model, "fault=quota"), ["red"], ["blue"])
    assert [type(error) for error in found] == [ModelError] * 2
    assert (len(model_server.seen), memory.kept) == (1, {})


async def test_a_text_that_is_refused_takes_no_other_down(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    texts = [f"text {number}" for number in range(20)]
    texts[13] = "forbidden"
    found = await at_once(caching, with_knobs(model, "forbid=forbidden"), *([text] for text in texts))

    assert [number for number, answer in enumerate(found) if isinstance(answer, ModelError)] == [13]
    assert "cannot be embedded" in str(found[13])
    assert len(model_server.seen) < 12, "halves are asked, not each text"
    assert len(memory.kept) == 19


async def test_the_parts_of_what_a_request_took_make_the_whole(
    model: Model, requests: ModelRequests, model_server: Any
) -> None:
    found = await at_once(requests, model, ["one two three"], ["four"], ["five six"])
    usage = [answer.usage for answer in found]
    whole = (await by_one_request(requests, model, ["one two three", "four", "five six"])).usage
    assert sum(part.prompt_tokens for part in usage) == whole.prompt_tokens == 6
    assert sum(part.cost_usd for part in usage) == pytest.approx(whole.cost_usd)
    assert usage[0].cost_usd > usage[2].cost_usd > usage[1].cost_usd


async def test_usage_that_was_not_reported_is_not_split(model: Model, requests: ModelRequests) -> None:
    (found,) = await at_once(requests, with_knobs(model, "fault=no_usage"), ["red", "blue"])
    assert found.usage == Usage(None, None, None)


async def test_cancelling_one_caller_does_not_affect_the_others_vectors(
    model: Model, requests: ModelRequests, model_server: Any
) -> None:
    slow = with_knobs(model, "latency=0.3")
    askers = [asyncio.create_task(embed(requests, slow, [text, "blue"])) for text in ("red", "green")]
    await model_server.until(1)
    askers[0].cancel()
    gone, there = await asyncio.gather(*askers, return_exceptions=True)
    assert isinstance(gone, asyncio.CancelledError)
    assert isinstance(there, EmbeddingResponse)
    assert len(model_server.seen) == 1


async def test_a_caller_after_all_others_were_cancelled_gets_its_vector(
    model: Model, requests: ModelRequests, model_server: Any
) -> None:
    asker = asyncio.create_task(embed(requests, model, ["red"]))
    await asyncio.sleep(0)
    asker.cancel()
    assert (await embed(requests, model, ["red"])).cached is False
    assert sent(model_server) == [["red"]]


@pytest.mark.parametrize("text", ["", "AAAA", "not base64", "AAAAAAAA+H8="])  # the last one is a NaN
async def test_an_invalid_cached_vector_is_requested_again(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory, text: str
) -> None:
    await embed(caching, model, ["red"])
    ((key, before),) = memory.kept.items()
    memory.kept[key] = replace(before, text=text)
    assert (await embed(caching, model, ["red"])).cached is False
    assert memory.kept[key].text == before.text


async def test_refresh_requests_vectors_each_time_and_replaces_cached_ones(
    model: Model, model_server: Any, memory: InMemory
) -> None:
    async with ModelClient(memory, refresh=True) as client:
        for _ in range(2):
            await embed(ModelRequests(client, RequestContext()), model, ["red"])
    assert (len(model_server.seen), len(memory.kept)) == (2, 1)
