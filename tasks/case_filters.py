"""The test cases that a run takes from its suite, by the options that select them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

from fepflow.datasets.case_spool import CasesOnDisk
from fepflow.documents.messages import did_you_mean
from fepflow.errors import UserError
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import FILTERS, RunRecord
from fepflow.store.store import Store

if TYPE_CHECKING:
    from fepflow.tasks.create_run import RunOptions

SHORT_ID = 8


class CaseFilter:
    """The test cases that the options select, and their number.

    Raises NotFoundError for an unknown run, UserError for an unknown case id, and if no case is left.
    """

    def __init__(self, store: Store, cases: CasesOnDisk, options: RunOptions) -> None:
        self._metadata = options.metadata
        self._total = len(cases)
        self.phrases = [f"--filter-metadata {name}={value}" for name, value in options.metadata.items()]
        self._ids: frozenset[str] | None = None
        if options.failing_in is not None:
            run = store.runs.get(options.failing_in)
            self.phrases.append(f"--filter-failing {run.id[:SHORT_ID]}")
            self._and(frozenset(_did_not_pass(store, run)))
        if options.errors_in is not None:
            run = store.runs.get(options.errors_in)
            self.phrases.append(f"--errors {run.id[:SHORT_ID]}")
            self._and(frozenset(_in_error(store, run)))
        for pattern in options.case_patterns:
            self.phrases.append(f"--case {pattern}")
        if options.case_patterns:
            self._and(frozenset(_matching([case.id for case in cases], options.case_patterns)))
        if options.cases is not None:
            self.phrases.append("those with labels")
            self._and(options.cases)
        if options.first is not None:
            self.phrases.append(f"--first {options.first}")
            self._and(frozenset(case.id for case in islice(filter(self.is_wanted, cases), options.first)))
        self.count = len(cases) if not self.phrases else sum(map(self.is_wanted, cases))
        if not self.count:
            raise UserError(f"No test case is left by {', '.join(self.phrases) or 'the suite'}: choose less narrowly.")

    def is_wanted(self, case: TestCase) -> bool:
        """Return whether the run has this case."""
        of_case = case.metadata or {}
        return (self._ids is None or case.id in self._ids) and all(
            _text(of_case.get(key, "")) == value for key, value in self._metadata.items()
        )

    def as_options(self) -> dict[str, Any]:
        """Return the options to store with the run; empty if every case is selected."""
        return {FILTERS: self.phrases, "suite_cases": self._total} if self.count < self._total else {}

    def _and(self, ids: frozenset[str]) -> None:
        self._ids = ids if self._ids is None else self._ids & ids


def _did_not_pass(store: Store, run: RunRecord) -> Iterator[str]:
    return (result.case.id for result in store.results.by_case(run.id, failed_only=True, whole=False))


def _in_error(store: Store, run: RunRecord) -> Iterator[str]:
    return (
        result.case.id
        for result in store.results.by_case(run.id, failed_only=True, whole=False)
        if (result.output is not None and result.output.failure is not None) or any(map(_has_error, result.checks))
    )


def _has_error(check: CheckResult) -> bool:
    return check.error is not None


def _matching(ids: Sequence[str], patterns: Sequence[str]) -> Iterator[str]:
    """Yield the ids that a pattern matches. An id that equals the pattern comes first, whatever its characters."""
    known = frozenset(ids)
    for pattern in patterns:
        found = [pattern] if pattern in known else [each for each in ids if fnmatchcase(each, pattern)]
        if not found:
            raise UserError(f"--case {pattern}: no test case has such an id ({did_you_mean(pattern, ids)})")
        yield from found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
