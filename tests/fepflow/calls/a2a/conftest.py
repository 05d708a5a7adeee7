from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fepflow.calls.a2a.target import A2aTarget
from fepflow.deployments.http_server import bind
from fepflow.suite.target import Target
from tests.fepflow.calls.a2a.agents import Scripted, app_of, card_of, grpc_server
from tests.http_server import PromptServer

OpenAgent = Callable[..., Awaitable[tuple[Scripted, str]]]
OpenTarget = Callable[..., A2aTarget]


@pytest.fixture
async def agent() -> AsyncIterator[OpenAgent]:
    """Starts an agent of the SDK in this event loop, and gives it with the address of its card."""
    async with AsyncExitStack() as stack:

        async def start(
            binding: str = "JSONRPC",
            *,
            streaming: bool = True,
            version: str = "1.0",
            key: str | None = None,
            grpc_address: str = "",
        ) -> tuple[Scripted, str]:
            executor = Scripted()
            if binding == "GRPC" and not grpc_address:
                grpc_address = await stack.enter_async_context(grpc_server(executor))
            listener = stack.enter_context(bind("127.0.0.1", 0, "--port"))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            card = card_of(url, binding, streaming=streaming, version=version, grpc_address=grpc_address)
            server = PromptServer(app_of(executor, card, key))
            serving = asyncio.create_task(server.serve([listener]))

            async def stop() -> None:
                server.stop()
                await serving

            stack.push_async_callback(stop)
            return executor, f"{url}/.well-known/agent-card.json"

        yield start


@pytest.fixture
async def open_target() -> AsyncIterator[OpenTarget]:
    """Opens targets, and closes them at the end."""
    targets: list[A2aTarget] = []

    def opened(card: str, target: dict[str, Any] | None = None, **a2a: Any) -> A2aTarget:
        config = Target.model_validate({"a2a": {"card": card, "poll_interval": 0.05, **a2a}, **(target or {})})
        targets.append(A2aTarget(config, frozenset({"sesame-key"})))
        return targets[-1]

    yield opened
    for target in targets:
        await target.aclose()
