"""The shared state of the steps of one run: the store, the lease, the target, the clients."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from fepflow.analysis.metrics import judged_checks, usages
from fepflow.calls.base import Target
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.checks.core.compiled import CompiledCheck, compile_checks
from fepflow.checks.core.data_checks import CaseChecks
from fepflow.checks.models.defaults import CheckDefaults, kind_of
from fepflow.errors import TargetError
from fepflow.models.client import ModelClient
from fepflow.protocol.check import to_check
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.records import RunRecord, RunStatus
from fepflow.store.store import Store
from fepflow.store.writer import BatchWriter
from fepflow.suite.models import Suite
from fepflow.suite.reader import LoadedSuite
from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.global_limits import SharedLimits
from fepflow.tasks.run.handover import local_run
from fepflow.tasks.run.log import log_limit_change, run_log
from fepflow.tasks.run.outcome import Retried
from fepflow.tasks.run.response_cache import StoredResponseCache
from fepflow.tasks.run.shard_spec import ShardSpec
from fepflow.text import one_line

MAX_ESCALATIONS = 100
"""Cases of a run that get a task run of their own, for retries; a task run is expensive for Prefect's server."""

NOTIFY_SECONDS = 0.1

MAX_LABEL = 80
"""Characters of a case's id in the name of a task run; an id may be a whole question."""

logger = logging.getLogger("fepflow.run")


class RunContext:
    """One executor's view of a run. Not a dataclass: Prefect would walk through it at every task call."""

    def __init__(
        self,
        store: Store,
        run: RunRecord,
        owner: str,
        loaded: LoadedSuite,
        suite: Suite,
        target: Target,
        shard_spec: ShardSpec,
    ) -> None:
        self.store = store
        self.run = run
        self.owner = owner
        self.suite = suite
        self.secrets = loaded.secrets
        self.target = target
        self.writer = BatchWriter(store, run.id)
        self.target_client = TargetClient(
            target,
            RetryPolicy.of(suite.target, shard_spec.shards),
            shard_spec.budget(suite, store),
            _log_retry,
            log_limit_change,
        )
        self.shared_limits = SharedLimits(
            suite.target.limits, suite.target.calls_at_once, self.target_client.budget.left
        )
        self.models = ModelClient(StoredResponseCache(store), refresh=not suite.cache)
        self.shard_spec = shard_spec
        self.retried: Retried | None = None
        """The verdict that the run had before, if it had one."""
        self.escalations = 0
        """Cases retried in a task run of their own, because of their call or of a check that calls a model."""
        self.defaults = CheckDefaults(suite.judge, suite.embedding)
        # By the run's copy of the suite: the cases themselves come from the store.
        from_data = run.is_requested or not isinstance(run.suite.get("test_cases"), list)
        named = [] if run.is_requested else suite.checks
        self._case_checks = CaseChecks(self.defaults, named, settings().allowed_models, from_data=from_data)
        if run.is_requested:  # whose checks, too, come from the network
            self.shared_checks = self._case_checks.compiled(suite.checks)
        else:
            self.shared_checks = compile_checks(self.defaults.complete(suite.checks))
        self.judged_checks = judged_checks(suite)
        """Checks that the gate judges; None for all."""
        self._by_kind = {by_model: _those(self.shared_checks, by_model) for by_model in (False, True)}
        self.left_out: dict[Batch, int] = {}
        """Model checks of each batch that were not run, as the run's deadline or budget was reached."""
        self.uses_models = bool(self._by_kind[True]) or shard_spec.shards > 1
        """Whether there may be checks that call models, as far as is known."""
        self.counts: Counter[str] = Counter()
        """How far this process has come: calls answered and failed, checks passed, failed and in error."""
        self.at_work = "(none yet)"
        self.finished = False
        self.stopping_shards = False
        """Whether the flag that stops the run was raised from here, for its shards."""
        self._cases: dict[Batch, list[TestCase]] = {}
        self._next_notification = 0.0

    async def extend(self, n_cases: int, repeats: int) -> None:
        """Have the run take in its first `n_cases` cases, and so many repeats of each."""
        extend = partial(self.store.leases.extend_run, self.run.id, self.owner, n_cases=n_cases, repeats=repeats)
        self.run = await asyncio.to_thread(extend)

    def checks_for(self, case: TestCase, *, by_model: bool) -> Sequence[CompiledCheck]:
        """A case's checks, its own first: those that call a model, or the others."""
        if not case.checks:
            return self._by_kind[by_model]
        own = self._case_checks.compiled(case.checks, [check.check_id for check in self.shared_checks])
        return _those([*own, *self.shared_checks], by_model)

    async def check_kinds(self, batch: Batch) -> tuple[bool, bool]:
        """Whether the cases of a batch have checks that call no model, and checks that call one."""
        local, by_model = bool(self._by_kind[False]), bool(self._by_kind[True])
        if not (local and by_model):
            own = [check for case in await self.cases(batch) for check in case.checks or ()]
            calls_model = {kind_of(to_check(check)) is not None for check in own}
            local, by_model = local or False in calls_model, by_model or True in calls_model
        self.uses_models = self.uses_models or by_model
        return local, by_model

    async def cases(self, batch: Batch) -> list[TestCase]:
        """The test cases of a batch; they stay in memory until the batch is done."""
        if batch not in self._cases:
            self._cases[batch] = await asyncio.to_thread(
                self.store.runs.cases, self.run.id, *batch.case_range(self.run.repeats)
            )
        return self._cases[batch]

    def forget(self, batch: Batch) -> None:
        """Drop the test cases of a batch that is done from memory."""
        self._cases.pop(batch, None)

    async def label(self, batch: Batch) -> str:
        """What a task run of the batch is named after: its case, or how many cases from where."""
        first, last = batch.case_range(self.run.repeats)
        if last - first > 1:
            return f"cases {first + 1}-{last}"
        (case,) = await self.cases(batch)
        return self.label_of(case, batch)

    def label_of(self, case: TestCase, batch: Batch) -> str:
        """What a task run is named after that carries only repeats of one case."""
        repeats = sorted({repeat for _, repeat in batch.units(self.run.repeats)})
        name = self.name_of(case, repeats[0])
        return name if len(repeats) == 1 else f"{name}-{repeats[-1] + 1}"

    def name_of(self, case: TestCase, repeat: int) -> str:
        """What a repeat of a case, from 0, is called."""
        name = one_line(case.id, MAX_LABEL)
        return name if self.run.repeats == 1 else f"{name} #{repeat + 1}"

    def may_escalate(self) -> bool:
        """Whether one more case may be retried in a task run of its own."""
        room = self.escalations < max(1, MAX_ESCALATIONS // self.shard_spec.shards)
        return room and not self.target_client.budget.ended

    def count(self, **more: int) -> None:
        """Note progress, and notify the listener, a few times a second."""
        for name, number in more.items():
            self.counts[name] += number
        now = monotonic()
        if now >= self._next_notification:
            self._next_notification = now + NOTIFY_SECONDS
            self._notify()

    def count_spending(self) -> None:
        """Count what the store's outputs and checks have cost: a resumed run has spent part of its budget."""
        self.target_client.budget.spent = dict.fromkeys(
            self.target_client.budget.spent, 0.0
        )  # it may have been counted before
        calls = self.shard_spec.calls(self.run)
        last = calls.stop // self.run.repeats
        for start in range(calls.start // self.run.repeats, last, 1_000):
            for stored in self.store.results.outputs(self.run.id, start, min(start + 1_000, last)).values():
                if not stored.failed:
                    self.target_client.budget.spend(stored.output.metadata)
        for found in usages(self.store, self.run.id):
            if calls.start <= found.case_index * self.run.repeats + found.repeat < calls.stop:
                self.target_client.budget.spend(found.usage)

    def _notify(self) -> None:
        begun = local_run.get()
        if begun is not None and begun.listener is not None:
            begun.listener(self.counts)

    async def finish(self, status: RunStatus, **fields: Any) -> None:
        """End the run in the store and give the lease back."""
        self._notify()
        await asyncio.to_thread(self.store.leases.finish, self.run.id, self.owner, status, **fields)
        self.finished = True


def _those(checks: Sequence[CompiledCheck], by_model: bool) -> list[CompiledCheck]:
    return [check for check in checks if (check.model_kind is not None) is by_model]


def _log_retry(case_id: str, attempt: int, cause: TargetError, wait: float) -> None:
    name = one_line(case_id, MAX_LABEL)
    run_log().warning("%s: attempt %d failed, again in %.1f s: %s", name, attempt, wait, cause)
