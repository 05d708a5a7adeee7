"""What one executor does of a run: all of it, or a shard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fepflow.calls.policy import RunBudget
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Budget, Suite
from fepflow.tasks.run.batches import calls_of_shard


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Shard number `shard`, from 0, of `shards`; `ends_at` is the run's deadline by the
    store's clock, where it has one."""

    shard: int = 0
    shards: int = 1
    ends_at: datetime | None = None

    def calls(self, run: RunRecord) -> range:
        """The calls of the run that belong to the shard."""
        return calls_of_shard(run.n_cases, run.repeats, self.shard, self.shards)

    def budget(self, suite: Suite, store: Store) -> RunBudget:
        """Its part of the budget, and the time that the run has left."""
        left = None if self.ends_at is None else (self.ends_at - store.now()).total_seconds()
        return RunBudget(suite.deadline if left is None else left, _part(suite.budget, self.shards))


FULL_RUN = ShardSpec()


def _part(budget: Budget | None, shards: int) -> Budget | None:
    if budget is None or shards == 1:
        return budget
    tokens = None if budget.tokens is None else max(1, budget.tokens // shards)
    return Budget(tokens=tokens, usd=None if budget.usd is None else budget.usd / shards)
