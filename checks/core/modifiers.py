"""Arguments that every check type takes: `extract`, `pass_at` and `any`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fepflow.checks.base import BaseCheck, argument_fields, finite_number, modifier_names, refused
from fepflow.checks.core.patterns import MAX_PATTERN, MAX_TEXT, check_pattern, find_text
from fepflow.checks.explanation import shown
from fepflow.documents.messages import kind_name, validation_messages
from fepflow.errors import CheckArgumentsError, ValidationMessage
from fepflow.json.values import parse
from fepflow.protocol.results import CheckResult, score_of

SUBJECTS = ("text", "actual", "data", "value", "collection", "output", "answer")
"""Arguments that `extract` is applied to: the first of them that a check type has."""

WANTED = ("expected", "reference", "phrases")
"""Arguments whose lists are alternatives with `any: true`: the first of them that a check type has."""

MAX_ALTERNATIVES = 1_000

_TAG = re.compile(r"[A-Za-z][\w-]{0,50}")
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")


class Extract(BaseModel):
    """Steps that take the part to check out of a text. They apply in the order of the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True)

    strip: list[str] = Field(default=[], description="Tags to remove with their contents.")
    fence: bool | str = Field(
        default=False,
        description="true: keep the inside of the first code fence; a text: of the first one of that language.",
    )
    regex: str | None = Field(
        default=None,
        max_length=MAX_PATTERN,
        description="Keep the match of the pattern's first group, or the whole match.",
    )
    kind: Literal["json", "number"] | None = Field(default=None, alias="as", description="Read the text as a value.")

    @field_validator("strip", mode="before")
    @classmethod
    def _one_or_more(cls, tags: Any) -> Any:
        return [tags] if isinstance(tags, str) else tags

    @field_validator("strip")
    @classmethod
    def _are_tags(cls, tags: list[str]) -> list[str]:
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"{shown(tag)} is not the name of a tag: write think for <think>")
        return tags

    @field_validator("regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            check_pattern(pattern, 0)
        return pattern

    @model_validator(mode="after")
    def _says_something(self) -> Extract:
        if not (self.strip or self.fence or self.regex is not None or self.kind):
            raise ValueError("must have at least one of strip, fence, regex and as")
        return self

    @cached_property
    def _tags(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, self.strip))
        # An opening tag without its > belongs to an answer that was cut off.
        return re.compile(rf"<(/?)(?:{names})(?:\s[^<>]{{0,200}})?>|<(?:{names})(?=\s|\Z)", re.IGNORECASE)

    def apply(self, value: Any) -> Any:
        """Return the part of a value that is checked.

        Raises CheckArgumentsError where there is none, and what a search raises (see `patterns.search`).
        """
        if not isinstance(value, str):
            return self._of_value(value)
        if len(value) > MAX_TEXT:
            raise _nothing(f"a text may have up to {MAX_TEXT:,} characters; this one has {len(value):,}")
        text = str.__str__(value)
        if self.strip:
            text = self._without_tags(text)
        if self.fence:
            text = self._in_fence(text)
        if self.regex is not None:
            text = self._matched(text)
        if self.kind == "json":
            return _json(text)
        return _number(text) if self.kind == "number" else text

    def _of_value(self, value: Any) -> Any:
        """Return a value that is not a text, if no step needs a text."""
        needs_text = next((name for name in ("strip", "fence", "regex") if getattr(self, name)), None)
        if needs_text is None and self.kind == "number" and not isinstance(value, bool) and _is_finite(value):
            return value
        if needs_text is None and self.kind == "json" and value is not None:
            return value
        raise _nothing(f"{needs_text or 'as'} reads a text, and this is {shown(value)}")

    def _without_tags(self, text: str) -> str:
        parts, depth, start = [], 0, 0
        for found in self._tags.finditer(text):
            if not found[1]:
                if depth == 0:
                    parts.append(text[start : found.start()])
                depth += 1
            elif depth > 0:
                depth -= 1
                start = found.end()
            else:  # a model whose template opens the tag gives only its end
                parts, start = [], found.end()
        if depth > 0:
            raise _nothing(f"<{self.strip[0]}> is not closed" if len(self.strip) == 1 else "a tag is not closed")
        rest = "".join([*parts, text[start:]]).strip()
        if not rest:
            raise _nothing(f"nothing is left of {shown(text)} without <{'>, <'.join(self.strip)}>")
        return rest

    def _in_fence(self, text: str) -> str:
        opened: tuple[str, str, int] | None = None
        for found in _FENCE.finditer(text):
            mark, language = found[1], found[2]
            if opened is None:
                opened = mark, language, found.end() + 1
            elif mark.startswith(opened[0]) and not found[0].strip().strip(mark[0]):
                if self.fence is True or opened[1].casefold() == str(self.fence).casefold():
                    return text[opened[2] : found.start()].removesuffix("\n").removesuffix("\r")
                opened = None
        what = "code fence" if self.fence is True else f"code fence of {self.fence}"
        raise _nothing(f"there is no {what}{' that is closed' if opened else ''} in {shown(text)}")

    def _matched(self, text: str) -> str:
        assert self.regex is not None  # see apply
        part = find_text(self.regex, text)
        if part is None:
            raise _nothing(f"/{self.regex}/ is not found in {shown(text)}")
        return part


def _nothing(why: str) -> CheckArgumentsError:
    return CheckArgumentsError(f"extract: {why}")


def _json(text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise _nothing(f"{shown(text)} is not valid JSON: {error}") from None


def _number(text: str) -> int | float:
    digits = text.strip()
    if not _NUMBER.fullmatch(digits) or not any(char.isdigit() for char in digits):
        raise _nothing(f"{shown(text)} is not a number: take it out with regex, or use the check `number`")
    digits = digits.replace(",", "")
    try:
        value: int | float = int(digits)
    except ValueError:
        value = float(digits)
    if not _is_finite(value):
        raise _nothing(f"{shown(text)} is too large for a number")
    return value


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class Modifiers:
    """Modifiers of one check: arguments that every check type takes, applied around the call of its own."""

    check_type: str
    given: Mapping[str, Any]
    """Modifiers that the declaration has, and `pass_at` of the type."""
    extract: Extract | None = None
    subject: str = ""
    """Argument that `extract` is applied to."""
    pass_at: float | None = None
    range: tuple[float, float] | None = None
    alternatives: str = ""
    """Argument whose items are alternatives; empty without `any`."""
    all_of_them: bool = False
    """True with `negate`: the check must then pass for each alternative."""

    def extracted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return resolved arguments, with the part of the subject that is checked."""
        if self.extract is None:
            return arguments
        return {**arguments, self.subject: self.extract.apply(arguments.get(self.subject))}

    def alternatives_in(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the alternatives among resolved arguments; a value that is not a list is the only one."""
        value = arguments.get(self.alternatives)
        items = value if isinstance(value, list) else [value]
        if not items:
            raise CheckArgumentsError(f"any: {self.alternatives} is an empty list, so there is nothing to compare with")
        if len(items) > MAX_ALTERNATIVES:
            message = f"any: {self.alternatives} may have {MAX_ALTERNATIVES:,} items; it has {len(items):,}"
            raise CheckArgumentsError(message)
        return items

    def judged(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return results with `passed` by the score, if there is a `pass_at`. Raises CheckArgumentsError."""
        if self.pass_at is None and self.range is None:
            return results
        response = results.get("response")
        holder = results if "score" in results or not isinstance(response, dict) else response
        if "score" not in holder:
            if self.pass_at is None:
                return results
            raise CheckArgumentsError(f"pass_at: {self.check_type} gave no score")
        try:
            score = finite_number(holder["score"])
        except ValueError as error:
            raise CheckArgumentsError(f"the score {error}") from None
        if self.range is not None and not self.range[0] <= score <= self.range[1]:
            raise CheckArgumentsError(f"the score {score} is not within {_bounds(self.range)}")
        if self.pass_at is None:
            return results
        passed = score >= self.pass_at
        if holder is results:
            return {**results, "passed": passed}
        outer = {**results, "passed": passed} if "passed" in results else results
        return {**outer, "response": {**holder, "passed": passed}}


class AlternativeResults:
    """The results of one check for several alternatives. The first pass decides; with `negate`, the first fail."""

    def __init__(self, *, all_of_them: bool) -> None:
        self._decides = not all_of_them
        self._decisive: CheckResult | None = None
        self._error: CheckResult | None = None
        self._best: CheckResult | None = None

    def is_decided_by(self, result: CheckResult) -> bool:
        """Take in the next result; return whether the others have nothing to add."""
        if result.status != "completed":
            self._error = self._error or result
        elif result.passed is self._decides:
            self._decisive = result
        elif self._best is None or (score_of(result) or 0.0) > (score_of(self._best) or 0.0):
            self._best = result
        return self._decisive is not None

    @property
    def result(self) -> CheckResult:
        """The result for all alternatives: an error of one counts unless another one decides."""
        result = self._decisive or self._error or self._best
        assert result is not None  # there is at least one alternative
        return result


def split_modifiers(
    check_class: type[BaseCheck], check_type: str, arguments: Mapping[str, Any]
) -> tuple[Modifiers | None, dict[str, Any]]:
    """Return the modifiers of a check, None without any, and the arguments of its type. Raises CheckArgumentsError."""
    names = modifier_names(check_class)
    given = {name: value for name, value in arguments.items() if name in names and value is not None}
    others = {name: value for name, value in arguments.items() if name not in names}
    if given.get("any") is False:
        del given["any"]
    if check_class.check_pass_at is not None and "pass_at" in names:
        given.setdefault("pass_at", check_class.check_pass_at)
    if not given and check_class.check_range is None:
        return None, others
    modifiers = Modifiers(check_type, given, range=check_class.check_range)
    if "extract" in given:
        subject = _first_of(check_class, SUBJECTS)
        if not subject:
            raise _refused(check_type, "extract", f"{check_type} has no argument that it could apply to")
        modifiers = replace(modifiers, extract=_read_extract(check_type, given["extract"]), subject=subject)
    if "pass_at" in given:
        modifiers = replace(modifiers, pass_at=_read_pass_at(check_class, check_type, given["pass_at"], arguments))
    if "any" in given:
        alternatives = _first_of(check_class, WANTED)
        if given["any"] is not True:
            raise _refused(check_type, "any", f"must be true or false, not {kind_name(given['any'])}")
        if not alternatives:
            raise _refused(check_type, "any", f"{check_type} has no {' or '.join(WANTED[:2])} to be one of a list")
        negate = arguments.get("negate", False)
        if not isinstance(negate, bool):
            raise _refused(check_type, "any", "negate must be true or false beside it, and no path")
        modifiers = replace(modifiers, alternatives=alternatives, all_of_them=negate)
    return modifiers, others


def _first_of(check_class: type[BaseCheck], names: tuple[str, ...]) -> str:
    fields = argument_fields(check_class)
    return next((name for name in names if name in fields), "")


def _read_extract(check_type: str, value: Any) -> Extract:
    if isinstance(value, Extract):
        return value
    if not isinstance(value, dict):
        raise _refused(check_type, "extract", "must be a mapping with strip, fence, regex or as")
    try:
        return Extract.model_validate(value)
    except ValidationError as error:
        messages = [replace(item, path=("extract", *item.path)) for item in validation_messages(value, error, Extract)]
        raise refused(check_type, messages) from None


def _read_pass_at(check_class: type[BaseCheck], check_type: str, value: Any, arguments: Mapping[str, Any]) -> float:
    try:
        least = finite_number(value)
    except ValueError as error:
        raise _refused(check_type, "pass_at", str(error)) from None
    limits = check_class.check_range
    if limits is not None and not limits[0] <= least <= limits[1]:
        raise _refused(check_type, "pass_at", f"scores of {check_type} are within {_bounds(limits)}")
    if limits is not None and least == limits[0]:
        raise _refused(check_type, "pass_at", f"every score passes, as none of {check_type} is below {limits[0]:g}")
    if "pass_at" in arguments and arguments.get("negate", False) is not False:
        raise _refused(check_type, "pass_at", "leave out negate: a pass is a score of at least pass_at")
    return least


def _bounds(limits: tuple[float, float]) -> str:
    return f"{limits[0]:g} to {limits[1]:g}"


def _refused(check_type: str, name: str, why: str) -> CheckArgumentsError:
    return refused(check_type, [ValidationMessage((name,), why)])
