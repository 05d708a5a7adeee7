"""Show a run's verdict in Prefect: artifacts for people, events for automations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from prefect import task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE

from fepflow.evalguard.pass_rule import passed_of
from fepflow.evalguard.verdict import Comparison, MetricVerdict, Verdict
from fepflow.protocol.results import CheckResult
from fepflow.store.records import RunRecord, StoredResult
from fepflow.suite import PREVIOUS
from fepflow.targets.attempts import is_failed
from tasks.baseline import compare, find_baseline
from tasks.doubt import Doubt, doubts_of
from tasks.events import emit_verdict, slug
from tasks.log import run_log
from tasks.markdown import literal, prose
from tasks.runtime import Runtime

MAX_ROWS = 100

Row = dict[str, str]


async def publish(runtime: Runtime, verdict: Verdict) -> None:
    """Create the artifacts and emit the events. What Prefect refuses is logged, not raised.

    A suite without a baseline is compared with the run before all the same, for the event that it has worsened.
    """
    run, part = runtime.run, slug(runtime.run.name)
    compared, (rows, about), doubts = await asyncio.to_thread(
        lambda: (_compared(runtime, verdict), failed_table(runtime), doubts_of(runtime.store, run))
    )
    try:
        page, summary = verdict_markdown(run, verdict, doubts), f"{verdict.outcome.capitalize()}: run `{run.id[:8]}`"
        await acreate_markdown_artifact(page, key=f"verdict-{part}", description=summary)
        if rows:
            await acreate_table_artifact(rows, key=f"failed-cases-{part}", description=about)
        emit_verdict(run, verdict, compared)
    except Exception as error:
        run_log().warning("the verdict is in the store, but Prefect could not be told: %s", error)


def _compared(runtime: Runtime, verdict: Verdict) -> Comparison | None:
    if runtime.suite.baseline is not None:
        return verdict.baseline
    before = find_baseline(runtime.store, runtime.run, PREVIOUS)
    return compare(verdict, before) if before else None


def failed_table(runtime: Runtime) -> tuple[list[Row], str]:
    """The first rows of what did not pass, one a check or a call without an answer, and how much is left out."""
    run = runtime.run
    rows: list[Row] = []
    shown: set[int] = set()
    for position, row in islice(_failed_rows(runtime), MAX_ROWS):
        shown.add(position)
        rows.append(row)
    cases = runtime.store.failed_cases(run.id)
    left_out = f"{len(shown)} of them are here, {cases - len(shown)} are left out" if cases > len(shown) else "all here"
    about = f"{cases} of {run.n_cases} cases did not pass ({left_out}). In full: `fepflow show {run.id[:8]} --failed`"
    return rows, about


def _failed_rows(runtime: Runtime) -> Iterator[tuple[int, Row]]:
    for result in runtime.store.results(runtime.run.id, failed_only=True):
        for row in _rows_of(result, runtime.run.repeats):
            yield result.position, row


def _rows_of(result: StoredResult, repeats: int) -> Iterator[Row]:
    name = result.case.id if repeats == 1 else f"{result.case.id} #{result.repeat + 1}"
    metadata = (result.output.metadata if result.output else None) or {}
    attempts = str(metadata.get("attempts", ""))
    if result.output is not None and is_failed(result.output):
        why = metadata["error"]["message"]
        yield _row(name, "no check: the call failed", why, attempts, "")
        return
    value = result.output.value if result.output else ""
    for check in result.checks:
        if check.error is not None:
            yield _row(name, check.check_id, check.error.message, attempts, value)
        elif passed_of(check) is False:
            yield _row(name, check.check_id, _grounds(check, value), attempts, value)


def _row(case: str, check: str, why: str, attempts: str, output: Any) -> Row:
    return {
        "case": literal(case),
        "check": literal(check),
        "attempts": attempts,
        "why": literal(why),
        "output": literal(output),
    }


def _grounds(check: CheckResult, output: Any) -> str:
    """What a check's failure rests on, without switches and the output itself, which has a column of its own."""
    told = [
        f"{name}: {value}"
        for name, value in check.grounds.items()
        if not isinstance(value, bool) and value is not None and value != output
    ]
    return ", ".join(told) or "failed"


def verdict_markdown(run: RunRecord, verdict: Verdict, doubts: Sequence[Doubt] = ()) -> str:
    """The verdict as a short page: outcome, gate, reasons, metrics beside the baseline's if there is one, judges."""
    baseline = verdict.baseline
    lines = [f"# {verdict.outcome.capitalize()}: {prose(run.name)}", ""]
    if baseline is not None:
        lines += [f"Baseline: {baseline.outcome} in run `{baseline.run_id[:8]}`{_worse(baseline)}", ""]
    lines += [f"Gate: {prose(verdict.gate)}", ""]
    lines += [f"- {prose(reason)}" for reason in verdict.reasons]
    lines += ["", *_metric_table(verdict), ""]
    lines += [*(f"- {prose(doubt.sentence())}" for doubt in doubts), ""] if doubts else []
    lines += [f"> {prose(warning)}\n" for warning in verdict.warnings]
    lines += [f"Models: {verdict.models}\n"] if verdict.models else []
    lines += [f"What did not pass, case by case: `fepflow show {run.id[:8]} --failed`"]
    return "\n".join(lines)


def _worse(baseline: Comparison) -> str:
    return ": **the outcome has worsened**" if baseline.worsened else ""


def _metric_table(verdict: Verdict) -> Iterator[str]:
    changes = {change.id: change for change in verdict.baseline.metrics} if verdict.baseline else {}
    columns = ["metric", "value", "interval", "n", "errors", "impact", *(["baseline", "change"] if changes else [])]
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    for metric in verdict.metrics:
        cells = _metric_cells(metric)
        if changes:
            change = changes[metric.id]
            cells += [_number(change.baseline), _number(change.difference, sign="+")]
        yield f"| {' | '.join(cells)} |"


def _metric_cells(metric: MetricVerdict) -> list[str]:
    interval = f"{_number(metric.low)} to {_number(metric.high)}"
    count = f"{metric.n_completed} of {metric.n_expected}"
    return [f"`{metric.id}`", _number(metric.value), interval, count, str(metric.n_error), metric.impact or ""]


def _number(value: float | None, sign: str = "") -> str:
    return "none" if value is None else f"{value:{sign}.4g}"


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
async def publish_task(runtime: Runtime, verdict: Verdict) -> None:
    """`publish` as a Prefect task run."""
    await publish(runtime, verdict)
