"""What the models that checks ask have cost, as the check results of a run have it in their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from checks.models.defaults import types_that_ask
from fepflow.store.store import Store
from fepflow.verdict.verdict import ModelCosts

BILL = "spent"
"""The member of a check result's metadata that holds what this run has paid for it; see `RequestContext.usage`."""


class CheckUsage(NamedTuple):
    """What one check result has cost."""

    case_index: int
    repeat: int
    bill: dict[str, Any]


def bills(store: Store, run_id: str) -> Iterator[CheckUsage]:
    """All that a run has paid models for, by case index and repeat."""
    for row in store.check_rows(run_id, types=types_that_ask()):
        bill = ((row.result or {}).get("metadata") or {}).get(BILL)
        if bill is not None:
            yield CheckUsage(row.case_index, row.repeat, bill)


def costs_of(store: Store, run_id: str) -> ModelCosts:
    """All of it together."""
    costs = ModelCosts()
    for _, _, bill in bills(store, run_id):
        costs = ModelCosts(
            requests=costs.requests + bill["requests"],
            answers=costs.answers + bill["answers"],
            tokens=costs.tokens + (bill["tokens"] or 0),
            usd=costs.usd + (bill["usd"] or 0.0),
            without_usd=costs.without_usd + bill.get("without_usd", 0),
        )
    return costs
