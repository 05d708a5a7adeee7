"""What servers answer that are only nearly like the one they imitate."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.model import ChatResponse, Model, Usage
from fepflow.errors import ModelError

Answering = Callable[..., Awaitable[str]]

MESSAGES = [{"role": "user", "content": "?"}]


def chat(content: Any = "yes", **usage: int) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    said = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return {**said, "usage": usage} if usage else said


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    """Begin a server that answers everything with this body; its address."""
    runners: list[web.AppRunner] = []

    async def begin(body: Any, status: int = 200) -> str:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield begin
    for runner in runners:
        await runner.cleanup()


async def complete(requests: ModelRequests, model: Model) -> ChatResponse:
    return await requests.client.complete(model, MESSAGES, requests.context)


def model(base: str, name: str = "openai/gpt-4o-mini") -> Model:
    return Model(name, base, "sk-1", attempts=1)


async def test_a_response_without_completion_tokens_has_no_known_cost(
    answering: Answering, requests: ModelRequests
) -> None:
    half = await complete(requests, model(await answering(chat(prompt_tokens=100))))
    whole = await complete(requests, model(await answering(chat(prompt_tokens=100, completion_tokens=20))))
    assert half.usage == Usage(100, None, None)
    assert whole.usage.cost_usd is not None


def choices(*answers: tuple[Any, str]) -> dict[str, Any]:
    """An answer of several choices: the index of each (None: it has none), and what it says."""
    listed = [
        {**({} if index is None else {"index": index}), "finish_reason": "stop", "message": {"content": said}}
        for index, said in answers
    ]
    for choice in listed:
        choice["message"]["role"] = "assistant"
    return {**chat(), "choices": listed}


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "deepseek/deepseek-chat", "mistral/mistral-small"])
@pytest.mark.parametrize(
    "answer",
    [
        choices((1, "no"), (0, "yes")),
        choices((0, "yes"), (1, "no")),
        choices((2, "no"), (1, "no"), (0, "yes")),
        choices((None, "no"), (0, "yes")),
        choices((False, "no"), (0, "yes")),
        choices((None, "yes"), (None, "no")),
        choices((1, "yes")),
        choices((None, "yes")),
        choices((1, "no" * 50_000), (0, "yes")),
    ],
)
async def test_the_choice_of_index_0_counts_wherever_it_is_listed(
    answering: Answering, requests: ModelRequests, name: str, answer: dict[str, Any]
) -> None:
    assert (await complete(requests, model(await answering(answer), name))).text == "yes"


@pytest.mark.parametrize(
    "answer", [choices((1, "no"), (2, "no")), choices((0, "no"), (0, "yes")), choices((None, "no"), (1, "yes"))]
)
async def test_choices_of_which_none_is_the_first_are_no_answer(
    answering: Answering, requests: ModelRequests, answer: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="gives 2 choices, and not one of index 0") as failure:
        await complete(requests, model(await answering(answer)))
    assert failure.value.kind == "invalid"


@pytest.mark.parametrize("indexes", [[0, 1, 2], [0], [0, 0], [1, 2]])
async def test_there_is_one_vector_for_each_text(
    answering: Answering, requests: ModelRequests, indexes: list[int]
) -> None:
    data = [{"object": "embedding", "index": index, "embedding": [1.0, 2.0]} for index in indexes]
    base = await answering({"object": "list", "model": "m", "data": data, "usage": {"prompt_tokens": 1}})
    with pytest.raises(ModelError, match="a vector for each text"):
        await requests.client.embed(model(base, "openai/text-embedding-3-small"), ["red", "blue"], requests.context)


async def test_a_response_of_another_shape_is_a_short_error(answering: Answering, requests: ModelRequests) -> None:
    base = await answering(chat([{"type": "image_url"}], prompt_tokens=1, completion_tokens=1))
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()
        _litellm._load.cache_clear()
        with pytest.raises(ModelError) as failure:
            await complete(requests, model(base))
    assert not [str(warning.message) for warning in said if "erializ" in str(warning.message)]
    assert "Traceback" not in str(failure.value)
    assert "site-packages" not in str(failure.value)


async def test_anthropics_empty_account_is_a_quota_that_is_used_up(
    answering: Answering, requests: ModelRequests
) -> None:
    said = {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}
    base = await answering({"type": "error", "error": said}, 400)
    with pytest.raises(ModelError) as failure:
        await complete(requests, model(base, "anthropic/claude-3-5-haiku-latest"))
    assert (failure.value.kind, failure.value.recoverable) == ("quota", False), json.dumps(said)
