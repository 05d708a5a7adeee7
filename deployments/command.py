"""A module of the deployments as a command: it does one thing with Prefect's API, and prints its result.

One JSON object on stdout; a failure is a sentence on stderr, with the exit code of its kind.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import PrefectException

from fepflow.errors import FepflowError, InfrastructureError

Work = Callable[[PrefectClient], Awaitable[dict[str, Any]]]

MAX_REFUSAL = 500
"""Characters that are shown of what Prefect answers."""


def answer(prepare: Callable[[], Work]) -> int:
    """Do the work that `prepare` gives, print its result, and return the exit code."""
    try:
        done = asyncio.run(_do(prepare()))
    except FepflowError as error:
        print(error, file=sys.stderr)  # noqa: T201  # this is a command
        return error.exit_code
    print(json.dumps(done))  # noqa: T201  # this is a command
    return 0


async def _do(work: Work) -> dict[str, Any]:
    try:
        async with get_client() as client:
            return await work(client)
    except httpx.HTTPStatusError as error:
        raise InfrastructureError(f"Prefect refused: {error.response.text[:MAX_REFUSAL]}") from None
    except (httpx.HTTPError, PrefectException) as error:
        raise InfrastructureError(f"Prefect's API could not be used: {error}") from None
