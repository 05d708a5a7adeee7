"""`fepflow view`: result pages in the browser."""

from __future__ import annotations

import os
import sys

import click

from fepflow.cli.env_file import note_untaken_variables


@click.command()
@click.argument("run", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on (default: any that is free).")
@click.option("--no-browser", is_flag=True, help="Open no browser, only say where the pages are.")
def view(run: str | None, port: int, no_browser: bool) -> None:
    """Show runs in the browser until Ctrl-C: on this machine only.

    RUN is an id, its beginning, or latest: the page to open. `fepflow serve` has the same pages for a team.
    """
    from fepflow.page_links import run_path

    path = run_path(run) if run else "/runs"
    options = ["--path", path, "--port", str(port), *(["--no-browser"] if no_browser else [])]
    note_untaken_variables()
    # -P: no module in the working directory is imported. In place of this process: signals are its.
    command = [sys.executable, "-P", "-m", "fepflow.deployments.view", *options]
    os.execv(sys.executable, command)  # noqa: S606  # no shell is wanted
