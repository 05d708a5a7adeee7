"""Functions of single operating systems, and the other way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fepflow.host import can_fork, locked, pid_namespace

LOCKS = """
import os, sys
from fepflow.host import locked
descriptor = os.open(sys.argv[1], os.O_RDWR)
print("begun", flush=True)
with locked(descriptor):
    print("locked", flush=True)
"""


def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    command = [sys.executable, "-c", LOCKS, str(tmp_path / "file")]
    with locked(descriptor):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert process.poll() is None
    assert process.communicate(timeout=180)[0] == "locked\n"
    os.close(descriptor)


def test_this_system_can_fork_and_has_one_namespace() -> None:
    assert can_fork() == hasattr(os, "fork")
    assert pid_namespace() == pid_namespace()


def test_two_machines_of_one_name_are_told_apart_by_their_boot() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id")
    if boot.exists():
        assert pid_namespace().startswith(boot.read_text()[:8])
