"""The split of a run into shards, which machines execute, and batches, the unit of orchestration.

A batch that is worked on has its test cases, their outputs, their missing checks, and failures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from fepflow.calls.policy import RunBudget
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import CheckRow, RunRecord, StoredOutput
from fepflow.store.store import Store
from fepflow.suite.models import Budget, Suite
from fepflow.text import one_line

SINGLE_CALLS = 25
"""Up to so many calls, each is a batch of its own."""

TYPICAL_BATCHES = 12
MAX_BATCHES = 100
"""A batch is two task runs, and a task run costs Prefect's server 15 to 70 ms of computing, the client 6 ms."""

TYPICAL_SIZE = 500
"""A batch is in memory whole: a suite that is too large for the typical number gets more of this size first."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls `start` to `stop` (exclusive) of a run; call `i` is repeat `i % repeats` of case `i // repeats`.

    With `repeat` it is that repeat alone, of the cases `start` to `stop`.
    """

    start: int
    stop: int
    repeat: int | None = None

    def units(self, repeats: int) -> list[tuple[int, int]]:
        """Return the (case index, repeat) of each call."""
        calls = range(self.start, self.stop)
        return [divmod(call, repeats) if self.repeat is None else (call, self.repeat) for call in calls]

    def case_range(self, repeats: int) -> tuple[int, int]:
        """Return the cases of this batch: the first index, and the one after the last."""
        per_case = repeats if self.repeat is None else 1
        return self.start // per_case, (self.stop - 1) // per_case + 1


def split_into_batches(calls: range, batch_size: int | None = None, repeat: int | None = None) -> list[Batch]:
    """Return batches of one call if there are few, otherwise about 12 batches, and at most 100 in a large run."""
    count = len(calls)
    usual = 1 if count <= SINGLE_CALLS else min(-(-count // TYPICAL_BATCHES), TYPICAL_SIZE)
    size = max(batch_size or usual, -(-count // MAX_BATCHES), 1)
    return [Batch(start, min(start + size, calls.stop), repeat) for start in range(calls.start, calls.stop, size)]


def calls_of_shard(cases: int, repeats: int, shard: int, shards: int) -> range:
    """Return the calls of shard number `shard`, from 0: whole cases, as many as in other shards, or one more."""
    first, stop = (cases * number // shards for number in (shard, shard + 1))
    return range(first * repeats, stop * repeats)


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Shard number `shard`, from 0, of `shards`; `ends_at` is the run's deadline by the store's clock, or None."""

    shard: int = 0
    shards: int = 1
    ends_at: datetime | None = None

    def calls(self, run: RunRecord) -> range:
        """Return the calls of the run that belong to the shard."""
        return calls_of_shard(run.n_cases, run.repeats, self.shard, self.shards)

    def budget(self, suite: Suite, store: Store) -> RunBudget:
        """Return the shard's part of the budget, with the remaining time of the run."""
        left = None if self.ends_at is None else (self.ends_at - store.now()).total_seconds()
        return RunBudget(suite.deadline, _part(suite.budget, self.shards), left)


FULL_RUN = ShardSpec()


def _part(budget: Budget | None, shards: int) -> Budget | None:
    if budget is None or shards == 1:
        return budget
    tokens = None if budget.tokens is None else max(1, budget.tokens // shards)
    return Budget(tokens=tokens, usd=None if budget.usd is None else budget.usd / shards)


MAX_LABEL = 80
"""Characters of a case's id in the name of a task run; an id may be a whole question."""

MAX_NAMES = 5
"""Cases that the state of their batch names."""

Unit = tuple[int, int]
"""The case index and the repeat of an output, both from 0."""


class CaseChecks(NamedTuple):
    """The checks of a test case, its own first: those that call no model, and those that call one."""

    local: Sequence[CompiledCheck]
    by_model: Sequence[CompiledCheck]


@dataclass(frozen=True, slots=True)
class CaseOutput:
    """The output of one repeat of a test case."""

    case: TestCase
    unit: Unit
    output: Output
    content_hash: str
    span: Any = None
    """The context of the span of the call that gave it, if this process exported one."""


class PendingChecks(NamedTuple):
    """An output, and its checks without results."""

    output: CaseOutput
    checks: Sequence[CompiledCheck]


@dataclass(slots=True)
class _Failures:
    """Checks of one output that failed, and those that ended in error, by the name of the output."""

    name: str
    failed: set[str] = field(default_factory=set)
    in_error: set[str] = field(default_factory=set)


class FailedChecks(NamedTuple):
    """Checks of a batch that failed or ended in error, in words, and whether the gate judges one of them."""

    message: str
    judged: bool


class BatchWork:
    """A batch with its cases and outputs, which travel with it from the call to the last check.

    For a resumed run, the stored outputs and results are taken in. After that, nothing is read from the store.
    """

    def __init__(self, batch: Batch, repeats: int, cases: Sequence[TestCase], checks: Sequence[CaseChecks]) -> None:
        self.batch = batch
        self.units = batch.units(repeats)
        first, last = batch.case_range(repeats)
        self._repeats = repeats
        self._cases = dict(zip(range(first, last), cases, strict=True))
        self._checks = dict(zip(range(first, last), checks, strict=True))
        self._called: set[Unit] = set()
        self._outputs: dict[Unit, CaseOutput] = {}
        self._done: dict[Unit, set[str]] = {}
        self._failures: dict[Unit, _Failures] = {}
        self.has_local_checks = any(own.local for own in checks)
        self.has_model_checks = any(own.by_model for own in checks)

    @property
    def missing(self) -> list[Unit]:
        """Outputs that are still to be called for."""
        return [unit for unit in self.units if unit not in self._called]

    @property
    def label(self) -> str:
        """The name of the batch's task runs: its case, or how many cases from where."""
        first, last = self.batch.case_range(self._repeats)
        return f"cases {first + 1}-{last}" if last - first > 1 else self.label_of(self._cases[first], self.units)

    def label_of(self, case: TestCase, units: Collection[Unit]) -> str:
        """Return the name of a task run for only these repeats of one case."""
        repeats = sorted({repeat for _, repeat in units})
        name = self.name_of(case, repeats[0])
        return name if len(repeats) == 1 else f"{name}-{repeats[-1] + 1}"

    def name_of(self, case: TestCase, repeat: int) -> str:
        """Return the name of a repeat of a case."""
        name = one_line(case.id, MAX_LABEL)
        return name if self._repeats == 1 else f"{name} #{repeat + 1}"

    def case(self, unit: Unit) -> TestCase:
        """Return the test case of an unchecked output."""
        return self._cases[unit[0]]

    def checks_of(self, unit: Unit) -> list[CompiledCheck]:
        """Return the checks of an output."""
        return [*self._checks[unit[0]].local, *self._checks[unit[0]].by_model]

    def is_done(self, unit: Unit, check_id: str) -> bool:
        """Return whether a check of an output has a result."""
        return check_id in self._done.get(unit, ())

    def take_in_counts(self, done: Mapping[Unit, int]) -> list[int]:
        """Note the stored outputs that have all their check results, by the number of results of each output.

        Returns the indices of the other cases: their outputs, if there are any, and results are to be taken in.
        """
        others = set()
        for unit in self.units:
            ids = {check.check_id for check in self.checks_of(unit)}
            if ids and done.get(unit) == len(ids):
                self._called.add(unit)
                self._done[unit] = ids
            else:
                others.add(unit[0])
        return sorted(others)

    def take_in_outputs(self, outputs: Mapping[Unit, StoredOutput]) -> None:
        """Add the stored outputs, but for those that have all their check results."""
        for unit in self.units:
            is_complete = unit in self._called and unit not in self._outputs
            if not is_complete and (stored := outputs.get(unit)) is not None:
                self.add_output(CaseOutput(self.case(unit), unit, stored.output, stored.content_hash))

    def take_in_checks(self, checks: Iterable[CheckRow]) -> None:
        """Note the stored check results."""
        mine = set(self.units)
        for row in checks:
            unit = (row.case_index, row.repeat)
            if unit in mine:
                self.add_result(self.case(unit), unit, row.check_id, row.passed, in_error=row.status == "error")

    def add_output(self, output: CaseOutput) -> None:
        """Add the output of a call."""
        self._called.add(output.unit)
        self._outputs[output.unit] = output

    def add_result(self, case: TestCase, unit: Unit, check_id: str, passed: bool | None, *, in_error: bool) -> None:
        """Note that a check of an output is done."""
        self._done.setdefault(unit, set()).add(check_id)
        if in_error or passed is False:
            if unit not in self._failures:
                self._failures[unit] = _Failures(self.name_of(case, unit[1]))
            failures = self._failures[unit]
            (failures.in_error if in_error else failures.failed).add(check_id)

    def pending(self, *, by_model: bool) -> list[PendingChecks]:
        """Return the missing checks of the outputs: those that call a model, or the others."""
        waiting = []
        for unit in self.units:
            if unit in self._outputs:
                done = self._done.get(unit, ())
                checks = [check for check in self._checks[unit[0]][by_model] if check.check_id not in done]
                if checks:
                    waiting.append(PendingChecks(self._outputs[unit], checks))
        return waiting

    @property
    def unchecked(self) -> list[Unit]:
        """The outputs with missing check results."""
        return [pending.output.unit for by_model in (False, True) for pending in self.pending(by_model=by_model)]

    def drop_checked(self) -> None:
        """Drop checked outputs and their cases from memory, because retried ones may wait for long."""
        self._outputs.clear()
        waiting = {case_index for case_index, _ in self.missing}
        self._cases = {index: case for index, case in self._cases.items() if index in waiting}

    def failures(self, judged: Collection[str] | None, *, by_model: bool) -> FailedChecks | None:
        """Return which outputs have checks that failed or ended in error: checks that call a model, or the others.

        `judged` are the ids of the checks that the gate judges; None means all. Returns None if all passed.
        """
        failed: list[str] = []
        in_error: list[str] = []
        names: set[str] = set()
        for unit in self.units:
            if (failures := self._failures.get(unit)) is None:
                continue
            ids = [check.check_id for check in self._checks[unit[0]][by_model]]
            for into, which in ((failed, failures.failed), (in_error, failures.in_error)):
                if mine := [check_id for check_id in ids if check_id in which]:
                    into.append(f"{failures.name} ({', '.join(mine)})")
                    names.update(mine)
        if not names:
            return None
        of = f"of {count_of_cases(len(self.units), self._repeats)}"
        sentences = [f"{len(failed)} {of} failed: {listed_cases(failed)}"] if failed else []
        if in_error:
            sentences.append(f"{len(in_error)} {of} could not be checked: {listed_cases(in_error)}")
        is_judged = judged is None or not names.isdisjoint(judged)
        about = "" if is_judged else f" The gate does not judge {listed_cases(sorted(names))}."
        return FailedChecks(f"{'; '.join(sentences)}.{about}", is_judged)


def count_of_cases(count: int, repeats: int) -> str:
    """Return the number of cases in words, or of outputs where each case has several."""
    noun = "case" if repeats == 1 else "output"
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed_cases(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"
