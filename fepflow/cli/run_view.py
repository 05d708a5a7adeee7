"""A run, or a suite's variants, as a person sees them: checks, metrics and cases, the verdict and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.table import Table

from fepflow.analysis.causes import causes_of, show_command
from fepflow.analysis.judge_reliability import reliability_of_judges
from fepflow.checks.explanation import MAX_SENTENCE, explain, findings
from fepflow.cli.console import COLOURS, MAX_TEXT, SHORT_ID, Console, as_line, coloured, interval, number, safe, table
from fepflow.cli.options import Reports
from fepflow.errors import InfrastructureError, RunBusyError
from fepflow.page_links import variants_page
from fepflow.protocol.results import CheckResult, score_of
from fepflow.protocol.test_case import ending, exchanges
from fepflow.services.failed_results import Selection, count_cases, selected
from fepflow.services.run_service import seconds_of
from fepflow.statistics.estimate import RANGE_UNKNOWN
from fepflow.store.records import CaseResult, CheckCounts, Outcome, RunFilter, RunRecord
from fepflow.store.store import Store
from fepflow.text import cut, plural
from fepflow.traces.conventions import summary_of

if TYPE_CHECKING:
    from fepflow.analysis.variants import VariantTable
    from fepflow.services.variants import FinishedVariants
    from fepflow.tasks.local_run import LocalVariants

SHORT_DIGEST = 12
MOST_SLICES = 30
"""Slices that are printed, the worst first."""


def run_view(store: Store, run: RunRecord) -> Iterator[Table | str]:
    """Yield what is printed of a run: tables, and lines of markup."""
    yield _head(store, run)
    counts = store.results.check_totals(run.id)
    if counts:
        yield _check_table(counts)
    if run.metrics:
        yield metric_table(run.metrics, (run.verdict or {}).get("baseline"))
    if (regression := (run.verdict or {}).get("regression")) and regression["metrics"]:
        yield _regression_table(regression)
        base = regression["run_id"][:SHORT_ID]
        others = len(regression.get("pooled", ())) - 1
        more = f" and {others} more" if others > 0 else ""
        command = f"fepflow compare {regression['baseline'] if more else base} {run.id[:SHORT_ID]}"
        yield f"against run {base}{more}: {safe(regression['matched'])} ({command})"
    if slices := (run.verdict or {}).get("slices"):
        yield _slice_table(slices)
    for confusion in (run.verdict or {}).get("confusions") or ():
        yield from _confusion(confusion)
    for row in counts:
        if row.error and row.error == row.passed + row.failed + row.error + row.skipped + row.unjudged:
            yield f"[yellow]{safe(row.check_id)} ended in an error every time: {row.error} of {row.error}[/]"
    for judge in reliability_of_judges(store, run):
        sentence = safe(judge.sentence())
        yield sentence if judge.calibration else f"[yellow]{sentence}[/]"
    yield from verdict_view(run)
    yield from _causes(store, run)


def verdict_view(run: RunRecord, *, brief: bool = False) -> Iterator[str]:
    """Yield the verdict and what it rests on, as markup; if `brief`, only the outcome and the reason that decided."""
    if run.outcome is None:
        yield from _no_verdict(run)
    else:
        yield from verdict_lines(run.outcome, run.verdict, brief=brief)


def verdict_lines(outcome: Outcome, verdict: Mapping[str, Any], *, brief: bool = False) -> Iterator[str]:
    """Yield the lines of a verdict as it is stored."""
    first, *others = verdict["reasons"] or [verdict["gate"]]
    yield f"[bold {COLOURS[outcome]}]{outcome.upper()}[/]  {safe(first)}"
    if brief:
        return
    yield f"  gate: {safe(verdict['gate'])}"
    if topped_up := verdict.get("top_up"):
        yield f"  {safe(topped_up['summary'])}"
    if looks := verdict.get("looks"):
        yield f"  {safe(looks['summary'])}"
    if digest := verdict.get("thresholds_digest"):
        yield f"  thresholds: sha256 {digest[:SHORT_DIGEST]}"
    if baseline := verdict.get("baseline"):
        worse = ": the outcome has worsened" if baseline["worsened"] else ""
        yield f"  baseline: {coloured(baseline['outcome'])} in run {baseline['run_id'][:SHORT_ID]}{worse}"
        if summary := baseline.get("summary"):
            yield f"    {safe(summary)}"
    elif reason := verdict.get("not_compared"):
        yield f"  no baseline: {safe(reason)}"
    yield from (f"  - {safe(reason)}" for reason in others)
    yield from (f"  [yellow]![/] {safe(warning)}" for warning in verdict.get("warnings", ()))
    if models := verdict.get("models"):
        from fepflow.verdict.verdict import ModelCosts

        yield f"  models: {ModelCosts.model_validate(models)}"


MOST_EARLIER = 20
"""Earlier inconclusive runs that are looked at."""


def first_inconclusive(store: Store, run: RunRecord) -> Iterator[str]:
    """Yield what helps, the most useful first, after the first inconclusive run of a suite; nothing after others.

    A run of chosen cases does not count: it is always inconclusive, and says why.
    """
    if run.outcome != "inconclusive" or run.verdict is None or run.filtered:
        return
    earlier = store.runs.find(RunFilter(suite=run.name, outcome="inconclusive"), MOST_EARLIER)
    if any(not store.runs.get(other.id).filtered for other in earlier if other.id != run.id):
        return
    from fepflow.verdict.metric_rules import UNCHECKED, settling_cases  # with the statistics, a tenth of `show`

    yield "This is the suite's first INCONCLUSIVE: its results show neither a pass nor a fail. What helps:"
    reasons = run.verdict.get("reasons") or [""]
    reason = reasons[0]
    needed = settling_cases(reason)
    is_unbounded = RANGE_UNKNOWN in reason
    is_missing = any(metric["n_completed"] < metric["n_expected"] for metric in run.metrics or ())
    if is_unbounded:
        yield safe("  - range: [least, most] of that metric, as no number of test cases shows a mean without it")
    elif UNCHECKED in reason:
        yield "  - checks for these test cases, or checks: for all"
    elif needed is not None and needed > run.n_cases:
        more = needed - run.n_cases
        yield f"  - {more:,} more test cases like these, {needed:,} in all, which would settle it in 4 of 5 runs"
    elif run.rescored_from is not None and run.suite_path:
        yield f"  - a new run, as nobody was asked this time: fepflow run {safe(shlex.quote(run.suite_path))}"
    elif any("(budget." in other for other in reasons):
        yield "  - a new run with a larger budget: a resumed one keeps what it has spent"
    elif is_missing:
        yield f"  - the results that are missing, once their cause is gone: fepflow run --resume {run.id[:SHORT_ID]}"
    elif "no number of test cases" not in reason:
        yield "  - more test cases: fepflow plan says how many"
    if is_missing:
        return  # the rest is for results that are too few: allowed, an agent that is down would end with exit code 0
    gate = run.suite.get("gate") or {}
    if gate.get("inconclusive") != "allow":
        yield "  - gate: {inconclusive: allow}, if such a run should not stop a release (exit code 0, and not 4)"
    if not gate.get("top_up") and not is_unbounded and (gate.get("min") or gate.get("max")):
        rounds = max(2 * run.repeats, 5)
        yield f"  - gate: {{top_up: {{max_repeats: {rounds}}}}}, which asks these cases again while the verdict is open"


def _no_verdict(run: RunRecord) -> Iterator[str]:
    so_far = "no verdict yet, the numbers are of what is there" if run.metrics else "no verdict yet"
    yield f"[bold yellow]{run.status.upper()}[/]  {safe(run.error or so_far)}"
    if run.status in ("interrupted", "cancelled", "failed"):
        yield f"Continue it: fepflow run --resume {run.id[:SHORT_ID]}"


def _causes(store: Store, run: RunRecord) -> Iterator[str]:
    summary = causes_of(store, run)
    if summary.causes:
        yield "What did not pass:"
    for cause in summary.causes:
        yield f"  {safe(str(cause))}"
        yield f"  {' ' * len(str(cause.count))}   [dim]{safe(cause.cases)}: {safe(show_command(run, cause))}[/]"
    yield from (f"  {safe(remark)}" for remark in summary.remarks)


def _head(store: Store, run: RunRecord) -> str:
    seen = store.results.progress(run.id)
    what = "calls" if run.rescored_from is None else "outputs"
    failed = f", {seen.failed_outputs} without an answer" if seen.failed_outputs else ""
    failed += f", {plural(seen.reused, 'output')} from earlier runs" if seen.reused else ""
    return (
        f"[bold]{safe(run.name)}[/]  run {run.id[:SHORT_ID]}  {run.status}{_duration(run)}\n"
        f"{run.n_cases} cases x {run.repeats}: {seen.outputs} of {run.calls} {what}{failed}; "
        f"{plural(seen.checks, 'check')}"
        + (f"\n{safe(run.part)}" if run.part and run.outcome is None else "")
        + (f"\nrescored from run {run.rescored_from[:SHORT_ID]}" if run.rescored_from else "")
        + (f"\ntaken over {plural(run.takeovers, 'time')}, as its process was gone" if run.takeovers else "")
        + (f"\nversion {safe(run.version)}" if run.version else "")
        + (f"\ntest cases from {safe(run.origin_phrase)}" if run.origin_phrase else "")
        + (f"\nimported from {safe(run.import_phrase)}" if run.import_phrase else "")
    )


def _check_table(counts: Sequence[CheckCounts]) -> Table:
    made = table("check", "passed", "failed", "error", "skipped", "score only")
    for row in counts:
        cells = (row.passed, row.failed, row.error, row.skipped, row.unjudged)
        made.add_row(safe(row.check_id), *(str(count) if count else "·" for count in cells))
    return made


MEASURES = ("precision", "recall", "f1")

Columns = Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]]
"""Names of columns, and what they show of a row."""

_FIGURES: Columns = (
    ("value", lambda row: number(row.get("value"))),
    ("interval", lambda row: interval(row.get("low"), row.get("high"))),
    ("n", lambda row: f"{row['n_completed']} of {row['n_expected']}" if row["n_expected"] else "·"),
    ("errors", lambda row: str(row["n_error"] or "·")),
)


def metric_table(metrics: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any] | None = None) -> Table:
    """Return the metrics of a verdict, beside those of a baseline if there is one."""
    changes = {change["id"]: change for change in baseline["metrics"]} if baseline else {}
    columns: Columns = (
        ("metric", lambda row: safe(row["id"])),
        *_FIGURES,
        ("impact", lambda row: _impact(row.get("impact"), row.get("worst_impact"))),
        ("gate", lambda row: coloured(row.get("outcome"))),
    )
    beside: Columns = (
        ("baseline", lambda row: number(changes.get(row["id"], {}).get("baseline"))),
        ("change", lambda row: number(changes.get(row["id"], {}).get("difference"), sign="+")),
    )
    return _table_of(metrics, columns, beside if changes else ())


def _regression_table(regression: Mapping[str, Any]) -> Table:
    columns: Columns = (
        ("metric", lambda row: safe(row["metric"])),
        (safe(regression["baseline"]), lambda row: number(row.get("baseline"))),
        ("now", lambda row: number(row.get("value"))),
        ("difference", lambda row: number(row.get("difference"), sign="+")),
        ("interval", lambda row: interval(row.get("low"), row.get("high"))),
        ("worse", lambda row: str(row["worsened"] or "·")),
        ("better", lambda row: str(row["improved"] or "·")),
        ("margin", lambda row: number(row["margin"]) if "margin" in row else "·"),
        ("outcome", lambda row: coloured(row.get("outcome"))),
    )
    return _table_of(regression["metrics"], columns)


def _slice_table(slices: Sequence[Mapping[str, Any]]) -> Table:
    columns: Columns = (
        (safe(slices[0]["by"]), lambda row: safe(row["slice"])),
        ("metric", lambda row: safe(row["metric"])),
        *_FIGURES,
        ("minimum", lambda row: number(row["threshold"]) if "threshold" in row else "·"),
        ("outcome", lambda row: coloured(row.get("outcome"))),
    )
    if any("shrunk" in row for row in slices):
        columns = (*columns, ("shrunk", lambda row: number(row.get("shrunk"))))
    made = _table_of(slices[:MOST_SLICES], columns)
    if len(slices) > MOST_SLICES:
        made.add_row(f"... and {len(slices) - MOST_SLICES} more (--json)")
    return made


def _confusion(confusion: Mapping[str, Any]) -> Iterator[Table | str]:
    """Yield a confusion matrix: a row for each expected label, with what its results were predicted as."""
    made = table(f"{safe(confusion['check'])}: expected", *map(safe, confusion["columns"]), "precision", "recall", "F1")
    for row in confusion["classes"]:
        cells = (str(count) if count else "·" for count in row["predicted"])
        made.add_row(safe(row["label"]), *cells, *(_corrected(row[measure]) for measure in MEASURES))
    blank = [""] * len(confusion["columns"])
    made.add_row("[dim]mean of classes[/]", *blank, *(_corrected(confusion[measure]) for measure in MEASURES))
    yield made
    if left_out := confusion.get("left_out"):
        yield f"the {len(confusion['classes'])} most frequent classes; {left_out} more are left out"


def _table_of(rows: Sequence[Mapping[str, Any]], columns: Columns, beside: Columns = ()) -> Table:
    """Return a table of metrics, with a column of corrected values if a row has one."""
    if any("corrected" in row for row in rows):
        columns = (*columns, ("corrected for the judge", lambda row: _corrected(row.get("corrected"))))
    if any("pooled" in row for row in rows):
        columns = (*columns, ("all runs", lambda row: _corrected(row.get("pooled"))))
    columns = (*columns, *beside)
    made = table(*(name for name, _ in columns))
    for row in rows:
        made.add_row(*(cell(row) for _, cell in columns))
    return made


def _corrected(figures: Mapping[str, Any] | None) -> str:
    """Return value and interval, for example of a share corrected for the errors of its judge."""
    if figures is None or figures.get("value") is None:
        return "·"
    return f"{number(figures['value'])} ({number(figures['low'])} to {number(figures['high'])})"


def _impact(impact: str | None, reached: str | None) -> str:
    """Return the impact of the value, and the worst that the interval reaches."""
    if reached is None or reached == impact:
        return impact or "·"
    return f"{impact or 'unknown'} (to {reached})"


def _duration(run: RunRecord) -> str:
    lasted = seconds_of(run)
    return "" if lasted is None else f"  {lasted:.1f} s" + ("" if run.completed_at else " so far")


def cases_view(store: Store, run: RunRecord, selection: Selection, limit: int) -> Iterator[Table | str]:
    """Yield a run with at most `limit` of its cases. Raises NotFoundError before anything is printed."""
    return chain(run_view(store, run), _cases(store, run, selection, selected(store, run, selection), limit))


def _cases(
    store: Store, run: RunRecord, selection: Selection, results: Iterator[CaseResult], limit: int
) -> Iterator[str]:
    shown: set[int] = set()
    for result in results:
        if result.case_index not in shown and len(shown) == limit:
            break
        shown.add(result.case_index)
        yield from _case(run, result, selection)
    if not shown:
        yield "No case is in error." if selection.errors else "No case failed."
    elif selection.failed and selection.case_id is None:
        cases = count_cases(store, run, selection)
        if cases > len(shown):
            yield f"\n{len(shown)} of {cases} cases; all of them: --limit {cases}"


def _case(run: RunRecord, result: CaseResult, selection: Selection) -> Iterator[str]:
    """Yield lines of markup about one repeat of a case, with the checks that were selected."""
    repeat = f" #{result.repeat + 1}" if run.repeats > 1 else ""
    yield f"\n[bold]{safe(result.case.id)}{repeat}[/]"
    yield f"  input     {as_line(result.case.input)}"
    if "expected" in result.case.model_fields_set:
        yield f"  expected  {as_line(result.case.expected)}"
    if result.output is None:
        yield "  output    [yellow]not asked yet[/]"
        return
    failure = result.output.failure
    if failure:
        yield f"  {'broke off' if result.output.is_partial else 'no output'} {as_line(failure['message'])}"
    if turns := exchanges(result.output.value):
        for number, turn in enumerate(turns, 1):
            yield f"  {f'turn {number}':9} user:  {as_line(turn.message)}"
            yield f"            agent: {as_line(turn.step['public_output']) if turn.step else '[yellow]no answer[/]'}"
    elif not failure or result.output.is_partial:
        yield f"  output    {as_line(result.output.value)}"
    metadata = dict(result.output.metadata or {})
    if ended := ending(metadata):
        yield f"  ended     {as_line(ended)}"
    attempts = metadata.pop("attempt_log", None) or ()
    if failure:
        del metadata["error"]
    if summary := summary_of(metadata.pop("trace", None)):
        yield f"  trace     {as_line(summary)}"
    if metadata:
        yield f"  metadata  {as_line(metadata)}"
    yield from (f"            {safe(_attempt(attempt))}" for attempt in attempts)
    for check in selection.checks(result):
        yield from _check(check)


def _attempt(attempt: dict[str, Any]) -> str:
    cause = (attempt.get("error") or {}).get("message", "answered")
    return cut(
        f"attempt {attempt['attempt']} at {attempt['started_at']}, {attempt['latency_ms']} ms: {cause}", MAX_TEXT
    )


def _check(check: CheckResult) -> Iterator[str]:
    """Yield a line for a check; more for a failed one whose findings are longer than a sentence."""
    why, name, passed = safe(explain(check)), safe(check.check_id), check.passed
    if check.error is not None:
        yield f"  [yellow]error[/]     {name}: {why}"
    elif check.status == "skip":
        yield f"  [dim]skipped[/]   {name}"
    elif passed is False:
        yield f"  [red]failed[/]    {name}: {why}"
        lines = findings(check, 10 * MAX_TEXT)
        if sum(map(len, lines)) > MAX_SENTENCE:
            yield from (f"            {safe(line)}" for line in lines)
    else:
        score = score_of(check)
        word = "[green]passed[/]" if passed else "[dim]result[/]" if score is None else f"[dim]{number(score):6}[/]"
        yield f"  {word}    {name}{': ' if why else ''}{why}"


# --- a suite's variants ----------------------------------------------------------------------------------------------


def run_variants(begun: LocalVariants, console: Console, reports: Reports, json_to: TextIO | None) -> FinishedVariants:
    """Execute the variants that have begun, and print their end."""
    from fepflow.services.variants import execute_variants

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
    written = _write_reports(begun.store, finished.table, reports, console)
    if json_to is not None:
        _write_json(finished.table, json_to)
    _print_end(console, finished, written)
    return finished


def show_variants(store: Store, variants_id: str, console: Console, reports: Reports, json_to: TextIO | None) -> int:
    """Print the table of variants, also while they are under way, and write the reports; return the exit code."""
    from fepflow.analysis.variants import variant_table

    variants = variant_table(store, variants_id)
    written = _write_reports(store, variants, reports, console)
    if json_to is not None:
        _write_json(variants, json_to)
    else:
        console.print(_variants_view(variants))
    return 0 if len(written) == len(reports.paths) * len(variants.runs) else InfrastructureError.exit_code


def _write_json(variants: VariantTable, file: TextIO) -> None:
    from fepflow.reports.fep import dumps, variants_summary

    file.write(f"{dumps(variants_summary(variants))}\n")


def _go_on(variants_id: str) -> str:
    command = f"fepflow run --resume {variants_id[:SHORT_ID]}"
    return f"Stored results are kept: `{command}` continues the variants that have no verdict."


def _write_reports(store: Store, variants: VariantTable, reports: Reports, console: Console) -> list[Path]:
    """Write each report of each variant that has come to an end; return the paths."""
    written = []
    for place, run in enumerate(variants.runs, 1):
        written += reports.of_variant(place).write(store, run, console.report_error)
    return written


def _print_end(console: Console, finished: FinishedVariants, written: Sequence[Path]) -> None:
    """Print the table, what it shows, and where to look."""
    if not finished.prefect_informed:
        console.note("warning: Prefect's API stopped answering; the verdicts are in the store, but Prefect lacks some")
    variants = finished.table
    if console.quiet:
        console.print([_headline(variants)])
        return
    console.print(_variants_view(variants))
    places = {
        "variants": f"fepflow show {variants.id[:SHORT_ID]}",
        "page": variants_page(variants.id),
        "Prefect UI": finished.flow_run_url,
    }
    rows = [*((name, place) for name, place in places.items() if place), *(("report", str(path)) for path in written)]
    console.print(f"  {name:<11}{safe(place)}" for name, place in rows)
    if finished.stopped:
        console.print([_go_on(variants.id)])


def _variants_view(variants: VariantTable) -> Iterator[Table | str]:
    """Yield what is printed of variants: the table, what it shows, and what came of them."""
    from fepflow.analysis.variants import COLUMNS, rows_of

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
