"""An earlier run judged anew: its outputs, and the suite's checks, metrics and gate as they are now.

    plan ─► batches: take the outputs, and run the checks that have no result of them ─► decide ─► publish

The agent is asked nothing, and the run is a new one with a verdict of its own.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from fepflow.flows.evaluate import evaluate
from fepflow.flows.one_run import run_to_end
from fepflow.tasks.plan_rescore import plan_rescore_task
from fepflow.tasks.plan_run import rescored_run_name


@flow(name="rescore", flow_run_name=rescored_run_name, retries=0, persist_result=False)
async def rescore(run: str, suite: str = "", gate: bool = False, run_id: str | None = None) -> Any:
    """Judge the outputs of an earlier run by the suite as it is now, without asking the agent.

    Args:
        run: The run whose outputs are judged: its id, or the beginning of it.
        suite: Path of the suite file, as the machine that runs it sees it. Default: the one that the run was made by.
        gate: Take the results of its checks as they are, and decide by the suite's metrics and gate only.
        run_id: Continue this run of the store instead of starting a new one.
    """
    return await run_to_end(lambda store: plan_rescore_task(store, run, suite, run_id, gate_only=gate), evaluate)
