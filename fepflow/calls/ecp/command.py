"""The program of an agent: where it is, where it is started, and which variables of the environment it gets."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fepflow.env_file import SUITE_VARIABLES
from fepflow.errors import InputError, Problem
from fepflow.suite import target

SECTION = "target.ecp"

ALWAYS_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)  # fmt: skip
"""Variables that every agent gets; the suite names the others."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is started: arguments, the first one the program's path, in a folder, with an environment."""

    arguments: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(repr=False)


def find_command(config: target.EcpTarget, folder: Path) -> Command:
    """The command of a suite in `folder`, nothing of which is started. Raises InputError if it cannot be."""
    assert config.command is not None  # whoever calls this has seen it
    env = {name: os.environ[name] for name in ALWAYS_PASSED if name in os.environ}
    env |= {name: SUITE_VARIABLES[name] for name in config.env if name in SUITE_VARIABLES}
    env.setdefault(
        "PYTHONIOENCODING", "utf-8"
    )  # the protocol is in UTF-8, whatever the locale; other languages know only that
    where = (folder / config.cwd).resolve()
    if not where.is_dir():
        raise InputError(Problem(f"{config.cwd} is no folder", path=f"{SECTION}.cwd"))
    program, *arguments = config.command
    return Command([_program(program, where, folder.resolve(), env), *arguments], where, env)


def _program(name: str, where: Path, folder: Path, env: Mapping[str, str]) -> str:
    if os.sep not in name:
        found = shutil.which(name, path=env.get("PATH"))
        if found is None and (assignment := re.match(r"([A-Za-z_]\w*)=", name)):
            advice = "in a manifest, shell: true has a shell run it; a suite names /bin/sh, -c and the command"
            raise _problem(f"{assignment[1]}=… in front of a program is for a shell, and none runs it", advice)
        if found is None:
            advice = f"install it, or give its path: ./{name}" if (where / name).exists() else "install it"
            raise _problem(f"the program {name} is not found in PATH", advice)
        return os.path.abspath(found)  # not resolved: a virtual environment is known by the link to its interpreter
    places = [place / Path(name).expanduser() for place in (where, folder)]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise _problem(f"the program {name} does not exist", "a path is one from target.ecp.cwd, or the suite's folder")
    if path.is_dir():
        raise _problem(f"{name} is a folder, and no program", "name the program, then its arguments")
    if not os.access(path, os.X_OK):
        advice = f"make it so (chmod +x {name}), or name its interpreter first, such as python {name}"
        raise _problem(f"the program {name} is not executable", advice)
    return os.path.abspath(path)


def _problem(message: str, advice: str) -> InputError:
    return InputError(Problem(message, path=f"{SECTION}.command", advice=advice))
