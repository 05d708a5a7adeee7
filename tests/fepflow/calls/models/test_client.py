"""A client's beginning, end and neighbours; what it does to requests is tested with the checks that make them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.embeddings import embed
from fepflow.calls.models.model import Model, RequestContext

from .conftest import InMemory

MESSAGES = [{"role": "user", "content": "?"}]

USE = """
import asyncio, os, sys
from fepflow.calls.models.client import ModelClient
from fepflow.calls.models.model import Model
from fepflow.calls.models.model import RequestContext

async def main():
    model = Model("openai/stand-in", "{base}", "sk-1")
    client = ModelClient()
    assert "litellm" not in sys.modules
    response = await client.complete(model, [{{"role": "user", "content": "?"}}], RequestContext())
    {end}
    return response.model

print(asyncio.run(main()), os.environ["LITELLM_MODE"], sys.modules["litellm"].DEFAULT_MAX_RETRIES)
"""


@pytest.fixture
def model(model_server: Any) -> Model:
    return Model("openai/stand-in", f"{model_server.address}/v1", "sk-1", attempts=1, timeout=20)


def threads() -> int:
    return sum(thread.name == "fepflow-llm" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "end", [pytest.param("await client.aclose()", marks=pytest.mark.battery), "sys.modules['kept'] = client"]
)
@pytest.mark.battery
def test_a_process_ends_without_output_when_its_client_was_not_closed(model_server: Any, end: str) -> None:
    code = USE.format(base=f"{model_server.address}/v1", end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("stand-in (stand-in) PRODUCTION 0\n", "")


async def test_its_thread_begins_with_the_first_request_and_ends_with_it(model: Model) -> None:
    before = threads()
    async with ModelClient() as client:
        assert threads() == before
        await client.complete(model, MESSAGES, RequestContext())
        assert threads() == before + 1
    assert threads() == before
    async with ModelClient():
        pass
    assert threads() == before


async def test_closing_cancels_requests_in_flight_and_refuses_new_ones(model: Model, model_server: Any) -> None:
    client = ModelClient()
    slow = replace(model, name="openai/stand-in?latency=5")
    under_way = asyncio.create_task(client.complete(slow, MESSAGES, RequestContext()))
    await model_server.until(1)
    await client.aclose()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    with pytest.raises(RuntimeError, match="closed"):
        await client.complete(model, MESSAGES, RequestContext())


@pytest.mark.parametrize("name", ["openai/text-embedding-3-small", "ollama/nomic-embed-text"])
async def test_closing_a_client_leaves_the_requests_of_others_alone(
    model: Model, model_server: Any, requests: ModelRequests, name: str
) -> None:
    base = model.api_base if name.startswith("openai") else model_server.address
    slow = replace(model, name=f"{name}?latency=0.5", api_base=base)
    async with ModelClient() as other:
        await other.embed(replace(slow, name=name), ["red"], RequestContext())
        under_way = asyncio.create_task(requests.client.embed(slow, ["red"], requests.context))
        await model_server.until(2)
        await other.embed(replace(slow, name=name), ["blue"], RequestContext())
    assert len((await under_way).vectors) == 1
    assert requests.context.requests == 1


async def test_a_parameter_that_is_rejected_is_left_out_of_requests_made_at_the_same_time_too(
    model: Model, model_server: Any, requests: ModelRequests
) -> None:
    choosy = replace(model, name="openai/stand-in?reject=temperature&latency=0.2", parameters={"temperature": 0.0})
    work = (requests.client.complete(choosy, MESSAGES, requests.context) for _ in range(3))
    assert [response.dropped_params for response in await asyncio.gather(*work)] == [("temperature",)] * 3
    assert 4 <= len(model_server.seen) <= 6  # who begins after the first rejection knows of it


async def test_another_event_loop_shares_requests_under_way_and_the_cache(
    model: Model, model_server: Any, caching: ModelRequests, memory: InMemory
) -> None:
    slow = replace(model, name="openai/text-embedding-3-small?latency=0.3")
    elsewhere = asyncio.to_thread(lambda: asyncio.run(embed(caching, slow, ["red"])))
    here, there = await asyncio.gather(embed(caching, slow, ["red"]), elsewhere)
    assert here.vectors == there.vectors
    assert {here.cached, there.cached} == {True, False}
    assert (len(model_server.seen), len(memory.kept)) == (1, 1)
