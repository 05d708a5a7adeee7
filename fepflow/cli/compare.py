"""`fepflow compare`: runs of the same cases beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from fepflow.analysis.regressions import JudgedComparisons
    from fepflow.analysis.run_comparison import RunComparison
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store

_COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", None: "yellow"}


class Margin(click.ParamType[tuple[str | None, float]]):
    """A number, or a metric's name with one: how much worse is still accepted."""

    name = "margin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, float]:
        """The metric, None for all shares, and its margin."""
        if isinstance(value, tuple):
            return value
        name, _, number = str(value).rpartition("=")
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not 0 <= margin < math.inf:
            self.fail(f"{value!r} is no margin: a number such as 0.02, or METRIC=0.3", param, ctx)
        return name or None, margin


@click.command()
@click.argument("base")
@click.argument("new", nargs=-1, required=True)
@click.option("--margin", "margins", type=Margin(), multiple=True, metavar="[METRIC=]NUMBER",
              help="Show that shares (or METRIC) are not worse by more than this; repeatable.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True,
              help="markdown is for a comment on a pull request.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(0), default=5, show_default=True,
              help="How many cases that flipped, each way.")  # fmt: skip
def compare(
    base: str, new: tuple[str, ...], margins: tuple[tuple[str | None, float], ...], form: str, limit: int
) -> int:
    """Compare runs with the run BASE, over the test cases that they have in common.

    Runs are given by id, its beginning, latest, or the name of a baseline. Exit code: 1 if a regression is shown, 4 if
    neither that nor the margin that was asked for is, else 0.
    """
    from fepflow.services import baselines, run_service

    by_metric = {name: margin for name, margin in margins if name is not None}
    plain = next((margin for name, margin in reversed(margins) if name is None), None)
    with run_service.open_store() as store:
        judged = baselines.compare(store, base, new, plain, by_metric)
        if form == "table":
            from fepflow.cli.console import Console

            Console().print(_view(store, judged, limit))
        else:
            from fepflow.reports.comparison import as_json, as_markdown
            from fepflow.reports.fep import dumps

            click.echo(
                dumps(as_json(store, judged)) if form == "json" else "\n".join(as_markdown(store, judged, limit))
            )
    return 0 if judged.outcome is None else run_service.EXIT_CODES[judged.outcome]


def _view(store: Store, judged: JudgedComparisons, limit: int) -> Iterator[Table | str]:
    from fepflow.cli.text import safe
    from fepflow.reports.comparison import HEADLINES

    yield _head("base", judged.comparisons[0].base)
    for each in judged.comparisons:
        yield _head("new ", each.new)
        yield f"      {safe(each.matched.sentence)}"
        yield from (f"  [yellow]![/] {safe(warning)}" for warning in each.warnings)
    yield _table(judged)
    for each in judged.comparisons:
        yield from (
            f"not compared: {safe(f'{metric.id}: {metric.why_not}')}" for metric in each.metrics if metric.why_not
        )
    if len(judged.comparisons) == 1:
        yield from _flips(store, judged.comparisons[0], limit)
    yield f"[bold {_COLOURS[judged.outcome]}]{HEADLINES[judged.outcome].upper()}[/]"
    shown = [rule for rules in judged.rules for rule in rules if judged.asked or rule.outcome == "fail"]
    yield from (f"  - {safe(rule.reason)}" for rule in shown)
    if not judged.asked:
        yield "  Whether it is excluded takes a margin that would be accepted: --margin 0.02"


def _head(word: str, run: RunRecord) -> str:
    from fepflow.cli.text import SHORT_ID, safe

    return f"{word}  {run.id[:SHORT_ID]}  {safe(run.name)}  {run.created_at:%Y-%m-%d %H:%M}  {run.outcome}"


def _table(judged: JudgedComparisons) -> Table:
    from fepflow.cli.text import SHORT_ID, safe, table
    from fepflow.reports.comparison import figures

    several = len(judged.comparisons) > 1
    p = "p (Holm)" if sum(map(len, judged.p_values)) > 1 else "p"
    made = table("metric", *["run"] * several, "base", "new", "difference", "interval", p, "worse", "better")
    for index, each in enumerate(judged.comparisons):
        for metric in each.metrics:
            if metric.estimate is not None:
                run = [each.new.id[:SHORT_ID]] * several
                made.add_row(safe(metric.id), *run, *figures(metric, judged.p_values[index].get(metric.id), "·"))
    return made


def _flips(store: Store, compared: RunComparison, limit: int) -> Iterator[str]:
    from fepflow.cli.text import one_line, safe
    from fepflow.reports.comparison import MAX_OUTPUT, output_text, reason_of

    for what, flips in (("worse", compared.worsened), ("better", compared.improved)):
        if flips:
            yield f"{what} now ({min(limit, len(flips))} of {len(flips)}{'' if len(flips) <= limit else ', --limit'}):"
        for flip in flips[:limit]:
            yield f"  [bold]{safe(flip.case_id)}[/]  {safe(flip.metric)}: {flip.base:.4g} → {flip.new:.4g}"
            yield f"    base  {one_line(output_text(store, compared.base.id, flip.base_index)[:MAX_OUTPUT])}"
            yield f"    new   {one_line(output_text(store, compared.new.id, flip.new_index)[:MAX_OUTPUT])}"
            if reason := reason_of(store, compared, flip):
                yield f"    why   {safe(reason)}"
