"""The command line. Each command translates its arguments for a service, and the result for a person."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from contextlib import suppress
from copy import copy
from typing import NoReturn

import click

from fepflow.cli.administration import audit, cache, delete, keys, prune, store
from fepflow.cli.calibrate import calibrate, labels
from fepflow.cli.comparisons import baseline, compare, trends
from fepflow.cli.ecp import ecp
from fepflow.cli.evalguard import evalguard
from fepflow.cli.options import prepare
from fepflow.cli.other_tools import export, import_file
from fepflow.cli.runs import cancel, list_runs, rescore, run, show
from fepflow.cli.stack import alert, down, limits, schedule, serve, status, up, view
from fepflow.cli.suites import cases, checks, init, plan, schema, validate
from fepflow.errors import FepflowError, InfrastructureError, MissingExtraError
from fepflow.output import OUTPUT, outlive_reader

EPILOG = "Exit codes: 0 pass, 1 fail, 2 usage or configuration, 3 infrastructure, 4 inconclusive."


COLLECT_AFTER = 50_000
"""Objects that are allocated before Python looks for cycles; its own number is 700."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fepflow", prog_name="fepflow")
def fepflow() -> None:
    """Evaluate AI agents: call them with test cases, check their answers, and give a verdict.

    Runs are Prefect flow runs: watch them in the Prefect UI, and schedule them as deployments.
    """


LEAVE_SECONDS = 10
"""Time that a process with a call that was given up may take to end."""

COMMANDS = [
    validate,
    run,
    rescore,
    list_runs,
    show,
    view,
    cancel,
    calibrate,
    up,
    down,
    status,
    serve,
    schedule,
    alert,
    limits,
]
COMMANDS += [cases, store, labels, baseline, cache, compare, trends, ecp, evalguard, plan, keys, audit]
COMMANDS += [import_file, export, delete]
store.add_command(prune)
EXTRAS = {
    **dict.fromkeys(("validate", "plan", "evalguard", "import"), None),
    **dict.fromkeys(("evalguard import", "evalguard list"), "run"),
    **dict.fromkeys(("serve", "view"), "serve"),
}
"""Extras of commands, see `prepare`. Reports as HTML or Parquet have extras of their own."""
for command in COMMANDS:
    prepare(command, EXTRAS)
    fepflow.add_command(command)
run_as_eval = copy(run)  # what other tools call it
run_as_eval.short_help = "Another name of the command run."
fepflow.add_command(run_as_eval, "eval")
for command in (init, checks, schema):  # these look at no setting
    fepflow.add_command(command)


def main() -> None:
    """Run the command line; whatever happens, a person gets a sentence and never a traceback."""
    # The process is the command line's own. Imports and runs make few cycles, and the search took a sixth of the time.
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    outlive_reader()  # the exit code stays that of the verdict, for example in `fepflow run suite.yaml | head`
    try:
        code = fepflow.main(standalone_mode=False)
        _leave(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        _leave(error.exit_code)
    except click.ClickException as error:
        with suppress(OSError):  # stderr cannot be written
            error.show()
        _leave(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        _leave(130)
    except Exception as error:
        try:
            code = _explain(error)
        except OSError as unwritten:  # stderr cannot be written
            if unwritten is error:  # it is to be shown whole
                raise
            code = error.exit_code if isinstance(error, FepflowError) else FepflowError.exit_code
        _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit, without the minutes that Prefect's client takes to give up on an API that is gone."""
    # not there for a command that needs no server, such as --help
    stack = sys.modules.get("fepflow.services.prefect_api")
    if stack is not None and stack.is_gone():
        _leave_at_once(code)
    agents = sys.modules.get("fepflow.calls.python.target")
    if agents is not None and agents.given_up.is_set():
        # One may hang in a thread pool of its own, for whose threads Python would wait for ever.
        sys.stdout.flush()
        deadline = threading.Timer(LEAVE_SECONDS, os._exit, [code])
        deadline.daemon = True
        deadline.start()
    # All is printed and stored. Ctrl-C while threads end, for example that of Prefect's log, gives no traceback.
    signal.signal(signal.SIGINT, lambda number, frame: _leave_at_once(code))
    gc.freeze()  # else Python searches all that was loaded for cycles at its end: a sixth of `list`
    sys.exit(code)


def _leave_at_once(code: int) -> NoReturn:
    with suppress(Exception):  # the reader may have gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _explain(error: Exception) -> int:
    from fepflow.extras import of_module, sentence

    if isinstance(error, ModuleNotFoundError) and (extra := of_module(error.name)) is not None:
        error = MissingExtraError(sentence("this", str(error.name), extra))
    if isinstance(error, OSError) and error.filename == OUTPUT:
        error = InfrastructureError(f"The output cannot be written: {error.strerror}.")
    if isinstance(error, FepflowError):
        for line in str(error).splitlines():
            click.echo(f"error: {line}", err=True)
        return error.exit_code
    if os.environ.get("FEPFLOW_DEBUG"):
        raise error
    from fepflow.security.redaction import words_of

    click.echo(f"error: {type(error).__name__}: {words_of(error)}", err=True)
    click.echo("This is a fault of fepflow. FEPFLOW_DEBUG=1 shows where; please report it.", err=True)
    return FepflowError.exit_code


if __name__ == "__main__":
    main()
