"""A run does not have the garbage collector look through what was loaded before, and changes nothing for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

TUNED = """
import gc
from fepflow.tasks.run.gc_tuning import tuned_gc
{first}
before, threshold = gc.get_freeze_count(), gc.get_threshold()
for run in ("the first", "the second"):
    with tuned_gc():
        assert gc.get_freeze_count() > 1000, (run, gc.get_freeze_count())
        assert gc.get_threshold() > threshold, run
    assert gc.get_threshold() == threshold, run
    assert (gc.get_freeze_count() > 1000) == (before > 1000), (run, before, gc.get_freeze_count())
"""


@pytest.mark.parametrize("first", ["", "gc.freeze()"])
def test_what_a_program_has_frozen_stays_frozen_after_runs_and_nothing_else(first: str) -> None:
    code = TUNED.format(first=first)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
