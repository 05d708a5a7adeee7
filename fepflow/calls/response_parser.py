"""The parser of HTTP responses: into an answer, or an error with the reason."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from fepflow.calls.base import TargetResponse
from fepflow.calls.policy import seconds_to_wait
from fepflow.errors import JSONPathError, TargetError
from fepflow.json import values as parser
from fepflow.json.values import has_more_values
from fepflow.jsonpath.path import Path, compile_path
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.security.redaction import excerpt, holds_secret, redact, redact_json

if TYPE_CHECKING:
    import httpx

_NO_CONTENT = (204, 205)
_RETRYABLE_STATUS = (408, 425, 429)
_BYTE_ORDER_MARK = "\ufeff"
_QUOTED_CHARACTERS = 65_536
"""Number of characters that are looked at of a text that is quoted in an error."""

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
        shown = self._excerpt(body[:_QUOTED_CHARACTERS].decode("utf-8", "backslashreplace"))
        raise _malformed(f"the answer {why}: {shown}", status)

    def _json(self, body: bytes, charset: str | None, kind: str, status: int) -> tuple[str, Any]:
        text = self._text(body, charset or json.detect_encoding(body), status)
        if has_more_values(text, MAX_VALUES):
            message = f"the answer holds more than {MAX_VALUES:,} JSON values"
            raise TargetError(message, kind="too_large", retryable=False, status=status)
        try:
            return text, parser.parse(text)
        except ValueError as error:
            shown = self._excerpt(text)
            if kind == "text/html" or text.lstrip()[:1] == "<":
                advice = f"check that {self._names.url} is the agent's API, and not a web or login page"
                raise _malformed(f"the answer is HTML, but JSON is needed: {advice}: {shown}", status) from None
            why = redact(str(error), self._secrets)
            raise _malformed(f"the answer is not valid JSON: {why}: {shown or 'it is empty'}", status) from None

    def _excerpt(self, text: str) -> str:
        return excerpt(text[:_QUOTED_CHARACTERS], self._secrets)

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
        keys = [ascii(redact(key[:_QUOTED_CHARACTERS], secrets))[1:-1][:40] for key in islice(document, 10)]
        return f"an object with the keys {', '.join(keys)}" if keys else "an empty object"
    if isinstance(document, list):
        return f"a list of {len(document)}"
    return {str: "a text", bool: "true or false", type(None): "null"}.get(type(document), "a number")


def status_error(
    response: httpx.Response, body: str, secrets: frozenset[str], names: SettingNames = HTTP
) -> TargetError:
    """Return the error of an unsuccessful response; `body` is its beginning."""
    status, retry_after = response.status_code, response.headers.get("Retry-After")
    head = f"HTTP {status} {excerpt(response.reason_phrase, secrets, 60)}".strip()
    parts = [head, excerpt(body, secrets), names.advice(status)]
    retryable = status >= 500 or status in _RETRYABLE_STATUS
    wait = seconds_to_wait(retry_after) if retryable and retry_after else None
    message = ": ".join(part for part in parts if part)
    return TargetError(message, kind="http_status", retryable=retryable, retry_after=wait, status=status)


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
