"""Numbers as people write them, and comparisons of them.

Everything is computed in decimals, because a float does not equal what was written: 0.1 + 0.2 is not 0.3.
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal
from typing import Any, Literal, NamedTuple

from fepflow.documents.messages import kind_name

DecimalMark = Literal["point", "comma"]
Position = Literal["last", "first"]

MAX_DIGITS = 1_000
"""Characters of a number; reading a longer one takes long."""

_SEPARATOR = "'\u2019\u00a0\u202f\u2009"
"""Apostrophes and spaces that do not break a line group digits in both ways of writing."""

_RUN = (
    r"(?P<sign>[-+\u2212\u2013]?)[$\u20ac\u00a3\u00a5\u20b9]?"
    r"(?P<digits>[.,]?\d(?:\d|[.,/:\u2044{}](?=\d){})*"
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


def finite_number(value: Any) -> int | float:
    """Return a value that is a number, and neither a boolean nor NaN or infinite. Raises ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {kind_name(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {value}")
    return value


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
