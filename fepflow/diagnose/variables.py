"""Variables that a suite needs and that are not set: where they may be found."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fepflow.env_file import ENV_FILE, current_file, read_env_file
from fepflow.errors import InputError, Problem

_NOT_SET = re.compile(r"(?:\$\{|needs )?\b([A-Za-z_]\w*+)(\}| and \w++,|,)?(?: is)? not set in the environment")
_ADVICE = re.compile(r" \(export [^()]*\)$")


def with_env_files(problems: Sequence[Problem], folder: Path) -> list[Problem]:
    """Return the problems; the advice about a variable names the `.env` that has it."""
    files: dict[Path, dict[str, str]] = {}
    return [_with_env_file(problem, folder, files) for problem in problems]


def _with_env_file(problem: Problem, folder: Path, files: dict[Path, dict[str, str]]) -> Problem:
    missing = _NOT_SET.search(problem.message)
    if missing is None:
        return problem
    name, used = missing[1], current_file()
    for path in (used.path.absolute(), folder / ENV_FILE, Path.cwd() / ENV_FILE):
        if path not in files:
            files[path] = _variables(path)
        if name not in files[path]:
            continue
        shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
        if path == used.path.absolute():
            advice = f"it is in {shown}, which only fills in ${{NAME}} of the suite: write provider_config: "
            advice += f"{{api_key: ${{{name}}}}}, use --env-file {shown}, or export {name}"
        else:
            only = "the file that --env-file names" if used.is_named else "the one of the working directory"
            advice = f"it is in {shown}, which is not read, only {only} is: use --env-file {shown}, or export {name}"
        return replace(problem, message=_ADVICE.sub("", problem.message), advice=advice)
    return problem


def _variables(path: Path) -> dict[str, str]:
    with suppress(InputError):  # nobody has asked for it
        return read_env_file(path) if path.is_file() else {}
    return {}
