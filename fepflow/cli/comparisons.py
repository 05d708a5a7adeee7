"""`fepflow compare`, `baseline` and `trends`: runs beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fepflow.cli.options import Margin, echo_json_lines, fields_of, margin_option, margins_by_metric
from fepflow.text import listed, plural, printable

if TYPE_CHECKING:
    from rich.table import Table

    from fepflow.analysis.drift import Series
    from fepflow.analysis.preferences import JudgedPreferences
    from fepflow.analysis.regressions import JudgedComparisons
    from fepflow.reports.comparison import ComparedRun
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store


@click.command()
@click.argument("base")
@click.argument("new", nargs=-1, required=True)
@margin_option("Show that shares (or METRIC) are not worse by more than this; repeatable.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="Format of the output; use markdown for a comment on a pull request.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Maximum number of changed cases to show in each direction.",
)
@click.option(
    "--judge", "question", metavar="QUESTION", help='Ask a model which outputs are better: "Which answer helps more?"'
)
@click.option("--judge-model", metavar="MODEL", help="Model to ask (default: from the suite's section judge).")
@click.option("--max-usd", type=click.FloatRange(0, min_open=True), metavar="USD", help="Maximum cost of the judge.")
@click.option("--no-cache", is_flag=True, help="Ask the judge again, even if its answers are stored.")
def compare(
    base: str,
    new: tuple[str, ...],
    margins: tuple[Margin, ...],
    form: str,
    limit: int,
    question: str | None,
    judge_model: str | None,
    max_usd: float | None,
    no_cache: bool,
) -> int:
    """Compare runs with the run BASE, over the test cases that both have.

    A run is an id, its beginning, latest, the name of a baseline, or a file of results (.json, .jsonl). Exit codes: 1
    if a regression is shown, or if the judge is shown to prefer BASE; 4 if neither a regression nor the requested
    margin is shown, or if the judge gave no answer; otherwise 0.
    """
    from fepflow.cli.console import Console
    from fepflow.services import comparisons, run_service
    from fepflow.services.comparisons import runs_to_compare
    from fepflow.services.judges import JudgeQuestion, judge_runs

    if question is None and (judge_model is not None or max_usd is not None or no_cache):
        raise click.UsageError('Say what the judge is asked: --judge "Which answer helps more?"')
    plain, by_metric = margins_by_metric(margins)
    console = Console(to_stderr=True)
    with runs_to_compare([base, *new]) as compared:
        for sentence in compared.notes:
            console.note(sentence)
        store, (first, *others) = compared.store, compared.names
        judged = comparisons.compare(store, first, others, plain, by_metric, metrics_needed=question is None)
        preferred = None
        if question is not None:
            asked = JudgeQuestion(question, judge_model, max_usd, not no_cache)
            runs = [judged.comparisons[0].base, *(comparison.new for comparison in judged.comparisons)]
            preferred = judge_runs(store, runs, asked, console.note)
        if form == "table":
            Console().print(_comparison_view(store, judged, limit))
            if preferred is not None:
                Console().print(_preference_view(preferred))
        else:
            from fepflow.reports.comparison import as_json, as_markdown
            from fepflow.reports.fep import dumps

            lines = (
                [dumps(as_json(store, judged, preferred))]
                if form == "json"
                else as_markdown(store, judged, limit, preferred)
            )
            click.echo("\n".join(lines))
    code = 0 if judged.outcome is None else run_service.EXIT_CODES[judged.outcome]
    return code if preferred is None else comparisons.exit_code_with(code, preferred.preferences)


def _comparison_view(store: Store, judged: JudgedComparisons, limit: int) -> Iterator[Table | str]:
    from fepflow.cli.console import COLOURS, safe, table
    from fepflow.reports.comparison import HEADLINES, SIDE_BY_SIDE, compared_runs, side_by_side

    several = len(judged.comparisons) > 1
    runs = list(compared_runs(store, judged, 0 if several else limit))
    yield from (_run_line("base", run) for run in (judged.comparisons[0].base, *judged.comparisons[0].pooled))
    p = "p (Holm)" if sum(len(run.p_values) for run in judged.runs) > 1 else "p"
    columns = ("metric", "base", "new", "difference", "interval", p, "worse", "better")
    made = table(*SIDE_BY_SIDE) if several else table(*columns)
    for compared in runs:
        comparison = compared.comparison
        yield _run_line("new ", comparison.new)
        yield f"      {safe(comparison.matched.sentence)}"
        yield from (f"  [yellow]![/] {safe(warning)}" for warning in comparison.warnings)
        for name, *figures in () if several else compared.rows:
            made.add_row(safe(name), *figures)
    for row in side_by_side(judged) if several else ():
        made.add_row(*map(safe, row))
    yield made
    yield from (f"not compared: {safe(why)}" for compared in runs for why in compared.not_compared)
    if not several:
        yield from _flips(runs[0])
    yield f"[bold {COLOURS[judged.outcome or 'inconclusive']}]{HEADLINES[judged.outcome].upper()}[/]"
    yield from (f"  - {safe(reason)}" for compared in runs for reason in compared.reasons)
    yield from (f"  {safe(sentence)}" for compared in runs for sentence in compared.power)
    if not judged.asked and judged.outcome is None:
        yield "  To exclude a regression, give the margin that you would accept: --margin 0.02"


def _run_line(word: str, run: RunRecord) -> str:
    from fepflow.cli.console import SHORT_ID, safe

    if run.file:
        return f"{word}  {safe(run.file)}  {safe(run.name)}  {run.outcome or 'no verdict'}"
    return f"{word}  {run.id[:SHORT_ID]}  {safe(run.name)}  {run.created_at:%Y-%m-%d %H:%M}  {run.outcome}"


def _flips(compared: ComparedRun) -> Iterator[str]:
    from fepflow.cli.console import as_line, number, safe
    from fepflow.reports.comparison import MAX_OUTPUT

    for word, flips in compared.flips.items():
        shown = compared.shown[word]
        if flips:
            yield f"{word} now ({len(shown)} of {len(flips)}{'' if len(flips) == len(shown) else ', --limit'}):"
        for text in shown:
            flip = text.flip
            yield f"  [bold]{safe(flip.case_id)}[/]  {safe(flip.metric)}: {number(flip.base)} → {number(flip.new)}"
            yield f"    base  {as_line(text.base[:MAX_OUTPUT])}"
            yield f"    new   {as_line(text.new[:MAX_OUTPUT])}"
            if text.reason:
                yield f"    why   {safe(text.reason)}"


def _preference_view(judged: JudgedPreferences) -> Iterator[Table | str]:
    """Yield the win rates, and the strengths of more than two runs."""
    from fepflow.cli.console import safe, table
    from fepflow.reports.comparison import (
        PREFERENCE_COLUMNS,
        STRENGTH_COLUMNS,
        asked_sentence,
        preference_rows,
        strength_rows,
    )

    preferences = judged.preferences
    yield ""
    yield f"[bold]judge[/]  {safe(judged.model)}: {safe(judged.question)}"
    made = table(*PREFERENCE_COLUMNS)
    for row in preference_rows(preferences):
        made.add_row(*map(safe, row))
    yield made
    if preferences.strengths:
        strengths = table(*STRENGTH_COLUMNS)
        for row in strength_rows(preferences):
            strengths.add_row(*map(safe, row))
        yield strengths
    yield from (f"  - {safe(pair.sentence)}" for pair in preferences.between)
    yield from (f"  [yellow]![/] {safe(warning)}" for pair in preferences.between for warning in pair.warnings)
    yield f"  {safe(asked_sentence(judged))}"


@click.group()
def baseline() -> None:
    """Name runs as baselines, with which other runs are compared."""


@baseline.command("set")
@click.argument("name")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def set_(name: str, runs: tuple[str, ...]) -> None:
    """Make RUN (an id, its beginning, or latest) the baseline NAME of its suite.

    Several runs of the same test cases are pooled: the base value of a case is the mean of its results.
    """
    from fepflow.services.comparisons import set_baseline

    base, before = set_baseline(name, runs)
    first, *others = base.runs
    was = f" (was {before[:8]})" if before not in (None, first.id) else ""
    if others:
        what = f"{plural(len(base.runs), 'run')} pooled now ({listed([run.id[:8] for run in base.runs])})"
    else:
        what = f"run {first.id[:8]} now, with the verdict {first.outcome}"
    click.echo(f"{name} of {printable(first.name)} is {what}{was}.")
    if base.choice:
        click.echo(f"warning: {base.choice}", err=True)


@baseline.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one baseline a line.")
def list_baselines(as_json: bool) -> None:
    """List the baselines of all suites."""
    from fepflow.services import run_service

    with run_service.open_store() as store:
        baselines = [(named_run, store.runs.get(named_run.run_id)) for named_run in store.runs.baselines()]
    if as_json:
        echo_json_lines(
            {**fields_of(named_run, "suite", "name", "run_id", "others", "set_at"), "outcome": run.outcome}
            for named_run, run in baselines
        )
        return
    from fepflow.cli.console import SHORT_ID, Console, coloured, moment, safe

    rows = []
    for named_run, run in baselines:
        begun, verdict = moment(run.created_at), coloured(run.outcome)
        run_id = run.id[:SHORT_ID] + (f" and {len(named_run.others)} more" if named_run.others else "")
        rows.append((safe(named_run.suite), safe(named_run.name), run_id, begun, verdict, moment(named_run.set_at)))
    columns = ("suite", "baseline", "run", "of", "verdict", "set")
    Console().table(columns, rows, empty="No baselines yet: fepflow baseline set main latest")


@baseline.command()
@click.argument("name")
@click.option("--suite", metavar="NAME", help="Suite of the baseline, if several suites have one of this name.")
def remove(name: str, suite: str | None) -> None:
    """Remove the baseline NAME. Its run is kept."""
    from fepflow.services.comparisons import remove_baseline

    click.echo(f"Removed the baseline {name} of {printable(remove_baseline(name, suite))}.")


@baseline.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("suite", required=False)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
def export_(file: Path, suite: str | None, overwrite: bool) -> None:
    """Write the baselines of all suites, or of SUITE (a name or a file), with their runs to FILE, a zip archive.

    `fepflow baseline import FILE` adds them to another store, for example on a CI runner.
    """
    from fepflow.cli.report_files import require_place
    from fepflow.services.baseline_files import export_baselines

    require_place(file, overwrite=overwrite)
    baselines = export_baselines(file, _suite_named(suite) if suite is not None else None)
    names = ", ".join(f"{baseline.name} of {printable(baseline.suite)}" for baseline in baselines)
    click.echo(f"{file} has {plural(len(baselines), 'baseline')}: {names}.")


@baseline.command("import")
@click.argument("file", type=click.Path(path_type=Path))
def import_(file: Path) -> None:
    """Store the baselines of FILE, written by `fepflow baseline export`. A second import changes nothing."""
    from fepflow.cli.console import SHORT_ID
    from fepflow.services.baseline_files import import_baselines

    for imported in import_baselines(file):
        run_id = imported.run.id[:SHORT_ID] + (f" and {len(imported.others)} more" if imported.others else "")
        was = f" (was {imported.before[:SHORT_ID]})" if imported.before not in (None, imported.run.id) else ""
        verdict = f"with the verdict {imported.run.outcome}{was}"
        click.echo(f"{imported.name} of {printable(imported.suite)} is run {run_id}, {verdict}.")


BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN_RUNS = 40
"""Runs that a sparkline and a table show, the newest."""

EVIDENCE = "evidence (alarm at 365)"


@click.command()
@click.argument("suite")
@click.argument("metric", required=False)
@click.option(
    "--all", "all_causes", is_flag=True, help="Also runs that were started another way, for example manually."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one metric a line.")
def trends(suite: str, metric: str | None, all_causes: bool, as_json: bool) -> None:
    """Show the metrics of SUITE (a name or a file) over its runs, and whether one drifts.

    Only runs like the newest one are shown: they measured the same, on the same cases, and were started the same way
    (with --all, in any way). With METRIC, its runs are listed one by one.
    """
    from fepflow.cli.console import Console
    from fepflow.services import run_service
    from fepflow.services.comparisons import trends_of

    with run_service.open_store() as store:
        name = _suite_named(suite)
        series, others = trends_of(store, name, metric, all_causes=all_causes)
    if as_json:
        echo_json_lines(map(_series_data, series))
    else:
        Console().print(trend_view(name, series, others, all_causes=all_causes, one_by_one=metric is not None))


def _suite_named(suite: str) -> str:
    """Return the name of a suite that is given by it, or by its file."""
    if not Path(suite).is_file():
        return suite
    from fepflow.suite.reader import name_of

    return name_of(suite)


def _series_data(series: Series) -> dict[str, Any]:
    return {
        **fields_of(series, "metric", "rate", "agreed_by", "has_drifted"),
        "trend": asdict(series.trend) if series.trend else None,
        "runs": [asdict(point) for point in series.points],
    }


def trend_view(
    suite: str, all_series: Sequence[Series], others: int = 0, *, all_causes: bool = False, one_by_one: bool = False
) -> Iterator[Table | str]:
    """Yield metrics over runs, a line for each, or the runs of the first one by one; `others` counts runs left out."""
    from fepflow.cli.console import safe
    from fepflow.page_links import trends_page

    runs = max(len(series.points) for series in all_series)
    left = f"; {others} other{'' if others == 1 else 's'} measured something else" if others else ""
    if others and not all_causes:
        left += ", or were started another way"
    yield f"[bold]{safe(suite)}[/]  {runs} {'run' if runs == 1 else 'runs'}{left}"
    yield _run_table(all_series[0]) if one_by_one else _trend_table(all_series)
    for series in all_series:
        if series.has_drifted:
            yield f"[red]DRIFT[/]  {safe(series.sentence)}"
        elif series.evidence:
            yield safe(f"{series.metric}: {series.evidence}")
    if page := trends_page(suite):
        yield safe(page)


def _trend_table(all_series: Sequence[Series]) -> Table:
    from fepflow.cli.console import number, safe, table

    made = table("metric", "first", "last", "runs", "trend", "agreed rate", EVIDENCE)
    for series in all_series:
        values = [point.value for point in series.points]
        made.add_row(
            safe(series.metric),
            number(values[0]),
            number(values[-1]),
            sparkline(values),
            _trend(series),
            "·" if series.rate is None else f"{series.rate:.3g}",
            _evidence(series.points[-1].log_evidence),
        )
    return made


def _run_table(series: Series) -> Table:
    from fepflow.cli.console import SHORT_ID, coloured, interval, number, table

    made = table("run", "started", series.metric, "interval", "verdict", EVIDENCE)
    for point in series.points[-SHOWN_RUNS:]:
        made.add_row(
            point.run_id[:SHORT_ID],
            point.created_at.astimezone().strftime("%Y-%m-%d %H:%M"),
            number(point.value),
            interval(point.low, point.high),
            coloured(point.outcome),
            _evidence(point.log_evidence),
        )
    return made


def _trend(series: Series) -> str:
    from fepflow.analysis.drift import SHOWN_P

    if series.trend is None:
        return "·"
    way = "none shown" if series.trend.p > SHOWN_P else "falling" if series.trend.s < 0 else "rising"
    return f"{way} (p {series.trend.p:.2g})"


def _evidence(log: float | None) -> str:
    return "·" if log is None else f"{math.exp(min(max(log, 0.0), 600.0)):.3g}"


def sparkline(values: Sequence[float]) -> str:
    """Draw the newest values as a line of blocks, from the least to the largest."""
    shown = values[-SHOWN_RUNS:]
    low, high = min(shown), max(shown)
    width = high / 2 - low / 2
    return "".join(BLOCKS[round((value / 2 - low / 2) / width * 7) if width else 3] for value in shown)
