"""The Python of an agent that has an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from fepflow.calls.python.worker import OLDEST
from fepflow.errors import InputError, Problem

SETTING = "target.python.interpreter"
_SECONDS = 30
_VERSION = "import sys; print('%d %d %d' % sys.version_info[:3])"  # Python 2 says what it is, too


def find_interpreter(name: str, folder: Path) -> str:
    """Return the path of a Python that is new enough: one from the suite's folder, or in PATH if it is a name only.

    Links are not followed: a virtual environment is known by the link to its interpreter. Raises InputError.
    """
    if os.sep not in name and "/" not in name:
        found = shutil.which(name)
        if found is None:
            raise _problem(f"{name} is not found in PATH", f"install it, or give its path, such as ./.venv/bin/{name}")
        path = os.path.abspath(found)
    else:
        path = os.path.abspath(folder / Path(name).expanduser())
    if not os.path.exists(path):
        advice = "the path starts at the suite's folder; `python -m venv FOLDER` makes an environment"
        raise _problem(f"there is no interpreter {name}", advice)
    if os.path.isdir(path):
        raise _problem(f"{name} is a folder", "name the interpreter in it: bin/python")
    version = _version(path, os.stat(path).st_mtime_ns)
    if version is None:
        raise _problem(f"{name} is no Python interpreter", "name the python of the agent's environment")
    if version < OLDEST:
        needed = ".".join(map(str, OLDEST))
        message = f"{name} is Python {'.'.join(map(str, version))}, and the agent's process needs {needed} or newer"
        raise _problem(message, f"make its environment with Python {needed} or newer")
    return path


@cache
def _version(path: str, changed: int) -> tuple[int, ...] | None:
    """Return the version that a program prints; None if it is no Python."""
    try:
        done = subprocess.run(  # noqa: S603  # the suite's own interpreter
            [path, "-c", _VERSION], capture_output=True, timeout=_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
        version = tuple(map(int, done.stdout.split()))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return version if len(version) == 3 else None


def _problem(message: str, advice: str) -> InputError:
    return InputError(Problem(message, path=SETTING, advice=advice))
