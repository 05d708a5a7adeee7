"""In which order, and which of them together, processes that share the tests run them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

LONG = (
    "tests/e2e/test_compose.py",
    "tests/hostile/test_requests.py",
    "tests/fepflow/pages/test_in_browser.py",
    "tests/fepflow/pages/test_pages.py",
)
"""Files that take over a minute, most of it of waiting: the last of all would be waited for."""
OF_STACK = (
    "tests/e2e/",
    "tests/deployments/test_server.py",
    "tests/docs/test_walkthroughs.py",
    "tests/fundamentals/test_3_a_suite.py",
)
"""Beginnings of the names of files whose tests use the `stack` fixture."""
STACKS = 2
"""Number of processes that run these: each has a stack, which costs 25 s of computing before it runs anything."""


def unit_of(nodeid: str) -> str:
    """What one process runs of the tests: a file of them, or those of a folder that share a `fepflow serve`."""
    file = nodeid.partition("::")[0]
    return "tests/e2e/serve" if file.startswith("tests/e2e/serve/") else file


def uses_stack(unit: str) -> bool:
    """Return whether tests of a unit use a stack."""
    return f"{unit}/".startswith(OF_STACK) and unit not in LONG


class ByUnit(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, for units; the first processes take those that use a stack before any others."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _unit_for(self, node: Any) -> str | None:
        """Return the next unit of a process; None if only others may run what is left."""
        has_stack = node in self.nodes[:STACKS]
        fitting = next((unit for unit in self.workqueue if uses_stack(unit) == has_stack), None)
        return fitting or (next(iter(self.workqueue), None) if has_stack else None)

    def _assign_work_unit(self, node: Any) -> None:
        if unit := self._unit_for(node):
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if self._unit_for(node) is not None:
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put the units that take longest first."""
    files = [list(file) for _, file in groupby(items, key=lambda item: unit_of(item.nodeid))]
    files.sort(key=lambda file: not file[0].nodeid.startswith(LONG))
    return [item for file in files for item in file]
