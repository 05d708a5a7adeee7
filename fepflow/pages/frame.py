"""A page with what every page has around it."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from fepflow.api.rest.request import caller_of
from fepflow.pages.links import LINKS
from fepflow.pages.rendering import render
from fepflow.pages.session import csrf_of


def page_of(request: Request, template: str, **values: Any) -> Response:
    """The response to a request of a browser."""
    caller = caller_of(request)
    around = {
        "links": LINKS,
        "caller": caller.name,
        "csrf": csrf_of(request),
        "may_label": caller.may("evaluate"),
    }
    return HTMLResponse(render(template, **values, **around))
