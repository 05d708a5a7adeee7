"""Show a run's verdict in Prefect: artifacts for people, an event for automations."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from prefect import task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from fepflow.evalguard.pass_rule import passed_of
from fepflow.evalguard.verdict import MetricVerdict, Verdict
from fepflow.store.records import StoredResult
from fepflow.targets.attempts import is_failed
from tasks.log import one_line, run_log
from tasks.runtime import Runtime

MAX_ROWS = 100
MAX_CELL = 300


async def publish(runtime: Runtime, verdict: Verdict) -> None:
    """Create the artifacts and emit `fepflow.verdict.<outcome>`. What Prefect refuses is logged, not raised."""
    run = runtime.run
    rows = await asyncio.to_thread(lambda: list(islice(failed_rows(runtime), MAX_ROWS)))
    try:
        await acreate_markdown_artifact(verdict_markdown(run.name, run.id, verdict), key="verdict")
        if rows:
            description = f"Cases of run {run.id} that did not pass (at most {MAX_ROWS})."
            await acreate_table_artifact(rows, key="failed-cases", description=description)
        emit_event(
            event=f"fepflow.verdict.{verdict.outcome}",
            resource={"prefect.resource.id": f"fepflow.suite.{slug(run.name)}", "prefect.resource.name": run.name},
            payload={"run_id": run.id, "outcome": verdict.outcome, "reasons": verdict.reasons[:10]},
        )
    except Exception as error:
        run_log().warning("the verdict is in the store, but Prefect could not be told: %s", error)


def failed_rows(runtime: Runtime) -> Iterator[dict[str, str]]:
    """One row for each check that did not pass, or for a call without an answer; texts escaped."""
    for result in runtime.store.results(runtime.run.id, failed_only=True):
        yield from _rows_of(result, runtime.run.repeats)


def _rows_of(result: StoredResult, repeats: int) -> Iterator[dict[str, str]]:
    name = result.case.id if repeats == 1 else f"{result.case.id} #{result.repeat + 1}"
    value = "" if result.output is None else result.output.value
    if result.output is not None and is_failed(result.output):
        error = (result.output.metadata or {})["error"]
        yield {"case": cell(name), "check": "all", "output": "none", "why": cell(error["message"])}
        return
    for check in result.checks:
        if check.error is not None or passed_of(check) is False:
            why = check.error.message if check.error else "failed"
            yield {"case": cell(name), "check": cell(check.check_id), "output": cell(value), "why": cell(why)}


def verdict_markdown(name: str, run_id: str, verdict: Verdict) -> str:
    """The verdict as a short page: outcome, gate, reasons, metrics."""
    lines = [f"# {verdict.outcome.capitalize()}: {cell(name)}", "", f"Gate: {cell(verdict.gate)}", ""]
    lines += [f"- {cell(reason)}" for reason in verdict.reasons]
    lines += ["", "| metric | value | interval | n | errors | impact |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_metric_row(metric) for metric in verdict.metrics]
    lines += ["", *[f"> {cell(warning)}" for warning in verdict.warnings]]
    lines += ["", f"Every case: `fepflow show {run_id}`"]
    return "\n".join(lines)


def _metric_row(metric: MetricVerdict) -> str:
    value = "none" if metric.value is None else f"{metric.value:.4g}"
    bounds = ["?" if bound is None else f"{bound:.4g}" for bound in (metric.low, metric.high)]
    count = f"{metric.n_completed} of {metric.n_expected}"
    cells = (cell(metric.id), value, f"{bounds[0]} to {bounds[1]}", count, str(metric.n_error), metric.impact or "")
    return f"| {' | '.join(cells)} |"


def cell(value: Any) -> str:
    """A value as one line of text that markdown and HTML take for text only, cut to a bound."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", html.escape(one_line(str(value), MAX_CELL), quote=False))


def slug(name: str) -> str:
    """A suite's name as a part of a resource id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "suite"


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
async def publish_task(runtime: Runtime, verdict: Verdict) -> None:
    """`publish` as a Prefect task run."""
    await publish(runtime, verdict)
