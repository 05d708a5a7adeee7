"""How checks and cases came out, in one word each: absence is never a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fepflow.protocol.results import CheckResult
from fepflow.protocol.status import StatusText
from fepflow.store.case_grid import GridRow
from fepflow.store.check_order import declared_check_ids

State = Literal["passed", "failed", "error", "skipped", "no verdict", "absent"]


def state(status: StatusText, passed: bool | None) -> State:
    """That of one result."""
    if status == "error":
        return "error"
    if status == "skip":
        return "skipped"
    return "no verdict" if passed is None else "passed" if passed else "failed"


def state_of_check(check: CheckResult) -> State:
    """That of a check's result."""
    return state(check.status, check.passed)


def mark_of(row: GridRow, repeat: int, check_id: str) -> State:
    """That of one check of one output in a grid; `absent` where there is no result, or the case has no such check."""
    mark = row.marks.get((repeat, check_id))
    return "absent" if mark is None else state(mark.status, mark.passed)


def states_of(row: GridRow, repeats: int, check_id: str) -> list[State]:
    """Those of one check of all outputs of a case."""
    return [mark_of(row, repeat, check_id) for repeat in range(repeats)]


def state_of(row: GridRow, repeats: int, shared: Sequence[str]) -> State:
    """That of a case: the worst of its results; `absent` where an output, or one of the checks that it was to have, is.

    `shared` are the ids of the checks that all cases share.
    """
    expected = declared_check_ids(row.case, shared)
    found = {mark_of(row, repeat, check_id) for repeat in range(repeats) for check_id in expected}
    found |= {state(mark.status, mark.passed) for mark in row.marks.values()}
    if any(output.failed for output in row.outputs.values()):
        found.add("error")
    if len(row.outputs) < repeats:
        found.add("absent")
    order: tuple[State, ...] = ("failed", "error", "absent", "skipped", "no verdict", "passed")
    return next((each for each in order if each in found), "no verdict")
