"""One evaluation, as Prefect runs it.

    plan ─► batches, topped up while the verdict is open, or shards with their batches ─► decide ─► publish

A suite with variants is one flow run, too: this flow once more for each of them, see `variants`.

The flow run's state follows the exit code of `fepflow run`: Completed for a pass, Failed for a verdict that stops a
release, and for a run that could not be evaluated.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled
from pydantic import Field

from fepflow.asyncio_helpers import task_result, uncancel
from fepflow.flows.batches import run_until_decided
from fepflow.flows.shards import run_shards
from fepflow.flows.variants import run_variants
from fepflow.security.redaction import words_of
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.decide import decide_task
from fepflow.tasks.flow_state import Retried, end_with_verdict, end_without_verdict, run_log
from fepflow.tasks.local_run import run_store
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import PlannedVariants, flow_run_name, plan_task
from fepflow.tasks.progress import progress_shown
from fepflow.tasks.publish import publish_task
from fepflow.verdict.verdict import Verdict


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
        run_id: Go on with this run of the store instead of starting a new one.
    """
    verdict: Verdict | None = None
    retried: Retried | None = None
    try:
        async with run_store() as store:
            planned = await plan_task(store, suite, run_id, RunOptions(limit=limit, repeats=repeats, cache=cache))
            if isinstance(planned, PlannedVariants):
                return await run_variants(store, planned, evaluate)
            retried = planned.retried
            async with open_run(planned.run.id, flow_run.id, store, planned.loaded) as context, progress_shown(context):
                context.retried = retried
                if context.suite.shards > 1:
                    await run_shards(context)
                else:
                    await run_until_decided(context)
                verdict = await task_result(decide_task(context, return_state=True))
                await publish_task(context, verdict)
    except asyncio.CancelledError:
        uncancel()
        if verdict is None:
            return Cancelled(message="What was stored is kept, and `fepflow run --resume` goes on with it.")
    except Exception as error:
        if verdict is None:
            return await end_without_verdict(error)
        run_log().error("the verdict is in the store, but the run did not end well: %s", words_of(error))
    return await end_with_verdict(verdict, retried)
