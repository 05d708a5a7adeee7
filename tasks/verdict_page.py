"""A verdict as a page of markdown: what decided first, then where to look, the figures, and what else there is to say.

Links into Prefect are relative, so that they stay in whichever of Prefect's UIs the reader is in, wherever its server
is: `../../` leads to the UI's root from the page of an artifact, of an artifact's key and of a flow run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fepflow.analysis.causes import show_command
from fepflow.analysis.judge_reliability import JudgeReliability
from fepflow.checks.causes import CauseSummary
from fepflow.page_links import case_page, cases_page, compare_page, link, run_page
from fepflow.store.records import RunRecord
from fepflow.tasks.failed_cases import FailedCases
from fepflow.tasks.run.outcome import reasons_of
from fepflow.text import escape_markdown, plain_markdown
from fepflow.verdict.verdict import (
    Comparison,
    CorrectedShare,
    DifferenceVerdict,
    MetricVerdict,
    RegressionVerdict,
    SliceVerdict,
    Verdict,
)

NONE = "—"

SHOWN_ROWS = 5
SHOWN_SLICES = 30
MAX_TEXT = 300


def verdict_summary(verdict: Verdict) -> str:
    """Outcome and reason on one line."""
    return f"{verdict.outcome.upper()}: {plain_markdown(' '.join(reasons_of(verdict)[:1]))}"


def verdict_page(
    run: RunRecord,
    verdict: Verdict,
    judges: Sequence[JudgeReliability] = (),
    failed: FailedCases | None = None,
    failed_artifact: str | None = None,
    causes: CauseSummary | None = None,
    drifts: Sequence[str] = (),
) -> str:
    """The page; `failed_artifact` is the id of the artifact with the failed cases, if there is one. `drifts` are
    sentences about metrics that have drifted."""
    decided, *others = reasons_of(verdict) or [""]
    lines = [f"# {verdict.outcome.upper()}: {escape_markdown(run.name)}", ""]
    lines += [f"**{escape_markdown(decided)}**", ""] if decided else []
    lines += [f"Gate: {escape_markdown(verdict.gate)}", ""]
    lines += [*(f"**Drift**: {escape_markdown(drift)}" for drift in drifts), ""] if drifts else []
    lines += [*(f"- {escape_markdown(reason)}" for reason in others), ""] if others else []
    lines += [verdict.top_up.summary, ""] if verdict.top_up else []
    if verdict.not_judged:
        lines += [f"**Not judged**, as no rule is about it: {escape_markdown(', '.join(verdict.not_judged))}", ""]
    if verdict.baseline is not None:
        lines += [_baseline(verdict.baseline), ""]
    elif verdict.not_compared:
        lines += [f"No baseline: {escape_markdown(verdict.not_compared)}", ""]
    lines += [" · ".join(_links(run, failed, failed_artifact)), ""]
    lines += [*_metric_table(verdict), ""]
    if verdict.regression is not None and verdict.regression.run_id is not None:
        lines += [*_regression_table(run, verdict.regression), ""]
    lines += [*_slice_table(verdict.slices), ""] if verdict.slices else []
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


def _metric_table(verdict: Verdict) -> Iterator[str]:
    changes = {change.id: change for change in verdict.baseline.metrics} if verdict.baseline else {}
    gated = any(metric.outcome for metric in verdict.metrics)
    rated = any(metric.impact for metric in verdict.metrics)
    by_judges = _beside(verdict.metrics)
    columns = ["metric", "value", "interval", "n", "errors"]
    columns += ["impact"] * rated + ["gate"] * gated + by_judges
    columns += ["baseline", "change"] * bool(changes)
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    for metric in verdict.metrics:
        cells = [escape_markdown(metric.id), *_figures(metric)]
        cells += [metric.impact or NONE] * rated + [metric.outcome or NONE] * gated
        cells += [_corrected(metric.corrected)] * len(by_judges)
        if changes:
            change = changes[metric.id]
            cells += [_number(change.baseline), _number(change.difference, sign="+")]
        yield f"| {' | '.join(cells)} |"


def _regression_table(run: RunRecord, regression: RegressionVerdict) -> Iterator[str]:
    base, name = str(regression.run_id)[:8], escape_markdown(regression.baseline)
    yield f"Against {name}, run `{base}`: {escape_markdown(regression.matched or '')}. "
    changed = link("The cases that changed", compare_page(str(regression.run_id), run.id))
    yield f"{changed}: `fepflow compare {base} {run.id[:8]}`"
    yield ""
    beside = _beside(regression.metrics)
    columns = ["metric", name, "now", "difference", "interval", "worse", "better", "margin", "outcome", *beside]
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in regression.metrics:
        known = row.low is not None and row.high is not None
        cells = [
            escape_markdown(row.metric),
            _number(row.baseline),
            _number(row.value),
            _number(row.difference, sign="+"),
        ]
        cells += [f"{_number(row.low)} to {_number(row.high)}" if known else NONE]
        cells += [str(row.worsened), str(row.improved), _number(row.margin), row.outcome or NONE]
        cells += [_corrected(row.corrected)] * len(beside)
        yield f"| {' | '.join(cells)} |"


def _slice_table(slices: Sequence[SliceVerdict]) -> Iterator[str]:
    beside = _beside(slices)
    columns = [
        escape_markdown(slices[0].by),
        "metric",
        "value",
        "interval",
        "n",
        "errors",
        "minimum",
        "outcome",
        *beside,
    ]
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join(['---'] * len(columns))} |"
    for row in slices[:SHOWN_SLICES]:
        cells = [escape_markdown(row.slice), escape_markdown(row.metric), *_figures(row), _number(row.threshold)]
        cells += [row.outcome or NONE, *[_corrected(row.corrected)] * len(beside)]
        yield f"| {' | '.join(cells)} |"
    if len(slices) > SHOWN_SLICES:
        yield f"| and {len(slices) - SHOWN_SLICES} more |{' |' * (len(columns) - 1)}"


def _figures(metric: MetricVerdict | SliceVerdict) -> list[str]:
    known = metric.low is not None and metric.high is not None
    interval = f"{_number(metric.low)} to {_number(metric.high)}" if known else NONE
    count = f"{metric.n_completed} of {metric.n_expected}"
    return [_number(metric.value), interval, count, str(metric.n_error)]


def _beside(rows: Sequence[MetricVerdict | SliceVerdict | DifferenceVerdict]) -> list[str]:
    """The column of what is corrected, if anything is."""
    return ["corrected for the judge"] if any(row.corrected for row in rows) else []


def _corrected(share: CorrectedShare | None) -> str:
    if share is None or share.value is None:
        return NONE
    return f"{_number(share.value)} ({_number(share.low)} to {_number(share.high)})"


def _number(value: float | None, sign: str = "") -> str:
    return NONE if value is None else f"{value:{sign}.4g}"
