"""Text and tables for a person; what others wrote cannot move the cursor, colour anything, or be markup."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import rich.console
from rich import box
from rich.markup import escape
from rich.table import Table

from fepflow.text import four_digits, one_line, plural, printable, text_of

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord
    from fepflow.tasks.local_run import Listener

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHORT_ID = 8
MAX_TEXT = 400

_LEFT = ("suite", "impact", "model", "from", "tasks", "variant", "shown")
"""Columns of text, which begin at the left as the first column does."""


class Console:
    """A printer to stdout, or to stderr while stdout is for JSON. `quiet` leaves only the verdict."""

    def __init__(self, *, quiet: bool = False, to_stderr: bool = False) -> None:
        self._out = _console(stderr=to_stderr)
        self._err = _console(stderr=True)
        self.quiet = quiet

    def note(self, message: str) -> None:
        """Print a line about something that the run can live with, or that takes a while."""
        if not self.quiet:
            self._err.print(safe(message), style="yellow")

    def report_error(self, message: str) -> None:
        """Print a line about something that could not be done as asked."""
        self._err.print(safe(message), style="red")

    def print(self, parts: Iterable[Table | str], *, use_pager: bool = False) -> None:
        """Print tables and lines of markup, on a terminal through a pager if asked to."""
        if use_pager and self._out.is_terminal and wants_pager():
            os.environ.setdefault("LESS", "FRX")  # what fits on the screen needs no pager; colours are shown
            click.echo_via_pager(self._texts(parts), color=True)
        else:
            for part in parts:
                self._out.print(part)

    def _texts(self, parts: Iterable[Table | str]) -> Iterator[str]:
        """Yield each part when the pager asks for it."""
        for part in parts:
            with self._out.capture() as captured:
                self._out.print(part)
            yield captured.get()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
        """Print a table of rows whose cells are markup, or `empty` if there is no row."""
        made = table(*columns)
        for row in rows:
            made.add_row(*row)
        self.print([made if made.rows else empty])

    def progress_of(self, run: RunRecord) -> AbstractContextManager[Listener]:
        """Show a bar of the calls of a run while the body runs."""
        part = f", {safe(run.part)}" if run.part else ""
        return self.progress(f"{safe(run.name)}: {plural(run.calls, 'call')}, run {run.id[:SHORT_ID]}{part}", run.calls)

    @contextmanager
    def progress(self, what: str, calls: int) -> Iterator[Listener]:
        """Print `what` is done, and show a bar of calls while the body runs; the bar only on a terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        if not self.quiet:
            self._err.print(what)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        visible = self._err.is_terminal and not self.quiet
        with Progress(*columns, console=self._err, transient=True, disable=not visible) as bar:
            task = bar.add_task("starting", total=calls)

            def listen(counts: Mapping[str, int]) -> None:
                failed = counts.get("failed", 0)
                words = f"{counts.get('passed', 0)} checks passed, {failed} failed, {counts.get('errors', 0)} errors"
                done = counts.get("calls", 0)  # a run that is topped up makes more calls than were planned
                bar.update(task, completed=done, total=max(calls, done), description=words)

            yield listen


def _console(*, stderr: bool) -> rich.console.Console:
    made = rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True)
    # Into a file or a pipe, where no window sets the width, a table is as wide as it needs to be.
    return made if made.is_terminal else rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True, width=200)


def wants_pager() -> bool:
    """Return whether pagers are on: PAGER is neither empty nor `cat`, and NO_PAGER is not set."""
    return os.environ.get("PAGER", "less").strip() not in ("", "cat") and not os.environ.get("NO_PAGER")


def table(*columns: str) -> Table:
    """Return a table without a frame. Numbers are aligned at the right, texts at the left."""
    made = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 or column in _LEFT else "right", no_wrap=True)
    return made


def number(value: float | None, sign: str = "") -> str:
    """Return a number with four digits, `?` for None."""
    return "?" if value is None else four_digits(value, sign)


def interval(low: float | None, high: float | None) -> str:
    """Return an interval, a dot if neither end is known."""
    return "·" if low is None and high is None else f"{number(low)} to {number(high)}"


def moment(time: datetime | str, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time as this machine's clock shows it."""
    return (datetime.fromisoformat(time) if isinstance(time, str) else time).astimezone().strftime(form)


TO_THE_SECOND = "%Y-%m-%d %H:%M:%S"


def coloured(outcome: str | None) -> str:
    """Return an outcome as markup; a dot for None."""
    return f"[{COLOURS[outcome]}]{outcome}[/]" if outcome else "·"


def as_line(value: Any) -> str:
    """Return a value on one line, cut to a bound, as markup."""
    return escape(one_line(text_of(value), MAX_TEXT))


def safe(text: str) -> str:
    """Return text of others for rich to print: no control characters, and no markup."""
    return escape(printable(text))
