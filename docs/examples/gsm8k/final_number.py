"""`final_number`: a check of one's own, for answers that end in `A: <number>`."""

import re
from decimal import Decimal
from typing import Any

from pydantic import Field

from fepflow import BaseCheck, JSONPath, register

MARK = "A:"
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


@register("final_number", version="1.0.0")
class FinalNumberCheck(BaseCheck):
    """Compare the final numbers of two texts. Results: `{passed, found, wanted}`, the numbers as texts or null.

    The final number is what follows the last `A:`. Commas between thousands, currency signs and a final period do not
    count, and `18.0` is the number 18. A text without a final number does not pass.
    """

    text: str | JSONPath = Field(description="Text to judge.")
    reference: str | JSONPath = Field(description="Text that ends in the right number.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        found, wanted = final_number(str(self.text)), final_number(str(self.reference))
        if wanted is None:
            raise ValueError(f"the reference has no number after {MARK!r}")  # an error of the suite, not a fail
        return {"passed": found == wanted, "found": None if found is None else str(found), "wanted": str(wanted)}


def final_number(text: str) -> Decimal | None:
    """The number after the last `A:`; None where nothing but a number should be and something else is."""
    _, mark, end = text.rpartition(MARK)
    bare = re.sub(r"[,$€£¥\s]", "", end)
    return Decimal(bare) if mark and NUMBER.fullmatch(bare) else None
