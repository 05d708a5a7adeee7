"""Browsers as callers: a cookie with a session, forms with a token, and headers with what a page may load.

The cookie holds an id that means nothing elsewhere: which key it stands for is in the store, so that scopes, limits,
expiry and the audit log are the same as for programs. What changes something has to come from a page of ours, by what
the browser says (Origin, Sec-Fetch-Site) and by a token that only such a page knows. Cookies know no ports: another
server on this host is sent them, too, and may set others.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fepflow.access.access import Access
from fepflow.access.caller import Caller
from fepflow.api.rest.http import bounded_body, media_type
from fepflow.api.rest.middleware import action_of, is_interface
from fepflow.errors import AuthenticationError, FepflowError, PermissionDeniedError, RateLimitError, UserError
from fepflow.pages.rendering import NAMES, asset_address, read_asset, render

COOKIE = "fepflow_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name of the cookie over https: browsers take it from this very host only, and send it to no other."""

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

MAX_FORM = 200_000
"""Bytes of a form."""

# Pico's signs are images in its sheet (data:), which run nothing and ask nobody.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
    """Return the token that the forms of this session carry."""
    return str(request.scope.get("state", {}).get("csrf", ""))


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent.

    Raises PermissionDeniedError for one without the token of this session, UserError for another kind of body.
    """
    fields = await _fields_of(request)
    if not hmac.compare_digest(csrf_of(request).encode(), fields.pop("csrf", "").encode("utf-8", "surrogatepass")):
        raise PermissionDeniedError("The form does not come from a page of fepflow in this browser: load it again.")
    return fields


async def _fields_of(request: Request) -> dict[str, str]:
    if media_type(request) != "application/x-www-form-urlencoded":
        raise UserError("A form is sent as application/x-www-form-urlencoded.")
    body = await bounded_body(request, MAX_FORM, f"A form has at most {MAX_FORM:,} bytes.")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100, errors="strict"))
    except ValueError:
        raise UserError("The form cannot be read.") from None


def refuse_other_sites(headers: Headers) -> None:
    """Refuse a request that changes something and does not come from a page of ours. Raises PermissionDeniedError.

    Browsers say where a request comes from: over https and on this machine in Sec-Fetch-Site, which also holds behind a
    proxy with another Host; else in Origin. Another port is another origin.
    """
    own = {f"{scheme}://{headers.get('host', '').lower()}" for scheme in ("http", "https")}
    if sites := headers.getlist("sec-fetch-site"):
        is_ours = all(site == "same-origin" for site in sites)
    else:
        origins = headers.getlist("origin")
        is_ours = len(origins) == 1 and origins[0].lower() in own
    if not is_ours:
        raise PermissionDeniedError("The request does not come from a page of fepflow (Origin, Sec-Fetch-Site).")


class PagesMiddleware:
    """A middleware around everything: it lets interfaces through, and makes a browser a caller by its session."""

    def __init__(self, app: ASGIApp, access: Access, *, secure: bool) -> None:
        self._app = app
        self._access = access
        self._secure = secure
        self._cookie = SECURE_COOKIE if secure else COOKIE
        self._anybody = secrets.token_urlsafe(32)
        """Return the token for forms of browsers without a session, where no key is asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request (ASGI 3)."""
        if scope["type"] != "http" or is_interface(scope["path"]):
            await self._app(scope, receive, send)
            return
        session = Request(scope).cookies.get(self._cookie)
        token = hmac.digest((session or self._anybody).encode("utf-8", "surrogatepass"), b"csrf", "sha256").hex()
        state = {**scope.get("state", {}), "csrf": token}
        if session is not None:
            state["session"] = session
        request, sender = Request({**scope, "state": state}, receive), _with_headers(send)
        response = await self._own(request)
        if response is None and request.method not in ("GET", "HEAD", "OPTIONS"):
            response = await self._refusal(request)
        if response is not None:
            await response(request.scope, receive, sender)
        else:
            await self._app(request.scope, receive, self._to_sign_in(request, sender))

    async def _own(self, request: Request) -> Response | None:
        """Answer what is open to anybody: files of ours, signing in and out."""
        path, method = request.url.path, request.method
        if path.startswith("/static/") and method in ("GET", "HEAD"):
            return asset_response(path.removeprefix("/static/"))
        if path == "/sign-in" and method in ("GET", "HEAD"):
            return _sign_in_page(request, "", request.query_params.get("next", "/runs"))
        if path == "/sign-in" and method == "POST":
            return await self._refusal(request) or await self._sign_in(request)
        if path == "/sign-out" and method == "POST":
            return await self._refusal(request) or await self._sign_out(request)
        return None

    async def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that another site sent; None for our own."""
        try:
            refuse_other_sites(request.headers)
        except PermissionDeniedError as error:
            return await self._refused(request, error)
        return None

    async def _refused(self, request: Request, error: FepflowError, wanted: str = "/runs") -> Response:
        """Count and record what was refused before its caller was known."""
        if not isinstance(error, AuthenticationError | RateLimitError):  # these are counted already
            try:
                self._access.count_failure(_source_of(request))
            except RateLimitError as limit:
                error = limit
        try:
            await self._record(request, None, str(error.http_status))
        except FepflowError as failure:
            error = failure
        return _sign_in_page(request, str(error), wanted, error)

    async def _record(self, request: Request, caller: Caller | None, outcome: str) -> None:
        action, resource = action_of(request.method, request.url.path)
        name, is_late = caller.name if caller else None, caller is None
        await self._access.record(name, _source_of(request), action, resource, outcome, may_be_late=is_late)

    async def _sign_in(self, request: Request) -> Response:
        wanted = "/runs"
        try:
            form = await _fields_of(request)
            wanted = form.get("next", wanted)
            caller, session = await self._access.begin_session(form.get("key", "").strip(), _source_of(request))
            await self._record(request, caller, "303")
            if (earlier := request.scope["state"].get("session")) is not None:
                await self._access.end_session(earlier)
        except FepflowError as error:
            return await self._refused(request, error, wanted)
        response = RedirectResponse(_local(wanted), 303)
        response.set_cookie(self._cookie, session, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def _sign_out(self, request: Request) -> Response:
        try:
            await form_of(request)
            session = request.scope["state"].get("session")
            caller = await self._access.end_session(session) if session else None
            if caller is not None:
                await self._record(request, caller, "303")
        except FepflowError as error:
            return await self._refused(request, error)
        response = RedirectResponse("/sign-in", 303)
        self._forget(response)
        return response

    def _forget(self, response: Response) -> None:
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._secure)

    def _to_sign_in(self, request: Request, send: Send) -> Send:
        """Send a caller without a key to the sign-in page instead of an error."""
        leaves = False

        async def sender(message: Message) -> None:
            nonlocal leaves
            is_refused = message["type"] == "http.response.start" and message["status"] == 401
            if is_refused and request.method in ("GET", "HEAD"):
                leaves = True
                await self._ask_for_key(request)(request.scope, request.receive, send)
            elif not leaves:
                await send(message)

        return sender

    def _ask_for_key(self, request: Request) -> Response:
        wanted = quote(f"{request.url.path}?{request.url.query}", safe="")
        location = f"/sign-in?next={wanted}"
        response: Response = RedirectResponse(location, 303)
        if "hx-request" in request.headers:
            response = Response(status_code=401, headers={"HX-Redirect": location})  # the whole page, not a part of it
        # A session that is over would be refused again and again, also where no key is asked for.
        self._forget(response)
        return response


def _source_of(request: Request) -> str | None:
    return request.client.host if request.client else None


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender


def _sign_in_page(request: Request, message: str, wanted: str, error: FepflowError | None = None) -> Response:
    text = render("sign_in.html", message=message, next=_local(wanted), caller=None, csrf=csrf_of(request))
    headers = {"Retry-After": str(max(1, round(error.retry_after)))} if isinstance(error, RateLimitError) else None
    return HTMLResponse(text, error.http_status if error else 200, headers)


def _local(address: str) -> str:
    """Return an address of this server: nobody is sent elsewhere."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path and not is_interface(address) else "/runs"


def asset_response(path: str) -> Response:
    """Return the file at an address, given without `/static/`."""
    name = path.rpartition("/")[2]
    if name not in NAMES or f"/static/{path}" != asset_address(name):
        return PlainTextResponse("There is no such file.\n", 404)
    kind = KINDS[f".{name.rpartition('.')[2]}"]
    return Response(read_asset(name), media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})
