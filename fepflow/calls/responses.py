"""Responses of agents: bodies within limits, read into an answer or an error with the reason; also of JSON-RPC.

httpx decodes each chunk as a whole: 64 kB of gzip become 64 MB before they can be counted. So bodies come from
`aiter_raw`, and are decompressed here, in small pieces: neither their bytes nor the decompressed data fill the memory.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from fepflow.calls.base import TargetResponse
from fepflow.calls.policy import seconds_to_wait
from fepflow.errors import JSONPathError, TargetError
from fepflow.json.values import has_more_values, parse
from fepflow.jsonpath.path import Path, compile_path
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.security.redaction import excerpt, holds_secret, redact, redact_json

if TYPE_CHECKING:
    import httpx
    from pydantic import ValidationError


# --- bodies ----------------------------------------------------------------------------------------------------------


ACCEPT_ENCODING = "gzip, deflate"
_KNOWN = frozenset({"br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "zstd"})

MAX_MEMBERS = 100
"""Parts that one body in gzip may have, each compressed by itself."""

_ANY_HEADER = 32 + zlib.MAX_WBITS
"""zlib's window size for data whose header says whether they are gzip or deflate."""

_PIECE = 262_144
"""Bytes that are decompressed in one go: half a millisecond."""

_QUOTED = 65_536
"""Bytes or characters that are looked at of a text that is quoted in an error."""


class BodyError(Exception):
    """The error of a refused body. `kind` is `too_large` or `malformed`; the message continues "the answer".

    `retryable` says whether the next answer may be better.
    """

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        self.kind = kind
        self.retryable = retryable
        super().__init__(message)


async def read_body(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """Return the decoded body, of at most `limit` bytes; `encoding` is the Content-Encoding header, "" if missing.

    Raises BodyError: `too_large` as soon as more than `limit` bytes came or were decompressed, `malformed` when the
    encoding is unknown, or the data are damaged or incomplete.
    """
    body = bytearray()
    async for piece in read_pieces(chunks, encoding, limit):
        body += piece
    return bytes(body)


async def read_pieces(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> AsyncIterator[bytes]:
    """Yield the decoded body piece by piece, as it comes; raises as `read_body` does."""
    decoder = _decoder(encoding)
    received = decoded = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > limit:
            raise too_large(limit)
        for number, piece in enumerate([chunk] if decoder is None else decoder.feed(chunk)):
            decoded += len(piece)
            if decoded > limit:
                raise too_large(limit)
            yield piece
            if number:
                await asyncio.sleep(0)  # a small chunk may become a large text: others have their turn meanwhile
    if decoder is not None:
        decoder.finish()


async def read_events(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> AsyncGenerator[str, None]:
    """Yield the data of each server-sent event in a body as it arrives. Raises as `read_body` does."""
    parser = EventParser()
    async for piece in read_pieces(chunks, encoding, limit):
        for data in parser.feed(piece):
            yield data
    for data in parser.finish():
        yield data


async def read_beginning(chunks: AsyncIterable[bytes], encoding: str, limit: int = _QUOTED) -> bytes:
    """Return the first `limit` bytes of a body that is only shown, or as many as could be read."""
    body = bytearray()
    try:
        decoder = _decoder(encoding)
        async for chunk in chunks:
            for piece in [chunk] if decoder is None else decoder.feed(chunk):
                body += piece
                if len(body) >= limit:
                    return bytes(body[:limit])
    except BodyError:
        pass
    return bytes(body)


def media_type(response: httpx.Response) -> str:
    """Return the media type of a response in lower case, without parameters; empty if it names none."""
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


async def close(response: httpx.Response) -> None:
    """Close a response. Its stream refers to it: else each one would wait for the garbage collector."""
    await response.aclose()
    if hasattr(response, "stream"):
        del response.stream


def too_large(limit: int) -> BodyError:
    """Return the error of a body over `limit` bytes."""
    return BodyError("too_large", f"is larger than {limit:,} bytes")


def _decoder(encoding: str) -> _Decoder | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip", "deflate"):
        return _Decoder(may_be_raw=name == "deflate")
    # Whatever a server says may hold a secret.
    shown = name if all(part.strip() in _KNOWN for part in name.split(",")) else "something else"
    raise BodyError("malformed", f"is encoded as {shown}, which was not asked for ({ACCEPT_ENCODING} was)")


class _Decoder:
    """A decoder of gzip, also of several members one after the other (RFC 1952, 2.2), and of deflate.

    Some servers send deflate as it is, without the header of zlib that HTTP demands (RFC 9110, 8.4.1.2). What comes
    after the end of deflate is ignored, as browsers and curl do.
    """

    def __init__(self, *, may_be_raw: bool) -> None:
        self._stream = zlib.decompressobj(wbits=_ANY_HEADER)
        self._may_be_raw = may_be_raw
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not (self._may_be_raw and self._stream.eof):
            if self._stream.eof or not self._members:
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise _damaged(f"they have more than {MAX_MEMBERS} parts")
                is_raw = self._may_be_raw and data[0] & 0x0F != zlib.DEFLATED
                self._stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS if is_raw else _ANY_HEADER)
            yield from _inflate(self._stream, data)
            data = self._stream.unused_data

    def finish(self) -> None:
        if self._members and not self._stream.eof:
            raise _damaged("it ends too early")


def _inflate(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed data, a piece at a time."""
    while data and not stream.eof:
        try:
            yield stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise _damaged(str(error)) from None
        data = stream.unconsumed_tail


def _damaged(why: str) -> BodyError:
    return BodyError("malformed", f"has compressed data that are damaged: {why}", retryable=True)


_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end of what has come so far may be half of a CRLF


class EventParser:
    """A parser of server-sent events in a stream of pieces, as far as an answer needs them (HTML Standard, 9.2.6).

    Libraries for them rely on httpx's own decoding, which has no limit; so this works on bytes.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that end in this piece."""
        self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return  # in the middle of a long line, which is put together once only
        *lines, rest = _LINE_END.split(b"".join(self._pieces))
        self._pieces = [rest]
        for line in lines:
            if line:
                self._field(line.decode("utf-8", "replace"))
            elif self._data:
                yield "\n".join(self._data)
                self._data.clear()

    def finish(self) -> Iterator[str]:
        """Yield the data of a last event without its empty line, which many servers leave out."""
        yield from self.feed(b"\n\n")

    def _field(self, line: str) -> None:
        name, _, value = line.removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))


# --- answers ---------------------------------------------------------------------------------------------------------


_NO_CONTENT = (204, 205)
_RETRYABLE_STATUS = (408, 425, 429)
_BYTE_ORDER_MARK = "\ufeff"

WHOLE = "$"
"""The path of a whole answer. Where it is one of several places, the answer may be text."""

MAX_VALUES = 200_000
"""JSON values in an answer: reading, comparing and storing each takes about a microsecond, several times over."""

# Codecs of Python that are no charset of the web: slow without bound, or no text at all.
_NO_CHARSET = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"})


@dataclass(frozen=True, slots=True)
class SettingNames:
    """Names of an endpoint's settings in its errors, as its user knows them.

    `headers` and `max_bytes` are empty if only the address can be set.
    """

    url: str
    headers: str = ""
    max_bytes: str = ""

    @classmethod
    def of_suite(cls, section: str, url: str = "url") -> SettingNames:
        """Return the names in a section of a suite, for example `target.http`."""
        return cls(f"{section}.{url}", f"{section}.headers", f"{section}.max_bytes")

    def advice(self, status: int) -> str:
        """Return advice about settings after a response with this status; empty if there is none."""
        match status:
            case 401 | 403:
                return (
                    f"check the credentials in {self.headers}" if self.headers else "it is called without credentials"
                )
            case 404:
                return f"check {self.url}"
            case 405:
                return f"check {self.url} and the method" if self.headers else f"check {self.url}: it gets POST"
        return ""


HTTP = SettingNames.of_suite("target.http")
ECP = SettingNames.of_suite("target.ecp")
MCP = SettingNames.of_suite("target.mcp")
A2A = SettingNames.of_suite("target.a2a", "card")
EVALUATIONS_API = SettingNames("agent_endpoint_url")
"""The contract through which addresses are given over the network."""


class ResponseParser:
    """The parser of an endpoint's responses: the paths of value and metadata, and the secrets to hide.

    `names` are the settings' names in errors. Raises JSONPathError for an invalid path.
    """

    def __init__(
        self,
        output: str | Sequence[str] | None,
        metadata: dict[str, str],
        secrets: frozenset[str],
        names: SettingNames = HTTP,
    ) -> None:
        self._places = [output] if isinstance(output, str) else list(output or ())
        self._outputs = [compile_path(place) for place in self._places]
        self._metadata = {name: compile_path(path) for name, path in metadata.items()}
        self._secrets = secrets
        self._names = names

    def read(self, body: bytes, content_type: str, status: int) -> TargetResponse:
        """Return the answer in a complete, successful response.

        Raises TargetError: `malformed` if it is not the expected text or JSON, `too_large` if it has more than
        MAX_VALUES values, `missing_output` if the output path matches nothing, or the status means that there is no
        content.
        """
        if status in _NO_CONTENT:
            message = f"HTTP {status}: an answer without content, so there is no output"
            raise TargetError(message, kind="missing_output", retryable=False, status=status)
        kind, charset = _content_type(content_type)
        is_json = kind == "application/json" or kind.endswith("+json")
        may_be_text = not self._outputs or (len(self._outputs) > 1 and WHOLE in self._places)
        if not (is_json or self._metadata) and may_be_text and not (self._outputs and body.lstrip()[:1] == b"{"):
            return TargetResponse(redact(self._text(body, charset or "utf-8", status), self._secrets))
        text, document = self._json(body, charset, kind, status)
        value = self._value(document, status) if self._outputs else document
        # One search of the whole shows for nearly every response that there is nothing to redact.
        secrets = self._secrets if holds_secret(text, self._secrets) else frozenset()
        return TargetResponse(redact_json(value, secrets), redact_json(metadata_in(self._metadata, document), secrets))

    def _text(self, body: bytes, charset: str, status: int) -> str:
        why = "has an unknown charset, '%s'"
        codec = _codec(charset)
        try:
            if codec is not None:
                return body.decode(codec).removeprefix(_BYTE_ORDER_MARK)
        except UnicodeDecodeError:
            why = "is not %s"
        except (LookupError, ValueError):
            pass  # a codec that does not make text
        why = why % excerpt(charset, self._secrets, 40)
        shown = excerpt(body[:_QUOTED].decode("utf-8", "backslashreplace"), self._secrets)
        raise _malformed(f"the answer {why}: {shown}", status)

    def _json(self, body: bytes, charset: str | None, kind: str, status: int) -> tuple[str, Any]:
        text = self._text(body, charset or json.detect_encoding(body), status)
        try:
            return text, parse_answer(text, status)
        except ValueError as error:
            shown = excerpt(text, self._secrets)
            if kind == "text/html" or text.lstrip()[:1] == "<":
                advice = f"check that {self._names.url} is the agent's API, and not a web or login page"
                raise _malformed(f"the answer is HTML, but JSON is needed: {advice}: {shown}", status) from None
            if kind == "text/event-stream":
                advice = "ask the agent for an answer that is not streamed"
                message = f"the answer is a stream of events, but JSON is needed: {advice}: {shown}"
                raise _malformed(message, status) from None
            why = redact(str(error), self._secrets)
            raise _malformed(f"the answer is not valid JSON: {why}: {shown or 'it is empty'}", status) from None

    def _value(self, document: Any, status: int) -> Any:
        for output in self._outputs:
            try:
                return output.resolve(document)
            except JSONPathError:
                continue
        what = describe(document, self._secrets)
        message = f"the answer has nothing at {', '.join(self._places)} (target.http.output); it is {what}"
        raise TargetError(message, kind="missing_output", retryable=False, status=status) from None


def metadata_in(paths: dict[str, Path], document: Any) -> dict[str, Any]:
    """Return the values that the paths match in `document`, by name; a path without a match is left out.

    The tool calls of an assistant's message without any are an empty list.
    """
    metadata: dict[str, Any] = {}
    for name, path in paths.items():
        try:
            metadata[name] = [] if made_no_calls(path, document) else path.resolve(document)
        except JSONPathError:
            continue
    return metadata


def describe(document: Any, secrets: frozenset[str] = frozenset()) -> str:
    """Describe a JSON value, with the keys of an object: `an object with the keys answer, usage`."""
    if isinstance(document, dict):
        keys = [ascii(redact(key[:_QUOTED], secrets))[1:-1][:40] for key in islice(document, 10)]
        return f"an object with the keys {', '.join(keys)}" if keys else "an empty object"
    if isinstance(document, list):
        return f"a list of {len(document)}"
    return {str: "a text", bool: "true or false", type(None): "null"}.get(type(document), "a number")


def status_error(
    response: httpx.Response, body: str, secrets: frozenset[str], names: SettingNames = HTTP
) -> TargetError:
    """Return the error of an unsuccessful response; it quotes the beginning of `body`."""
    status, retry_after = response.status_code, response.headers.get("Retry-After")
    head = f"HTTP {status} {excerpt(response.reason_phrase, secrets, 60)}".strip()
    parts = [head, excerpt(body, secrets), names.advice(status)]
    retryable = status >= 500 or status in _RETRYABLE_STATUS
    wait = seconds_to_wait(retry_after) if retryable and retry_after else None
    message = ": ".join(part for part in parts if part)
    return TargetError(message, kind="http_status", retryable=retryable, retry_after=wait, status=status)


async def refusal(response: httpx.Response, secrets: frozenset[str], names: SettingNames) -> TargetError:
    """Return the error of an unsuccessful response, of which the beginning is read."""
    if response.is_informational:  # what follows the change of protocol (101) is no body, and has no end
        return status_error(response, "", secrets, names)
    encoding = response.headers.get("Content-Encoding", "")
    beginning = await read_beginning(response.aiter_raw(), encoding)
    return status_error(response, beginning.decode("utf-8", "replace"), secrets, names)


@lru_cache(maxsize=64)
def _codec(charset: str) -> str | None:
    """Return Python's name of a charset, or None for an unknown one."""
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return None if name in _NO_CHARSET else name


@lru_cache(maxsize=64)  # an endpoint says the same thousands of times, and the parser is slow
def _content_type(header: str) -> tuple[str, str | None]:
    message = Message()
    message["Content-Type"] = " ".join(header.encode("ascii", "replace").decode("ascii").split()) or "text/plain"
    charset = message.get_param("charset")
    return message.get_content_type(), charset if isinstance(charset, str) and charset else None


def _malformed(message: str, status: int) -> TargetError:
    return TargetError(message, kind="malformed", retryable=True, status=status)


# --- JSON-RPC 2.0 ----------------------------------------------------------------------------------------------------


METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

LARGE_TEXT = 30_000
"""Number of characters from which on a text is read in a thread: as JSON, they may take a millisecond."""

# No protocol names a code for an agent that has too much to do. These are the statuses of HTTP, which many use as
# codes, and what JSON-RPC APIs with limits have in common.
_OVERLOAD = {429: 429, 503: 503, -32005: 429}

_SHOWN = 300


class RpcError(TargetError):
    """An error that the agent answered, with its `code`. Only an overload is retried."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        status = _OVERLOAD.get(code)
        super().__init__(message, kind="agent_error", retryable=status is not None, status=status)


def parse_answer(text: str, status: int | None = None) -> Any:
    """Return the JSON in a text. Raises TargetError `too_large` for more than MAX_VALUES values.

    Raises ValueError for text that only lenient parsers accept (NaN, 1e400, a key that appears twice).
    """
    if has_more_values(text, MAX_VALUES):
        message = f"the answer holds more than {MAX_VALUES:,} JSON values"
        raise TargetError(message, kind="too_large", retryable=False, status=status)
    return parse(text)


def result_of(message: dict[str, Any], secrets: frozenset[str]) -> Any:
    """Return the result in an answer. Raises RpcError for an error, TargetError for neither."""
    error = message.get("error")
    if error is None:
        if "result" in message:
            return message["result"]
        raise malformed("the answer has neither a result nor an error")
    if message.get("result") is not None:
        raise malformed("the answer has both a result and an error")
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if not isinstance(code, int) or not isinstance(text, str):
        raise malformed(f"the answer is an error without code and message: {shown(error, secrets)}")
    raise RpcError(code, f"the agent answered with the error {code}: {excerpt(text, secrets, _SHOWN)}")


def shown(value: Any, secrets: frozenset[str] = frozenset(), limit: int = 120) -> str:
    """Return a JSON value as a short text for a message."""
    return excerpt(json.dumps(value, ensure_ascii=False), secrets, limit)


def malformed(message: str) -> TargetError:
    """Return the error of an answer that breaks the protocol; the agent would repeat it."""
    return TargetError(message, kind="malformed", retryable=False)


def misfit(what: str, error: ValidationError, secrets: frozenset[str]) -> TargetError:
    """Return the error of an answer in which an SDK misses something of its protocol; it names the first place."""
    first = error.errors(include_url=False, include_input=False)[0]
    words = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return malformed(f"the {what} does not fit the protocol: {excerpt(words, secrets, _SHOWN)}")


def incompatible(message: str) -> TargetError:
    """Return the error of an agent that cannot be evaluated at all."""
    return TargetError(message, kind="incompatible", retryable=False)
