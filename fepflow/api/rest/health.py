"""Probes for load balancers and orchestrators: anybody may ask, nothing is recorded, and little is said."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse

from fepflow.errors import FepflowError
from fepflow.store.store import Store

SECONDS = 3.0
"""Seconds for the store to answer; its caller gives up after a few seconds itself."""


def health_router(store: Store) -> APIRouter:
    """`/livez`: this process answers. `/readyz` and `/healthz`: its store does, too, or the status is 503."""
    router = APIRouter(include_in_schema=False)
    under_way: list[asyncio.Task[None]] = []
    """The one question to the store that is under way: a store that does not answer is not asked again and again."""

    @router.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/readyz")
    @router.get("/healthz")
    async def readyz() -> JSONResponse:
        if not under_way or under_way[0].done():
            under_way[:] = [asyncio.create_task(asyncio.to_thread(store.check))]
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.shield(under_way[0])
        except (FepflowError, TimeoutError):
            return JSONResponse({"status": "unavailable", "message": "The store does not answer."}, 503)
        return JSONResponse({"status": "ok"})

    return router
