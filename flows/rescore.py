"""The flow `rescore`: judges the outputs of an earlier run by the suite's present checks, metrics and gate.

    plan ─► batches: take the outputs, and run the checks that have no result of them ─► decide ─► publish

The agent is not called. The result is a new run with its own verdict.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from fepflow.flows.evaluate import evaluate
from fepflow.flows.one_run import run_to_end
from fepflow.tasks.flow_state import RESULTS
from fepflow.tasks.plan_run import plan_rescore_task, rescored_run_name


@flow(name="rescore", flow_run_name=rescored_run_name, retries=0, persist_result=False, result_storage=RESULTS)
async def rescore(run: str, suite: str = "", gate: bool = False, run_id: str | None = None) -> Any:
    """Judge the outputs of an earlier run by the present suite, without calling the agent.

    Args:
        run: Id, or beginning of the id, of the run whose outputs are judged.
        suite: Path of the suite file on the machine that executes the run. Default: the run's own file.
        gate: Keep all check results, and compute only the suite's metrics and gate.
        run_id: Id of a stored run to continue, instead of starting a new one.
    """
    return await run_to_end(lambda store: plan_rescore_task(store, run, suite, run_id, gate_only=gate), evaluate)
