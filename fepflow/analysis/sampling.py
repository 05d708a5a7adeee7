"""A random sample of test cases, the same for the same seed.

A case is in it by a hash of the seed and its own id: where it stands in the file does not matter, and a case that is
added to the file displaces at most one other.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from heapq import nsmallest

DEFAULT_SEED = 0


def sample_size(count: int, limit: float | None) -> int:
    """How many of `count` cases a limit leaves: a number of them, or a fraction below 1; at least one."""
    if limit is None:
        return count
    return min(max(int(limit) if limit >= 1 else round(count * limit), 1), count)


def draw(case_ids: Iterable[str], size: int, seed: int) -> list[str]:
    """`size` of the ids, in random order."""
    return nsmallest(
        size, case_ids, key=lambda case_id: sha256(f"{seed}:{case_id}".encode(errors="surrogatepass")).digest()
    )
