"""`text_match`: a text contains, equals or lacks another one, or matches a pattern (ECP's grader of that name)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fepflow.checks.base import OUTPUT, BaseCheck, JSONPath, PathText, as_text
from fepflow.checks.core.patterns import MAX_PATTERN, check_pattern, search
from fepflow.checks.explanation import (
    ResolvedArguments,
    differing,
    shown,
    with_phrases,
    without_match,
    without_phrases,
)

Condition = Literal["contains", "equals", "does_not_contain", "regex"]


class TextMatchCheck(BaseCheck):
    """Pass if a text meets a condition, as in the graders of an ECP manifest. Results: `{passed: bool}`.

    Case matters, and nothing is trimmed. An empty or null text meets no condition, not even `does_not_contain`.
    Patterns are searched as in `regex`.
    """

    check_type: ClassVar[str] = "text_match"

    text: str | JSONPath | None = Field(default=OUTPUT, description="Text to compare; may be null.")
    condition: Condition | PathText = Field(description="Condition that the text must meet.")
    value: str | JSONPath | None = Field(default=None, description="Text to compare with; not for `regex`.")
    pattern: Annotated[str, Field(max_length=MAX_PATTERN)] | JSONPath | None = Field(
        default=None, description="Regular expression; only for `regex`."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> TextMatchCheck:
        needed = "pattern" if self.condition == "regex" else "value"
        if isinstance(self.condition, str) and getattr(self, needed) is None:
            raise ValueError(f"{needed} is missing: {self.condition} needs it")
        if isinstance(self.pattern, str):
            check_pattern(self.pattern, 0)
        return self

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        if not self.text:
            return {"passed": False}
        text = as_text(self.text)
        if self.condition == "regex":
            return {"passed": search(as_text(self.pattern), 0, text)}
        value = as_text(self.value)
        if self.condition == "equals":
            return {"passed": text == value}
        return {"passed": (value in text) is (self.condition == "contains")}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        text, value, condition = resolved["text"], resolved["value"], resolved["condition"]
        if not text:
            return f"got {'an empty text' if text == '' else shown(text)}, wanted one that can be compared"
        if condition == "regex":
            return without_match(text, resolved["pattern"])
        if condition == "equals":
            return differing(text, value)
        return without_phrases(text, [value]) if condition == "contains" else with_phrases(text, [value])
