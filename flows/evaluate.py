"""One evaluation, as Prefect runs it.

    plan ─► batches, topped up while the verdict is open, or shards with their batches ─► decide ─► publish

A suite with variants is one flow run, too: this flow once more for each of them, see `variants`.

The flow run's state follows the exit code of `fepflow run`: Completed for a pass, Failed for a verdict that stops a
release, and for a run that could not be evaluated.
"""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from fepflow.flows.one_run import run_to_end
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.plan_run import flow_run_name, plan_task


# No retries, whatever Prefect's settings say: a verdict of fail would be asked for again.
@flow(name="evaluate", flow_run_name=flow_run_name, retries=0, persist_result=False)
async def evaluate(
    suite: str,
    limit: Annotated[float, Field(gt=0)] | None = None,
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None,
    cache: bool | None = None,
    run_id: str | None = None,
) -> Any:
    """Call the suite's target for each test case, check the outputs, and give a verdict.

    Args:
        suite: Path of the suite file, as the machine that runs it sees it; empty for a run of the store that has none.
        limit: Only so many test cases; below 1 a fraction of them. Default: all.
        repeats: How often each case is called and checked. Default: as the suite says.
        cache: Whether answers of models that are kept are used. Default: as the suite says, which is yes.
        run_id: Continue this run of the store instead of starting a new one.
    """
    return await run_to_end(
        lambda store: plan_task(store, suite, run_id, RunOptions(limit=limit, repeats=repeats, cache=cache)), evaluate
    )
