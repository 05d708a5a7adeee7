"""Parameter types and options that several commands share, and what each command does before its own work."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fepflow.errors import InfrastructureError
from fepflow.text import seconds

if TYPE_CHECKING:
    from fepflow.reports.junit import JunitFailures
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

SUITE_FILE = Path("suite.yaml")


def suite_of_folder() -> Path:
    """Return the suite of the working directory, where none is named. Raises UsageError if there is none."""
    if not SUITE_FILE.is_file():
        raise click.UsageError(f"name a suite: this folder has no {SUITE_FILE} (`fepflow init` writes one)")
    return SUITE_FILE


def _or_of_folder(context: click.Context, parameter: click.Parameter, suite: Path | None) -> Path:
    return suite or suite_of_folder()


SUITE = click.argument("suite", type=click.Path(path_type=Path), required=False, callback=_or_of_folder)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Duration(click.ParamType[float]):
    """A duration, for example 12h or 7d, as seconds between two bounds."""

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = math.inf, bounds: str = "") -> None:
        self._least, self._most, self._bounds = least, most, bounds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it in seconds."""
        try:
            duration = float(seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._least <= duration <= self._most:
            self.fail(f"{value}: {self._bounds}", param, ctx)
        return duration


class Deadline(Duration):
    """A duration above 0, for example 500ms or 2m, or a number of seconds."""

    def __init__(self) -> None:
        super().__init__(math.nextafter(0.0, 1.0), sys.float_info.max, "a deadline is more than 0 s")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it in seconds."""
        text = str(value)
        return super().convert(f"{text}s" if text.replace(".", "", 1).isdecimal() else text, param, ctx)


def count_or_fraction(value: str) -> float:
    """Return how many cases are wanted: a whole number, or a fraction of all below 1."""
    try:
        number = float(value)
    except ValueError:
        raise click.BadParameter(f"{value} is not a number") from None
    if number <= 0 or (number >= 1 and number != int(number)):
        raise click.BadParameter(f"{value} is not a count (20) or a fraction (0.1)")
    return number


LIMIT = click.option(
    "--limit",
    type=count_or_fraction,
    metavar="COUNT OR FRACTION",
    help="Run only a random sample: a number of cases, or a fraction below 1.",
)


def pair(form: str) -> Callable[[str], tuple[str, str]]:
    """Return the type of a pair, `key=value`; errors name it by `form`."""

    def split(value: str) -> tuple[str, str]:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value} is not of the form {form}")
        return key, text

    return split


def echo_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return attributes of a record by their names."""
    return {name: getattr(record, name) for name in names}


def echo_json_lines(values: Iterable[Any]) -> None:
    """Print each value as JSON on a line, times in ISO 8601."""
    for value in values:
        click.echo(json.dumps(value, allow_nan=False, default=datetime.isoformat))


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports that were asked for."""

    paths: Sequence[Path]
    junit_failures: JunitFailures
    overwrite: bool = False

    def of_variant(self, number: int) -> Reports:
        """Return the reports of a variant: `report.xml` becomes `report-1.xml`, in the order of the suite."""
        paths = []
        for path in self.paths:
            stem, dot, endings = path.name.partition(".")
            paths.append(path.with_name(f"{stem}-{number}{dot}{endings}"))
        return replace(self, paths=paths)

    def require_writable_for(self, variants: int) -> None:
        """Raise UserError, before anything is run, if a report of one of so many variants cannot be written."""
        if self.paths:
            from fepflow.cli.report_files import require_writable

            paths = [path for number in range(1, variants + 1) for path in self.of_variant(number).paths]
            require_writable(paths, overwrite=self.overwrite)

    def write(self, store: Store, run: RunRecord, report_error: Callable[[str], None]) -> list[Path]:
        """Write each report, and return the paths of those that were written."""
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
    """Give a command `-o FILE` and what goes with it, as its argument `reports`.

    Raises UserError, before the command begins, for a place where no report can be written.
    """

    @click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write a report: .json (FEP), .jsonl, .csv, .parquet, .xml (JUnit), .html, .evalguard.yaml. Repeatable.",
    )
    @click.option("--overwrite", is_flag=True, help="Let -o replace existing files.")
    @click.option(
        "--junit-failures",
        type=click.Choice(["gate", "checks"]),
        default="gate",
        show_default=True,
        help="Failures in JUnit: only checks on which the verdict depends (gate), or all failed checks.",
    )
    @wraps(command)
    def with_reports(*, outputs: Sequence[Path], overwrite: bool, junit_failures: JunitFailures, **options: Any) -> Any:
        if outputs:
            from fepflow.cli.report_files import require_writable

            require_writable(outputs, overwrite=overwrite)
        return command(reports=Reports(outputs, junit_failures, overwrite), **options)

    return with_reports  # type: ignore[return-value]  # click calls it as it would have called the command


def prepare(command: click.Command, extras: dict[str, str | None], path: str = "") -> None:
    """Wrap a command: it first reads its file of variables and requires its extra. Of a group, wrap each command.

    `extras` has the extra of a command by its name (`evalguard list`), or by that of its group; None where
    `pip install fepflow` is enough. The others need `run`.
    """
    path = f"{path} {command.name}".strip()
    extra = extras.get(path, extras.get(path.partition(" ")[0], "run"))
    if isinstance(command, click.Group):
        for below in command.commands.values():
            prepare(below, extras, path)
        if not command.invoke_without_command:
            return
    act = command.callback
    assert act is not None

    @wraps(act)
    def prepared(*arguments: Any, env_file: Path | None, **options: Any) -> Any:
        from fepflow.extras import require

        context = click.get_current_context()
        _read_env_file(context, env_file)
        try:
            if extra is not None:
                require(extra, f"`{context.command_path}`")
            return act(*arguments, **options)
        finally:
            if context.invoked_subcommand is None:  # by now it is known what the suite refers to
                note_untaken_variables()

    command.callback = prepared
    words = "Read variables from this file (default: .env)."
    command.params.append(click.Option(["--env-file"], type=click.Path(path_type=Path), help=words))


def note_untaken_variables() -> None:
    """Warn of the variables of the file that are not used; a command that execs another program calls it itself."""
    from fepflow.services import run_service

    run_service.note_untaken_variables(partial(click.echo, err=True))


_ENV_FILE_READ = "fepflow.env_file"


def _read_env_file(context: click.Context, path: Path | None) -> None:
    """Read the file, or `.env`, once: the option of a group holds for the commands below it."""
    if path is None and (context.invoked_subcommand is not None or _ENV_FILE_READ in context.meta):
        return
    from fepflow.services import run_service

    context.meta[_ENV_FILE_READ] = True
    run_service.load_env_file(path)


def read_from_environment(command: click.Command, prefix: str) -> None:
    """Let a command take its options from variables, too: `--max-concurrency` from `PREFIX_MAX_CONCURRENCY`."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names = [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]
            parameter.envvar = [f"{prefix}_{name.replace('-', '_').upper()}" for name in names]


def set_by_environment() -> dict[str, str]:
    """Return the variables that set options of the command under way, by the name of the option's argument."""
    context = click.get_current_context()
    return {
        str(parameter.name): next(name for name in parameter.envvar or () if os.environ.get(name))
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.ENVIRONMENT
    }


def unknown_variables(prefix: str) -> list[str]:
    """Return the variables that read like options of the command under way, and are none."""
    command = click.get_current_context().command
    known = {name for parameter in command.params for name in parameter.envvar or ()}
    return sorted(name for name in os.environ if name.startswith(f"{prefix}_") and name not in known)


Margin = tuple[str | None, float]
"""The name of a metric, None for all shares, and how much worse is still accepted."""


def margin_of(value: str) -> Margin:
    """Return a margin from a number, or from `METRIC=NUMBER`."""
    name, _, number = value.rpartition("=")
    try:
        margin = float(number)
    except ValueError:
        margin = math.nan
    if not 0 <= margin < math.inf:
        raise click.BadParameter(f"{value!r} is not a margin: give a number, for example 0.02, or METRIC=0.3")
    return name or None, margin


def margin_option(words: str) -> Callable[[Command], Command]:
    """Return the option `--margin`, repeatable, as the argument `margins`; `words` are its help."""
    return click.option("--margin", "margins", type=margin_of, multiple=True, metavar="[METRIC=]NUMBER", help=words)


def margins_by_metric(margins: Sequence[Margin]) -> tuple[float | None, dict[str, float]]:
    """Return the margin of all shares, the last one if there are several, and those of metrics."""
    plain = next((margin for name, margin in reversed(margins) if name is None), None)
    return plain, {name: margin for name, margin in margins if name is not None}


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
