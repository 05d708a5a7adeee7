"""Text and tables for a person; what others wrote cannot move the cursor, colour anything, or be markup."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import rich.console
from rich import box
from rich.markup import escape
from rich.table import Table

from fepflow.text import cut, printable

if TYPE_CHECKING:
    from rich.table import Table

    from fepflow.services.failed_results import Selection
    from fepflow.services.run_service import Finished
    from fepflow.store.records import Baseline, CacheTotals, CaseResult, RunRecord
    from fepflow.store.store import Store
    from fepflow.tasks.run.handover import Listener


COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHORT_ID = 8
MAX_TEXT = 400

_LEFT = ("suite", "impact", "model", "from", "tasks")


def table(*columns: str) -> Table:
    """A table without a frame; what is in the first column, and texts, begin at the left."""
    made = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 or column in _LEFT else "right", no_wrap=True)
    return made


def number(value: float | None, sign: str = "") -> str:
    """Four digits."""
    return "?" if value is None else f"{value:{sign}.4g}"


def interval(low: float | None, high: float | None) -> str:
    """From where to where; a dot where neither is known."""
    return "·" if low is None and high is None else f"{number(low)} to {number(high)}"


def coloured(outcome: str | None) -> str:
    """An outcome, as markup; a dot for none."""
    return f"[{COLOURS[outcome]}]{outcome}[/]" if outcome else "·"


def one_line(value: Any) -> str:
    """A value on one line, cut to a bound, as markup."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return safe(cut(" ".join(text.split()), MAX_TEXT))


def safe(text: str) -> str:
    """The same where rich prints: no markup either."""
    return escape(printable(text))


_KINDS = {"judge": "verdicts", "embedding": "vectors"}


class Console:
    """Prints to stdout, or to stderr while stdout belongs to JSON. `quiet` leaves only the verdict."""

    def __init__(self, *, quiet: bool = False, to_stderr: bool = False) -> None:
        self._out = _console(stderr=to_stderr)
        self._err = _console(stderr=True)
        self._quiet = quiet

    def note(self, message: str) -> None:
        """One line about something that the run can live with, or that takes a while."""
        if not self._quiet:
            self._err.print(safe(message), style="yellow")

    @contextmanager
    def progress(self, run: RunRecord) -> Iterator[Listener]:
        """A bar of calls while the body runs; only on a terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        calls = run.calls
        if not self._quiet:
            sample = f", {run.sample}" if run.sample else ""
            self._err.print(f"{safe(run.name)}: {calls} calls, run {run.id[:SHORT_ID]}{sample}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        visible = self._err.is_terminal and not self._quiet
        with Progress(*columns, console=self._err, transient=True, disable=not visible) as bar:
            task = bar.add_task("starting", total=calls)

            def listen(counts: Mapping[str, int]) -> None:
                failed = counts.get("failed", 0)
                words = f"{counts.get('passed', 0)} checks passed, {failed} failed, {counts.get('errors', 0)} errors"
                done = counts.get("calls", 0)  # more than there were to be, as soon as the run is topped up
                bar.update(task, completed=done, total=max(calls, done), description=words)

            yield listen

    def finished(self, store: Store, finished: Finished, reports: Sequence[Path]) -> None:
        """The end of a run: tables, verdict, and where to look."""
        run = finished.run
        if not finished.prefect_informed:
            self.note(
                "warning: Prefect's API stopped answering; the verdict is in the store, but Prefect does not know"
            )
        if self._quiet:
            from fepflow.cli.run_view import verdict_view

            self.print(verdict_view(run, brief=True))
            return
        from fepflow.page_links import run_page
        from fepflow.services.prefect_api import store_location, ui_login

        self.run(store, run)
        rows = [("run", f"fepflow show {run.id[:SHORT_ID]} --failed")]
        if page := run_page(run.id):
            rows.append(("page", page))
        if finished.flow_run_url:
            rows.append(("Prefect UI", finished.flow_run_url))
        if login := ui_login():
            rows.append(("UI login", f"the line in {login}"))
        rows += [("store", store_location()), *(("report", str(path)) for path in reports)]
        for name, value in rows:
            self._out.print(f"  {name:<11}{safe(value)}")

    def report_error(self, message: str) -> None:
        """One line about something that did not come out as it was asked for."""
        self._err.print(safe(message), style="red")

    def run(self, store: Store, run: RunRecord) -> None:
        """A run's checks, metrics and verdict, and the causes of what did not pass."""
        from fepflow.cli.run_view import run_view

        self.print(run_view(store, run))

    def print(self, parts: Iterable[Table | str]) -> None:
        """Tables, and lines of markup."""
        for part in parts:
            self._out.print(part)

    def cases(self, store: Store, run: RunRecord, selection: Selection, limit: int, *, use_pager: bool) -> None:
        """A run with at most `limit` of its cases; through a pager on a terminal. Raises NotFoundError."""
        from fepflow.cli.run_view import run_view
        from fepflow.services.failed_results import selected

        results = selected(store, run, selection)
        parts = chain(run_view(store, run), self._cases(store, run, selection, results, limit))
        if use_pager and self._out.is_terminal and wants_pager():
            self._page(parts)
        else:
            self.print(parts)

    def _cases(
        self, store: Store, run: RunRecord, selection: Selection, results: Iterator[CaseResult], limit: int
    ) -> Iterator[str]:
        from fepflow.cli.run_view import case_view
        from fepflow.services.failed_results import count_cases

        shown: set[int] = set()
        for result in results:
            if result.case_index not in shown and len(shown) == limit:
                break
            shown.add(result.case_index)
            yield from case_view(run, result, selection)
        if not shown:
            yield "No case is in error." if selection.errors else "No case failed."
        elif selection.failed and selection.case_id is None:
            cases = count_cases(store, run, selection)
            if cases > len(shown):
                yield f"\n{len(shown)} of {cases} cases; all of them: --limit {cases}"

    def _page(self, parts: Iterable[Table | str]) -> None:
        """Hand what there is to the pager as it asks for it."""

        def texts() -> Iterator[str]:
            for part in parts:
                with self._out.capture() as captured:
                    self._out.print(part)
                yield captured.get()

        os.environ.setdefault("LESS", "FRX")  # what fits on the screen needs no pager; colours are shown
        click.echo_via_pager(texts(), color=True)

    def runs(self, runs: Sequence[RunRecord]) -> None:
        """A table of runs."""
        if not runs:
            self._out.print("No runs yet: fepflow run suite.yaml")
            return
        made = table("run", "suite", "started", "status", "cases", "verdict")
        for run in runs:
            started = (run.started_at or run.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            cases = f"{run.n_cases} x {run.repeats}" if run.repeats > 1 else str(run.n_cases)
            made.add_row(run.id[:SHORT_ID], safe(run.name), started, run.status, cases, coloured(run.outcome))
        self._out.print(made)

    def baselines(self, baselines: Sequence[tuple[Baseline, RunRecord]]) -> None:
        """A table of baselines with their runs."""
        if not baselines:
            self._out.print("No baselines yet: fepflow baseline set main latest")
            return
        made = table("suite", "baseline", "run", "of", "verdict", "set")
        for each, run in baselines:
            moments = [moment.astimezone().strftime("%Y-%m-%d %H:%M") for moment in (run.created_at, each.set_at)]
            made.add_row(
                safe(each.suite), safe(each.name), run.id[:SHORT_ID], moments[0], coloured(run.outcome), moments[1]
            )
        self._out.print(made)

    def limits(self, limits: Sequence[Any]) -> None:
        """A table of Prefect's global limits."""
        if not limits:
            self._out.print("No limits yet: fepflow limits set NAME --concurrency 8, or --per-minute 600")
            return
        made = table("limit", "calls at once", "calls a minute", "in use")
        for limit in limits:
            rate = limit.slot_decay_per_second * 60
            used = "·" if rate else str(limit.active_slots)
            once, minute = ("·", number(rate)) if rate else (str(limit.limit), "·")
            made.add_row(safe(limit.name), once, minute, used if limit.active else "inactive")
        self._out.print(made)

    def schedules(self, schedules: Sequence[Mapping[str, Any]]) -> None:
        """A table of what runs by the clock."""
        if not schedules:
            self._out.print('Nothing is scheduled: fepflow schedule suite.yaml --cron "0 2 * * *"')
            return
        rows = table("deployment", "suite", "when", "next run")
        for one in schedules:
            due = "paused" if one["paused"] else _moment(one["next"]) if one["next"] else "?"
            rows.add_row(safe(one["name"]), safe(one["suite"] or "·"), safe(", ".join(one["when"])), due)
        self._out.print(rows)

    def answers(self, totals: Sequence[CacheTotals]) -> None:
        """A table of the answers that are kept."""
        if not totals:
            self._out.print("No answers of models are kept.")
            return
        made = table("model", "asked for", "answers", "size", "cost", "oldest", "newest")
        for row in totals:
            times = (moment.astimezone().strftime("%Y-%m-%d %H:%M") for moment in (row.oldest, row.newest))
            cost = _cost(row.cost_usd, row.unpriced, row.answers)
            size = f"{row.characters / 1000:,.1f} kB"
            made.add_row(safe(row.model), _KINDS[row.kind], f"{row.answers:,}", size, cost, *times)
        self._out.print(made)


def _moment(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cost(known: float | None, unpriced: int, answers: int) -> str:
    if known is None:
        return "not known"
    return f"${known:.4g}" + (f", not known of {unpriced:,} of {answers:,}" if unpriced else "")


def _console(*, stderr: bool) -> rich.console.Console:
    made = rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True)
    # Into a file or a pipe, where no window sets the width, a table is as wide as it needs to be.
    return made if made.is_terminal else rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True, width=200)


def wants_pager() -> bool:
    """Whether a person at a terminal has not switched pagers off: PAGER is empty or cat, or NO_PAGER is set."""
    return os.environ.get("PAGER", "less").strip() not in ("", "cat") and not os.environ.get("NO_PAGER")
