"""Selection of a run's results to show: those that decided the verdict first, read a hundred cases at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from fepflow.documents.messages import did_you_mean
from fepflow.errors import NotFoundError
from fepflow.protocol.results import CheckResult
from fepflow.store.records import CaseResult, FailureKind, RunRecord
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store

MOST_COMPARED = 20_000
"""Ids among which a similar one is looked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of results to show.

    Without `failed`: everything, of one case or of all; `check_id` and `errors` are about failures. `errors` selects
    what is neither a pass nor a fail: calls without an answer, and checks that ended in error.
    """

    failed: bool = False
    case_id: str | None = None
    check_id: str | None = None
    errors: bool = False

    def checks(self, result: CaseResult) -> list[CheckResult]:
        """Return the selected checks of a result. If the call failed, errors of its checks add nothing."""
        if not self.failed:
            return [check for check in result.checks if self.check_id in (None, check.check_id)]
        no_answer = result.output is not None and result.output.failure is not None
        return [check for check in result.checks if self._is_wanted(check, no_answer)]

    def _is_wanted(self, check: CheckResult, no_answer: bool) -> bool:
        if self.check_id not in (None, check.check_id):
            return False
        return (check.error is not None and not no_answer) or (not self.errors and check.passed is False)

    def holds(self, result: CaseResult) -> bool:
        """Return whether a result is selected."""
        if self.case_id not in (None, result.case.id):
            return False
        if not self.failed:
            return True
        no_answer = result.output is not None and result.output.failure is not None
        return no_answer or bool(self.checks(result))


def selected(store: Store, run: RunRecord, selection: Selection) -> Iterator[CaseResult]:
    """Yield the selected results, those that decided the verdict first. Raises NotFoundError for an unknown id."""
    if selection.check_id is not None:
        _require_check(store, run, selection.check_id)
    if selection.case_id is not None:
        case_index = store.runs.index_of_case(run.id, selection.case_id)
        if case_index is None:
            raise _unknown("case", selection.case_id, list(islice(store.runs.ids_of_cases(run.id), MOST_COMPARED)))
        case_indices = [case_index]
    elif selection.failed:
        case_indices = worst_first(store, run, selection)
    else:
        case_indices = list(range(run.n_cases))
    return (result for result in store.results.by_case(run.id, case_indices=case_indices) if selection.holds(result))


def count_cases(store: Store, run: RunRecord, selection: Selection) -> int:
    """Return the number of failed cases in a selection."""
    return len(_failed(store, run, selection))


def _failed(store: Store, run: RunRecord, selection: Selection) -> list[int]:
    return store.results.failed_case_indices(run.id, selection.check_id, "error" if selection.errors else None)


def worst_first(store: Store, run: RunRecord, selection: Selection) -> list[int]:
    """Return the indices of the cases that did not pass, first those of the rule that decided."""
    verdict = run.verdict or {}
    groups: list[list[int]] = []
    for rule in verdict.get("rules", ()):
        if rule["outcome"] != "pass" and selection.check_id in (None, rule.get("check")):
            kind: FailureKind = "failed" if rule["outcome"] == "fail" else "error"
            groups.append(store.results.failed_case_indices(run.id, rule.get("check"), kind))
            groups.append(store.results.failed_case_indices(run.id, rule.get("check")))
    wanted = _failed(store, run, selection)
    among = set(wanted)
    return [case_index for case_index in dict.fromkeys(chain(*groups, wanted)) if case_index in among]


def _require_check(store: Store, run: RunRecord, check_id: str) -> None:
    known = dict.fromkeys([*shared_check_ids(run.suite), *(row.check_id for row in store.results.check_totals(run.id))])
    if check_id not in known:
        raise _unknown("check", check_id, list(known))


def _unknown(what: str, name: str, known: list[str]) -> NotFoundError:
    advice = did_you_mean(name, known) if known else "it has none"
    return NotFoundError(f"The run has no {what} {name} ({advice})")
