"""The shared state of the steps of one run: the store, the lease, the target, the clients."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from fepflow.analysis.metrics import judged_checks, usages
from fepflow.calls.base import Target
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.models.client import ModelClient
from fepflow.calls.traces import Traces
from fepflow.checks.core import declarations
from fepflow.checks.core.compiled import CompiledCheck, compile_checks
from fepflow.checks.core.declarations import CheckDefaults
from fepflow.errors import TargetError
from fepflow.protocol.test_case import REUSED_FROM, Output, TestCase
from fepflow.settings import settings
from fepflow.store.records import RunRecord, RunStatus
from fepflow.store.store import Store
from fepflow.store.writer import BatchWriter
from fepflow.suite.models import Suite
from fepflow.suite.reader import LoadedSuite
from fepflow.tasks.batches import MAX_LABEL, Batch, BatchWork, CaseChecks, ShardSpec
from fepflow.tasks.flow_state import Retried, log_limit_change, run_log
from fepflow.tasks.global_limits import SharedLimits
from fepflow.tasks.local_run import local_run
from fepflow.tasks.spans import RunSpans
from fepflow.text import one_line

if TYPE_CHECKING:
    from fepflow.tasks.rescore import Rescoring

MAX_ESCALATIONS = 100
"""Cases of a run that get a task run of their own, for retries; a task run is expensive for Prefect's server."""

NOTIFY_SECONDS = 0.1

REST_OF_COUNTING = 20
"""Pause between two counts of a run's results, as a multiple of what the last one took: counting a large run must not
hold it up."""

logger = logging.getLogger("fepflow.run")


class RunContext:
    """The view of one executor on a run. Not a dataclass: Prefect would walk through it at every task call."""

    def __init__(
        self,
        store: Store,
        run: RunRecord,
        owner: str,
        loaded: LoadedSuite,
        suite: Suite,
        target: Target,
        models: ModelClient,
        shard_spec: ShardSpec,
        traces: Traces | None,
        *,
        is_resumed: bool,
        spans: RunSpans | None = None,
        rescoring: Rescoring | None = None,
    ) -> None:
        self.store = store
        self.run = run
        self.owner = owner
        self.suite = suite
        self.secrets = loaded.secrets
        self.target = target
        is_called = suite.target.recorded is None and suite.target.given is None
        self.writer = BatchWriter(store, run.id, are_calls=is_called)
        self.target_client = TargetClient(
            target,
            RetryPolicy.of(suite.target, shard_spec.shards),
            shard_spec.budget(suite, store),
            _log_retry,
            log_limit_change,
            traces,
            **({"observe": spans.attempt} if spans is not None and is_called else {}),
        )
        self.rescoring = rescoring
        """The earlier run whose outputs are judged anew; None for a run whose target is asked."""
        self.traces = traces
        self.spans = spans
        """Trace of the run; None where nobody asked for it."""
        self.shared_limits = SharedLimits(
            suite.target.limits, suite.target.calls_at_once, self.target_client.budget.left
        )
        self.models = models
        self.shard_spec = shard_spec
        self.is_resumed = is_resumed
        """True if the store had outputs or check results when the run was opened."""
        self.retried: Retried | None = None
        """The verdict that the run had before, if it had one."""
        self.escalations = 0
        """Cases retried in a task run of their own, because of their call or of a check that calls a model."""
        self.defaults = CheckDefaults(suite.judge, suite.embedding)
        # By the run's copy of the suite: the cases themselves come from the store.
        from_data = run.is_requested or not isinstance(run.suite.get("test_cases"), list)
        declared = [] if run.is_requested else suite.checks
        self._own_checks = declarations.CaseChecks(
            self.defaults, declared, settings().allowed_models, from_data=from_data
        )
        if run.is_requested:  # whose checks, too, come from the network
            self.shared_checks = self._own_checks.compiled(suite.checks)
        elif rescoring is not None and rescoring.gate_only:
            self.shared_checks = []  # all results are there
        else:
            self.shared_checks = compile_checks(self.defaults.complete(suite.checks))
        self.judged_checks = judged_checks(suite)
        """Checks that the gate judges; None for all."""
        self._shared = _by_kind(self.shared_checks)
        self.left_out: dict[Batch, int] = {}
        """Model checks of each batch that were not run, as the run's deadline or budget was reached."""
        self.uses_models = bool(self._shared.by_model) or (
            rescoring is None and (suite.user is not None or shard_spec.shards > 1)
        )
        """True if there may be checks that call models, or simulated users, as far as is known."""
        self.counts: Counter[str] = Counter()
        """Progress of this process: calls answered and failed, checks passed, failed and in error."""
        self.finished = False
        self.stopping_shards = False
        """True once the flag that stops the run was raised from here, for its shards."""
        self._next_notification = 0.0

    async def extend(self, n_cases: int, repeats: int) -> None:
        """Extend the run to its first `n_cases` cases, and to a number of repeats of each."""
        extend = partial(self.store.leases.extend_run, self.run.id, self.owner, n_cases=n_cases, repeats=repeats)
        self.run = await asyncio.to_thread(extend)

    async def begin(self, batch: Batch) -> BatchWork:
        """Read the cases of a batch, and, for a resumed run, their stored outputs and results."""
        return await asyncio.to_thread(self._begin, batch)

    def _begin(self, batch: Batch) -> BatchWork:
        store, run_id, (first, last) = self.store, self.run.id, batch.case_range(self.run.repeats)
        cases = store.runs.cases(run_id, first, last)
        work = BatchWork(batch, self.run.repeats, cases, [self._checks_of(case) for case in cases])
        if self.is_resumed:
            results = store.results
            incomplete = work.take_in_counts(results.checks_done(run_id, first, last))
            work.take_in_checks(results.failing_checks(run_id, first, last))
            if incomplete:
                work.take_in_checks(results.check_rows(run_id, incomplete, results=False))
                outputs = results.outputs_at(run_id, incomplete, whole=False)
                work.take_in_outputs(outputs)
                if in_blobs := {unit[0] for unit in work.unchecked if outputs[unit].blob is not None}:
                    work.take_in_outputs(results.outputs_at(run_id, in_blobs))
        self.uses_models = self.uses_models or work.has_model_checks
        return work

    def _checks_of(self, case: TestCase) -> CaseChecks:
        if not case.checks or (self.rescoring is not None and self.rescoring.gate_only):
            return self._shared
        own = self._own_checks.compiled(case.checks, [check.check_id for check in self.shared_checks])
        return _by_kind([*own, *self.shared_checks])

    def may_escalate(self) -> bool:
        """Return whether one more case may be retried in its own task run."""
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

    def spend(self, output: Output) -> None:
        """Count the cost of an output: of a failed one if it reports it, of an output of an earlier run never."""
        budget, metadata = self.target_client.budget, output.metadata or {}
        if self.rescoring is not None:
            return
        if REUSED_FROM not in metadata and (output.failure is None or not metadata.keys().isdisjoint(budget.spent)):
            budget.spend(metadata)

    def count_spending(self) -> None:
        """Count the cost of the stored outputs and checks.

        A resumed run has spent a part of its budget, and the runs of other variants spend the same budget.
        """
        budget = self.target_client.budget
        budget.spent = dict.fromkeys(budget.spent, 0.0)  # it may have been counted before
        variants_id = self.run.variants_id
        others = self.store.runs.of_variants(variants_id) if variants_id is not None else []
        for run in (self.run, *(other for other in others if other.id != self.run.id)):
            self._count_spending_of(run)

    def _count_spending_of(self, run: RunRecord) -> None:
        calls = self.shard_spec.calls(run)
        last = calls.stop // run.repeats
        for start in range(calls.start // run.repeats, last, 1_000):
            for stored in self.store.results.outputs(run.id, start, min(start + 1_000, last), whole=False).values():
                self.spend(stored.output)
        for usage in usages(self.store, run.id):
            if calls.start <= usage.case_index * run.repeats + usage.repeat < calls.stop:
                self.target_client.budget.spend(usage.usage)

    def _notify(self) -> None:
        begun = local_run.get()
        if begun is not None and begun.listener is not None:
            begun.listener(self.counts)

    async def finish(self, status: RunStatus, **fields: Any) -> None:
        """End the run in the store and release the lease."""
        self._notify()
        if self.spans is not None:
            self.spans.note_end(status, fields)
        await asyncio.to_thread(self.store.leases.finish, self.run.id, self.owner, status, **fields)
        self.finished = True


def _by_kind(checks: Sequence[CompiledCheck]) -> CaseChecks:
    local, by_model = ([check for check in checks if bool(check.model_kind) is kind] for kind in (False, True))
    return CaseChecks(local, by_model)


def _log_retry(case_id: str, attempt: int, cause: TargetError, wait: float) -> None:
    name = one_line(case_id, MAX_LABEL)
    run_log().warning("%s: attempt %d failed, again in %.1f s: %s", name, attempt, wait, cause)
