"""Reading the JSON of a request's body."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from fepflow.errors import InputError, Problem
from fepflow.json.parser import parse


async def json_body(request: Request) -> Any:
    """The body as a JSON value, within the limits of `fepflow.json.parser`. Raises InputError."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise InputError(Problem(f"a body of type {kind[:60]!a} is not read", advice="send application/json"))
    try:
        return parse((await request.body()).decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(Problem("the body is not UTF-8")) from None
    except ValueError as error:
        raise InputError(Problem(f"the body is not valid JSON: {error}")) from None
