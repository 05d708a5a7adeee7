"""Hostile files, up to what `fepflow validate` says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError, Problem
from fepflow.store.store import Store
from tests.watch import watched

from .files import HostileFile, all_files
from .sample import sampled

LARGE = (
    "1 GB of newlines in gzip",
    "20 million empty objects in gzip",
    "a line of 50 MB",
    "a schema with 10,000 members",
    "a schema with 10,000 alternatives",
)
"""What takes many seconds to make or to read: no matter for the ordinary tests."""

FILES = sampled((file for file in all_files() if file.name not in LARGE), 10) + [
    pytest.param(file, id=file.name, marks=pytest.mark.battery) for file in all_files() if file.name in LARGE
]


def problems_of(path: Path) -> list[Problem]:
    """What a person is told: the first hundred mistakes, or all warnings."""
    try:
        found = validate_suite(path)
        found.require()
        return found.warnings
    except InputError as error:
        return list(error.problems)


@pytest.mark.may_stall(reason="it is measured inside")
@pytest.mark.parametrize("file", FILES)
async def test_a_hostile_file_is_refused_in_bounded_time_and_memory(
    file: HostileFile, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    file.made(folder)
    async with watched(memory=True) as taken:
        problems = await asyncio.to_thread(problems_of, folder / "suite.yaml")
    said = [str(problem) for problem in problems]
    assert all(len(text) < 2_500 for text in said), max(said, key=len)[:500]
    assert all(char.isprintable() for text in said for char in text), said[:3]
    assert sum(map(len, said)) < 1_000_000
    if file.says:
        assert problems, "nothing was wrong with it"
        assert file.says in " ".join(said[:3])
    assert taken.computed < file.seconds, taken
    assert taken.megabytes < file.megabytes, taken
