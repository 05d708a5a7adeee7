"""Take outputs of an earlier run, and its check results that would be the same, in place of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from fepflow.analysis.comparison import suite_hash
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.json.values import decode, encode
from fepflow.protocol.check import to_check
from fepflow.protocol.results import USAGE
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewOutput, RunRecord, StoredOutput
from fepflow.tasks.batches import BatchWork, CaseOutput, count_of_cases
from fepflow.tasks.call_target import BatchResult
from fepflow.tasks.create_rescore import declared, declared_checks, without_checks
from fepflow.tasks.run_checks import check_hash

if TYPE_CHECKING:
    from fepflow.tasks.context import RunContext


@dataclass(frozen=True, slots=True)
class Taken:
    """The outputs and check results of the earlier run for a batch."""

    outputs: int
    checks: int


class Rescoring:
    """The earlier run of a rescored one, and those of its results that are kept."""

    def __init__(self, source: RunRecord, run: RunRecord) -> None:
        self.source = source
        self.gate_only = bool(run.rescoring.get("gate_only"))
        self._unanswered = frozenset(run.rescoring.get("unanswered", ()))
        self._suites = source.suite, run.suite
        self._shared = declared_checks(source.suite), declared_checks(run.suite)
        self._same_files = _unchanged_plugins(source)

    def answers(self, case_index: int) -> bool:
        """Return whether the earlier run has an output for this case of the new one."""
        return case_index not in self._unanswered

    def unchanged(self, then: TestCase, now: TestCase) -> frozenset[str]:
        """Return the ids of a case's checks whose declaration and case have not changed."""
        if without_checks(then) != without_checks(now):
            return frozenset()
        before, after = (
            {**shared, **declared(suite, [to_check(check) for check in case.checks or ()], list(shared))}
            for suite, shared, case in zip(self._suites, self._shared, (then, now), strict=True)
        )
        return frozenset(check_id for check_id, check in after.items() if before.get(check_id) == check)

    def stands(self, row: Mapping[str, Any], output: CaseOutput, check: CompiledCheck | None) -> bool:
        """Return whether a check would give the same result now, by its type, version and source.

        A result in error is not kept, and is computed again.
        """
        if check is None or check.error is not None or row["status"] == "error":
            return False
        if check.file is not None and check.file not in self._same_files:  # it may call what else is in the file
            return False
        result = decode(row["result"])
        version = (result.get("metadata") or {}).get("check_version", "")
        hashed = check_hash(output.content_hash, output.unit[1], check, result.get("resolved_arguments"), version)
        return version == check.version and bool(hashed == row["content_hash"])


def _unchanged_plugins(source: RunRecord) -> frozenset[str]:
    """Return a run's plugin files if none has changed. The code of installed packages is unknown."""
    folder = Path(source.suite_path).parent if source.suite_path else Path.cwd()
    try:
        if suite_hash(source.suite, source.repeats, folder) != source.suite_hash:
            return frozenset()
    except OSError:
        return frozenset()
    return frozenset(str((folder / name).resolve()) for name in source.suite.get("plugins") or ())


async def take_outputs(context: RunContext, work: BatchWork) -> Taken:
    """Add the missing outputs of the earlier run to the batch, and the results of unchanged checks.

    Results in error are not kept: their checks are computed again.
    """
    rescoring = context.rescoring
    assert rescoring is not None  # it is a rescored run
    units = [unit for unit in work.missing if rescoring.answers(unit[0])]
    if not units:
        return Taken(0, 0)
    cases = {unit[0]: work.case(unit) for unit in units}

    def read() -> tuple[dict[int, tuple[int, TestCase]], dict[tuple[int, int], StoredOutput], list[dict[str, Any]]]:
        store, run_id = context.store, rescoring.source.id
        by_id = store.runs.cases_by_id(run_id, (case.id for case in cases.values()))
        stored_cases = {index: by_id[case.id] for index, case in cases.items() if case.id in by_id}
        indices = [index for index, _ in stored_cases.values()]
        return stored_cases, store.results.outputs_at(run_id, indices), store.results.whole_check_rows(run_id, indices)

    stored_cases, outputs, rows = await asyncio.to_thread(read)
    by_unit: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_unit.setdefault((row["case_index"], row["repeat"]), []).append(row)
    taken: list[dict[str, Any]] = []
    failed_calls = calls = 0
    same: dict[int, frozenset[str]] = {}
    for unit in units:
        index, repeat = unit
        if index not in stored_cases or (stored := outputs.get((stored_cases[index][0], repeat))) is None:
            continue
        then_index, then = stored_cases[index]
        if index not in same and not rescoring.gate_only:
            same[index] = rescoring.unchanged(then, cases[index])
        output = CaseOutput(cases[index], unit, stored.output, stored.content_hash)
        context.writer.add(outputs=[NewOutput(*unit, stored.content_hash, stored.output)])
        work.add_output(output)
        calls += 1
        failed_calls += stored.failed
        checks = {check.check_id: check for check in work.checks_of(unit)}
        for row in by_unit.get((then_index, repeat), ()):
            check_id = row["check_id"]
            # If an output is lost, its checks are errors, even if an earlier run had results.
            is_there = stored.blob is None and check_id in same.get(index, ())
            if rescoring.gate_only or (is_there and rescoring.stands(row, output, checks.get(check_id))):
                taken.append({**row, "case_index": index, "result": _without_usage(row["result"])})
                work.add_result(output.case, unit, row["check_id"], row["passed"], in_error=row["status"] == "error")
    await context.writer.committed()  # a check result without its output would be none
    await asyncio.to_thread(context.store.results.copy_checks, context.run.id, taken)
    outcomes = [row["passed"] for row in taken]
    context.count(calls=calls, failed_calls=failed_calls, checks=len(taken))
    context.count(passed=outcomes.count(True), failed=outcomes.count(False))
    return Taken(calls, len(taken))


def _without_usage(text: str) -> str:
    """Return a result without the cost of its model, which the earlier run has paid."""
    if f'"{USAGE}"' not in text:
        return text
    result = decode(text)
    metadata = {name: value for name, value in (result.get("metadata") or {}).items() if name != USAGE}
    return str(encode({**result, "metadata": metadata}))


@task(name="take-outputs", task_run_name="take {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def take_outputs_task(context: RunContext, work: BatchWork, label: str) -> State[BatchResult]:
    """`take_outputs` as a Prefect task run, named after its cases."""
    asked = len(work.missing)
    taken = await take_outputs(context, work)
    assert context.rescoring is not None
    message = (
        f"{taken.outputs} of {count_of_cases(asked, context.run.repeats)} with the output of run "
        f"{context.rescoring.source.id[:8]}; {taken.checks} check results as they were."
    )
    return Completed(message=message, data=BatchResult())
