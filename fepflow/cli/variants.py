"""A suite's variants on the command line: their runs, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.table import Table

from fepflow.analysis.variants import COLUMNS, VariantTable, rows_of, variant_table
from fepflow.cli.console import COLOURS, SHORT_ID, Console, safe, table
from fepflow.cli.options import Reports
from fepflow.errors import InfrastructureError, RunBusyError
from fepflow.page_links import variants_page
from fepflow.reports.fep import dumps, variants_summary
from fepflow.services.variants import FinishedVariants, execute_variants
from fepflow.text import plural

if TYPE_CHECKING:
    from fepflow.store.store import Store
    from fepflow.tasks.local_run import LocalVariants


def run_variants(begun: LocalVariants, console: Console, reports: Reports, json_to: TextIO | None) -> FinishedVariants:
    """Execute the variants that have begun, and print their end."""
    calls = sum(variant.run.calls for variant in begun.runs)
    what = f"{safe(begun.name)}: {plural(len(begun.runs), 'variant')}, {plural(calls, 'call')}, {begun.id[:SHORT_ID]}"
    try:
        with console.progress(what, calls) as listener:
            finished = execute_variants(begun, listener)
    except RunBusyError:
        raise
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}\n{_go_on(begun.id)}") from None
    for warning in dict.fromkeys(begun.warnings):
        console.note(f"warning: {warning}")
    written = write_reports(begun.store, finished.table, reports, console)
    if json_to is not None:
        _write_json(finished.table, json_to)
    print_end(console, finished, written)
    return finished


def show_variants(store: Store, variants_id: str, console: Console, reports: Reports, json_to: TextIO | None) -> int:
    """Print the table of variants, also while they are under way, and write the reports; return the exit code."""
    variants = variant_table(store, variants_id)
    written = write_reports(store, variants, reports, console)
    if json_to is not None:
        _write_json(variants, json_to)
    else:
        console.print(variants_view(variants))
    return 0 if len(written) == len(reports.paths) * len(variants.runs) else InfrastructureError.exit_code


def _write_json(variants: VariantTable, file: TextIO) -> None:
    file.write(f"{dumps(variants_summary(variants))}\n")


def _go_on(variants_id: str) -> str:
    command = f"fepflow run --resume {variants_id[:SHORT_ID]}"
    return f"Stored results are kept: `{command}` continues the variants that have no verdict."


def write_reports(store: Store, variants: VariantTable, reports: Reports, console: Console) -> list[Path]:
    """Write each report of each variant that has come to an end; return the paths."""
    written = []
    for number, run in enumerate(variants.runs, 1):
        written += reports.of_variant(number).write(store, run, console.report_error)
    return written


def print_end(console: Console, finished: FinishedVariants, written: Sequence[Path]) -> None:
    """Print the table, what it shows, and where to look."""
    if not finished.prefect_informed:
        console.note("warning: Prefect's API stopped answering; the verdicts are in the store, but Prefect lacks some")
    variants = finished.table
    if console.quiet:
        console.print([_headline(variants)])
        return
    console.print(variants_view(variants))
    places = {
        "variants": f"fepflow show {variants.id[:SHORT_ID]}",
        "page": variants_page(variants.id),
        "Prefect UI": finished.flow_run_url,
    }
    rows = [*((name, place) for name, place in places.items() if place), *(("report", str(path)) for path in written)]
    console.print(f"  {name:<11}{safe(place)}" for name, place in rows)
    if finished.stopped:
        console.print([_go_on(variants.id)])


def variants_view(variants: VariantTable) -> Iterator[Table | str]:
    """Yield what is printed of variants: the table, what it shows, and what came of them."""
    made = table("run", *COLUMNS)
    for row in rows_of(variants):
        made.add_row(row.run.id[:SHORT_ID], safe(row.label), *map(safe, row.cells))
    yield made
    yield from (f"  - {safe(sentence)}" for sentence in variants.sentences)
    yield _headline(variants)


def _headline(variants: VariantTable) -> str:
    colour = COLOURS[variants.outcome or "fail"]
    word = "RUNNING" if variants.is_live else (variants.outcome or "could not be evaluated").upper()
    return f"[bold {colour}]{word}[/]  {safe(variants.summary)}"
