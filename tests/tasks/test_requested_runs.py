"""When a requested run that never began is dispatched again."""

from __future__ import annotations

from fepflow.tasks.reaping import LONGEST_PAUSE, pause


def test_pauses_grow_up_to_a_minute() -> None:
    seconds = [pause(times).total_seconds() for times in range(1, 1_000)]
    assert seconds[:6] == [2, 4, 8, 16, 32, LONGEST_PAUSE]
    assert max(seconds) == LONGEST_PAUSE
