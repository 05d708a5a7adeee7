"""The option `--github` of `fepflow run`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

        with _stderr_of_now() as say:
            report = GitHubReport(None if resume else suite or SUITE_FILE, say)
            with report.watching():
                return command(suite=suite, resume=resume, github=report, **options)

    return with_github  # type: ignore[return-value]  # click calls it as it would have called the command


@contextmanager
def _stderr_of_now() -> Iterator[Callable[[str], None]]:
    """Give a function that prints lines to what is stderr now. Later a log of JSON may have taken it, and stdout."""
    try:
        descriptor = os.dup(sys.stderr.fileno())
    except io.UnsupportedOperation:  # a stream in memory
        yield partial(click.echo, err=True)
        return
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
        yield partial(print, file=stream, flush=True)
