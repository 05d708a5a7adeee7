"""The runs of one version of a target by one suite: each of them is a look, and one may pass by chance.

A gate that passes an agent at its minimum one time in forty passes it one time in nine within five runs. So runs are
counted, whatever has caused them. What is the same version is known by how the target is asked, its address included,
and by the version's name, if it has one: a new deployment at the same address looks like the old one without a name.
"""

from __future__ import annotations

from collections import Counter

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import listed, ordinal
from fepflow.verdict.verdict import LooksVerdict, Outcome, Verdict

_WORDS: dict[Outcome | None, str] = {
    "pass": "passed",
    "fail": "failed",
    "inconclusive": "inconclusive",
    None: "under way",
}


def looks_of(store: Store, run: RunRecord) -> LooksVerdict | None:
    """Count the runs of this version; None for a run of filtered cases, and for the first one without a name."""
    if run.suite_hash is None or run.target_hash is None or run.filtered:
        return None
    others = store.runs.looks(run)
    if not others and run.version is None:
        return None
    outcomes = Counter(outcome for _, outcome in others)
    number = len(others) + 1
    return LooksVerdict(
        number=number,
        version=run.version,
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        inconclusive=outcomes["inconclusive"],
        summary=_summary(run.version, number, outcomes),
    )


def _summary(version: str | None, number: int, others: Counter[Outcome | None]) -> str:
    parts = [f"{others[outcome]} {word}" for outcome, word in _WORDS.items() if others[outcome]]
    came_out = f": of the others, {listed(parts)}" if parts else ""
    if version is not None:
        return f"The {ordinal(number)} run of version {version}{came_out}."
    unnamed = "earlier versions may be among them, as no version is named (--version)"
    return f"The {ordinal(number)} run on this target{came_out}; {unnamed}."


def with_looks(verdict: Verdict, looks: LooksVerdict | None) -> Verdict:
    """Return the verdict with the number of its run, and a warning if it passes where other runs of the same named
    version did not."""
    if looks is None:
        return verdict
    warnings = verdict.warnings
    if verdict.outcome == "pass" and looks.version is not None and (looks.failed or looks.inconclusive):
        without = looks.failed + looks.inconclusive
        warning = (
            f"{without} of {looks.number} runs of version {looks.version} did not pass. A gate that is tried until it "
            "passes passes more often than promised: gate: {looks: pooled} judges all runs of a version together."
        )
        warnings = [*warnings, warning]
    return verdict.model_copy(update={"looks": looks, "warnings": warnings})
