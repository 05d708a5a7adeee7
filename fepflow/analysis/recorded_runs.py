"""Store a finished evaluation as a completed run. Prefect is not needed: nothing is left to orchestrate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast
from uuid import uuid4

from fepflow.analysis.accumulation import suite_of
from fepflow.analysis.metrics import compute_verdict
from fepflow.checks.core.checked_output import CheckedOutput, checks_of
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.core.declarations import with_default_paths
from fepflow.imports.prepared import PreparedRun
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import to_jsonable
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.large_arguments import leave_out_large
from fepflow.store.leases import new_owner
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.verdict.pass_rule import SampleResult
from fepflow.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fepflow.protocol.results import CheckResult


def record_run(
    store: Store,
    run: RunRecord,
    cases: Sequence[TestCase],
    results: Sequence[SampleResult],
    verdict: Verdict,
) -> None:
    """Store results and verdict of a run. A skipped sample has no row.

    Raises InputError for test cases without a JSON form, InfrastructureError when the store is unavailable.
    """
    outputs, checks = _rows(run.id, results)
    judged = verdict.model_dump(mode="json", exclude_none=True)
    store.runs.add_completed(
        run,
        [_plain_case(case) for case in cases],
        outputs,
        checks,
        outcome=verdict.outcome,
        metrics=judged.pop("metrics"),
        verdict=judged,
    )


def new_run(
    cause: Literal["pytest", "evaluate"],
    name: str,
    checks: Sequence[AnyCheck],
    started_at: datetime,
    *,
    samples: int = 1,
    cluster: str | None = None,
    run_id: str | None = None,
) -> RunRecord:
    """Return a finished run of this name, without a target: a test or the caller of an evaluation made the outputs."""
    document = {
        "name": name,
        "target": {cause: name},
        "test_cases": [],  # the store has them, row by row
        "repeats": samples,
        "checks": [_plain(check).model_dump() for check in checks],
        **({} if cluster is None else {"cluster": cluster}),
    }
    run_id = run_id or uuid4().hex
    return RunRecord(
        id=run_id, name=name, suite=document, repeats=samples, tags=[cause], started_at=started_at, cause=cause
    )


def _rows(run_id: str, results: Sequence[SampleResult]) -> tuple[list[NewOutput], list[NewCheckResult]]:
    outputs: list[NewOutput] = []
    checks: list[NewCheckResult] = []
    for result in results:
        if result.output is not None:
            output, of_output = _rows_of(
                "pytest", run_id, (result.case_index, result.sample), result.output, result.checks
            )
            outputs.append(output)
            checks += of_output
    return outputs, checks


def _rows_of(
    cause: str, run_id: str, unit: tuple[int, int], output: Output, checks: Sequence[CheckResult]
) -> tuple[NewOutput, list[NewCheckResult]]:
    # The hash covers the run's id: nobody knows whether the system would give the same answer again.
    output_hash = content_hash(cause, run_id, *unit)
    rows = [
        NewCheckResult(*unit, check.check_id, content_hash(output_hash, check.check_id), check, check.passed)
        for check in leave_out_large(checks)
    ]
    return NewOutput(*unit, output_hash, output), rows


def _plain_case(case: TestCase) -> TestCase:
    return case.model_copy(update={"checks": [_plain(check) for check in case.checks]}) if case.checks else case


def _plain(check: AnyCheck) -> Check:
    """Return a check's declaration, with names in place of functions and classes."""
    declared = with_default_paths(to_check(check))
    return declared.model_copy(update={"arguments": to_jsonable(declared.arguments)})


IMPORT_SECONDS = 3_600
"""Seconds within which an import is stored; longer than any takes."""

_ROWS_AT_ONCE = 1_000


def record_import(store: Store, run: RunRecord, prepared: PreparedRun, completed_at: datetime | None) -> RunRecord:
    """Store the results of another tool as a completed run, judged by the rules of its suite, and return it.

    Raises InputError for test cases without a JSON form, InfrastructureError when the store is unavailable.
    """
    owner = new_owner()
    store.runs.create(run, prepared.cases, owner, IMPORT_SECONDS)
    record = store.leases.acquire(run.id, owner, IMPORT_SECONDS)
    shared = compile_checks(prepared.checks)
    for start in range(0, len(prepared.outputs), _ROWS_AT_ONCE):
        outputs: list[NewOutput] = []
        checks: list[NewCheckResult] = []
        for case_index, repeat, output in prepared.outputs[start : start + _ROWS_AT_ONCE]:
            case = prepared.cases[case_index]
            seen = CheckedOutput(case, output, in_place=True)  # recorded scores wait for nothing
            results = [cast("CheckResult", seen.answer(check)) for check in checks_of(case.checks or (), shared)]
            row, of_output = _rows_of("import", run.id, (case_index, repeat), output, results)
            outputs.append(row)
            checks += of_output
        store.results.write(run.id, outputs, checks)
    verdict = compute_verdict(store, record, suite_of(record))
    judged = verdict.model_dump(mode="json", exclude_none=True)
    figures = {"outcome": verdict.outcome, "metrics": judged.pop("metrics"), "verdict": judged}
    store.leases.finish(run.id, owner, "completed", **figures, completed_at=completed_at)
    return store.runs.get(run.id)
