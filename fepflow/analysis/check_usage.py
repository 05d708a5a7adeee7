"""Usage of models by checks, as the check results of a run have it in their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fepflow.checks.models.defaults import model_check_types
from fepflow.protocol.results import USAGE
from fepflow.store.store import Store
from fepflow.verdict.verdict import ModelCosts


class CheckUsage(NamedTuple):
    """The usage of one check result."""

    case_index: int
    repeat: int
    usage: dict[str, Any]


def usages(store: Store, run_id: str) -> Iterator[CheckUsage]:
    """The usage of all check results of a run, by case index and repeat."""
    for row in store.results.check_rows(run_id, types=model_check_types()):
        usage = ((row.result or {}).get("metadata") or {}).get(USAGE)
        if usage is not None:
            yield CheckUsage(row.case_index, row.repeat, usage)


def costs_of(store: Store, run_id: str) -> ModelCosts:
    """Total model cost of a run."""
    costs = ModelCosts()
    for _, _, usage in usages(store, run_id):
        costs = ModelCosts(
            requests=costs.requests + usage["requests"],
            answers=costs.answers + usage["answers"],
            tokens=costs.tokens + (usage["tokens"] or 0),
            usd=costs.usd + (usage["usd"] or 0.0),
            without_usd=costs.without_usd + usage.get("without_usd", 0),
        )
    return costs
