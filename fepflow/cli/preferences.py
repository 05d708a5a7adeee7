"""A judge's preferences, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from fepflow.analysis.preferences import JudgedPreferences


def preference_view(judged: JudgedPreferences) -> Iterator[Table | str]:
    """Yield the win rates, and the strengths of more than two runs."""
    from fepflow.cli.console import safe, table
    from fepflow.reports.preferences import COLUMNS, STRENGTH_COLUMNS, asked_sentence, rows_of, strength_rows

    found = judged.preferences
    yield ""
    yield f"[bold]judge[/]  {safe(judged.model)}: {safe(judged.question)}"
    made = table(*COLUMNS)
    for row in rows_of(found):
        made.add_row(*map(safe, row))
    yield made
    if found.strengths:
        strengths = table(*STRENGTH_COLUMNS)
        for row in strength_rows(found):
            strengths.add_row(*map(safe, row))
        yield strengths
    yield from (f"  - {safe(each.sentence)}" for each in found.between)
    yield from (f"  [yellow]![/] {safe(warning)}" for each in found.between for warning in each.warnings)
    yield f"  {safe(asked_sentence(judged))}"
