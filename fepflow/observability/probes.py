"""Probes of a process, for load balancers and orchestrators: `/livez` and `/readyz`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from fepflow.errors import FepflowError
from fepflow.store.store import Store

SECONDS = 3.0
"""Seconds for a dependency to answer. Callers of a probe also give up after a few seconds."""

OK, UNAVAILABLE, NOT_CONFIGURED = "ok", "unavailable", "not configured"

Check = Callable[[], bool | None]
"""Asks a dependency, and blocks until then. Returns False if it does not answer, None if there is none."""


class Probe:
    """The state of one dependency, asked by one thread at a time: one that hangs is not asked again and again."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._asking: asyncio.Task[bool | None] | None = None

    async def state(self) -> str:
        """Return `ok`, `unavailable` or `not configured`, within SECONDS."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._check))
        try:
            async with asyncio.timeout(SECONDS):
                answers = await asyncio.shield(self._asking)
        except TimeoutError:
            answers = False
        return NOT_CONFIGURED if answers is None else OK if answers else UNAVAILABLE


def store_probe(store: Store) -> Probe:
    """Return the probe of a store: it answers, and has its tables."""

    def check() -> bool:
        try:
            store.check()
        except FepflowError:
            return False
        return True

    return Probe(check)


def probe_routes(probes: Mapping[str, Probe]) -> list[Route]:
    """Return `/livez`: this process answers; and `/readyz`, also as `/healthz`: the state of each dependency, by name.

    The status is 503 while the store is away. Without Prefect it stays 200: results are shown, and requests wait in the
    store, so orchestrators must not take the process out of service.
    """

    async def livez(_: Request) -> JSONResponse:
        return JSONResponse({"status": OK})

    async def readyz(_: Request) -> JSONResponse:
        states = dict(zip(probes, await asyncio.gather(*(probe.state() for probe in probes.values())), strict=True))
        if states["store"] == UNAVAILABLE:
            return JSONResponse({"status": UNAVAILABLE, **states, "message": "The store does not answer."}, 503)
        return JSONResponse({"status": "degraded" if UNAVAILABLE in states.values() else OK, **states})

    return [Route("/livez", livez), *(Route(path, readyz) for path in ("/readyz", "/healthz"))]
