"""Compared runs as JSON data, and as markdown for a comment on a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fepflow.analysis.comparison import Flip, RunComparison
from fepflow.analysis.regressions import JudgedComparisons
from fepflow.checks.explanation import explain
from fepflow.page_links import compare_page, link, run_page
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import escape_markdown
from fepflow.verdict.regression_rules import MetricDifference
from fepflow.verdict.verdict import CorrectedShare

HEADLINES = {
    "pass": "No regression",
    "fail": "Regression",
    "inconclusive": "Inconclusive",
    None: "No regression is shown, and none is excluded",
}
MAX_OUTPUT = 300
"""Characters of an output in a text."""

NONE = "—"


def output_text(store: Store, run_id: str, case_index: int) -> str:
    """What a case's first repeat gave, as text; why there is nothing."""
    stored = store.results.outputs(run_id, case_index, case_index + 1).get((case_index, 0))
    if stored is None:
        return "(nothing came)"
    if stored.output.failure is not None:
        return f"(no output: {stored.output.failure['message']})"
    value = stored.output.value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def reason_of(store: Store, compared: RunComparison, flip: Flip) -> str | None:
    """Why the check of a case that flipped did not pass, in the run in which it is worse."""
    check_id = next((metric.check_id for metric in compared.metrics if metric.id == flip.metric), None)
    is_worse = flip.new < flip.base
    run, index = (compared.new, flip.new_index) if is_worse else (compared.base, flip.base_index)
    checks = (check for result in store.results.by_case(run.id, case_indices=[index]) for check in result.checks)
    sentences = (explain(check) for check in checks if check.check_id == check_id and not check.passed)
    return next(sentences, None)


def as_json(store: Store, judged: JudgedComparisons) -> dict[str, Any]:
    """Everything, with the outputs of the cases that flipped."""
    return {
        "outcome": judged.outcome,
        "base": _run(judged.comparisons[0].base),
        "compared": [
            {
                "run": _run(each.new),
                "matched": len(each.matched.pairs),
                "not_matched": {
                    "changed": each.matched.changed,
                    "only_base": each.matched.only_base,
                    "only_new": each.matched.only_new,
                },
                "metrics": [_metric(metric, judged.p_values[index]) for metric in each.metrics],
                "rules": [rule.model_dump(mode="json", exclude_none=True) for rule in judged.rules[index]],
                "worsened": [_flip(store, each, flip) for flip in each.worsened],
                "improved": [_flip(store, each, flip) for flip in each.improved],
                "warnings": each.warnings,
            }
            for index, each in enumerate(judged.comparisons)
        ],
    }


def as_markdown(store: Store, judged: JudgedComparisons, most_cases: int) -> Iterator[str]:
    """Lines of markdown; what agents and cases say stays text."""
    yield f"### {HEADLINES[judged.outcome]}"
    for index, each in enumerate(judged.comparisons):
        yield ""
        yield f"{_linked(each.new)} against {_linked(each.base)}, {escape_markdown(each.matched.sentence)}"
        if page := compare_page(each.base.id, each.new.id):
            yield ""
            yield link("Case by case", page)
        yield ""
        yield "| metric | base | new | difference | interval | p | worse | better |"
        yield f"|{' --- |' * 8}"
        for metric in each.metrics:
            cells = [escape_markdown(metric.id), *figures(metric, judged.p_values[index].get(metric.id), NONE)]
            yield f"| {' | '.join(cells)} |"
        yield ""
        yield from (f"- {escape_markdown(rule.reason)}" for rule in judged.rules[index])
        yield from (f"- not compared: {escape_markdown(f'{m.id}: {m.why_not}')}" for m in each.metrics if m.why_not)
        yield from (f"- {escape_markdown(warning)}" for warning in each.warnings)
        for what, flips in (("Worse", each.worsened), ("Better", each.improved)):
            yield from _markdown_flips(store, each, what, flips, most_cases)


def _linked(run: RunRecord) -> str:
    return link(f"`{run.id[:8]}`", run_page(run.id))


def figures(metric: MetricDifference, p: float | None, none: str) -> list[str]:
    """Base, new, difference, interval, p, and how many cases worsened and improved."""
    estimate = metric.estimate
    if estimate is None:
        return [none] * 7
    bounds = estimate.low, estimate.high
    interval = none if bounds == (None, None) else f"{_number(bounds[0], none)} to {_number(bounds[1], none)}"
    values = [_number(metric.base, none), _number(metric.new, none), _number(estimate.value, none, "+"), interval]
    return [*values, none if p is None else f"{p:.2g}", str(metric.worsened), str(metric.improved)]


def _number(value: float | None, none: str, sign: str = "") -> str:
    return none if value is None else f"{value:{sign}.4g}"


def _markdown_flips(
    store: Store, compared: RunComparison, what: str, flips: list[Flip], most_cases: int
) -> Iterator[str]:
    if not flips:
        return
    shown = flips[:most_cases]
    yield ""
    yield f"<details><summary>{what} now: {len(shown)} of {len(flips)}</summary>"
    yield ""
    for flip in shown:
        name = f"{escape_markdown(flip.case_id, 100)}** ({escape_markdown(flip.metric, 100)}"
        yield f"- **{name}: {flip.base:.4g} → {flip.new:.4g})"
        for word, run, index in (("base", compared.base, flip.base_index), ("new", compared.new, flip.new_index)):
            yield f"  - {word}: {escape_markdown(output_text(store, run.id, index), MAX_OUTPUT)}"
        if reason := reason_of(store, compared, flip):
            yield f"  - why: {escape_markdown(reason)}"
    yield ""
    yield "</details>"


def _run(run: RunRecord) -> dict[str, Any]:
    return {"id": run.id, "suite": run.name, "created_at": run.created_at.isoformat(), "outcome": run.outcome}


def _metric(metric: MetricDifference, p_values: dict[str, float]) -> dict[str, Any]:
    estimate = metric.estimate
    found: dict[str, Any] = {"id": metric.id, "check": metric.check_id, "why_not_compared": metric.why_not}
    if estimate is None:
        return found
    corrected = CorrectedShare.of(metric.corrected)
    return {
        **found,
        "base": metric.base,
        "new": metric.new,
        "difference": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "confidence": estimate.confidence,
        "method": estimate.method,
        "p": metric.p,
        "p_adjusted": p_values.get(metric.id),
        "worsened": metric.worsened,
        "improved": metric.improved,
        "n_expected": estimate.counts.expected,
        "n_completed": estimate.counts.completed,
        **({"corrected": corrected.model_dump(mode="json", exclude_none=True)} if corrected else {}),
    }


def _flip(store: Store, compared: RunComparison, flip: Flip) -> dict[str, Any]:
    found = asdict(flip)
    runs = {"base": (compared.base, found.pop("base_index")), "new": (compared.new, found.pop("new_index"))}
    for word, (run, index) in runs.items():
        found[f"{word}_output"] = output_text(store, run.id, index)[: 10 * MAX_OUTPUT]
    return {**found, "reason": reason_of(store, compared, flip)}
