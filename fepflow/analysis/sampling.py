"""A random sample of test cases, the same for the same seed, and the sizes of a run that is topped up.

A case is in it by a hash of the seed and its own id: where it stands in the file does not matter, and a case that is
added to the file displaces at most one other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import sha256
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from fepflow.statistics.sequential import passes_in_a_row
from fepflow.suite.models import Gate, TopUp
from fepflow.verdict.verdict import TopUpVerdict, Verdict

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord

DEFAULT_SEED = 0


def sample_size(count: int, limit: float | None) -> int:
    """Return how many of `count` cases a limit leaves: a number, or a fraction below 1; at least one."""
    if limit is None:
        return count
    return min(max(int(limit) if limit >= 1 else round(count * limit), 1), count)


def draw(case_ids: Iterable[str], size: int, seed: int) -> list[str]:
    """Return `size` of the ids, in random order."""
    return nsmallest(
        size, case_ids, key=lambda case_id: sha256(f"{seed}:{case_id}".encode(errors="surrogatepass")).digest()
    )


USUAL_FIRST = 25
GROWTH = 0.25
"""The next group of cases, of all that the run has had: larger ones are looked at less often, and stop later."""


class Size(NamedTuple):
    """The size of a run: test cases, and repeats of each."""

    cases: int
    repeats: int

    @property
    def calls(self) -> int:
        """The number of outputs."""
        return self.cases * self.repeats


def first_cases(gate: Gate, most: int) -> int:
    """Return the number of cases with which a run begins.

    It would show the gate's limits if every result were the best, or it is that of the first planned look. With fewer
    cases, no verdict could be reached.
    """
    if gate.top_up is not None and gate.top_up.looks is not None:
        return planned_sizes(most, gate.top_up.looks)[0]
    limits = [*gate.min.values(), *(1 - most for most in gate.max.values())]
    needed = [passes_in_a_row(limit, gate.pass_confidence) for limit in limits if 0 < limit < 1]
    return max(needed, default=USUAL_FIRST)


class Look(NamedTuple):
    """A look at a run that is topped up, counted from 1, and how many are planned."""

    number: int
    planned: int


def planned_sizes(most: int, looks: int) -> list[int]:
    """Return the number of cases at each planned look."""
    return [-(-most * look // looks) for look in range(1, looks + 1)]


def look_of(run: RunRecord, top_up: TopUp | None) -> Look | None:
    """Return the planned look that a run has reached; None if looks are not planned.

    A run with more cases than at a look, and fewer than at the next one, is judged as at the earlier: that is stricter.
    """
    if top_up is None or top_up.looks is None:
        return None
    if "sample" not in (run.options or {}):  # not drawn to be topped up, so it is not known of how many it is a part
        return Look(1, top_up.looks)
    reached = sum(size <= run.n_cases for size in planned_sizes(largest(run, top_up).cases, top_up.looks))
    return Look(max(reached, 1), top_up.looks)


def largest(run: RunRecord, top_up: TopUp) -> Size:
    """Return the largest possible size of the run."""
    if top_up.max_repeats is not None:
        return Size(run.n_cases, max(top_up.max_repeats, run.repeats))
    return Size(run.options["sample"]["cases"], run.repeats)


def next_size(run: RunRecord, top_up: TopUp, calls_at_once: int) -> Size | None:
    """Return the size of the run after its next round of repeats, or group of cases; None if it is complete."""
    most = largest(run, top_up)
    if most.calls <= run.calls:
        return None
    if top_up.max_repeats is not None:
        return Size(run.n_cases, run.repeats + 1)
    if top_up.looks is not None:
        sizes = planned_sizes(most.cases, top_up.looks)
        return Size(next(size for size in sizes if size > run.n_cases), run.repeats)
    more = max(math.ceil(run.n_cases * GROWTH), -(-calls_at_once // run.repeats))
    return Size(min(run.n_cases + more, most.cases), run.repeats)


def may_be_decided(verdict: Verdict) -> bool:
    """Return whether more results could decide an open verdict, which must rest on a metric."""
    return verdict.outcome == "inconclusive" and any(
        rule.metric is not None and rule.outcome == "inconclusive" for rule in verdict.rules
    )


def outcome_of_top_up(run: RunRecord, top_up: TopUp, verdict: Verdict) -> TopUpVerdict:
    """Return how far the run got, and what that saved."""
    most, is_of_repeats = largest(run, top_up), top_up.max_repeats is not None
    reached, maximum = (run.repeats, most.repeats) if is_of_repeats else (run.n_cases, most.cases)
    noun, calls = "repeats" if is_of_repeats else "test cases", run.calls
    how_far = f"all {maximum} {noun}" if reached == maximum else f"{reached} of at most {maximum} {noun}"
    saved = most.calls - calls
    beginning = "Still open" if verdict.outcome == "inconclusive" else "Decided"
    figures = f": {calls} of {most.calls} calls; {saved} were not needed" if beginning == "Decided" and saved else ""
    return TopUpVerdict(
        limit="max_repeats" if is_of_repeats else "max_cases",
        reached=reached,
        maximum=maximum,
        calls=calls,
        max_calls=most.calls,
        summary=f"{beginning} after {how_far}{figures}.",
    )
