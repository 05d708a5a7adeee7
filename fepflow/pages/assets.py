"""Files that pages load. All are shipped; their addresses change with their content, so that browsers keep them."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.responses import PlainTextResponse, Response

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
NAMES = ("htmx.min.js", "icon.svg", "page.js", "style.css")
_FOLDER = files("fepflow.pages").joinpath("static")


@cache
def read_asset(name: str) -> bytes:
    """One of `NAMES`."""
    return _FOLDER.joinpath(name).read_bytes()


@cache
def asset_address(name: str) -> str:
    """Where a page loads it from."""
    return f"/static/{sha256(read_asset(name)).hexdigest()[:12]}/{name}"


def asset_response(path: str) -> Response:
    """The file at an address, without `/static/`."""
    name = path.rpartition("/")[2]
    if name not in NAMES or f"/static/{path}" != asset_address(name):
        return PlainTextResponse("There is no such file.\n", 404)
    kind = KINDS[f".{name.rpartition('.')[2]}"]
    return Response(read_asset(name), media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})
