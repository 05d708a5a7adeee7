"""A request of a command to Prefect's API, with its errors as sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import PrefectException

from fepflow.errors import InfrastructureError

T = TypeVar("T")

MAX_REFUSAL = 500
"""Characters that are shown of what Prefect answers."""


def ask_prefect(work: Callable[[PrefectClient], Awaitable[T]]) -> T:
    """Do the work with a client of Prefect's API, and return its result. Raises FepflowError."""

    async def do() -> T:
        async with get_client() as client:
            return await work(client)

    try:
        return asyncio.run(do())
    except httpx.HTTPStatusError as error:
        raise InfrastructureError(f"Prefect refused: {error.response.text[:MAX_REFUSAL]}") from None
    except (httpx.HTTPError, PrefectException) as error:
        raise InfrastructureError(f"Prefect's API could not be used: {error}") from None
