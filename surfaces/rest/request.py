"""What handlers read of a request: who calls, and its body."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from fepflow.errors import InputError, Problem
from fepflow.json.parser import parse
from surfaces.access.caller import Caller


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


async def text_body(request: Request) -> str:
    """The body as a text. Raises InputError."""
    require_plain(request)
    try:
        return (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(Problem("the body is not UTF-8")) from None


async def json_bytes(request: Request) -> bytes:
    """The body, which is said to be JSON. Raises InputError if it is said to be another thing."""
    require_plain(request)
    _require_json(request)
    return await request.body()


def _require_json(request: Request) -> None:
    kind = media_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise InputError(Problem(f"a body of type {kind[:60]!a} is not read", advice="send application/json"))


async def json_body(request: Request) -> Any:
    """The body as a JSON value, within the limits of `fepflow.json.parser`. Raises InputError."""
    _require_json(request)
    text = await text_body(request)
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(Problem(f"the body is not valid JSON: {error}")) from None
