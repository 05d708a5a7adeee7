"""The causes of results that did not pass in a run, and the command that shows their cases."""

from __future__ import annotations

import shlex
from itertools import islice

from fepflow.checks.explanation import MAX_CAUSES, Cause, Causes, CauseSummary
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

MAX_RESULTS = 2_000
"""Results that did not pass and are looked at: some tenths of a second."""


def causes_of(store: Store, run: RunRecord, limit: int = MAX_CAUSES, *, max_results: int = MAX_RESULTS) -> CauseSummary:
    """Summarize why results of a run did not pass; the most frequent causes first."""
    causes = Causes()
    failed = store.results.by_case(run.id, failed_only=True, whole=False)
    for result in islice(failed, max_results):
        causes.add(result.case.id, result.output, result.checks)
    summary = causes.summary(limit)
    if next(failed, None) is not None:
        summary.remarks.append(f"(of the first {max_results:,} results that did not pass)")
    return summary


def show_command(run: RunRecord, cause: Cause) -> str:
    """Return the command that shows the cases of a cause: the only one, or all that did not pass its check."""
    if len(cause.case_ids) == 1:
        return f"fepflow show {run.id[:8]} --case {shlex.quote(cause.case_ids[0])}"
    options = ["--errors"] * (cause.kind != "failed") + [f"--check {shlex.quote(cause.check_id)}"] * bool(
        cause.check_id
    )
    return f"fepflow show {run.id[:8]} {' '.join(options)}"
