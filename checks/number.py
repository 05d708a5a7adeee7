"""`number`: the number that an answer comes to is the expected one."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from fepflow.checks.base import BaseCheck, JSONPath, PathText, as_text
from fepflow.checks.core.numbers import (
    DecimalMark,
    Position,
    WrittenNumber,
    as_decimal,
    finite_number,
    is_close,
    number_in,
)
from fepflow.checks.core.sentences import ResolvedArguments, shown


def _text_or_number(value: Any) -> Any:
    if isinstance(value, str | JSONPath):
        return value
    try:
        return finite_number(value)
    except ValueError as error:
        raise ValueError(str(error).replace("must be a number", "must be a text or a number")) from None


TextOrNumber = Annotated[str | int | float | JSONPath, BeforeValidator(_text_or_number)]
Tolerance = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


class NumberCheck(BaseCheck):
    r"""Pass if the last or first number of a text is the expected one. Results: `{passed: bool, found: text or null}`.

    `found` is the number as it is written. A text without a number fails. An expected value without a number is an
    error. The expected value may also be a text, for example a worked solution; its number is found in the same way.

    Commas group digits: `1,234.5` is one number. With `decimal: comma`, `1.234,5` and `1 234,5` are one number. Digits
    that are joined in another way (`3,14` without `decimal: comma`, `10:30`, `1/2`, `3½`, `10^3`, `\frac{1}{2}`,
    `2024.01.02`) are not one number, and such an answer fails. `1e3` is one. The minus in `5-3` is a hyphen, so its
    last number is 3. Currencies and units are ignored, and so is `%`: `12 %` is 12. Digits inside a word (`H2O`) and
    exponents of a unit (`25 m^2`) do not count. Numbers are compared as they are written: without a tolerance,
    `0.30000000000000004` is not `0.3`.
    """

    check_type: ClassVar[str] = "number"

    text: TextOrNumber = Field(default=JSONPath("$.output.value"), description="Text with the number, or a number.")
    expected: TextOrNumber = Field(
        default=JSONPath("$.test_case.expected"), description="Number to compare with, or a text with the number."
    )
    position: Position | PathText = Field(default="last", description="Which number of a text to compare.")
    tolerance: Tolerance | PathText = Field(default=0.0, description="Largest difference that passes.")
    percent: Tolerance | PathText = Field(
        default=0.0, description="Largest difference that passes, in percent of the expected number."
    )
    decimal: DecimalMark | PathText = Field(default="point", description="Decimal mark: `3.14` or `3,14`.")

    @model_validator(mode="after")
    def _expects_a_number(self) -> NumberCheck:
        if not isinstance(self.expected, JSONPath) and not any(
            isinstance(option, JSONPath) for option in (self.position, self.decimal)
        ):
            expected = self._number(self.expected)
            if expected is None:
                raise ValueError("expected holds no number")
            if expected.value is None:
                raise ValueError(f"expected holds {shown(expected.written)}, which is not one number")
        return self

    def __call__(self) -> dict[str, Any]:
        """Find both numbers, and compare."""
        found, expected = self._number(self.text), self._number(self.expected)
        assert expected is not None, "see _expects_a_number"
        assert expected.value is not None, "see _expects_a_number"
        if found is None or found.value is None:
            return {"passed": False, "found": found and found.written}
        passed = is_close(found.value, expected.value, self.tolerance, self.percent)  # type: ignore[arg-type]  # resolved: no path is left, see _resolved_only
        return {"passed": passed, "found": found.written}

    def _number(self, value: Any) -> WrittenNumber | None:
        if not isinstance(value, str):
            return WrittenNumber(as_decimal(value), str(value))
        return number_in(as_text(value), self.position, self.decimal)  # type: ignore[arg-type]  # resolved: no path

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        found, decimal = results["found"], resolved["decimal"]
        if found is None:
            return f"there is no number in: {shown(resolved['text'])}"
        options = {"position": resolved["position"], "decimal": decimal}
        if isinstance(resolved["text"], str) and _value(resolved["text"], **options) is None:
            hint = " (decimal: comma reads a decimal comma)" if "," in found and decimal == "point" else ""
            return f"{shown(found)} is not one number{hint}"
        expected = resolved["expected"]
        of_text = number_in(expected, **options) if isinstance(expected, str) else None
        wanted = of_text.written if of_text else shown(expected)
        margins = [f"± {resolved['tolerance']:g}"] if resolved["tolerance"] else []
        margins += [f"± {resolved['percent']:g} %"] if resolved["percent"] else []
        return f"got {found}, wanted {' or '.join([' '.join([wanted, *margins[:1]]), *margins[1:]])}"


def _value(text: str, position: Position, decimal: DecimalMark) -> Decimal | None:
    number = number_in(text, position, decimal)
    return number.value if number else None
