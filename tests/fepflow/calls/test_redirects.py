"""Redirects are followed within the target's host and nowhere else."""

from __future__ import annotations

import pytest
from aiohttp import web

from .conftest import CASE, Serve, ask_once, configured, error_of


async def test_within_the_host_the_request_is_repeated_as_it_was(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/ask":
            raise web.HTTPMovedPermanently("/ask/")
        return web.json_response([request.method, await request.json(), request.headers["X-Key"]])

    output = await ask_once(configured(await serve(handler), headers={"X-Key": "k"}))
    assert output.value == ["POST", {"input": CASE.input}, "k"]


async def test_see_other_is_fetched_with_get(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/ask":
            raise web.HTTPSeeOther("/result")
        return web.json_response([request.method, await request.text()])

    assert (await ask_once(configured(await serve(handler)))).value == ["GET", ""]


async def test_another_host_gets_nothing(serve: Serve) -> None:
    reached: list[str] = []

    async def other(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(text="caught")

    elsewhere = (await serve(other)).replace("http://", "http://u:p@") + "?token=s3cret"

    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(elsewhere)

    error = await error_of(configured(await serve(handler)))
    assert reached == []
    assert (error["kind"], error["recoverable"], error["status"]) == ("redirect", False, 307)
    assert elsewhere.split("@")[1].split("/")[0] in error["message"]
    assert "s3cret" not in error["message"]
    assert "u:p" not in error["message"]


@pytest.mark.parametrize(
    "location", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://[::1/", "//evil.invalid/", "http://host:99999/"]
)
async def test_another_protocol_or_nonsense_is_refused(serve: Serve, location: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    error = await error_of(configured(await serve(handler)))
    assert (error["kind"], error["recoverable"]) == ("redirect", False)
    assert ("redirects to another protocol than HTTP" in error["message"]) == location.startswith(("ftp:", "file:"))


@pytest.mark.parametrize(("hops", "arrives"), [(5, True), (6, False)])
async def test_five_are_followed(serve: Serve, hops: int, arrives: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        hop = int(request.query.get("hop", 0))
        if hop < hops:
            raise web.HTTPTemporaryRedirect(f"/ask?hop={hop + 1}")
        return web.Response(text="arrived")

    output = await ask_once(configured(await serve(handler)))
    assert (output.value == "arrived") is arrives
    assert arrives or output.metadata["error"]["kind"] == "redirect"
