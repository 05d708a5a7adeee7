"""`-o FILE` and what goes with it: reports of a run as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from fepflow.reports.junit import JunitFailures
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store

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
