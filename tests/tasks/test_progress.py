"""How far a run is, in words; that Prefect shows it, and does without it, is the end-to-end tests' affair."""

from __future__ import annotations

from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run
from fepflow.tasks.publish import progress_of, update_pause
from fepflow.tasks.run_checks import run_checks_of_batch
from tests.tasks.conftest import Plan


async def test_progress_is_what_the_store_has(plan: Plan) -> None:
    run_id = plan(["a", "fail 9", "c", {"id": "d", "input": "d", "expected": "x"}])
    async with open_run(run_id) as context:
        assert progress_of(context)[0] == 0
        work = await context.begin(Batch(0, 2))
        await call_target(context, work)
        assert progress_of(context)[0] == 50
        await run_checks_of_batch(context, work)
        work = await context.begin(Batch(2, 4))
        await call_target(context, work)
        assert progress_of(context)[0] == 99, "it is not over yet"
        await run_checks_of_batch(context, work)
        percent, words = progress_of(context, over=True)
    assert percent == 100
    counts = "4 of 4 calls, 1 without an answer; checks: 2 passed, 1 failed, 1 in error."
    assert words == f"{counts} So far: `fepflow show {run_id[:8]}`"


def test_long_and_large_runs_are_updated_less_often() -> None:
    age, updates = 0.0, 0
    while age < 24 * 3600:
        age += update_pause(age, counting=0.01)
        updates += 1
    assert updates < 500, "Prefect keeps an event of each"
    assert update_pause(10, counting=0.01) == 2
    assert update_pause(10, counting=1.0) == 20, "counting takes a twentieth of the time at most"
