"""`number`: the number that an answer comes to is the expected one.

Numbers are read as people write them, and compared in decimals, because a float does not equal what was written:
0.1 + 0.2 is not 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath, PathText, as_text, finite_number
from fepflow.checks.explanation import ResolvedArguments, shown

DecimalMark = Literal["point", "comma"]
Position = Literal["last", "first"]

MAX_DIGITS = 1_000
"""Characters of a number; reading a longer one takes long."""

_SEPARATOR = "'\u2019\u00a0\u202f\u2009"
"""Apostrophes and spaces that do not break a line group digits in both ways of writing."""

_RUN = (
    r"(?P<sign>[-+\u2212\u2013]?)[$\u20ac\u00a3\u00a5\u20b9]?"
    r"(?P<digits>[.,]?\d(?:\d|[.,/:_xX\u00d7\u2044{}](?=\d){})*"
    r"(?:\x20?[\u00bc-\u00be\u2150-\u215e]|[\u00b2\u00b3\u00b9\u2070-\u2079\u207b]+|\^[{{(]?-?\d+)?"
    r"|\\[dt]?frac\{{[^{{}}]{{1,100}}\}}\{{[^{{}}]{{1,100}}\}})(?P<power>[eE][-+]?\d+)?"
)
_RUNS = {
    "point": re.compile(_RUN.format(_SEPARATOR, "")),
    "comma": re.compile(_RUN.format(_SEPARATOR, r"|\x20(?=\d{3}(?!\d))")),
}
"""Digits with all that joins them, so that a date, a time, a fraction or a power (3½, 10², 10^3, LaTeX's \\frac{1}{2})
is found as a whole, which is not a number."""

_MINUS = ("-", "\u2212", "\u2013")
"""The hyphen, the minus sign, and the en dash that word processors make of it."""

_OF_UNIT = re.compile(r"[^\W\d_]\^[{(]?\Z")
"""Pattern of the text before the exponent of a unit, as in 25 m^2. The exponent is not a number by itself."""

_GROUPS = r"[1-9]\d{{0,2}}(?:(?P<mark>[{}{}])\d{{3}})(?:(?P=mark)\d{{3}})*"
_READABLE = {
    "point": re.compile(rf"(?:{_GROUPS.format(',', _SEPARATOR)}|\d+)(?:\.\d+)?|\.\d+"),
    "comma": re.compile(rf"(?:{_GROUPS.format('. ', _SEPARATOR)}|\d+)(?:,\d+)?|,\d+"),
}
_POWER = re.compile(r"[eE][-+]?\d{1,6}")

_CONTEXT = Context(prec=MAX_DIGITS + 100, Emin=-(10**9), Emax=10**9, traps=[])


class WrittenNumber(NamedTuple):
    """A number in a text: its value and its characters. The value is None if digits are not one number (10:30)."""

    value: Decimal | None
    written: str


def number_in(text: str, position: Position = "last", decimal: DecimalMark = "point") -> WrittenNumber | None:
    """Return the last or first number of a text; None without any.

    Digits inside a word (H2O) and exponents of a unit (m^2) do not count. With `point`, commas group digits (1,234.5);
    with `comma`, points and spaces do (1.234,5 and 1 234,5). Digits that are joined in another way (3,14 with `point`,
    10:30, 1/2, 2024.01.02) are found without a value, because a part of them would be another number.
    """
    last = None
    for match in _RUNS[decimal].finditer(text):
        before = text[match.start() - 1] if match.start() else ""
        if _OF_UNIT.search(text[max(match.start() - 3, 0) : match.start()]):
            continue
        if match["sign"] or not (before.isalpha() or before == "_") or match["digits"][0] in ".,":
            last = match
            if position == "first":
                break
    return _read(last, decimal) if last else None


def _read(match: re.Match[str], decimal: DecimalMark) -> WrittenNumber:
    before = match.string[match.start() - 1] if match.start() else ""
    joins = bool(before) and (before.isalnum() or before in ")]")  # a hyphen, or a minus between two numbers
    sign = "" if joins else match["sign"]
    digits, power = match["digits"], match["power"] or ""
    written = f"{sign}{digits[:MAX_DIGITS]}{power[:MAX_DIGITS]}"
    readable = len(digits) <= MAX_DIGITS and _READABLE[decimal].fullmatch(digits)
    if not readable or (power and not _POWER.fullmatch(power)):
        return WrittenNumber(None, written)
    mark, other = (".", ",") if decimal == "point" else (",", ".")
    plain = re.sub(rf"[{re.escape(other)}{_SEPARATOR}\x20]", "", digits).replace(mark, ".")
    sign = "-" if sign in _MINUS else sign
    return WrittenNumber(Decimal(f"{sign}{plain}{power}"), written)


def as_decimal(value: float) -> Decimal:
    """Return a finite number in decimals: 0.1 becomes one tenth."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))


def is_close(actual: Decimal, expected: Decimal, tolerance: float = 0.0, percent: float = 0.0) -> bool:
    """Return whether two numbers differ by at most `tolerance`, or by at most `percent` percent of the expected one."""
    if actual == expected:
        return True
    difference = _CONTEXT.abs(_CONTEXT.subtract(actual, expected))
    of_expected = _CONTEXT.multiply(_CONTEXT.abs(expected), _CONTEXT.scaleb(as_decimal(percent), -2))
    return difference <= as_decimal(tolerance) or difference <= of_expected


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
    that are joined in another way (`3,14` without `decimal: comma`, `10:30`, `1/2`, `3½`, `10^3`, `2x10^3`, `1_000`,
    `\frac{1}{2}`, `2024.01.02`) are not one number, and such an answer fails. `1e3` is one. The minus in `5-3` is a
    hyphen, so its last number is 3. Currencies and units are ignored, and so is `%`: `12 %` is 12. Digits inside a word
    (`H2O`) and exponents of a unit (`25 m^2`) do not count. Numbers are compared as they are written: without a
    tolerance, `0.30000000000000004` is not `0.3`.
    """

    check_type: ClassVar[str] = "number"

    text: TextOrNumber = Field(default=OUTPUT, description="Text with the number, or a number.")
    expected: TextOrNumber = Field(default=EXPECTED, description="Number to compare with, or a text with the number.")
    position: Position | PathText = Field(default="last", description="Which number of a text to compare.")
    tolerance: Tolerance | PathText = Field(default=0.0, description="Largest difference that passes.")
    percent: Tolerance | PathText = Field(
        default=0.0, description="Largest difference that passes, in percent of the expected number."
    )
    decimal: DecimalMark | PathText = Field(default="point", description="Decimal mark: `3.14` or `3,14`.")

    _expected: WrittenNumber | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _expects_a_number(self) -> NumberCheck:
        if not any(isinstance(value, JSONPath) for value in (self.expected, self.position, self.decimal)):
            self._expected = self._number(self.expected)
            if self._expected is None:
                raise ValueError("expected holds no number")
            if self._expected.value is None:
                raise ValueError(f"expected holds {shown(self._expected.written)}, which is not one number")
        return self

    def __call__(self) -> dict[str, Any]:
        """Find the number, and compare."""
        found, expected = self._number(self.text), self._expected
        if found is None or found.value is None:
            return {"passed": False, "found": found and found.written}
        assert expected is not None, "see _expects_a_number"
        assert expected.value is not None, "see _expects_a_number"
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
