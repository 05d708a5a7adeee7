"""Service functions for suites with variants: start, resume and execute them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from fepflow.analysis.variants import VariantTable, variant_table
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.security.redaction import words_of
from fepflow.services.local_run import Execution
from fepflow.services.run_service import EXIT_CODES, STOPPED, Note, connect, is_over, open_store
from fepflow.settings import settings
from fepflow.store.leases import new_owner
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.variants import MANY, chosen, label_of
from fepflow.tasks.create_run import RunOptions, create_variants, require_options, values_of
from fepflow.tasks.local_run import LEASE_SECONDS, STORE_WAIT, Listener, LocalRun, LocalVariants


@dataclass(frozen=True)
class FinishedVariants:
    """The runs of variants that this process executed, with their differences; otherwise as `Finished`."""

    table: VariantTable
    flow_run_url: str | None
    prefect_informed: bool = True
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        """The code of the worst run: 130 stopped, 3 could not be evaluated, 1 fail, 4 inconclusive unless the gate
        allows it, 0 pass."""
        if self.stopped or any(run.status == "cancelled" for run in self.table.runs):
            return STOPPED
        if self.table.outcome is None:
            return InfrastructureError.exit_code
        return EXIT_CODES[self.table.outcome] if self.table.blocks else 0


def wanted_variants(validation: SuiteValidation, options: RunOptions, *, yes: bool = False) -> list[str]:
    """Return the selected variants, in words.

    Raises UserError for an unknown name or value, and for many variants without `yes`.
    """
    variants = values_of(validation)
    labels = [label_of(variants[index]) for index in chosen(variants, options.variants)]
    if not labels:
        raise UserError("No variant has all of these values: leave a --variant out.")
    if len(labels) > MANY and not yes:
        calls = len(labels) * len(validation.cases)
        raise UserError(
            f"{validation.path} has {len(labels):,} variants, which is a run of each and {calls:,} calls at least: "
            "give --yes, or take some of them with --variant NAME=VALUE."
        )
    return labels


@contextmanager
def begin_variants(
    validation: SuiteValidation, options: RunOptions, note: Note, *, show_logs: bool = False
) -> Iterator[LocalVariants]:
    """Create a run of each selected variant."""
    with Store.open(settings().store_address, STORE_WAIT) as store:
        for index in chosen(values_of(validation), options.variants):
            require_options(store, validation.variants[index], options)  # before a server is started
        connect(note, show_logs=show_logs)
        variants_id = uuid4().hex
        created = create_variants(store, validation, options, variants_id)
        runs = [LocalRun(run.run, store, run.loaded) for run in created]
        yield LocalVariants(variants_id, validation.require().name, runs, store)


@contextmanager
def resume_variants(variants_id: str, note: Note, *, show_logs: bool = False) -> Iterator[LocalVariants | None]:
    """Return the variants to continue, or None for an unknown id. Variants with a verdict keep it."""
    with open_store(STORE_WAIT) as store:
        records = store.runs.of_variants(variants_id)
        if not records:
            yield None
            return
        connect(note, show_logs=show_logs)
        for record in records:
            if record.outcome is None:
                store.runs.withdraw_cancel(record.id)
                store.leases.claim(record.id, new_owner(), LEASE_SECONDS)
        records = store.runs.of_variants(variants_id)
        runs = [LocalRun(record, store) for record in records]
        yield LocalVariants(str(records[0].variants_id), str(records[0].suite["name"]), runs, store)


def cancel_variants(variants_id: str) -> list[RunRecord]:
    """Stop the unfinished runs of variants, on any machine, and return them as they are then.

    Returns none for an unknown id. Raises UserError if all are over.
    """
    with open_store() as store:
        runs = store.runs.of_variants(variants_id)
        under_way = [run for run in runs if run.is_under_way]
        if runs and not under_way:
            raise UserError(f"The variants {runs[0].variants_id} are over: there is nothing to cancel.")
        # The last one first: else the next would begin meanwhile.
        return [store.runs.request_cancel(run.id) for run in reversed(under_way)]


def execute_variants(
    begun: LocalVariants, listener: Listener | None = None, *, handle_sigterm: bool = True
) -> FinishedVariants:
    """Execute the variants in this process, as subflows of one Prefect flow run; see `run_service.execute`."""
    store, records = begun.store, [begun_run.run for begun_run in begun.runs]
    counts: dict[str, Counter[str]] = {}

    def listening_to(run: RunRecord) -> Listener:
        def listen(seen: Mapping[str, int]) -> None:
            counts[run.id] = Counter(seen)
            if listener is not None:
                listener(sum(counts.values(), Counter[str]()))

        return listen

    runs = [replace(begun_run, listener=listening_to(begun_run.run)) for begun_run in begun.runs]
    execution = Execution(replace(begun, runs=runs))
    prefect_informed = execution.wait(
        lambda: is_over(store, records, stopped=execution.stopped), handle_sigterm=handle_sigterm
    )
    store.leases.reap()
    after = store.runs.of_variants(begun.id)
    if execution.stopped:
        for run in after:
            if run.status == "pending":
                store.runs.request_cancel(run.id)
    elif any(run.is_under_way or run.status == "interrupted" for run in after):
        # What was raised in a variant is in its row; this kept the parent from its end.
        error = execution.prefect_error or execution.error
        if isinstance(error, FepflowError):
            raise error
        why = f"{type(error).__name__}: {words_of(error)}" if error is not None else "the store has no verdict of all"
        raise InfrastructureError(f"the variants {begun.id} did not end: {why}")
    return FinishedVariants(
        variant_table(store, begun.id),
        execution.flow_run_url,
        prefect_informed and execution.prefect_error is None,
        execution.stopped,
    )
