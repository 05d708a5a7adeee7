"""One run from its plan to the state of its flow run: what the flows `evaluate` and `rescore` have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from prefect.runtime import flow_run
from prefect.states import Cancelled

from fepflow.asyncio_helpers import task_result, uncancel
from fepflow.flows.batches import run_until_decided
from fepflow.flows.shards import run_shards
from fepflow.flows.variants import Evaluate, run_variants
from fepflow.security.redaction import words_of
from fepflow.store.store import Store
from fepflow.tasks.decide import decide_task
from fepflow.tasks.flow_state import Retried, end_with_verdict, end_without_verdict, run_log
from fepflow.tasks.local_run import run_store
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import PlannedRun, PlannedVariants
from fepflow.tasks.publish import progress_shown, publish_task
from fepflow.verdict.verdict import Verdict

Plan = Callable[[Store], Awaitable[PlannedRun | PlannedVariants]]


async def run_to_end(plan: Plan, evaluate: Evaluate) -> Any:
    """Execute the run that `plan` returns, give its verdict, and return the state that the flow run is to end in.

    The runs of variants are executed by `evaluate`.
    """
    verdict: Verdict | None = None
    retried: Retried | None = None
    try:
        async with run_store() as store:
            planned = await plan(store)
            if isinstance(planned, PlannedVariants):
                return await run_variants(store, planned, evaluate)
            retried = planned.retried
            async with open_run(planned.run.id, flow_run.id, store, planned.loaded) as context, progress_shown(context):
                context.retried = retried
                if context.suite.shards > 1 and context.rescoring is None:
                    await run_shards(context)
                else:
                    await run_until_decided(context)
                verdict = await task_result(decide_task(context, return_state=True))
                await publish_task(context, verdict)
    except asyncio.CancelledError:
        uncancel()
        if verdict is None:
            return Cancelled(message="Stored results are kept, and `fepflow run --resume` continues the run.")
    except Exception as error:
        if verdict is None:
            return await end_without_verdict(error)
        run_log().error("the verdict is in the store, but the run did not end well: %s", words_of(error))
    return await end_with_verdict(verdict, retried)
