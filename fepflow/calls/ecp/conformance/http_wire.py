"""An address as a raw way to an agent: any body can be sent, and all that comes back is seen."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from fepflow.calls.ecp.http import Endpoint
from fepflow.calls.ecp.sse import EventParser
from fepflow.calls.response_body import read_body, read_pieces
from fepflow.errors import TargetError


class HttpWire:
    """POSTs to an address, one after the other, and the bodies or events that come back."""

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._messages: asyncio.Queue[str] = asyncio.Queue()
        self._posting: asyncio.Future[None] | None = None
        self._fault = ""

    async def send(self, text: str) -> None:
        """POST it, once the one before is over, for which it has so many seconds more."""
        if self._posting is not None:
            await asyncio.wait({self._posting}, timeout=self._seconds)
            self._posting.cancel()
        self._fault = ""
        self._posting = asyncio.ensure_future(self._post(text))

    async def _post(self, text: str) -> None:
        try:
            async with self._endpoint.post(text.encode()) as response:
                self._fault = f"HTTP {response.status_code} without an answer"
                await self._read(response)
        except TargetError as error:
            self._fault = str(error)

    async def _read(self, response: httpx.Response) -> None:
        """Keep the body, or each event of a stream."""
        encoding, limit = response.headers.get("Content-Encoding", ""), self._endpoint.max_bytes
        if not response.headers.get("Content-Type", "").lower().startswith("text/event-stream"):
            body = await read_body(response.aiter_raw(), encoding, limit)
            if body.strip():
                self._messages.put_nowait(body.decode("utf-8", "replace"))
            return
        parser = EventParser()
        async for piece in read_pieces(response.aiter_raw(), encoding, limit):
            for data in parser.feed(piece):
                self._messages.put_nowait(data)
        for data in parser.finish():
            self._messages.put_nowait(data)

    async def receive(self, seconds: float) -> str | None:
        """See Wire."""
        waiting = asyncio.ensure_future(self._messages.get())
        try:
            both: list[asyncio.Future[Any]] = [waiting, *([self._posting] if self._posting is not None else [])]
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what was put last has its turn
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()

    async def fault(self) -> str:
        """See Wire."""
        return self._fault

    async def aclose(self) -> None:
        """See Wire."""
        if self._posting is not None:
            self._posting.cancel()
