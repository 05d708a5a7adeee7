"""The flow `evaluate`: one evaluation as a Prefect flow run.

    plan ─► batches, topped up while the verdict is open, or shards with their batches ─► decide ─► publish

A suite with variants is also one flow run, with a subflow of this flow for each variant; see `variants`.

The flow run's state follows the exit code of `fepflow run`: Completed for a pass, Failed for a verdict that stops a
release, and for a run that could not be evaluated.
"""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from fepflow.flows.one_run import run_to_end
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.flow_state import RESULTS
from fepflow.tasks.plan_run import flow_run_name, plan_task


# No retries, whatever Prefect's settings say: a verdict of fail would be asked for again.
@flow(name="evaluate", flow_run_name=flow_run_name, retries=0, persist_result=False, result_storage=RESULTS)
async def evaluate(
    suite: str,
    limit: Annotated[float, Field(gt=0)] | None = None,
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None,
    cache: bool | None = None,
    run_id: str | None = None,
) -> Any:
    """Call the suite's target for each test case, check the outputs, and give a verdict.

    Args:
        suite: Path of the suite file on the machine that executes the run; empty for a stored run without a file.
        limit: Number of test cases, drawn at random, or a fraction below 1. Default: all.
        repeats: Number of calls and checks of each case. Default: the suite's.
        cache: Whether stored answers of models are reused. Default: the suite's setting, which is true by default.
        run_id: Id of a stored run to continue, instead of starting a new one.
    """
    return await run_to_end(
        lambda store: plan_task(store, suite, run_id, RunOptions(limit=limit, repeats=repeats, cache=cache)), evaluate
    )
