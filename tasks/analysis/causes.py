"""The causes of what did not pass in a run. Needs no Prefect."""

from __future__ import annotations

from itertools import islice

from fepflow.protocol.causes import MAX_CAUSES, Causes
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

MAX_RESULTS = 2_000
"""Results that did not pass and are looked at: some tenths of a second."""


def causes_of(store: Store, run: RunRecord, limit: int = MAX_CAUSES) -> list[str]:
    """The most frequent causes, each on a line (`22 × looked_up: missing: search`); text of agents is as it came."""
    causes = Causes()
    failed = store.results(run.id, failed_only=True)
    for result in islice(failed, MAX_RESULTS):
        causes.add(result.case.id, result.output, result.checks)
    lines = causes.lines(limit)
    if next(failed, None) is not None:
        lines.append(f"(of the first {MAX_RESULTS:,} results that did not pass)")
    return lines
