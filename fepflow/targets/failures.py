"""What can go wrong on the wire, in the words of a report. No message shows more of the address than host and port."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from fepflow.errors import TargetError, TargetTimeoutError

_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)


@contextmanager
def wire_errors(place: str, connect_timeout: float, read_timeout: float | None) -> Iterator[None]:
    """Turn whatever the HTTP client raises into a TargetError; `place` is the target's `host:port`."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise TargetTimeoutError(f"no connection to {place} within {connect_timeout:g} s (connect_timeout)") from None
    except aiohttp.ServerTimeoutError:
        silence = f" for {read_timeout:g} s (read_timeout)" if read_timeout else ""
        raise TargetTimeoutError(f"{place} was silent{silence}") from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise _certificate(place, error.certificate_error) from None
    except aiohttp.ClientConnectorDNSError:
        host = place.rpartition(":")[0]
        raise _connect(f"name not found: {host}") from None
    except aiohttp.ClientConnectorError as error:
        raise _no_connection(place, error.os_error) from None
    except aiohttp.ClientPayloadError:
        raise _connect(f"the connection to {place} broke in the middle of the answer") from None
    except (aiohttp.ClientResponseError, HttpProcessingError):
        message = f"{place} does not answer in HTTP, or with a header that is too long"
        raise TargetError(message, kind="malformed", retryable=True) from None
    except aiohttp.ServerDisconnectedError:
        raise _reset(place) from None
    except OSError as error:
        if error.errno in _RESET or isinstance(error, ConnectionError):
            raise _reset(place) from None
        if error.errno is None:  # aiohttp: the connection closed as the request began
            raise _reset(place) from None
        raise _connect(f"the connection to {place} failed: {_reason(error)}") from None
    except (aiohttp.ClientError, ValueError) as error:
        # Only the class: the text of these may hold the whole address or a header.
        message = f"the request to {place} could not be sent ({type(error).__name__})"
        raise TargetError(message, kind="request", retryable=False) from None


def _connect(message: str, *, retryable: bool = True) -> TargetError:
    return TargetError(message, kind="connect", retryable=retryable)


def _reset(place: str) -> TargetError:
    return _connect(f"connection reset by {place} before the answer was complete")


def _certificate(place: str, error: Exception) -> TargetError:
    why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else type(error).__name__
    advice = "name the file of your certificate authority in SSL_CERT_FILE"
    return _connect(f"certificate of {place} not trusted: {why} ({advice})", retryable=False)


def _no_connection(place: str, error: OSError) -> TargetError:
    if isinstance(error, ConnectionRefusedError):
        return _connect(f"connection refused by {place}")
    if isinstance(error, ssl.SSLError):
        return _connect(f"no TLS connection to {place}: {error.reason or 'handshake failed'}")
    if isinstance(error, socket.gaierror):
        return _connect(f"name not found: {place.rpartition(':')[0]}")
    return _connect(f"no connection to {place}: {_reason(error)}")


def _reason(error: OSError) -> str:
    """In the system's words: aiohttp puts the whole address, with all that is secret in it, into `strerror`."""
    known = isinstance(error.errno, int) and error.errno in errno.errorcode
    return os.strerror(error.errno) if known else type(error).__name__  # type: ignore[arg-type]  # a number then
