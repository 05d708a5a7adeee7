"""Prefect, imported so that the working directory does not configure it.

    python -P -m fepflow.services.prefect_import MODULE ARGUMENTS    runs a module that imports Prefect

Prefect takes its settings at import: the environment, then `.env`, prefect.toml and pyproject.toml of the working
directory, then the active profile. The files may have come with a cloned repository, and could name an API that gets
our runs and keys (`PREFECT_API_URL`), or a file of loggers, which runs code (`PREFECT_LOGGING_CONFIG_PATH`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys

_PATHS = ("PREFECT_HOME", "PREFECT_PROFILES_PATH")
"""Variables that name files which Prefect reads at import. `$PREFECT_HOME/…` and `~/…` do not depend on the folder."""


def import_prefect() -> None:
    """Import Prefect in the root folder, which holds none of these files, unless the process has done so itself.

    Threads of the host process see that folder as theirs for a second, once: Prefect has no other way.
    """
    if "prefect" in sys.modules:
        return
    for name in _PATHS:
        if (path := os.environ.get(name)) and path[0] not in "$~":
            os.environ[name] = os.path.abspath(path)
    with contextlib.chdir(os.path.abspath(os.sep)):
        importlib.import_module("prefect")


if __name__ == "__main__":
    import_prefect()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
