"""Addresses, headers and JSON texts of requests with `{{$.path}}` in them.

A test case's value fills exactly its place: one segment of a path, one value of a query, one line of a header, one
value of JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, unquote

from fepflow.errors import JSONPathError
from fepflow.jsonpath.template import PLACEHOLDER, TextTemplate, fill_text, has_placeholders

_OF_THE_CONNECTION = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade"})
_LOOKS_LIKE_JSON = re.compile(r"\s*(\{(?!\{)|\[\s*[\[{\"\]])")
_STRING_OR_PLACEHOLDER = re.compile(rf'"(?:[^"\\]|\\.)*"|{PLACEHOLDER.pattern}', re.DOTALL)


def address_sample(url: str) -> str:
    """Return an address with `x` in place of each path.

    Raises ValueError for a path outside of the address's path and query, and for one that is not valid.
    """
    if not has_placeholders(url):
        return url
    try:
        TextTemplate(url)
    except JSONPathError as error:
        raise ValueError(str(error)) from None
    host = re.match(r"(?:[^:/?#{]*://)?[^/?#]*", url)
    if host is not None and "{{" in host[0]:
        raise ValueError("a test case cannot choose the host: a path stands behind it, in the address's path or query")
    return PLACEHOLDER.sub("x", url)


def fill_address(url: str, context: Any) -> str:
    """Return an address with its paths filled in, each as one segment of a path or one value of a query.

    Raises ValueError for values that cannot be one, JSONPathError if a path matches nothing.
    """
    try:
        filled = fill_text(url, context, lambda text: quote(text, safe=""))
    except UnicodeEncodeError:
        raise ValueError("half of a character cannot stand in an address") from None
    samples, segments = (address.partition("?")[0].split("/") for address in (address_sample(url), filled))
    for sample, segment in zip(samples, segments, strict=True):
        if sample != segment and unquote(segment) in ("", ".", ".."):
            raise ValueError(f"{unquote(segment)!r} cannot be a segment of the address's path")
    return filled


def header_problem(name: str, text: str) -> str | None:
    """Return why a header may not have paths in it, or None."""
    from fepflow.security.redaction import is_secret_name

    if not has_placeholders(text):
        return None
    if is_secret_name(name):
        return f"{name} is a secret header: it takes nothing from a test case"
    if name.lower() in _OF_THE_CONNECTION:
        return f"{name} is about the connection: it takes nothing from a test case"
    try:
        TextTemplate(text)
    except JSONPathError as error:
        return f"{name}: {error}"
    return None


def fill_header(text: str, context: Any) -> str:
    """Return a header's value. Raises ValueError for an invalid one, JSONPathError as `fill_address`."""
    filled = str(TextTemplate(text).resolve(context))
    if not re.fullmatch(r"[\t\x20-\x7e]*", filled):
        raise ValueError("a header holds ASCII characters without line breaks only")
    return filled


def parsed_json_text(text: str) -> Any:
    """Return the value of a text that is JSON, in which a path is in a string, or a whole value.

    Any other text is returned unchanged. Raises ValueError for a text that begins like JSON, but is not valid.
    """
    if not _LOOKS_LIKE_JSON.match(text):
        return text
    # A path outside of strings is a value of its own: as a string it is a path, which gives the value that it finds.
    quoted = _STRING_OR_PLACEHOLDER.sub(lambda match: json.dumps(match[1].strip()) if match[1] else match[0], text)
    try:
        return json.loads(quoted)
    except ValueError as error:
        raise ValueError(f"reads like JSON, but is not valid: {error} (write it as a mapping)") from None
