"""`regex`: a pattern is found in a text (FEP 2.3.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, StrictBool, StrictInt, model_validator

from fepflow.checks.base import OUTPUT, BaseCheck, JSONPath, Options, PathText, as_text
from fepflow.checks.core.patterns import MAX_PATTERN, check_pattern, place_of_match, search
from fepflow.checks.explanation import ResolvedArguments, with_match, without_match

_KNOWN_BITS = int(re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE)


class RegexFlags(Options):
    """Matching options."""

    case_insensitive: StrictBool | PathText = Field(default=False, description="Ignore upper and lower case.")
    multiline: StrictBool | PathText = Field(default=False, description="`^` and `$` match at each line.")
    dot_all: StrictBool | PathText = Field(default=False, description="`.` also matches line ends.")

    def bits(self) -> int:
        """Return the flags as Python's `re` has them."""
        ignore_case = re.IGNORECASE if self.case_insensitive is True else 0
        return int(
            ignore_case | (re.MULTILINE if self.multiline is True else 0) | (re.DOTALL if self.dot_all is True else 0)
        )


def _known_bits(flags: int) -> int:
    # re.DEBUG prints, re.LOCALE is for bytes.
    if flags < 0 or flags & ~_KNOWN_BITS:
        raise ValueError("must combine Python's flags A, I, M, S, U and X only")
    return flags


def _bits(flags: RegexFlags | int) -> int:
    return flags.bits() if isinstance(flags, RegexFlags) else int(flags)


class RegexCheck(BaseCheck):
    """Pass if a regular expression matches anywhere in a text (Python's `re.search`). Results: `{passed: bool}`.

    A search that takes longer than a second is a `timeout_error`.
    """

    check_type: ClassVar[str] = "regex"

    text: str | JSONPath = Field(default=OUTPUT, description="Text to search.")
    pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)] | JSONPath = Field(
        description="Regular expression."
    )
    negate: StrictBool | PathText = Field(default=False, description="Pass if the pattern does not match.")
    flags: RegexFlags | Annotated[StrictInt, AfterValidator(_known_bits)] | PathText = Field(
        default=RegexFlags(), description="Options, or Python's flags as a number."
    )

    @model_validator(mode="after")
    def _compiles(self) -> RegexCheck:
        if isinstance(self.pattern, str):
            check_pattern(self.pattern, _bits(self.flags) if isinstance(self.flags, RegexFlags | int) else 0)
        return self

    def __call__(self) -> dict[str, Any]:
        """Search."""
        flags = _bits(self.flags)  # type: ignore[arg-type]  # resolved: no path is left
        return {"passed": search(as_text(self.pattern), flags, as_text(self.text)) is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        text, pattern = resolved["text"], resolved["pattern"]
        if not resolved.get("negate"):
            return without_match(text, pattern)
        flags = resolved.get("flags")
        bits = _bits(RegexFlags.model_validate(flags) if isinstance(flags, dict) else flags or 0)
        return with_match(text, pattern, place_of_match(pattern, bits, text))
