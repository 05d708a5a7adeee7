"""Values in a suite file (durations, sizes, paths, aggregates, names of baselines), and the base of its sections."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import compile_path
from fepflow.jsonpath.template import compile_template
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
