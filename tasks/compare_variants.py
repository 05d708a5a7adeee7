"""The end of a parent flow run: its variants beside each other, as an artifact."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.artifacts import acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from fepflow.analysis.variants import VariantTable, as_markdown, variant_table
from fepflow.store.store import Store
from fepflow.tasks.flow_state import run_log, variants_state
from fepflow.text import plain_markdown, slug


async def compare_variants(store: Store, variants_id: str) -> VariantTable:
    """Compare the runs with the first one, and show the table in Prefect. What Prefect refuses is logged."""
    table = await asyncio.to_thread(variant_table, store, variants_id)
    for sentence in table.sentences:
        run_log().info("%s", sentence)
    try:
        summary = plain_markdown(table.summary)
        await acreate_markdown_artifact(as_markdown(table), key=f"variants-{slug(table.suite)}", description=summary)
    except Exception as error:
        run_log().warning("the variants were compared, but this could not be shown in Prefect: %s", error)
    return table


@task(name="compare-variants", task_run_name="compare variants", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def compare_variants_task(store: Store, variants_id: str) -> State[VariantTable]:
    """`compare_variants` as a Prefect task run, whose state is that of all variants."""
    table = await compare_variants(store, variants_id)
    return variants_state(table, data=table)
