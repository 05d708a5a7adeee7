"""Register deployments: `python -m deployments.register` creates the work pool and deploys, as often as one likes.

It takes prefect.yaml of the working directory if there is one, else the one that comes with fepflow. Runs have the
working directory as theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click

from fepflow.errors import FepflowError, InfrastructureError
from fepflow.settings import configured_prefect_api

POOL = "fepflow"
SHIPPED = Path(str(files("deployments") / "prefect.yaml"))


def register(folder: Path) -> Path:
    """Create the pool if it is not there, deploy everything, and return the file. Raises InfrastructureError."""
    own = folder / "prefect.yaml"
    file = own if own.is_file() else SHIPPED
    if _prefect("work-pool", "inspect", POOL).returncode != 0:
        _require(_prefect("work-pool", "create", POOL, "--type", "process"), f"the work pool {POOL} was not created")
    _require(_prefect("deploy", "--all", "--prefect-file", str(file)), f"{file} was not deployed")
    return file


def _prefect(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", *arguments]
    # Wide, so that what goes wrong is not broken over lines.
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603  # our own interpreter


def _require(done: subprocess.CompletedProcess[str], wrong: str) -> None:
    if done.returncode != 0:
        # Without its frames and boxes, and without the traceback that it has for some mistakes.
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line[:1].isalnum()]
        said = [line for line in lines if not line.startswith(("Traceback", "An exception occurred"))]
        raise InfrastructureError("\n".join([f"{wrong}; Prefect says:", *said[-4:]]))


def main() -> int:
    """Register, and say what."""
    try:
        if configured_prefect_api() is None:
            raise InfrastructureError("no Prefect API is named: `fepflow up`, then set PREFECT_API_URL")
        file = register(Path.cwd())
    except FepflowError as error:
        click.echo(str(error), err=True)
        return error.exit_code
    click.echo(f"the deployments of {file} are registered for the work pool {POOL}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
