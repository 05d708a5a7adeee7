"""The option `--github` of `fepflow run`."""

from __future__ import annotations

import os
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from fepflow.cli.options import SUITE_FILE, Command


def github_option(command: Command) -> Command:
    """Give a command `--github`, as its argument `github`: the report to be made, or None."""

    @click.option(
        "--github",
        is_flag=True,
        help="In GitHub Actions: write summary, outputs and annotations, and keep one comment on the pull request.",
    )
    @wraps(command)
    def with_github(*, github: bool, suite: Path | None, resume: str | None, **options: Any) -> Any:
        if not github:
            return command(suite=suite, resume=resume, github=None, **options)
        from fepflow.services.github import GitHubReport

        say = partial(click.echo, err="FEPFLOW_LOG" not in os.environ)  # a log of JSON takes stderr
        report = GitHubReport(None if resume else suite or SUITE_FILE, say)
        with report.watching():
            return command(suite=suite, resume=resume, github=report, **options)

    return with_github  # type: ignore[return-value]  # click calls it as it would have called the command
