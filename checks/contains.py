"""`contains`: a text has all phrases, or none of them (FEP 2.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool

from checks.base import BaseCheck, JSONPath, PathText, as_text


class ContainsCheck(BaseCheck):
    """Look for phrases in a text. Results: `{passed: bool}`.

    Passes when the text contains all phrases; with `negate`, when it contains none. Without `match_all` one phrase is
    enough, and with `negate` it passes when one is missing.
    """

    check_type: ClassVar[str] = "contains"
    check_passthrough: ClassVar[Mapping[str, type]] = {"text": str}

    text: str | JSONPath = Field(description="Text to search.")
    phrases: str | Annotated[list[str], Field(min_length=1)] | JSONPath = Field(
        description="One phrase, or a list of them."
    )
    negate: StrictBool | PathText = Field(default=False, description="Pass when none of the phrases is there.")
    case_sensitive: StrictBool | PathText = Field(default=True, description="Whether upper and lower case differ.")
    match_all: StrictBool | PathText = Field(
        default=True, description="Whether all phrases have to be there, and not just one."
    )

    def __call__(self) -> dict[str, Any]:
        """Search."""
        text = as_text(self.text)
        phrases = [self.phrases] if isinstance(self.phrases, str) else list(self.phrases)
        if not self.case_sensitive:
            text, phrases = text.casefold(), [phrase.casefold() for phrase in phrases]
        # "None of all" and "all of one" are the same question: is there any?
        decides = self.match_all is self.negate
        for phrase in phrases:
            if (phrase in text) is decides:
                return {"passed": decides is not self.negate}
        return {"passed": decides is self.negate}
