"""The system under test behind an HTTP endpoint, asked once a test case."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import certifi
from multidict import CIMultiDict
from yarl import URL

from fepflow import suite_target
from fepflow.errors import InputError, Problem, TargetError
from fepflow.protocol.address import address_of
from fepflow.protocol.test_case import TestCase
from fepflow.redaction import redact, redact_json, remember
from fepflow.secret_names import is_secret_name, is_secret_parameter, secrets_in_address
from fepflow.targets.answer import Reading, status_error
from fepflow.targets.base import Answer, refuse_reserved_names
from fepflow.targets.body import ACCEPT_ENCODING, read_beginning, read_body, too_large
from fepflow.targets.failures import wire_errors
from fepflow.template import compile_template
from fepflow.threads import READERS

MAX_REDIRECTS = 5
_SENT = ("id", "input", "expected", "metadata")
_SHOWN_BYTES = 65_536
_LARGE_BYTES = 30_000
"""From here on an answer is read in a thread: as JSON, so much may take a millisecond."""

_KEEPS_METHOD = (301, 302, 307, 308)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class HttpTarget:
    """Calls `config.http` over kept-alive connections, at most `config.concurrency` of them.

    `secrets` are taken out of everything that an answer or an error says. The connections are made in the event loop
    of the first call. No proxy, no cookies, no netrc: every call is like the first one.

    Raises InputError for an address or a header that cannot be sent, JSONPathError for an invalid path.
    """

    def __init__(self, config: suite_target.Target, secrets: frozenset[str] = frozenset()) -> None:
        if config.http is None:
            raise ValueError("the suite has no HTTP target")
        self._http: Final = config.http
        self._connections = config.concurrency
        self._connect_timeout = config.connect_timeout
        self._read_timeout = config.read_timeout
        # One for all calls. Without a limit of its own for reading, the deadline of the whole call is enough.
        self._timeout = aiohttp.ClientTimeout(sock_connect=config.connect_timeout, sock_read=config.read_timeout)
        address = _address(self._http.url)
        self._url = address.with_user(None)
        self._secrets = secrets | _secrets_of(address, self._http.url)
        remember(self._secrets)
        self._headers = _headers(self._http, address)
        self._body = None if self._http.method == "GET" else compile_template(self._http.body)
        refuse_reserved_names(self._http.metadata, "target.http.metadata")
        self._reading = Reading(self._http.output, self._http.metadata, self._secrets)
        self._tls = _trust() if self._url.scheme == "https" else None
        self._session: aiohttp.ClientSession | None = None
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        http = self._http
        query = [(key, value) for key, value in self._url.query.items() if not is_secret_parameter(key)]
        headers = {name: value for name, value in http.headers.items() if not is_secret_name(name)}
        asked = [str(self._url.with_query(query)), http.method, headers, http.body, http.output, http.metadata]
        return address_of("http", redact_json(asked, self._secrets))

    def render(self, case: TestCase) -> Any:
        """The JSON body for `case`, secrets taken out; None for GET. Raises JSONPathError."""
        return redact_json(self._rendered(case), self._secrets)

    def _rendered(self, case: TestCase) -> Any:
        if self._body is None:
            return None
        given = {name: getattr(case, name) for name in _SENT if name in case.model_fields_set}
        return self._body.render({"test_case": {"expected": None, "metadata": {}, **given}})

    async def call(self, case: TestCase) -> Answer:
        """Ask once, following redirects within the host; raises TargetError, or JSONPathError (the request)."""
        body = _encode(self._rendered(case)) if self._body is not None else None
        method, url = self._http.method, self._url
        for _ in range(MAX_REDIRECTS + 1):
            with wire_errors(_place(url), self._connect_timeout, self._read_timeout):
                async with self._open_session().request(
                    method,
                    url,
                    data=body,
                    headers=self._headers,
                    allow_redirects=False,
                    timeout=self._timeout,
                    ssl=self._trust_for(url),
                ) as response:
                    if not (300 <= response.status < 400 and "Location" in response.headers):
                        return await self._read(response)
                    url = self._redirected(url, response)
                    if response.status not in _KEEPS_METHOD:
                        method, body = "GET", None
        raise _redirect(f"more than {MAX_REDIRECTS} redirects, the last one to {_place(url)}")

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        encoding = ", ".join(response.headers.getall("Content-Encoding", ()))
        chunks = response.content.iter_any()
        if response.status >= 300:
            beginning = await read_beginning(chunks, encoding, _SHOWN_BYTES)
            raise status_error(
                response.status,
                response.reason or _reason(response.status),
                beginning.decode("utf-8", "replace"),
                response.headers.get("Retry-After"),
                self._secrets,
            )
        length = response.content_length
        if (length or 0) > self._http.max_bytes:
            raise too_large(self._http.max_bytes)
        if length is None or encoding:
            body = await read_body(chunks, encoding, self._http.max_bytes)
        else:  # no more can come than was announced
            body = await response.content.read()
        content_type = response.headers.get("Content-Type", "")
        if len(body) > _LARGE_BYTES:
            return await READERS.run(partial(self._reading.read, body, content_type, response.status))
        return self._reading.read(body, content_type, response.status)

    def _redirected(self, url: URL, response: aiohttp.ClientResponse) -> URL:
        try:
            new = url.join(URL(response.headers["Location"])).with_fragment(None)
            place = _place(new)
        except ValueError:
            raise _redirect("redirects to an address that cannot be read", response.status) from None
        upgraded = (url.scheme, new.scheme) == ("http", "https") and url.host == new.host
        if upgraded or (new.scheme, place) == (url.scheme, _place(url)):
            return new.with_user(None)
        # A host may be made of what the target was sent, and a parsed one is in lower case.
        place = redact(place, self._secrets | {secret.lower() for secret in self._secrets})
        if new.scheme not in ("http", "https"):
            place = "another protocol"
        elif (url.scheme, new.scheme, url.host) == ("https", "http", new.host):
            place = "http, without encryption"
        message = f"redirects to {place}, which is not the target's own host; put the final address into the suite"
        raise _redirect(message, response.status)

    def _trust_for(self, url: URL) -> ssl.SSLContext | bool:
        """Whom TLS trusts; made only where there is TLS, for it takes 50 ms."""
        if url.scheme == "https" and self._tls is None:
            self._tls = _trust()
        return self._tls or True

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
            )
            # aiohttp would send a GET or PUT again by itself when a kept-alive connection turns out to be closed: a
            # call that no attempt log knows of. There is no public switch.
            self._session._retry_connection = False
        return self._session

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _address(url: str) -> URL:
    where, advice = "target.http.url", "it reads like https://host/path"
    try:
        address = URL(url)
        usable = address.scheme in ("http", "https") and bool(address.host) and address.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise InputError(Problem("is no address that can be called", path=where, advice=advice))
    return address.with_fragment(None)


def _secrets_of(address: URL, written: str) -> frozenset[str]:
    """What an address carries that must not be shown: its password, and secret parameters of its query."""
    found = {value for key, value in address.query.items() if is_secret_parameter(key)}
    if address.password:
        found |= {address.password, f"{address.user or ''}:{address.password}"}
    return secrets_in_address(written) | {value for value in found if len(value) > 3}


def _headers(http: suite_target.HttpTarget, address: URL) -> Mapping[str, str]:
    headers = CIMultiDict({"Accept": "application/json, */*;q=0.5", "User-Agent": "fepflow"})
    headers["Accept-Encoding"] = ACCEPT_ENCODING
    if http.method != "GET":
        headers["Content-Type"] = "application/json"
    if address.user is not None or address.password is not None:
        pair = f"{address.user or ''}:{address.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
    for name, value in http.headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or _CONTROL.search(value):
            problem = "has characters that a header cannot hold, such as a line break"
            raise InputError(Problem(problem, path=f"target.http.headers.{ascii(name)[1:-1]}"))
        headers[name] = value
    return headers


def _trust() -> ssl.SSLContext:
    """Certificates are checked against SSL_CERT_FILE or SSL_CERT_DIR where set, else against certifi's list."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        return ssl.create_default_context(cafile=certifi.where())
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise InputError(Problem(f"cannot be used: {why}", file or folder, advice="see SSL_CERT_FILE")) from None


def _encode(request: Any) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        message = "the request for this test case is not JSON: it holds NaN, an object of Python, or is nested too deep"
        raise TargetError(message, kind="request", retryable=False) from None


def _redirect(message: str, status: int | None = None) -> TargetError:
    return TargetError(message, kind="redirect", retryable=False, status=status)


def _place(url: URL) -> str:
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host
    return f"{host}:{url.port}"


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
