"""In which order, and which of them together, processes that share the tests run them."""

from __future__ import annotations

from itertools import groupby

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

LONG = ("tests/hostile/test_requests.py", "tests/fepflow/pages/test_in_browser.py", "tests/fepflow/pages/test_pages.py")
"""Files without whole runs that take over a minute, most of it of waiting: the last of all would be waited for."""


def unit_of(nodeid: str) -> str:
    """What one process runs of the tests: a file of them, or those of a folder that share a `fepflow serve`."""
    file = nodeid.partition("::")[0]
    return "tests/e2e/serve" if file.startswith("tests/e2e/serve/") else file


class ByUnit(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, for units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Units of whole runs, which keep the processors busy, among others, which wait more; none of them comes late."""
    files = [list(file) for _, file in groupby(items, key=lambda item: unit_of(item.nodeid))]
    runs = [file for file in files if "e2e" in file[0].path.parts]
    others = [file for file in files if "e2e" not in file[0].path.parts]
    others.sort(key=lambda file: not file[0].nodeid.startswith(LONG))
    between = len(others) * 3 // 4 // max(len(runs), 1)
    groups = [[run, *others[index * between : (index + 1) * between]] for index, run in enumerate(runs)]
    return [item for group in [*groups, others[len(runs) * between :]] for file in group for item in file]
