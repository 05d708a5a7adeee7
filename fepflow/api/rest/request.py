"""What handlers read of a request: who calls, and its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request

from fepflow.access.caller import Caller
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.requests import parse_body
from fepflow.errors import InputError, Problem

T = TypeVar("T")

_QUICK = 20_000
"""Bytes of JSON that are read in a millisecond or two, whatever they are."""


def caller_of(request: Request) -> Caller:
    """Who has been admitted."""
    caller: Caller = request.state.caller
    return caller


def media_type(request: Request) -> str:
    """The type of the body, without parameters; JSON if it does not say."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def require_plain(request: Request) -> None:
    """Raises InputError for a compressed body, of which a small one could become a huge one."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise InputError(
            Problem(f"a body with Content-Encoding {encoding[:60]!a} is not read", advice="send it uncompressed")
        )


async def json_bytes(request: Request) -> bytes:
    """The body, which is said to be JSON. Raises InputError if it is said to be another thing."""
    require_plain(request)
    _require_json(request)
    return await request.body()


def _require_json(request: Request) -> None:
    kind = media_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise InputError(Problem(f"a body of type {kind[:60]!a} is not read", advice="send application/json"))


async def json_body(request: Request, pool: CheckPool) -> Any:
    """The body as a JSON value. Raises InputError."""
    return await read_body(await json_bytes(request), parse_body, pool)


async def read_body(body: bytes, read: Callable[[bytes], T], pool: CheckPool) -> T:
    """Read a body: in a process of the pool, unless it takes a moment only."""
    return read(body) if len(body) <= _QUICK else await pool.read(Source(read, body))
