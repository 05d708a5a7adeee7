"""Retention by schedule: old runs leave the store, then their flow runs leave Prefect.

prune the store ─► prune Prefect
"""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from prefect.states import Completed
from pydantic import Field

from fepflow.settings import settings
from fepflow.tasks.clean_up import prune_prefect_task, prune_store_task
from fepflow.tasks.flow_state import failed_state
from fepflow.tasks.local_run import run_store
from fepflow.text import seconds


@flow(name="maintenance", persist_result=False)
async def maintenance(keep: str = "90d", keep_last: Annotated[int, Field(ge=0)] = 50, archive: bool = False) -> Any:
    """Delete runs that are older than `keep` and not among the newest `keep_last` of their suite.

    Baselines and runs with labels are kept. Prefect's flow runs are deleted by their age alone.

    Args:
        keep: Keep runs that are younger than this, for example 90d.
        keep_last: Keep this many of the newest runs of each suite.
        archive: First write each run to a Parquet file in the folder `archive` of FEPFLOW_HOME.
    """
    try:
        age = float(seconds(keep))
        folder = settings().home / "archive" if archive else None
        async with run_store() as store:
            pruned, executed_by = await prune_store_task(store, age, keep_last, folder)
        flow_runs = await prune_prefect_task(age, executed_by)
    except Exception as error:
        return failed_state(error)
    return Completed(message=f"{pruned}, and {flow_runs:,} flow runs of Prefect.")
