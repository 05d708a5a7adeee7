"""The check `classification`: a label is the expected one."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath, PathText
from fepflow.checks.explanation import ResolvedArguments, listed, shown
from fepflow.documents.messages import kind_name

MAX_LABEL = 100
"""Characters of a label; a longer answer is not a label."""

_AROUND = " \t\r\n\"'`*.,:;!"
"""Characters that models put around a label."""


def _label(value: Any) -> Any:
    if isinstance(value, str | JSONPath | int | float):
        return value
    raise ValueError(f"must be a label, which is a text, a number, true or false, and not {kind_name(value)}")


LabelValue = Annotated[str | int | float | bool | JSONPath, BeforeValidator(_label)]


class ClassificationCheck(BaseCheck):
    """Pass if a label equals the expected one. Results: `{passed: bool, predicted: text, label: text}`.

    `predicted` is the answer's label and `label` the expected one, without spaces, quotes, asterisks and punctuation
    around them and in lower case. An answer outside of `labels` fails, and an expected label outside of them is an
    error. Labels have up to 100 characters.

    Metrics of this check may have `aggregate: f1`, `precision` or `recall`, of all classes or of one: `recall@refund`.
    `fepflow show`, reports and the run's page show its confusion matrix ([suites](suite.md#classification)).
    """

    check_type: ClassVar[str] = "classification"

    actual: LabelValue = Field(default=OUTPUT, description="Label to check.")
    expected: LabelValue = Field(default=EXPECTED, description="Label to compare with.")
    labels: Annotated[list[str], Field(min_length=2)] | JSONPath | None = Field(
        default=None, description="All possible labels; default: any text is a label."
    )
    case_sensitive: StrictBool | PathText = Field(default=False, description="Whether case matters.")

    @model_validator(mode="after")
    def _expects_a_label(self) -> ClassificationCheck:
        if isinstance(self.case_sensitive, JSONPath):
            return self
        if isinstance(self.labels, Sequence):
            known: dict[str, str] = {}
            for label in self.labels:
                if (other := known.setdefault(self._read(label), label)) != label:
                    raise ValueError(f"labels: {shown(other)} and {shown(label)} are read as the same label")
        if isinstance(self.expected, JSONPath):
            return self
        expected = self._read(self.expected)
        if not expected or len(expected) > MAX_LABEL:
            raise ValueError(f"expected must be a label of 1 to {MAX_LABEL} characters")
        if isinstance(self.labels, Sequence) and expected not in map(self._read, self.labels):
            raise ValueError("expected is not one of the labels")
        return self

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        predicted, expected = self._read(self.actual), self._read(self.expected)
        return {"passed": predicted == expected, "predicted": predicted[: MAX_LABEL + 1], "label": expected}

    def _read(self, value: Any) -> str:
        return label_of(value, case_sensitive=bool(self.case_sensitive))

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        labels, case_sensitive = resolved["labels"], bool(resolved["case_sensitive"])
        known = [label_of(label, case_sensitive=case_sensitive) for label in labels] if labels else None
        if known is not None and results["predicted"] not in known:
            return f"{shown(resolved['actual'])} is not one of the labels {listed(labels)}"
        return f"got {shown(resolved['actual'])}, wanted {shown(resolved['expected'])}"


def label_of(value: Any, *, case_sensitive: bool) -> str:
    """Return the form of a label that is compared and counted; empty for a text without letters or digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = unicodedata.normalize("NFC", " ".join(str(value).split())).strip(_AROUND)
    return text if case_sensitive else text.casefold()
