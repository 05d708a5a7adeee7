"""Values in a suite file, and the base of its sections.

Values are durations, sizes, paths, aggregates, names of baselines, and texts of requests with `{{$.path}}` in them: in
an address, a header or JSON, a test case's value fills exactly its place (one segment of a path, one value of a query,
one line of a header, one value of JSON).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import PLACEHOLDER, TextTemplate, compile_path, compile_template, fill_text, has_placeholders
from fepflow.security.redaction import is_secret_name
from fepflow.text import seconds

LIMIT_NAME = "[^/%&<>]+"
"""Pattern of a global limit's name, as Prefect takes it."""


def _size(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*(kB|KB|MB|GB)", value.strip())
        if not match:
            raise ValueError("a size reads like 500kB or 10MB")
        return int(match[1]) * {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}[match[2][0]]
    return value


def _path(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("$"):
        raise ValueError(f"a JSONPath starts with $: did you mean $.{value.lstrip('.')}?")
    if isinstance(value, str):
        _refuse_invalid_paths(lambda: compile_path(value))
    return value


def _refuse_invalid_paths(compile: Callable[[], object]) -> None:
    try:
        compile()
    except JSONPathError as error:
        raise ValueError(str(error)) from None


def checked_template(value: Any) -> Any:
    """Return the value. Raises ValueError if a path in it is not valid."""
    _refuse_invalid_paths(lambda: compile_template(value, with_texts=True))
    return value


Duration = Annotated[
    float,
    BeforeValidator(seconds, json_schema_input_type=float | str),
    Field(gt=0, description="Seconds, or a text like 500ms, 30s, 2m, 1h, 7d."),
]
ByteSize = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str), Field(gt=0)]
JSONPathText = Annotated[str, BeforeValidator(_path), Field(description="A JSONPath, starting with $.")]


Template = Annotated[Any, BeforeValidator(checked_template)]
"""A value with JSONPaths inside, at any depth."""


class Section(BaseModel):
    """A part of the suite file: unknown fields are errors, and errors never show values."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, frozen=True)


AggregateKind = Literal[
    "mean", "rate", "error_rate", "quantile", "majority", "each", "worst", "pass_at_k", "pass_hat_k",
    "precision", "recall", "f1",
]  # fmt: skip

AGGREGATE_PATTERN = (
    r"^(mean|rate|error_rate|median|majority|worst|p\d{1,2}(\.\d+)?|pass[@^][1-9]\d*|each@(1|1\.0+|0?\.\d*[1-9]\d*)|"
    r"(precision|recall|f1)(@\S(.{0,98}\S)?)?)$"
)


class Aggregate(NamedTuple):
    """Rule by which a metric aggregates results. `level`: quantile, or the share of each@, 0 to 1. `k`: attempts in
    pass@k and pass^k. `label`: the class of precision, recall and F1; None for the mean over classes."""

    kind: AggregateKind
    level: float = 0.5
    k: int = 1
    label: str | None = None

    @property
    def of_labels(self) -> bool:
        """True for a measure of a classification."""
        return self.kind in ("precision", "recall", "f1")

    @property
    def of_cases(self) -> bool:
        """True if each test case gives one value, however many repeats it has."""
        return self.kind in ("majority", "each", "worst", "pass_at_k", "pass_hat_k")


def parse_aggregate(text: str) -> Aggregate:
    """Return the aggregate of that name. Raises ValueError for an unknown one."""
    if not re.fullmatch(AGGREGATE_PATTERN, text, re.ASCII) or (re.fullmatch(r"p[0.]*", text)):
        raise ValueError(
            "must be mean, rate, error_rate, median, majority, worst, a percentile such as p95, pass@3 or pass^3 with "
            "any number, each@0.8 with any share, or f1, precision or recall, also of a class as in f1@refund"
        )
    if text == "median":
        return Aggregate("quantile")
    measure, has_label, label = text.partition("@")
    if measure in ("precision", "recall", "f1"):
        return Aggregate(measure, label=label if has_label else None)  # type: ignore[arg-type]  # one of the three
    if text.startswith("each@"):
        return Aggregate("each", level=float(text[5:]))
    if text.startswith("pass"):
        return Aggregate("pass_at_k" if text[4] == "@" else "pass_hat_k", k=int(text[5:]))
    if text[1:2].isdecimal():
        return Aggregate("quantile", level=float(f"{text[1:]}e-2"))
    return Aggregate(text)  # type: ignore[arg-type]  # one of the pattern's words


PREVIOUS = "previous"
"""The baseline that is the run before."""

_RESERVED = (PREVIOUS, "latest")


def is_baseline_name(text: str) -> bool:
    """Return whether a baseline may have this name, which must not look like a run's id."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,99}", text) is not None
    return plain and text not in _RESERVED and not re.fullmatch(r"[0-9a-f]{4,64}", text)


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
