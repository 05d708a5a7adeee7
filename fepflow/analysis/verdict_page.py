"""A verdict as Prefect shows it: a page of markdown, and the table of the failed cases.

Links into Prefect are relative, so that they stay in whichever of Prefect's UIs the reader is in, wherever its server
is: `../../` leads to the UI's root from the page of an artifact, of an artifact's key and of a flow run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from fepflow.analysis.causes import CauseSummary, show_command
from fepflow.analysis.judge_reliability import JudgeReliability
from fepflow.checks.explanation import MAX_SENTENCE, explain
from fepflow.page_links import case_page, cases_page, compare_page, link, run_page
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store
from fepflow.text import cell, escape_markdown, interval_cell, listed, markdown_table, plain_markdown, slug, text_of
from fepflow.verdict.verdict import (
    Comparison,
    ConfusionVerdict,
    CorrectedShare,
    DifferenceVerdict,
    FigureVerdict,
    MetricVerdict,
    PooledValue,
    RegressionVerdict,
    SliceVerdict,
    Verdict,
)

SHOWN_ROWS = 5
SHOWN_SLICES = 30
MAX_TEXT = 300
NONE = cell(None)


def verdict_summary(verdict: Verdict) -> str:
    """Return outcome and reason on one line."""
    return f"{verdict.outcome.upper()}: {plain_markdown(' '.join(verdict.distinct_reasons[:1]))}"


def verdict_page(
    run: RunRecord,
    verdict: Verdict,
    judges: Sequence[JudgeReliability] = (),
    failed: FailedCases | None = None,
    failed_artifact: str | None = None,
    causes: CauseSummary | None = None,
    drifts: Sequence[str] = (),
) -> str:
    """Return the page as Markdown.

    `failed_artifact` is the id of the artifact with the failed cases, if there is one. `drifts` are sentences about
    metrics that have drifted.
    """
    decided, *others = verdict.distinct_reasons or [""]
    lines = [f"# {verdict.outcome.upper()}: {escape_markdown(run.title)}", ""]
    lines += [f"**{escape_markdown(decided)}**", ""] if decided else []
    lines += [f"Gate: {escape_markdown(verdict.gate)}", ""]
    lines += [*(f"**Drift**: {escape_markdown(drift)}" for drift in drifts), ""] if drifts else []
    lines += [*(f"- {escape_markdown(reason)}" for reason in others), ""] if others else []
    lines += [verdict.top_up.summary, ""] if verdict.top_up else []
    lines += [escape_markdown(verdict.looks.summary), ""] if verdict.looks else []
    if verdict.not_judged:
        lines += [f"**Not judged**, as no rule is about it: {escape_markdown(', '.join(verdict.not_judged))}", ""]
    if verdict.baseline is not None:
        lines += [_baseline(verdict.baseline), ""]
    elif verdict.not_compared:
        lines += [f"No baseline: {escape_markdown(verdict.not_compared)}", ""]
    lines += [" · ".join(_links(run, failed, failed_artifact)), ""]
    lines += [*metric_table(verdict), ""]
    if verdict.regression is not None and verdict.regression.run_id is not None:
        lines += [*_regression_table(run, verdict.regression), ""]
    lines += [*_slice_table(verdict.slices), ""] if verdict.slices else []
    for confusion in verdict.confusions:
        lines += [*_confusion_table(confusion), ""]
    if failed is not None and failed.rows:
        lines += ["## What did not pass", ""]
        lines += [*_causes(run, causes), "", "The first:", ""] if causes else []
        lines += [*_first_cases(run, failed), ""]
    lines += [*(f"- {escape_markdown(judge.sentence())}" for judge in judges), ""] if judges else []
    lines += [f"> {escape_markdown(warning)}\n" for warning in verdict.warnings]
    lines += [f"Models: {verdict.models}\n"] if verdict.models else []
    lines += [f"Case by case, on a machine with the store: `fepflow show {run.id[:8]} --failed`"]
    return "\n".join(lines)


def _baseline(baseline: Comparison) -> str:
    worse = ": **the outcome has worsened**" if baseline.worsened else ""
    compared = f" ({escape_markdown(baseline.summary)})" if baseline.summary else ""
    return f"Baseline: {baseline.outcome} in run `{baseline.run_id[:8]}`{worse}{compared}"


def _links(run: RunRecord, failed: FailedCases | None, failed_artifact: str | None) -> Iterator[str]:
    if failed is not None and failed_artifact is not None:
        cases = f"{failed.cases} {'case' if failed.cases == 1 else 'cases'} that did not pass"
        yield f"[{cases}](../../artifacts/artifact/{failed_artifact})"
    if page := run_page(run.id):
        yield link("the results", page)
    if run.flow_run_id is not None:
        yield f"[the flow run](../../runs/flow-run/{run.flow_run_id})"
    yield f"run `{run.id[:8]}`"


def _causes(run: RunRecord, causes: CauseSummary) -> Iterator[str]:
    for cause in causes.causes:
        cases = [link(escape_markdown(case_id, MAX_TEXT), case_page(run.id, case_id)) for case_id in cause.case_ids]
        show = "failed" if cause.kind == "failed" else "errors"
        if page := cases_page(run.id, show, cause.check_id):
            way = link("in the list of cases", page)
        else:
            way = escape_markdown(show_command(run, cause))
        more = ", …" if cause.has_more_cases else ""
        yield f"- {escape_markdown(str(cause))} ({', '.join(cases)}{more}: {way})"
    yield from (f"- {escape_markdown(remark)}" for remark in causes.remarks)


def _first_cases(run: RunRecord, failed: FailedCases) -> Iterator[str]:
    for case_id, row in zip(failed.case_ids, failed.rows[:SHOWN_ROWS], strict=False):
        case, why = escape_markdown(row["case"], MAX_TEXT), escape_markdown(row["why"], MAX_TEXT)
        yield f"- **{link(case, case_page(run.id, case_id))}** · {escape_markdown(row['check'])}: {why}"
        for name in ("input", "expected", "output"):
            if row[name]:
                yield f"    - {name}: {escape_markdown(row[name], MAX_TEXT)}"


def metric_table(verdict: Verdict) -> Iterator[str]:
    """Return the lines of a markdown table of the metrics: two of its head, then one a metric."""
    changes = {change.id: change for change in verdict.baseline.metrics} if verdict.baseline else {}
    gated = any(metric.outcome for metric in verdict.metrics)
    rated = any(metric.impact for metric in verdict.metrics)
    by_judges = _beside(verdict.metrics)
    columns = ["metric", "value", "interval", "n", "errors"]
    columns += ["impact"] * rated + ["gate"] * gated + by_judges
    over_runs = ["all runs"] * any(metric.pooled for metric in verdict.metrics)
    columns += [*over_runs, *["baseline", "change"] * bool(changes)]
    rows = []
    for metric in verdict.metrics:
        cells = [escape_markdown(metric.id), *_figures(metric)]
        cells += [metric.impact or NONE] * rated + [metric.outcome or NONE] * gated
        cells += [_corrected(metric.corrected)] * len(by_judges) + [_corrected(metric.pooled)] * len(over_runs)
        if changes:
            change = changes[metric.id]
            cells += [cell(change.baseline), cell(change.difference, sign="+")]
        rows.append(cells)
    return markdown_table(columns, rows)


def _regression_table(run: RunRecord, regression: RegressionVerdict) -> Iterator[str]:
    base, name = str(regression.run_id)[:8], escape_markdown(regression.baseline)
    ids = listed([f"`{run_id[:8]}`" for run_id in regression.pooled]) or f"`{base}`"
    runs = f"runs {ids} together" if regression.pooled else f"run {ids}"
    yield f"Against {name}, {runs}: {escape_markdown(regression.matched or '')}. "
    changed = link("The cases that changed", compare_page(str(regression.run_id), run.id))
    yield f"{changed}: `fepflow compare {name if regression.pooled else base} {run.id[:8]}`"
    yield ""
    yield from regression_table(regression)


def regression_table(regression: RegressionVerdict) -> Iterator[str]:
    """Return the lines of a markdown table of the differences from the baseline, as `metric_table` does."""
    name, beside = escape_markdown(regression.baseline), _beside(regression.metrics)
    columns = ["metric", name, "now", "difference", "interval", "worse", "better", "margin", "outcome", *beside]
    rows = [
        [
            *(escape_markdown(row.metric), cell(row.baseline), cell(row.value), cell(row.difference, sign="+")),
            *(interval_cell(row.low, row.high), str(row.worsened), str(row.improved), cell(row.margin)),
            *(row.outcome or NONE, *[_corrected(row.corrected)] * len(beside)),
        ]
        for row in regression.metrics
    ]
    return markdown_table(columns, rows)


def _slice_table(slices: Sequence[SliceVerdict]) -> Iterator[str]:
    beside = _beside(slices)
    shrunk = ["shrunk"] * any(row.shrunk is not None for row in slices)
    columns = [escape_markdown(slices[0].by), "metric", "value", "interval", "n", "errors", "minimum", "outcome"]
    columns += [*shrunk, *beside]
    rows = [
        [
            *(escape_markdown(row.slice), escape_markdown(row.metric), *_figures(row), cell(row.threshold)),
            *(row.outcome or NONE, *[cell(row.shrunk)] * len(shrunk), *[_corrected(row.corrected)] * len(beside)),
        ]
        for row in slices[:SHOWN_SLICES]
    ]
    if len(slices) > SHOWN_SLICES:
        rows.append([f"and {len(slices) - SHOWN_SLICES} more", *[""] * (len(columns) - 1)])
    return markdown_table(columns, rows)


def _confusion_table(confusion: ConfusionVerdict) -> Iterator[str]:
    names = [f"{escape_markdown(confusion.check)}: expected", *map(escape_markdown, confusion.columns)]
    rows = []
    for row in confusion.classes:
        cells = [escape_markdown(row.label), *(str(count or NONE) for count in row.predicted)]
        rows.append([*cells, *map(_corrected, (row.precision, row.recall, row.f1))])
    return markdown_table([*names, "precision", "recall", "F1"], rows)


def _figures(metric: MetricVerdict | SliceVerdict) -> list[str]:
    count = f"{metric.n_completed} of {metric.n_expected}"
    return [cell(metric.value), interval_cell(metric.low, metric.high), count, str(metric.n_error)]


def _beside(rows: Sequence[MetricVerdict | SliceVerdict | DifferenceVerdict]) -> list[str]:
    """Return the column of corrected values, if there are any."""
    return ["corrected for the judge"] if any(row.corrected for row in rows) else []


def _corrected(share: CorrectedShare | PooledValue | FigureVerdict | None) -> str:
    if share is None or share.value is None:
        return NONE
    return f"{cell(share.value)} ({interval_cell(share.low, share.high)})"


MAX_ROWS = 100

MAX_CELL = 200
"""Characters; the UI does not break a cell's line."""

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class FailedCases:
    """The failures of a run, a row for each check or call without an answer. The text is that of others: escape it.

    `case_ids` are the rows' test cases. `cases` counts all cases that did not pass; `about` says of them what the table
    cannot, as markdown.
    """

    rows: list[Row]
    case_ids: list[str]
    cases: int
    about: str

    def table(self) -> list[Row]:
        """Return the rows as Prefect's UI may show them."""
        limits = {"why": MAX_SENTENCE + len("error: ")}
        return [
            {name: plain_markdown(text, limits.get(name, MAX_CELL)) for name, text in row.items()} for row in self.rows
        ]


def failed_cases(store: Store, run: RunRecord, verdict: Verdict) -> FailedCases:
    """Return the first rows of results that did not pass, those of the deciding rule first, and the number left out."""
    rules = [rule for rule in verdict.rules if rule.outcome != "pass" and rule.check is not None]
    by_rule = (
        store.results.failed_case_indices(run.id, rule.check, kind)
        for rule in rules
        for kind in ("failed" if rule.outcome == "fail" else "error", None)
    )
    case_indices = list(dict.fromkeys(chain(*by_rule, store.results.failed_case_indices(run.id))))
    decided = rules[0].check if rules else None
    rows: list[Row] = []
    case_ids: list[str] = []
    shown: set[int] = set()
    for result in store.results.by_case(run.id, failed_only=True, case_indices=case_indices[:MAX_ROWS], whole=False):
        if rows_of_case := list(islice(_rows_of(result, run.repeats, decided), MAX_ROWS - len(rows))):
            rows += rows_of_case
            case_ids += [result.case.id] * len(rows_of_case)
            shown.add(result.case_index)
    cases, left_out = len(case_indices), len(case_indices) - len(shown)
    where = f"{len(shown)} of them are here, {left_out} are left out" if left_out else "all here"
    page = run_page(run.id)
    # A card in Prefect's UI leaves out code and links: sentences have none, and links are lines of their own.
    links = [link("The results", page)] if page else []
    links.append(f"[The verdicts of this suite](../../artifacts/key/verdict-{slug(run.title)})")
    about = (
        f"{cases} of {run.n_cases} cases did not pass ({where}). In full: fepflow show {run.id[:8]} --failed\n\n"
        + "\n\n".join(links)
    )
    return FailedCases(rows, case_ids, cases, about)


def _rows_of(result: CaseResult, repeats: int, decided: str | None) -> Iterator[Row]:
    failure = result.output.failure if result.output is not None else None
    if failure is not None:
        yield _row(result, repeats, "(no answer)", str(failure["message"]))
    for check in sorted(result.checks, key=lambda check: check.check_id != decided):
        if check.error is not None and failure is None:
            yield _row(result, repeats, check.check_id, f"error: {explain(check)}")
        elif check.passed is False:
            yield _row(result, repeats, check.check_id, explain(check))


def _row(result: CaseResult, repeats: int, check: str, why: str) -> Row:
    case, output = result.case, result.output
    values = {"input": case.input, "expected": case.expected, "output": output.value if output else None}
    return {
        "case": case.id if repeats == 1 else f"{case.id} #{result.repeat + 1}",
        "check": check,
        "why": why,
        **{name: "" if value is None else text_of(value) for name, value in values.items()},
        "attempts": str(((output.metadata if output else None) or {}).get("attempts", "")),
    }
