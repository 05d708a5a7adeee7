"""`fepflow rescore`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from fepflow.cli.options import Reports, report_options


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@click.option("--gate", "gate_only", is_flag=True, help="Keep all check results; compute only metrics and gate.")
@report_options
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict on stdout.")
@click.option("--failed-exit-code", type=click.IntRange(1, 255), default=1, help="Exit code of a fail. Default: 1.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the verdict.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log.")
def rescore(
    run: str,
    suite: Path | None,
    gate_only: bool,
    reports: Reports,
    as_json: bool,
    failed_exit_code: int,
    quiet: bool,
    verbose: bool,
) -> int:
    """Judge the outputs of RUN again, by the present checks, metrics and gate of its SUITE.

    The agent is not called. The result is a new run with its own verdict. RUN is an id, its beginning, or latest. SUITE
    is by default the file from which the run was made.
    """
    from fepflow.cli.console import Console
    from fepflow.cli.runs import run_to_end, stdout_for_json
    from fepflow.services import run_service
    from fepflow.services.rescoring import begin_rescore

    console = Console(quiet=quiet, to_stderr=as_json)
    begin = begin_rescore(run, suite, console.note, gate_only=gate_only, show_logs=verbose)
    with stdout_for_json() if as_json else nullcontext(sys.stdout) as out, begin as begun:
        exit_code = run_to_end(begun, console, reports, out if as_json else None)
    return failed_exit_code if exit_code == run_service.EXIT_CODES["fail"] else exit_code
