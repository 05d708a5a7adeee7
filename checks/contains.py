"""The check `contains`: a text has all phrases, or none of them (FEP 2.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath, PathText, as_text
from fepflow.checks.explanation import ResolvedArguments, listed, shown, subject, with_phrases, without_phrases
from fepflow.errors import CheckArgumentsError


class ContainsCheck(BaseCheck):
    """Pass if a text contains all phrases. Results: `{passed: bool}`.

    With `match_all: false`, one phrase is enough. With `negate`, the check passes if the text contains none of the
    phrases; with both, if one of them is missing.
    """

    check_type: ClassVar[str] = "contains"

    text: str | JSONPath = Field(default=OUTPUT, description="Text to search.")
    phrases: str | Annotated[list[str], Field(min_length=1)] | JSONPath = Field(
        default=EXPECTED, description="A phrase, or a list of phrases."
    )
    negate: StrictBool | PathText = Field(default=False, description="Pass if the text contains none of the phrases.")
    case_sensitive: StrictBool | PathText = Field(default=True, description="Whether case matters.")
    match_all: StrictBool | PathText = Field(
        default=True, description="Whether all phrases are required; otherwise one is enough."
    )

    def __call__(self) -> dict[str, Any]:
        """Search."""
        text = as_text(self.text)
        phrases = [self.phrases] if isinstance(self.phrases, str) else list(self.phrases)
        if not all(phrases):
            raise CheckArgumentsError("phrases: an empty text is in every text, so there is nothing to look for")
        if not self.case_sensitive:
            text, phrases = text.casefold(), [phrase.casefold() for phrase in phrases]
        # "None of all" and "all of one" are the same question: is there any?
        decides = self.match_all is self.negate
        for phrase in phrases:
            if (phrase in text) is decides:
                return {"passed": decides is not self.negate}
        return {"passed": decides is self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        text, phrases, negate = resolved["text"], resolved["phrases"], bool(resolved.get("negate"))
        phrases = phrases if isinstance(phrases, list) else [phrases]
        match_all = resolved.get("match_all") is not False
        if not all(isinstance(value, str) for value in (text, *phrases)):
            if len(phrases) == 1:
                return f"{subject(phrases)}{'' if negate else ' not'} in: {shown(text)}"
            return f"{'some' if negate else 'not all'} of {listed(phrases)} are in: {shown(text)}"
        fold = resolved.get("case_sensitive") is False
        present = [phrase for phrase in phrases if (phrase.casefold() in text.casefold() if fold else phrase in text)]
        if negate:
            return (
                with_phrases(text, present)
                if match_all or len(present) == 1
                else f"all of {with_phrases(text, present)}"
            )
        if not match_all and len(phrases) > 1:
            return f"none of {listed(phrases)} is in: {shown(text)}"
        return without_phrases(text, [phrase for phrase in phrases if phrase not in present])
