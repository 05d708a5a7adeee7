"""A run's verdict as a comment on a pull request, and as the summary of a job: markdown for GitHub.

Sentences are escaped. What an agent answered stands in code blocks: no mention, markup or HTML of it takes effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from fepflow.analysis.comparison import RunComparison, base_of, compare_results, results_of_base, results_with_verdict
from fepflow.analysis.verdict_page import failed_cases, metric_table, regression_table
from fepflow.errors import UserError
from fepflow.page_links import link, run_page
from fepflow.reports.comparison import flip_texts
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import WORD_JOINER, cut, escape_markdown, four_digits, plural, printable
from fepflow.verdict.metric_rules import settling_cases
from fepflow.verdict.verdict import Verdict

MAX_BODY = 60_000
"""Characters; GitHub takes 65,536."""

SHOWN_CASES = 5
SHOWN_METRICS = 40
_MAX_TEXT = 500
_MAX_LINES = 12
_MAX_REASONS = 10


def comment(store: Store, runs: Sequence[RunRecord], footer: str) -> str:
    """Return the markdown about a run, or about the runs of all variants of a suite."""
    limit = (MAX_BODY - len(footer)) // max(len(runs), 1)
    return "\n\n".join([*(_about(store, run, limit) for run in runs), footer])


def failure(suite: str, message: str, footer: str) -> str:
    """Return the markdown about a suite that could not be evaluated."""
    return "\n\n".join([f"### COULD NOT BE EVALUATED: {_safe(suite)}", fenced(message, 2_000), footer])


def fenced(text: str, limit: int = _MAX_TEXT) -> str:
    """Return text of others as a code block, which nothing in it can end."""
    lines = cut(text, limit).split("\n")
    more = [f"… ({len(lines) - _MAX_LINES} more lines)"] if len(lines) > _MAX_LINES else []
    shown = "\n".join([*map(printable, lines[:_MAX_LINES]), *more])
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", shown))])
    return f"{fence}text\n{shown}\n{fence}"


def headline(run: RunRecord) -> str:
    """Return the outcome in capitals, or that there is none."""
    return run.outcome.upper() if run.outcome is not None else f"NO VERDICT ({run.status})"


def reason(run: RunRecord) -> str:
    """Return the reason that decided the verdict, or why there is none."""
    reasons = (run.verdict or {}).get("reasons") or ()
    return str(reasons[0]) if reasons else run.error or ""


def _safe(text: str, limit: int = 1_000) -> str:
    """Escape text as a part of a sentence. GitHub takes escapes away before it makes links of `#12` and `GH-12`."""
    return re.sub(r"\\#|\bGH\\-(?=\d)", rf"\g<0>{WORD_JOINER}", escape_markdown(text, limit), flags=re.IGNORECASE)


def _about(store: Store, run: RunRecord, limit: int) -> str:
    verdict = Verdict.stored(run.outcome, run.metrics, run.verdict)
    head = [f"### {headline(run)}: {_safe(run.title)}"]
    if run.outcome is None or verdict is None:
        return "\n\n".join([*head, fenced(reason(run) or "no reason is known")])
    parts = [*head, *_reasons(run, verdict), *_tables(verdict)]
    details = "\n".join(_details(store, run, verdict))
    ended = [_costs(store, run, verdict)]
    whole = "\n\n".join([*parts, *([details] if details else []), *ended])
    if len(whole) <= limit:
        return whole
    short = "\n\n".join([*parts, *ended])
    return short if len(short) <= limit else f"{short[:limit].rpartition(chr(10))[0]}\n\n… the rest is in the report."


def _reasons(run: RunRecord, verdict: Verdict) -> Iterator[str]:
    decided, *others = verdict.distinct_reasons or [verdict.gate]
    yield f"**{_safe(decided)}**"
    if verdict.outcome == "inconclusive":
        needed = settling_cases(decided)
        if needed is not None and needed > run.n_cases:
            more = needed - run.n_cases
            yield f"{more:,} more test cases like these, {needed:,} in all, would settle it in 4 of 5 runs."
        if not verdict.blocks:
            yield "The gate allows it (`inconclusive: allow`), but it is not a pass."
    if others:
        yield "\n".join(f"- {_safe(reason_)}" for reason_ in others[:_MAX_REASONS])
    notes = [f"No baseline: {verdict.not_compared}"] if verdict.not_compared else []
    notes += verdict.warnings[:_MAX_REASONS]  # also of what no rule judges
    if notes:
        yield "\n>\n".join(f"> {_safe(note)}" for note in notes)


def _tables(verdict: Verdict) -> Iterator[str]:
    yield _first_rows(metric_table(verdict), len(verdict.metrics))
    regression = verdict.regression
    if regression is not None and regression.run_id is not None:
        runs = regression.pooled or [regression.run_id]
        ids = ", ".join(f"`{run_id[:8]}`" for run_id in runs[:SHOWN_CASES])
        base = f"{_safe(regression.baseline)} ({plural(len(runs), 'run')}: {ids})"
        yield f"Against {base}: {_safe(regression.matched or '')}"
        yield _first_rows(regression_table(regression), len(regression.metrics))


def _first_rows(table: Iterator[str], rows: int) -> str:
    more = [f"\n… and {rows - SHOWN_METRICS} more metrics"] if rows > SHOWN_METRICS else []
    return "\n".join([*islice(table, SHOWN_METRICS + 2), *more])


def _details(store: Store, run: RunRecord, verdict: Verdict) -> Iterator[str]:
    """Yield the cases that became worse; without a baseline, or if there are none, the first that did not pass."""
    compared = _compared(store, run, verdict)
    if compared is not None and compared.worsened:
        shown = compared.worsened[:SHOWN_CASES]
        yield f"<details><summary>Worse now: {len(shown)} of {len(compared.worsened)}</summary>\n"
        for text in flip_texts(store, compared, shown):
            flip, change = text.flip, f"{four_digits(text.flip.base)} → {four_digits(text.flip.new)}"
            yield f"**{_safe(flip.case_id, 100)}** ({_safe(flip.metric, 100)}: {change})\n"
            texts = {"before": text.base, "now": text.new, "why": text.reason}
            yield from (f"{name}:\n{fenced(value)}\n" for name, value in texts.items() if value)
        yield "</details>"
        return
    failed = failed_cases(store, run, verdict)
    if failed.rows:
        yield f"<details><summary>Did not pass: {plural(failed.cases, 'case')}, the first:</summary>\n"
        for row in failed.rows[:SHOWN_CASES]:
            yield f"**{_safe(row['case'], 100)}** ({_safe(row['check'], 100)})\n"
            names = ("input", "expected", "output", "why")
            yield from (f"{name}:\n{fenced(row[name])}\n" for name in names if row[name])
        yield "</details>"


def _compared(store: Store, run: RunRecord, verdict: Verdict) -> RunComparison | None:
    if verdict.regression is not None and verdict.regression.run_id is not None:
        baseline = verdict.regression.baseline
    elif verdict.baseline is not None:
        baseline = verdict.baseline.run_id
    else:
        return None
    try:
        base = results_of_base(store, base_of(store, run, baseline))
        return compare_results(base, results_with_verdict(store, run), metrics_needed=False)
    except UserError:  # the verdict says why
        return None


def _costs(store: Store, run: RunRecord, verdict: Verdict) -> str:
    progress = store.results.progress(run.id)
    calls = f"{plural(run.n_cases, 'case')}, {plural(progress.outputs - progress.reused, 'call')}"
    if run.started_at is not None and run.completed_at is not None:
        calls += f", {(run.completed_at - run.started_at).total_seconds():.1f} s"
    facts = (metadata.metadata or {} for metadata in store.results.complete_outputs(run.id, 0))
    known = [usd for usd in (metadata.get("usd") for metadata in facts) if isinstance(usd, int | float)]
    agent = [f"agent: {sum(known):.4g} usd"] if known else []
    models = [f"judges and embeddings: {verdict.models}"] if verdict.models else []
    name = f"run `{run.id[:8]}`"
    return " · ".join([*map(_safe, [calls, *agent, *models]), link(name, run_page(run.id))])
