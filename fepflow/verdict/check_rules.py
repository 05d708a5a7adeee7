"""Whether every case passes each check: the gate of a test suite, one rule a check.

A check that gives a pass or a fail anywhere is expected to give one everywhere: an error, a skip, a result without
either, and one that never came leave it open. A check that only scores has nothing to pass; no rule judges it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fepflow.evalguard.formatting import listed, plural
from fepflow.verdict.estimates import CheckTotals
from fepflow.verdict.verdict import Outcome, RuleOutcome

GATE = "every check must pass"


def check_rules(checks: Sequence[CheckTotals]) -> list[RuleOutcome]:
    """The outcome of each check that gives passes and fails, or may; of the run as a whole if there is none."""
    rules = [_rule(check) for check in checks if not scores_only(check)]
    if rules:
        return rules
    reason = "Nothing was judged: no check gave a pass or a fail."
    return [RuleOutcome(rule="every check passes", outcome="inconclusive", reason=reason)]


def scores_only(check: CheckTotals) -> bool:
    """Whether all results are there, and none is a pass or a fail."""
    return check.expected == check.unjudged


def absences(check: CheckTotals) -> list[str]:
    """What became of the results that are neither a pass nor a fail."""
    parts = [
        (check.error, "ended in an error"),
        (check.skipped, "skipped" if check.skipped == 1 else "were skipped"),
        (check.unjudged, "gave neither pass nor fail"),
        (check.never_came, "never came"),
    ]
    return [f"{count} {what}" for count, what in parts if count]


def _rule(check: CheckTotals) -> RuleOutcome:
    gaps, judged = listed(absences(check)), check.passed + check.failed
    outcome: Outcome
    if check.failed:
        outcome = "fail"
        said = f"{check.failed} of {plural(judged, 'result')} failed{f', and {gaps}' if gaps else ''}"
    elif gaps:
        outcome = "inconclusive"
        passed = f"{check.passed} of {check.expected} passed" if check.passed else "no result passed or failed"
        said = f"{passed}, but {gaps}" if check.passed else f"{passed}: {gaps}"
    else:
        outcome = "pass"
        said = f"{check.passed} of {plural(judged, 'result')} passed"
    return RuleOutcome(
        rule=f"{check.check_id}: every case passes",
        check=check.check_id,
        outcome=outcome,
        reason=f"{check.check_id}: {said}.",
    )
