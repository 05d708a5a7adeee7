"""How a metric makes one number of many: `mean`, `p95`, `pass@3` and the like, as a suite writes them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["mean", "rate", "error_rate", "quantile", "majority", "worst", "pass_at_k", "pass_hat_k"]

PATTERN = r"^(mean|rate|error_rate|median|majority|worst|p\d{1,2}(\.\d+)?|pass[@^][1-9]\d*)$"


class Aggregate(NamedTuple):
    """What of many results a metric is: `level` (0 to 1) is a quantile's, `k` that of pass@k and pass^k."""

    kind: Kind
    level: float = 0.5
    k: int = 1

    @property
    def of_cases(self) -> bool:
        """Whether each test case gives one value, however many repeats it has."""
        return self.kind in ("majority", "worst", "pass_at_k", "pass_hat_k")


def parse_aggregate(text: str) -> Aggregate:
    """The aggregate of that name. Raises ValueError for one that there is not."""
    if not re.fullmatch(PATTERN, text, re.ASCII) or (text.startswith("p") and text[1:].strip("0.") == ""):
        raise ValueError(
            "must be mean, rate, error_rate, median, majority, worst, a percentile such as p95, or pass@3 or pass^3, "
            "with any number"
        )
    if text == "median":
        return Aggregate("quantile")
    if text.startswith("pass"):
        return Aggregate("pass_at_k" if text[4] == "@" else "pass_hat_k", k=int(text[5:]))
    if text[1:2].isdecimal():
        return Aggregate("quantile", level=float(f"{text[1:]}e-2"))
    return Aggregate(text)  # type: ignore[arg-type]  # one of the pattern's words
