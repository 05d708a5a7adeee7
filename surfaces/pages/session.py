"""A browser as a caller: its key is in a cookie, forms carry a token, and responses say what a page may load.

A key stays a key: what is in the cookie is shown to `Access` as `X-API-Key` at each request, so that scopes, limits,
expiry and the audit log are the same as for programs. Pages of other sites send no cookie (SameSite), and no token.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fepflow.errors import AuthenticationError, FepflowError, PermissionDeniedError, RateLimitError, UserError
from fepflow.security.api_keys import parse_api_key
from surfaces.access.access import Access, Credentials
from surfaces.pages.assets import asset_response
from surfaces.pages.rendering import render
from surfaces.rest.middleware import is_interface
from surfaces.rest.request import media_type

KEY_COOKIE, CSRF_COOKIE = "fepflow_key", "fepflow_csrf"
MAX_FORM = 200_000
"""Bytes of a form."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def csrf_of(request: Request) -> str:
    """The token that a form of this browser carries."""
    return str(request.scope.get("state", {}).get("csrf", ""))


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that a page of ours sent.

    Raises PermissionDeniedError for one without the token of this browser, UserError for what is no form.
    """
    if media_type(request) != "application/x-www-form-urlencoded":
        raise UserError("A form is sent as application/x-www-form-urlencoded.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise UserError(f"A form has at most {MAX_FORM:,} bytes.")
    try:
        fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100, errors="strict"))
    except ValueError:
        raise UserError("The form cannot be read.") from None
    sent, token = request.cookies.get(CSRF_COOKIE, ""), fields.pop("csrf", "")
    if not sent or not hmac.compare_digest(sent.encode(), token.encode("utf-8", "surrogatepass")):
        raise PermissionDeniedError("The form does not come from a page of fepflow in this browser: load it again.")
    return fields


class PagesMiddleware:
    """Around everything that is served: lets interfaces through, and makes a caller of a browser."""

    def __init__(self, app: ASGIApp, access: Access, *, secure: bool) -> None:
        self._app = app
        self._access = access
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (ASGI 3)."""
        if scope["type"] != "http" or is_interface(scope["path"]):
            await self._app(scope, receive, send)
            return
        cookies = Request(scope).cookies
        token = cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(24)
        scope = {**scope, "state": {**scope.get("state", {}), "csrf": token}}
        sender = self._with_headers(send, None if CSRF_COOKIE in cookies else token)
        request = Request(scope, receive)
        if response := await self._own(request):
            await response(scope, receive, sender)
            return
        await self._app(_with_key(scope, cookies.get(KEY_COOKIE)), receive, _to_sign_in(request, sender))

    async def _own(self, request: Request) -> Response | None:
        """What is answered here, for anybody: files of ours, signing in and out."""
        path, method = request.url.path, request.method
        if path.startswith("/static/") and method in ("GET", "HEAD"):
            return asset_response(path.removeprefix("/static/"))
        if path == "/sign-in" and method in ("GET", "HEAD"):
            return _sign_in_page(request, "", request.query_params.get("next", "/runs"))
        if path == "/sign-in" and method == "POST":
            return await self._sign_in(request)
        if path == "/sign-out" and method == "POST":
            return await self._sign_out(request)
        return None

    async def _sign_in(self, request: Request) -> Response:
        source = request.client.host if request.client else None
        wanted = "/runs"
        try:
            form = await form_of(request)
            wanted = form.get("next", wanted)
            key = form.get("key", "").strip()
            if parse_api_key(key) is None:
                raise AuthenticationError("The API key is not valid: a key reads like fep_ID_SECRET.")
            caller = await self._access.identify(Credentials(api_key=key, source=source))
        except FepflowError as error:
            await self._access.record(None, source, "POST /sign-in", None, str(error.http_status))
            return _sign_in_page(request, str(error), wanted, error)
        await self._access.record(caller.name, source, "POST /sign-in", None, "303")
        response = RedirectResponse(_local(wanted), 303)
        self._set(response, KEY_COOKIE, key)
        return response

    async def _sign_out(self, request: Request) -> Response:
        try:
            await form_of(request)
        except FepflowError as error:
            return _sign_in_page(request, str(error), "/runs", error)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(KEY_COOKIE, httponly=True, samesite="strict", secure=self._secure)
        return response

    def _with_headers(self, send: Send, token: str | None) -> Send:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if token is not None:
                    response = Response()
                    self._set(response, CSRF_COOKIE, token)
                    headers.append("set-cookie", response.headers["set-cookie"])
            await send(message)

        return sender

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(name, value, httponly=True, samesite="strict", secure=self._secure)


def _with_key(scope: Scope, key: str | None) -> Scope:
    names = {name for name, _ in scope["headers"]}
    if key is None or b"x-api-key" in names or b"authorization" in names:
        return scope
    return {**scope, "headers": [*scope["headers"], (b"x-api-key", key.encode("latin-1", "replace"))]}


def _to_sign_in(request: Request, send: Send) -> Send:
    """Sends who has not said who they are to the page where they do, instead of an error."""
    leaves = False

    async def sender(message: Message) -> None:
        nonlocal leaves
        if message["type"] == "http.response.start" and message["status"] == 401 and request.method in ("GET", "HEAD"):
            leaves = True
            await _ask_for_key(request)(request.scope, request.receive, send)
        elif not leaves:
            await send(message)

    return sender


def _ask_for_key(request: Request) -> Response:
    wanted = quote(f"{request.url.path}?{request.url.query}", safe="")
    location = f"/sign-in?next={wanted}"
    response: Response = RedirectResponse(location, 303)
    if "hx-request" in request.headers:
        response = Response(status_code=401, headers={"HX-Redirect": location})  # the whole page, not a part of it
    # A key that is taken no more would be refused again and again, also where none is asked for.
    response.delete_cookie(KEY_COOKIE, httponly=True, samesite="strict")
    return response


def _sign_in_page(request: Request, message: str, wanted: str, error: FepflowError | None = None) -> Response:
    text = render("sign_in.html", message=message, next=_local(wanted), caller=None, csrf=csrf_of(request))
    headers = {"Retry-After": str(max(1, round(error.retry_after)))} if isinstance(error, RateLimitError) else None
    return HTMLResponse(text, error.http_status if error else 200, headers)


def _local(address: str) -> str:
    """An address of this server: nobody is sent elsewhere."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path and not is_interface(address) else "/runs"
