"""`fepflow evalguard`: EvalGuard's definitions, reports and thresholds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fepflow.cli.options import JSON, echo_json, echo_json_lines, fields_of, pair
from fepflow.cli.suites import MOST_PROBLEMS, print_problems
from fepflow.text import plural, printable

if TYPE_CHECKING:
    from fepflow.evalguard.models import Report
    from fepflow.evalguard.validation import CatalogueValidation
    from fepflow.store.records import StoredReport
    from fepflow.verdict.verdict import Verdict

IMPACTS = ("no_measurable", "very_low", "low", "moderate", "high", "severe")
"""The impacts of `fepflow.suite.models`, which would slow `fepflow --help` down."""

REPORT = click.argument("report", metavar="REPORT", type=click.Path(path_type=Path))


@click.group()
def evalguard() -> None:
    """Work with EvalGuard's tasks, metrics, thresholds and reports."""


@evalguard.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print a JSON Schema of EvalGuard's documents. Without NAME, list their names."""
    from fepflow.documents.messages import did_you_mean
    from fepflow.evalguard.documents import SCHEMAS, schema_path, schema_text

    if name is None:
        for known in SCHEMAS:
            click.echo(f"{known:<10} {schema_path(known)}")
    elif name not in SCHEMAS:
        raise click.UsageError(f"there is no schema {name} ({did_you_mean(name, SCHEMAS)})")
    else:
        click.echo(schema_text(name), nl=False)


@evalguard.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--lenient", is_flag=True, help="Treat unknown fields as warnings, not errors.")
@JSON
def validate(paths: Sequence[Path], lenient: bool, as_json: bool) -> int:
    """Find all mistakes in files, or in all files of folders.

    The exit code is 0 if all are valid, 1 if not, and 2 if something cannot be read. Warnings do not count.
    """
    from fepflow.evalguard.validation import validate_catalogue

    validation = validate_catalogue(paths, is_lenient=lenient)
    if as_json:
        echo_json(_as_json(validation))
    else:
        print_problems(validation.problems)
        errors, warnings = plural(len(validation.errors), "error"), plural(len(validation.warnings), "warning")
        ignored = f", {plural(len(validation.ignored), 'file')} of other kinds ignored" if validation.ignored else ""
        click.echo(
            f"{plural(validation.files, 'document')}: {errors}, {warnings}{ignored}.", err=bool(validation.errors)
        )
    return int(bool(validation.errors))


def _as_json(validation: CatalogueValidation) -> dict[str, Any]:
    fields = ("severity", "rule", "message", "advice", "file", "line", "column", "path")
    return {
        "valid": not validation.errors,
        "documents": validation.files,
        "errors": len(validation.errors),
        "warnings": len(validation.warnings),
        "ignored": [str(path) for path in validation.ignored],
        "problems": [fields_of(problem, *fields) for problem in validation.problems],
    }


@evalguard.command()
@REPORT
@click.option(
    "--thresholds",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Threshold file, policy, or a folder of these.",
)
@click.option(
    "--max-impact", type=click.Choice(IMPACTS), default="low", show_default=True, help="Worst impact that still passes."
)
@click.option("--task", "tasks", multiple=True, metavar="ID", help="Judge this task only. Repeatable.")
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence of the intervals.",
)
@click.option(
    "--verdict",
    "mode",
    type=click.Choice(["interval", "point"]),
    default="interval",
    show_default=True,
    help="Judge by intervals, or by values alone.",
)
@JSON
def verdict(
    report: Path, thresholds: Path, max_impact: Any, tasks: Sequence[str], confidence: float, mode: Any, as_json: bool
) -> int:
    """Judge REPORT by the thresholds of its tasks.

    REPORT is a file in EvalGuard's form, a result file of lm-evaluation-harness, or the id of an imported report. Exit
    codes are those of `fepflow run`: 0 pass, 1 fail, 4 inconclusive. A metric that cannot be judged never passes.
    """
    from fepflow.evalguard.documents import load_all_thresholds
    from fepflow.services.evalguard_reports import find_report
    from fepflow.services.run_service import EXIT_CODES
    from fepflow.suite.models import Gate
    from fepflow.verdict.report import judge_report

    loaded, warnings = find_report(report)
    gate = Gate(max_impact=max_impact, confidence=confidence, verdict=mode)
    judged = judge_report(loaded, load_all_thresholds(thresholds), gate, tasks)
    judged = judged.model_copy(update={"warnings": [*warnings, *judged.warnings]})
    if as_json:
        echo_json(judged.model_dump(mode="json", exclude_none=True))
    else:
        _print_verdict(loaded, judged)
    return EXIT_CODES[judged.outcome]


def _print_verdict(report: Report, judged: Verdict) -> None:
    from fepflow.cli.console import Console, safe
    from fepflow.cli.run_view import metric_table, verdict_lines

    document = judged.model_dump(mode="json", exclude_none=True)
    model = report.context.model_name if report.context else None
    head = [f"[bold]{safe(model)}[/]"] if model else []
    metrics = [metric_table(document["metrics"])] if document["metrics"] else []
    Console().print([*head, *metrics, *verdict_lines(judged.outcome, document)])


@evalguard.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
def import_reports(paths: Sequence[Path]) -> int:
    """Store reports in EvalGuard's form or from lm-evaluation-harness: files, and all files in folders.

    Stored reports do not change. Invalid files are reported, the others are imported, and the exit code is 1.
    """
    from fepflow.services import run_service
    from fepflow.services.evalguard_reports import import_reports

    with run_service.open_store() as store:
        summary = import_reports(store, paths, _warn)
    for problem in summary.bad[:MOST_PROBLEMS]:
        click.echo(f"error: {problem}", err=True)
    parts = [f"{plural(summary.added, 'report')} imported"]
    parts += [f"{summary.known} there already"] if summary.known else []
    parts += [f"{plural(summary.skipped, 'file')} without a report skipped"] if summary.skipped else []
    bad = len({problem.file for problem in summary.bad})
    parts += [f"{plural(bad, 'bad file')}"] if bad else []
    click.echo(f"{', '.join(parts)}.", err=bool(bad))
    return int(bool(bad))


def _warn(path: Path, warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {printable(f'{path}: {warning}')}", err=True)


@evalguard.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of reports."
)
@click.option("--model", metavar="NAME", help="Only reports of this model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one report a line.")
def list_reports(limit: int, model: str | None, as_json: bool) -> None:
    """List imported reports, newest imports first."""
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    with run_service.open_store() as store:
        reports = store.reports.newest_imported(limit, model)
    if not as_json:
        Console().table(
            ("report", "model", "from", "evaluated", "tasks"),
            map(_cells, reports),
            empty="No reports yet: fepflow evalguard import results.json",
        )
        return
    names = (
        "id",
        "report_id",
        "model_name",
        "model_source",
        "tasks",
        "source",
        "warnings",
        "evaluated_at",
        "imported_at",
    )
    echo_json_lines(fields_of(report, *names) for report in reports)


def _cells(report: StoredReport) -> list[str]:
    from fepflow.cli.console import SHORT_ID, safe

    evaluated = f"{report.evaluated_at:%Y-%m-%d %H:%M}" if report.evaluated_at else "·"
    model, source = safe(report.model_name or "·"), safe(report.model_source or "·")
    names = ", ".join(report.tasks[:3]) + (f" and {len(report.tasks) - 3} more" if len(report.tasks) > 3 else "")
    return [report.id[:SHORT_ID], model, source, evaluated, safe(names)]


@evalguard.command()
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
def export(report: Path, as_json: bool) -> None:
    """Print REPORT, a file or the id of an imported report, in EvalGuard's form."""
    from fepflow.documents.loader import dump_yaml
    from fepflow.services.evalguard_reports import find_report

    document = find_report(report)[0].to_json()
    click.echo(json.dumps(document, indent=2) + "\n" if as_json else dump_yaml(document), nl=False)


@evalguard.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--impact",
    "impacts",
    multiple=True,
    type=pair("LABEL=IMPACT"),
    metavar="LABEL=IMPACT",
    help="Impact for an old label of ranges, for example Poor=severe. Repeatable.",
)
@click.option("--write", is_flag=True, help="Write the files, instead of printing them.")
def migrate(path: Path, impacts: Sequence[tuple[str, str]], write: bool) -> None:
    """Convert a file, or all files of a folder, to the layouts of EvalGuard v1.

    Prints each file that is not yet in v1 as it would be. With --write, files whose content moved to another file are
    renamed to .bak.
    """
    from fepflow.evalguard.migration import plan_migration, write_migration

    for label, impact in impacts:
        if impact not in IMPACTS:
            raise click.UsageError(f"--impact {label}={impact}: an impact is one of {', '.join(IMPACTS)}")
    migration = plan_migration(path, dict(impacts))
    if not write:
        for file in migration.files:
            click.echo(f"# {printable(str(file.path))}\n{file.text}", nl=False)
        click.echo(f"{len(migration.files)} to migrate, {len(migration.unchanged)} already v1.", err=True)
        return
    write_migration(migration)
    for file in migration.files:
        click.echo(f"{printable(str(file.path))}: written")
    for former in migration.set_aside:
        click.echo(f"{printable(str(former))}: set aside as {printable(former.name)}.bak")
    click.echo(f"{len(migration.files)} written, {len(migration.unchanged)} were v1 already.", err=True)
