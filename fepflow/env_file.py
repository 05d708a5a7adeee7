"""Variables of the environment, and those of a `.env` that a suite refers to.

A `.env` in the working directory may have come with a cloned repository. So it is never added to the environment, which
Python, every library and every child process read (`PYTHONPATH`, `LD_PRELOAD`, `OPENAI_BASE_URL`): its variables are
looked up one by one, by those who are allowed to. A file that is named with `--env-file` is the user's own word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path

from fepflow.errors import InfrastructureError
from fepflow.security.redaction import remember, secrets_among

ENV_FILE = ".env"
MAX_ENV_BYTES = 100_000

NAMED_FILE = "FEPFLOW_ENV_FILE"
"""Tells children that a file was named: its variables are in their environment already, and no `.env` is read."""

_LOADS_CODE = re.compile(r"LD_(PRELOAD|AUDIT|LIBRARY_PATH)|DYLD_\w+|PYTHON[A-Z]+|BASH_ENV|NODE_OPTIONS", re.IGNORECASE)
"""Variables by which programs load other code. Our advice to name a file must not be how somebody runs theirs."""


@dataclass(frozen=True)
class EnvFile:
    """The variables of a file, and the names of those that were looked up."""

    path: Path
    is_named: bool
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    taken: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        """Return a variable, and note that it was taken."""
        if name in self.variables:
            self.taken.add(name)
        return self.variables.get(name)

    def not_taken(self) -> list[str]:
        """Return the names of the variables that nobody uses as the file has them."""
        return [
            name
            for name, value in self.variables.items()
            if name not in self.taken and os.environ.get(name) != value
            if not self.is_named or _LOADS_CODE.fullmatch(name)  # the others were added to the environment
        ]


BLOCK = "prefect:"
"""Begins a reference to a block of Prefect: `prefect:secret/NAME`, `prefect:variable/NAME`."""

BlockReader = Callable[[str, str], str | None]
"""Returns the value of a block by its kind, `secret` or `variable`, and its name; None if there is none.

Raises InfrastructureError where Prefect cannot be asked.
"""


def _no_reader(kind: str, name: str) -> str | None:
    raise InfrastructureError("no Prefect API is configured here")


class SuiteVariables(Mapping[str, str]):
    """Variables that suites refer to: the environment's, then those of the file; and blocks of Prefect.

    A block is read once a process, when a suite refers to it, by what this process reads blocks with.
    """

    def __init__(self) -> None:
        self._read_block: BlockReader = _no_reader
        self._blocks: dict[str, str | None] = {}

    def read_blocks_with(self, reader: BlockReader) -> None:
        """Read blocks with this from now on, also those that were read already."""
        self._read_block = reader
        self._blocks.clear()

    def _block(self, name: str) -> str:
        if name not in self._blocks:
            kind, _, block = name.removeprefix(BLOCK).partition("/")
            value = self._read_block(kind, block)
            if kind == "secret" and value is not None:
                remember([value])
            self._blocks[name] = value
        if (known := self._blocks[name]) is None:
            raise KeyError(name)
        return known

    def __getitem__(self, name: str) -> str:
        if name.startswith(BLOCK):
            return self._block(name)
        value = current_file().get(name)
        if (value := os.environ.get(name, value)) is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter({**current_file().variables, **os.environ})

    def __len__(self) -> int:
        return len({*current_file().variables, *os.environ})


SUITE_VARIABLES = SuiteVariables()


@cache
def current_file() -> EnvFile:
    """Return the `.env` of the working directory, or the file that was named; without variables where there is none.

    Raises InputError for a file that cannot be read. A folder named `.env` is a virtual environment, and no such file.
    """
    named = os.environ.get(NAMED_FILE)
    path = Path(named or ENV_FILE)
    variables = read_env_file(path) if path.is_file() else {}
    remember(secrets_among(variables))
    return EnvFile(path, bool(named), variables)


def use_folder_file() -> None:
    """Read the `.env` of the working directory from now on."""
    os.environ.pop(NAMED_FILE, None)
    current_file.cache_clear()


def use_named_file(path: Path) -> None:
    """Add a file's variables to the environment, but for those that load code. What is set already stays."""
    for name, value in read_env_file(path).items():
        if not _LOADS_CODE.fullmatch(name):
            os.environ.setdefault(name, value)
    os.environ[NAMED_FILE] = str(path.absolute())
    current_file.cache_clear()


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables that an environment can hold. Raises InputError for a file that cannot be read."""
    from dotenv import dotenv_values  # most folders have none

    from fepflow.documents.files import read_text

    values = dotenv_values(stream=StringIO(read_text(path, str(path), MAX_ENV_BYTES)))
    return {name: value for name, value in values.items() if value is not None and "\0" not in value}
