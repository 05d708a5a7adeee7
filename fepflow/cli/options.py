"""Parameter types and options that several commands share, and what each command does before its own work."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from fepflow.reports.junit import JunitFailures
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store


class Seconds(click.ParamType[float]):
    """A deadline: a text such as 500ms or 2m, or a number of seconds, from more than 0 on."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it as seconds."""
        from fepflow.text import seconds

        text = str(value)
        try:
            found = float(text) if text.replace(".", "", 1).isdecimal() else float(seconds(text))
        except ValueError as error:
            self.fail(f"{error}, or is a number of seconds", param, ctx)
        if not 0 < found < math.inf:
            self.fail("a deadline is more than 0 s", param, ctx)
        return found


class Duration(click.ParamType[float]):
    """A text such as 12h or 7d, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As everywhere in fepflow."""
        from fepflow.text import seconds

        try:
            return float(seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports that were asked for."""

    paths: Sequence[Path]
    junit_failures: JunitFailures

    def write(self, store: Store, run: RunRecord, report_error: Callable[[str], None]) -> list[Path]:
        """Write what can be written, and say of each of the others why not; the paths of those that are."""
        from fepflow.errors import InfrastructureError

        written = []
        for path in self.paths:
            from fepflow.cli.report_files import write_report

            try:
                write_report(store, run, path, self.junit_failures)
                written.append(path)
            except InfrastructureError as error:
                report_error(f"error: {error}")
        return written


def report_options(command: Command) -> Command:
    """Give a command the options, as its argument `reports`. A place where no report can be is a UserError at once."""

    @click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                  help="Write a report: .json (FEP), .jsonl, .csv, .parquet, .xml (JUnit), .html, .evalguard.yaml. "
                       "Repeatable.")  # fmt: skip
    @click.option("--overwrite", is_flag=True, help="Let -o replace files that are there.")
    @click.option("--junit-failures", type=click.Choice(["gate", "checks"]), default="gate", show_default=True,
                  help="What fails in JUnit: what the verdict rests on, or every check that failed.")  # fmt: skip
    @wraps(command)
    def with_reports(*, outputs: Sequence[Path], overwrite: bool, junit_failures: JunitFailures, **given: Any) -> Any:
        if outputs:
            from fepflow.cli.report_files import require_writable

            require_writable(outputs, overwrite=overwrite)
        return command(reports=Reports(outputs, junit_failures), **given)

    return with_reports  # type: ignore[return-value]  # click calls it as it would have called the command


def needing(command: click.Command, extra: str) -> None:
    """Have a command say, before anything else, that an extra is not installed; of a group, each of its commands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            needing(below, extra)
        if not command.invoke_without_command:
            return
    act = command.callback
    assert act is not None

    @wraps(act)
    def checked(*arguments: Any, **options: Any) -> Any:
        from fepflow.extras import require

        require(extra, f"`{click.get_current_context().command_path}`")
        return act(*arguments, **options)

    command.callback = checked


_ENV_FILE_READ = "fepflow.env_file"


def with_env_file(command: click.Command) -> click.Command:
    """Give a command the option, and have it use the file, or `.env`; of a group, each of its commands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_env_file(below)
        if not command.invoke_without_command:
            return command
    act = command.callback
    assert act is not None

    @wraps(act)
    def reading(*arguments: Any, env_file: Path | None, **options: Any) -> Any:
        context = click.get_current_context()
        _read_env_file(context, env_file)
        try:
            return act(*arguments, **options)
        finally:
            if context.invoked_subcommand is None:  # by now it is known what the suite refers to
                note_untaken_variables()

    command.callback = reading
    command.params.append(
        click.Option(
            ["--env-file"], type=click.Path(path_type=Path), help="Read variables from this file (default: .env)."
        )
    )
    return command


def note_untaken_variables() -> None:
    """Warn of the variables of the file that are not used; for commands that another program takes the place of."""
    from fepflow.services import run_service

    run_service.note_untaken_variables(partial(click.echo, err=True))


def _read_env_file(context: click.Context, path: Path | None) -> None:
    """Once for a command: the option of a group holds for the commands below it."""
    if path is None and (context.invoked_subcommand is not None or _ENV_FILE_READ in context.meta):
        return
    from fepflow.services import run_service

    context.meta[_ENV_FILE_READ] = True
    run_service.load_env_file(path)


@contextmanager
def stdout_for_us_alone() -> Iterator[TextIO]:
    """The command's stdout; whatever else is written there, by agents in this process too, goes to stderr.

    For good, where stdout is a file descriptor: a call that was given up may print when all is over.
    """
    sys.stdout.flush()
    try:
        descriptor, others = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # a stream in memory
        own = sys.stdout
        with redirect_stdout(sys.stderr):
            yield own
        return
    with os.fdopen(os.dup(descriptor), "w", encoding=sys.stdout.encoding) as own:
        os.dup2(others, descriptor)
        with redirect_stdout(sys.stderr):
            yield own
