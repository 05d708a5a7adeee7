"""How the command line speaks to a person: a progress bar on long work, tables at the end, colour on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import rich.console
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fepflow.evalguard.verdict import ModelCosts
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.store.records import AnswerTotals, RunRecord, StoredResult
from fepflow.store.store import Store
from surfaces.execution import Listener
from surfaces.service import Finished
from surfaces.stack import store_place
from tasks.doubt import doubts_of

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHORT_ID = 8
_KINDS = {"judge": "verdicts", "embedding": "vectors"}
MAX_TEXT = 400


class Console:
    """Prints to stdout, or to stderr while stdout belongs to JSON. `quiet` leaves only the verdict."""

    def __init__(self, *, quiet: bool = False, to_stderr: bool = False) -> None:
        self._out = _console(stderr=to_stderr)
        self._err = _console(stderr=True)
        self._quiet = quiet

    def note(self, message: str) -> None:
        """One line about something that the run can live with, or that takes a while."""
        if not self._quiet:
            self._err.print(_safe(message), style="yellow")

    @contextmanager
    def progress(self, run: RunRecord) -> Iterator[Listener]:
        """A bar of calls while the body runs; only on a terminal."""
        calls = run.n_cases * run.repeats
        if not self._quiet:
            self._err.print(f"{_safe(run.name)}: {calls} calls, run {run.id[:SHORT_ID]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        visible = self._err.is_terminal and not self._quiet
        with Progress(*columns, console=self._err, transient=True, disable=not visible) as bar:
            task = bar.add_task("starting", total=calls)

            def listen(counts: Mapping[str, int]) -> None:
                failed = counts.get("failed", 0)
                words = f"{counts.get('passed', 0)} checks passed, {failed} failed, {counts.get('errors', 0)} errors"
                bar.update(task, completed=counts.get("calls", 0), description=words)

            yield listen

    def finished(self, store: Store, finished: Finished, reports: Sequence[Path]) -> None:
        """The end of a run: tables, verdict, and where to look."""
        run = finished.run
        if not finished.told_prefect:
            self.note(
                "warning: Prefect's API stopped answering; the verdict is in the store, but Prefect does not know"
            )
        if self._quiet:
            self._verdict(run)
            return
        self.run(store, run)
        rows = [("run", f"fepflow show {run.id[:SHORT_ID]} --failed")]
        if finished.flow_run_url:
            rows.append(("Prefect UI", finished.flow_run_url))
        rows += [("store", store_place()), *(("report", str(path)) for path in reports)]
        for name, value in rows:
            self._out.print(f"  {name:<11}{_safe(value)}")

    def run(self, store: Store, run: RunRecord) -> None:
        """A run's checks, metrics and verdict."""
        seen = store.progress(run.id)
        calls = run.n_cases * run.repeats
        failed = f", {seen.failed_outputs} without an answer" if seen.failed_outputs else ""
        self._out.print(
            f"[bold]{_safe(run.name)}[/]  run {run.id[:SHORT_ID]}  {run.status}{_duration(run)}\n"
            f"{run.n_cases} cases x {run.repeats}: {seen.outputs} of {calls} calls{failed}; {seen.checks} checks"
        )
        self._check_table(store, run)
        if run.metrics:
            self._metric_table(run.metrics, (run.verdict or {}).get("baseline"))
        for doubt in doubts_of(store, run):
            self._out.print(_safe(doubt.sentence()), style=None if doubt.calibration else "yellow")
        self._verdict(run)

    def _check_table(self, store: Store, run: RunRecord) -> None:
        table = _table("check", "passed", "failed", "error", "skipped", "no verdict")
        for totals in store.check_totals(run.id):
            counts = (totals.passed, totals.failed, totals.error, totals.skipped, totals.unjudged)
            table.add_row(_safe(totals.check_id), *(str(count) if count else "·" for count in counts))
        if table.row_count:
            self._out.print(table)

    def _metric_table(self, metrics: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any] | None) -> None:
        changes = {change["id"]: change for change in baseline["metrics"]} if baseline else {}
        beside = ("baseline", "change") if changes else ()
        table = _table("metric", "value", "interval", "n", "errors", "impact", "gate", *beside)
        for metric in metrics:
            low, high = (metric.get(bound) for bound in ("low", "high"))
            impact, reached = metric.get("impact"), metric.get("worst_impact")
            words = f"{impact} (to {reached})" if reached and reached != impact else impact
            outcome = metric.get("outcome")
            change = changes.get(metric["id"], {})
            then = (_number(change.get("baseline")), _number(change.get("difference"), sign="+")) if changes else ()
            table.add_row(
                _safe(metric["id"]),
                _number(metric.get("value")),
                f"{_number(low)} to {_number(high)}",
                f"{metric['n_completed']} of {metric['n_expected']}",
                str(metric["n_error"] or "·"),
                words or "·",
                f"[{COLOURS[outcome]}]{outcome}[/]" if outcome else "·",
                *then,
            )
        self._out.print(table)

    def _verdict(self, run: RunRecord) -> None:
        if run.outcome is None:
            words = run.error or (
                "no verdict yet, the numbers are of what is there" if run.metrics else "no verdict yet"
            )
            self._out.print(f"[bold yellow]{run.status.upper()}[/]  {_safe(words)}")
            if run.status in ("interrupted", "cancelled", "failed"):
                self._out.print(f"Go on with it: fepflow run --resume {run.id[:SHORT_ID]}")
            return
        verdict = run.verdict
        self._out.print(f"[bold {COLOURS[run.outcome]}]{run.outcome.upper()}[/]  {_safe(verdict['gate'])}")
        if not self._quiet:
            if baseline := verdict.get("baseline"):
                then = f"[{COLOURS[baseline['outcome']]}]{baseline['outcome']}[/]"
                worse = ": the outcome has worsened" if baseline["worsened"] else ""
                self._out.print(f"  baseline: {then} in run {baseline['run_id'][:SHORT_ID]}{worse}")
            for reason in verdict["reasons"]:
                self._out.print(f"  - {_safe(reason)}")
            for warning in verdict.get("warnings", ()):
                self._out.print(f"  [yellow]![/] {_safe(warning)}")
            if models := verdict.get("models"):
                self._out.print(f"  models: {ModelCosts.model_validate(models)}")

    def cases(self, store: Store, run: RunRecord, *, failed_only: bool, case_id: str | None, limit: int) -> None:
        """Cases with input, output and every check, at most `limit`."""
        results = store.results(run.id, failed_only=failed_only)
        wanted = (result for result in results if case_id in (None, result.case.id))
        shown = list(islice(wanted, limit + 1))
        for result in shown[:limit]:
            self._case(run, result)
        if not shown:
            self._out.print("No such case." if case_id else "No case failed.")
        if len(shown) > limit:
            self._out.print(f"... and more: fepflow show {run.id[:SHORT_ID]} --failed --limit 1000")

    def _case(self, run: RunRecord, result: StoredResult) -> None:
        repeat = f" #{result.repeat + 1}" if run.repeats > 1 else ""
        self._out.print(f"\n[bold]{_safe(result.case.id)}{repeat}[/]")
        self._out.print(f"  input     {_text(result.case.input)}")
        if "expected" in result.case.model_fields_set:
            self._out.print(f"  expected  {_text(result.case.expected)}")
        if result.output is None:
            self._out.print("  output    [yellow]not asked yet[/]")
            return
        metadata = dict(result.output.metadata or {})
        error = metadata.pop("error", None)
        attempts = metadata.pop("attempt_log", None)
        self._out.print(f"  output    {_text(result.output.value)}" if not error else f"  no output {_text(error)}")
        if metadata:
            self._out.print(f"  metadata  {_text(metadata)}")
        for attempt in attempts or ():
            cause = (attempt["error"] or {}).get("message", "answered")
            words = f"attempt {attempt['attempt']} at {attempt['started_at']}, {attempt['latency_ms']} ms: {cause}"
            self._out.print(f"            {_text(words)}")
        for check in result.checks:
            self._out.print(_check_line(check))

    def runs(self, runs: Sequence[RunRecord]) -> None:
        """A table of runs."""
        if not runs:
            self._out.print("No runs yet: fepflow run suite.yaml")
            return
        table = _table("run", "suite", "started", "status", "cases", "verdict")
        for run in runs:
            verdict = f"[{COLOURS[run.outcome]}]{run.outcome}[/]" if run.outcome else "·"
            started = (run.started_at or run.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            cases = f"{run.n_cases} x {run.repeats}" if run.repeats > 1 else str(run.n_cases)
            table.add_row(run.id[:SHORT_ID], _safe(run.name), started, run.status, cases, verdict)
        self._out.print(table)

    def limits(self, limits: Sequence[Any]) -> None:
        """A table of Prefect's global limits."""
        if not limits:
            self._out.print("No limits yet: fepflow limits set NAME --concurrency 8, or --per-minute 600")
            return
        table = _table("limit", "calls at once", "calls a minute", "in use")
        for limit in limits:
            rate = limit.slot_decay_per_second * 60
            used = "·" if rate else str(limit.active_slots)
            once, minute = ("·", _number(rate)) if rate else (str(limit.limit), "·")
            table.add_row(_safe(limit.name), once, minute, used if limit.active else "inactive")
        self._out.print(table)

    def answers(self, totals: Sequence[AnswerTotals]) -> None:
        """A table of the answers that are kept."""
        if not totals:
            self._out.print("No answers of models are kept.")
            return
        table = _table("model", "asked for", "answers", "size", "cost", "oldest", "newest")
        for row in totals:
            times = (moment.astimezone().strftime("%Y-%m-%d %H:%M") for moment in (row.oldest, row.newest))
            cost = _cost(row.cost_usd, row.unpriced, row.answers)
            size = f"{row.characters / 1000:,.1f} kB"
            table.add_row(_safe(row.model), _KINDS[row.kind], f"{row.answers:,}", size, cost, *times)
        self._out.print(table)


def _cost(known: float | None, unpriced: int, answers: int) -> str:
    if known is None:
        return "not known"
    return f"${known:.4g}" + (f", not known of {unpriced:,} of {answers:,}" if unpriced else "")


def _console(*, stderr: bool) -> rich.console.Console:
    made = rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True)
    # Into a file or a pipe, where no window sets the width, a table is as wide as it needs to be.
    return made if made.is_terminal else rich.console.Console(stderr=stderr, highlight=False, soft_wrap=True, width=200)


def _check_line(check: CheckResult) -> str:
    if check.error is not None:
        return f"  [yellow]error[/]     {_safe(check.check_id)}: {check.error.type}: {_text(check.error.message)}"
    response = check.results.get("response")
    passed = check.results.get("passed", response.get("passed") if isinstance(response, dict) else None)
    word = "[dim]result[/]" if passed is None else "[green]passed[/]" if passed else "[red]failed[/]"
    return f"  {word}    {_safe(check.check_id)}: {_text(check.grounds)}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(
            column, justify="left" if index == 0 or column in ("suite", "impact") else "right", no_wrap=True
        )
    return table


def _duration(run: RunRecord) -> str:
    if run.started_at is None or (run.completed_at is None and run.status != "running"):
        return ""
    lasted = ((run.completed_at or utc_now()) - run.started_at).total_seconds()
    return f"  {lasted:.1f} s" + ("" if run.completed_at else " so far")


def _number(value: float | None, sign: str = "") -> str:
    return "?" if value is None else f"{value:{sign}.4g}"


def _text(value: Any) -> str:
    """A value on one line, cut to a bound."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return _safe(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def printable(text: str) -> str:
    """Text of others for a terminal: no control sequences, no lone surrogates."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _safe(text: str) -> str:
    """The same where rich prints: no markup either."""
    return escape(printable(text))
