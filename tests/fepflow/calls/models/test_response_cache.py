"""Answers of judges are kept and used again: over real sockets, counting what the model is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fepflow.calls.models import structured
from fepflow.calls.models.client import ModelClient, ModelRequests, SingleFlight
from fepflow.calls.models.model import CHAT, ChatResponse, Model, RequestContext, parse_model_config
from fepflow.calls.models.structured import StructuredPrompt
from fepflow.errors import CheckArgumentsError, ModelError

from .conftest import InMemory, of_repeat

SCHEMA = {"type": "object", "properties": {"passed": {"type": "boolean"}}, "required": ["passed"]}
PROMPT = StructuredPrompt("Is it right?", "<judged-ab>Paris</judged-ab>", SCHEMA, nonce="ab", version="1.0.0")


@pytest.fixture
def model(model_server: Any) -> Model:
    return Model("openai/gpt-4o-mini", f"{model_server.address}/v1", "sk-1", parameters={"temperature": 0.0})


def with_knobs(model: Model, faults: str) -> Model:
    return replace(model, name=f"{model.name}?{faults}")


def read(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("passed"), bool):
        raise CheckArgumentsError("passed is missing")
    return bool(value["passed"])


async def ask(requests: ModelRequests, model: Model, prompt: StructuredPrompt = PROMPT) -> tuple[bool, ChatResponse]:
    return await structured.ask(requests, model, prompt, read)


async def test_cached_responses_are_not_requested_again(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    value, first = await ask(caching, model)
    again, second = await ask(caching, model)

    assert len(model_server.seen) == 1
    assert (again, first.cached, second.cached) == (value, False, True)
    assert first.usage.cost_usd is not None
    assert second == replace(first, cached=True, requests=0, seconds=0.0), "what it cost is told as it was"


async def test_outside_of_runs_nothing_is_cached(model: Model, model_server: Any, requests: ModelRequests) -> None:
    assert [(await ask(requests, model))[1].cached for _ in range(2)] == [False, False]
    assert len(model_server.seen) == 2


async def test_the_random_word_is_not_part_of_the_cache_key(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    await ask(caching, model)
    await ask(caching, model, replace(PROMPT, text="<judged-cd>Paris</judged-cd>", nonce="cd"))
    assert len(model_server.seen) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"name": "openai/other"},
        {"parameters": {"temperature": 1.0}},
        {"instructions": "Is it wrong?"},
        {"text": "<judged-ab>Rome</judged-ab>"},
        {"schema": {**SCHEMA, "description": "another"}},
        {"sample": 1},
        {"version": "1.1.0"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_whatever_may_change_the_answer_makes_another_question(
    model: Model, model_server: Any, caching: ModelRequests, other: dict[str, Any]
) -> None:
    await ask(caching, model)
    of_model = {name: value for name, value in other.items() if name in ("name", "parameters")}
    of_question = {name: value for name, value in other.items() if name not in of_model}
    await ask(caching, replace(model, **of_model), replace(PROMPT, **of_question))
    assert len(model_server.seen) == 2


async def test_credentials_and_time_outs_are_not_part_of_the_cache_key(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    await ask(caching, model)
    base = model_server.address.replace("http://", "http://me:secret@") + "/v1?api_key=k"
    await ask(caching, replace(model, api_key="sk-2", api_base=base, timeout=5.0, attempts=1))
    assert len(model_server.seen) == 1


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "gpt-4o-mini"])
async def test_another_address_in_the_environment_is_another_question(
    model: Model, model_server: Any, caching: ModelRequests, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K", "sk-1")
    for base in ("/v1", "/v1/", "/v1"):
        monkeypatch.setenv("OPENAI_BASE_URL", model_server.address + base)
        await ask(caching, parse_model_config({"model": name}, {"api_key": "${K}"}, CHAT))
    assert len(model_server.seen) == 2


async def test_repeats_of_the_target_never_share_an_answer(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    for _ in range(2):
        for number in range(3):
            await ask(of_repeat(caching, number), model)
    assert len(model_server.seen) == 3


async def test_a_client_that_does_not_know_what_a_model_rejects_finds_its_cached_response(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    choosy = with_knobs(model, "refuse=json_schema,json_object")
    _, first = await ask(caching, choosy)
    assert (first.mode, len(model_server.seen)) == ("prompt", 3)
    lookups = memory.lookups

    async with ModelClient(memory) as client:
        _, second = await ask(ModelRequests(client, RequestContext()), choosy)

    assert (second.mode, second.cached, len(model_server.seen)) == ("prompt", True, 3)
    assert memory.lookups == lookups + 1, "all modes are looked up in one go"


async def test_a_cached_response_that_violates_the_schema_is_replaced(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    await ask(caching, model)
    ((key, before),) = memory.kept.items()
    memory.kept[key] = replace(before, text='{"passed": "perhaps"}')
    value, asked = await ask(caching, model)
    assert (value, asked.cached, len(model_server.seen)) == (read({"passed": value}), False, 2)
    assert memory.kept[key].text == before.text


@pytest.mark.parametrize("fault", ["misfit", "refusal", "cut_off", "empty"])
async def test_invalid_responses_are_not_cached(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory, fault: str
) -> None:
    bad = with_knobs(model, f"fault={fault}")
    for _ in range(2):
        before = len(model_server.seen)
        with pytest.raises(ModelError):
            await ask(caching, bad)
        assert len(model_server.seen) > before
    assert memory.kept == {}


async def test_a_cached_response_has_the_usage_of_all_its_requests(
    model: Model, caching: ModelRequests, memory: InMemory
) -> None:
    _, asked = await ask(caching, with_knobs(model, "fault=prose&times=2"))
    ((answer),) = memory.kept.values()
    assert (asked.requests, answer.prompt_tokens) == (3, asked.usage.prompt_tokens)


async def test_concurrent_equal_requests_are_one_request(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    slow = with_knobs(model, "latency=0.2")
    told = await asyncio.gather(*(ask(caching, slow) for _ in range(10)))
    assert len(model_server.seen) == 1
    assert len({value for value, _ in told}) == 1
    assert sorted(asked.cached for _, asked in told) == [False] + [True] * 9, "it was paid for once"


async def test_a_failure_reaches_all_waiting_callers_and_no_later_one(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    bad = with_knobs(model, "latency=0.1&fault=refusal&times=1")
    told = await asyncio.gather(*(ask(caching, bad) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in told] == [ModelError] * 3
    assert len(model_server.seen) == 1
    assert (await ask(caching, bad))[1].cached is False


async def test_cancelling_one_caller_does_not_affect_the_others(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    slow = with_knobs(model, "latency=0.3")
    askers = [asyncio.create_task(ask(caching, slow)) for _ in range(3)]
    await model_server.until(1)
    askers[0].cancel()
    done = await asyncio.gather(*askers, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in done] == [True, False, False]
    assert len(model_server.seen) == 1


async def test_a_rule_of_ones_own_that_an_answer_does_not_meet_is_ones_own_question(
    model: Model, model_server: Any, caching: ModelRequests
) -> None:
    said: list[Any] = []

    def strict(value: Any) -> bool:
        said.append(value)
        if len(said) == 1:
            raise CheckArgumentsError("not good enough")
        return read(value)

    slow = with_knobs(model, "latency=0.2")
    (_, first), (_, second) = await asyncio.gather(ask(caching, slow), structured.ask(caching, slow, PROMPT, strict))
    assert (first.cached, second.cached, len(model_server.seen)) == (False, False, 2)


async def test_refresh_makes_a_request_each_time_and_replaces_the_cached_response(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    await ask(caching, model)
    ((key, before),) = memory.kept.items()
    async with ModelClient(memory, refresh=True) as client:
        anew = ModelRequests(client, RequestContext())
        told = await asyncio.gather(ask(anew, model), ask(anew, model))
    assert [asked.cached for _, asked in told] == [False, False]
    assert len(model_server.seen) == 3
    assert memory.kept.keys() == {key}
    assert memory.kept[key].responded_at > before.responded_at


async def test_work_without_callers_is_cancelled_and_a_later_caller_starts_it_again() -> None:
    flights: SingleFlight[int] = SingleFlight()
    begun, cancelled = [], []
    has_begun = asyncio.Event()

    async def work() -> int:
        begun.append(1)
        has_begun.set()
        try:
            await asyncio.sleep(0.05 if len(begun) > 1 else 60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return 7

    waiting = [asyncio.create_task(flights.join("a", work)) for _ in range(2)]
    await has_begun.wait()
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    assert await flights.join("a", work) == 7
    assert (len(begun), len(cancelled)) == (2, 1)
