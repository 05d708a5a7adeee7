"""What can go wrong on the wire, in the words of a report. No message shows more of the address than host and port."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from fepflow.calls.agent_addresses import AddressRefusedError
from fepflow.calls.response_body import BodyError
from fepflow.calls.setting_names import HTTP, SettingNames
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.security.addresses import host_and_port

_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)


@contextmanager
def wire_errors(url: httpx.URL, timeout: httpx.Timeout, names: SettingNames = HTTP) -> Iterator[None]:
    """Turn whatever the HTTP client raises into a TargetError; `url` was called."""
    try:
        yield
    except BodyError as error:
        limit = f" ({names.max_bytes})" if names.max_bytes and error.kind == "too_large" else ""
        raise TargetError(f"the answer {error}{limit}", kind=error.kind, retryable=error.retryable) from None
    except httpx.RemoteProtocolError:  # the one that httpx itself raises here
        message = "redirects to an address that cannot be read"
        raise TargetError(message, kind="redirect", retryable=False) from None
    except _raised_by_calls() as error:
        # The transport's own exceptions say more than those that it makes of them: a reset is a ConnectTimeout there.
        cause = error.__cause__ if isinstance(error, httpx.HTTPError) and error.__cause__ else error
        raise _target_error(cause, host_and_port(str(url)), timeout) from None


def _raised_by_calls() -> tuple[type[Exception], ...]:
    # Here and below it is loaded where something went wrong on the wire: a suite that is validated needs no aiohttp.
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    return httpx.HTTPError, aiohttp.ClientError, HttpProcessingError, OSError, ValueError


def _target_error(error: BaseException, location: str, timeout: httpx.Timeout) -> TargetError:
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    match error:
        case aiohttp.ConnectionTimeoutError():
            return TargetTimeoutError(f"no connection to {location} within {timeout.connect:g} s (connect_timeout)")
        case aiohttp.ServerTimeoutError():
            silence = f" for {timeout.read:g} s (read_timeout)" if timeout.read else ""
            return TargetTimeoutError(f"{location} was silent{silence}")
        case aiohttp.ClientConnectorCertificateError():
            return _certificate(location, error.certificate_error)
        case aiohttp.ClientProxyConnectionError():
            return _connect(f"no connection to {location}: the proxy of the environment does not answer")
        case aiohttp.ClientHttpProxyError():
            return _connect(f"no connection to {location}: the proxy of the environment answered HTTP {error.status}")
        case aiohttp.ClientConnectorDNSError():
            return _connect(f"name not found: {location.rpartition(':')[0]}")
        case aiohttp.ClientConnectorError():
            return _no_connection(location, error.os_error)
        case aiohttp.ClientPayloadError():
            return _connect(f"the connection to {location} broke in the middle of the answer")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            message = f"{location} does not answer in HTTP, or with a header that is too long"
            return TargetError(message, kind="malformed", retryable=True)
        # Without a number: the connection closed as the request began.
        case aiohttp.ServerDisconnectedError() | ConnectionError() | OSError(errno=None):
            return _reset(location)
        case OSError():
            failed = f"the connection to {location} failed: {_reason(error)}"
            return _reset(location) if error.errno in _RESET else _connect(failed)
    # Only the class: the text of these may hold the whole address or a header.
    message = f"the request to {location} could not be sent ({type(error).__name__})"
    return TargetError(message, kind="request", retryable=False)


def _connect(message: str, *, retryable: bool = True) -> TargetError:
    return TargetError(message, kind="connect", retryable=retryable)


def _reset(location: str) -> TargetError:
    return _connect(f"connection reset by {location} before the answer was complete")


def _certificate(location: str, error: Exception) -> TargetError:
    why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else type(error).__name__
    advice = "name the file of your certificate authority in SSL_CERT_FILE"
    return _connect(f"certificate of {location} not trusted: {why} ({advice})", retryable=False)


def _no_connection(location: str, error: OSError) -> TargetError:
    if isinstance(error, AddressRefusedError):
        return _connect(f"not called: {error}", retryable=False)
    if isinstance(error, ConnectionRefusedError):
        return _connect(f"connection refused by {location}")
    if isinstance(error, ssl.SSLError):
        return _connect(f"no TLS connection to {location}: {error.reason or 'handshake failed'}")
    if isinstance(error, socket.gaierror):
        return _connect(f"name not found: {location.rpartition(':')[0]}")
    return _connect(f"no connection to {location}: {_reason(error)}")


def _reason(error: OSError) -> str:
    """In the system's words: aiohttp puts the whole address, with all that is secret in it, into `strerror`."""
    known = isinstance(error.errno, int) and error.errno in errno.errorcode
    return os.strerror(error.errno) if known else type(error).__name__  # type: ignore[arg-type]  # a number then
