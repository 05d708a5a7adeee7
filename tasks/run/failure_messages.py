"""What a task run says of the cases of its batch that failed. Such a task run is Failed, and the flow goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.context import RunContext

MAX_NAMES = 5
"""Cases that the state of their batch names."""

Unit = tuple[int, int]


class FailedChecks(NamedTuple):
    """Checks of a batch that failed or ended in error, in words, and whether the gate judges one of them."""

    message: str
    judged: bool


async def failed_checks(context: RunContext, batch: Batch, *, by_model: bool) -> FailedChecks | None:
    """Return which cases of a batch have checks that failed or ended in error: those that call a model, or others.

    By what the store has, so also of results from before. None if all passed.
    """
    store, run = context.store, context.run
    first, last = batch.case_range(run.repeats)
    found = await asyncio.to_thread(store.results.failed_checks, run.id, first, last)
    if not found:
        return None
    cases = await context.cases(batch)
    context.forget(batch)
    units = batch.units(run.repeats)
    outcomes = {(row.case_index, row.repeat, row.check_id): row.in_error for row in found}
    failed: dict[Unit, list[str]] = {}
    errors: dict[Unit, list[str]] = {}
    for case_index, repeat in dict.fromkeys((row.case_index, row.repeat) for row in found):
        if (case_index, repeat) not in units:
            continue
        for check in context.checks_for(cases[case_index - first], by_model=by_model):
            if (in_error := outcomes.get((case_index, repeat, check.check_id))) is not None:
                (errors if in_error else failed).setdefault((case_index, repeat), []).append(check.check_id)

    def named(units: Mapping[Unit, Sequence[str]]) -> str:
        names = {unit: context.name_of(cases[unit[0] - first], unit[1]) for unit in units}
        return listed_cases([f"{names[unit]} ({', '.join(checks)})" for unit, checks in units.items()])

    sentences = []
    of = f"of {count_of_cases(len(units), run.repeats)}"
    if failed:
        sentences.append(f"{len(failed)} {of} failed: {named(failed)}")
    if errors:
        sentences.append(f"{len(errors)} {of} could not be checked: {named(errors)}")
    if not sentences:
        return None
    names = {check_id for found in (failed, errors) for checks in found.values() for check_id in checks}
    judged = context.judged_checks is None or not names.isdisjoint(context.judged_checks)
    about = "" if judged else f" The gate does not judge {listed_cases(sorted(names))}."
    return FailedChecks(f"{'; '.join(sentences)}.{about}", judged)


def count_of_cases(count: int, repeats: int) -> str:
    """So many cases, or outputs where each case has several."""
    noun = "case" if repeats == 1 else "output"
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed_cases(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"
