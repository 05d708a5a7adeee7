"""The split of a run into shards, which machines execute, and batches, the unit of orchestration."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fepflow.calls.policy import RunBudget
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Budget, Suite

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
