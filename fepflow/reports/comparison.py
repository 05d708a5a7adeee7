"""Compared runs, with a judge's preferences: in words for terminal, markdown and pages, and as JSON data."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fepflow.analysis.comparison import Flip, RunComparison
from fepflow.analysis.preferences import JudgedPreferences, PairVerdict, Preference, Preferences
from fepflow.analysis.regressions import JudgedComparison, JudgedComparisons
from fepflow.analysis.variants import judge_variants
from fepflow.checks.explanation import explain
from fepflow.page_links import compare_page, link, run_page
from fepflow.protocol.results import CheckResult
from fepflow.statistics.estimate import FIGURES
from fepflow.statistics.preferences import Strength
from fepflow.store.database import chunks
from fepflow.store.records import RunRecord, StoredOutput
from fepflow.store.store import Store
from fepflow.text import (
    brief,
    cell,
    cut,
    escape_markdown,
    four_digits,
    interval_cell,
    listed,
    markdown_table,
    p_cell,
    percent,
    plural,
    text_of,
)
from fepflow.verdict.regression_rules import MetricDifference
from fepflow.verdict.verdict import CorrectedShare

HEADLINES = {
    "pass": "No regression",
    "fail": "Regression",
    "inconclusive": "Inconclusive",
    None: "No regression is shown, and none is excluded",
}
MOST_FLIPS = 100
"""Cases that are told each way, with their outputs."""
MAX_OUTPUT = 300
"""Characters of an output in a text; JSON has ten times as many."""
LONGEST_OUTPUT = 99_000
"""Characters of an output that are kept to be shown: pages show 100,000, and whole outputs may have megabytes."""
OUTPUTS_AT_ONCE = 10
"""Cases whose outputs are in memory as a whole."""


@dataclass(frozen=True, slots=True)
class FlipText:
    """A case that flipped, with both outputs, and why its check did not pass in the run in which it is worse."""

    flip: Flip
    base: str
    new: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run beside the base, as it is shown: with the first of the cases that flipped, by their direction.

    `reasons` are the sentences of the rules; where no margin was asked for, of those that fail.
    """

    judged: JudgedComparison
    reasons: list[str]
    shown: Mapping[str, Sequence[FlipText]]

    @property
    def comparison(self) -> RunComparison:
        """The run's difference from the base."""
        return self.judged.comparison

    @property
    def power(self) -> list[str]:
        """Sentences about the regressions that such a comparison shows."""
        return self.judged.power

    @property
    def rows(self) -> list[list[str]]:
        """The compared metrics with their figures."""
        metrics = [metric for metric in self.comparison.metrics if metric.why_not is None]
        return [[metric.id, *_figures(metric, self.judged.p_values.get(metric.id))] for metric in metrics]

    @property
    def not_compared(self) -> list[str]:
        """The other metrics, each with the reason."""
        return [f"{metric.id}: {metric.why_not}" for metric in self.comparison.metrics if metric.why_not]

    @property
    def flips(self) -> dict[str, list[Flip]]:
        """All cases that flipped, by their direction."""
        return {"worse": self.comparison.worsened, "better": self.comparison.improved}


def compared_runs(store: Store, judged: JudgedComparisons, most_flips: int = MOST_FLIPS) -> Iterator[ComparedRun]:
    """Yield each run beside the base, with at most `most_flips` of the cases that flipped each way."""
    for run in judged.runs:
        reasons = [rule.reason for rule in run.rules if judged.asked or rule.outcome == "fail"]
        flips = {"worse": run.comparison.worsened, "better": run.comparison.improved}
        shown = {way: flip_texts(store, run.comparison, flips[way][:most_flips]) for way in flips}
        yield ComparedRun(run, reasons, shown)


SIDE_BY_SIDE = ("metric", "run", "value", "difference", "interval", "p (Holm)", "worse", "better", "shown")
"""Columns of the table of more than two runs."""


def side_by_side(judged: JudgedComparisons) -> Iterator[list[str]]:
    """Yield the metrics of all runs beside each other, each beside that of the base, which comes first.

    A difference is shown to be better or worse only if it is by Holm's method over all of them.
    """
    first = judged.comparisons[0]
    differences = judge_variants(judged.comparisons, first.gate)
    for name in dict.fromkeys(difference.metric.id for difference in differences):
        here = [difference for difference in differences if difference.metric.id == name]
        base = next((difference.metric.base for difference in here if difference.metric.base is not None), None)
        yield [name, first.base.short_name, cell(base), "·", "·", "·", "·", "·", "the base"]
        for difference in here:
            metric = difference.metric
            figures = ["·"] * 6 if metric.why_not else _figures(metric, difference.p_adjusted)[1:]
            shown = "not compared" if metric.why_not else difference.way or "no difference"
            yield [name, difference.run.short_name, *figures, shown]


def flip_texts(store: Store, compared: RunComparison, flips: Sequence[Flip]) -> list[FlipText]:
    """Return cases that flipped, in words. Outputs and results of all of them are read at once."""
    if not flips:
        return []
    base = output_texts(store, compared.base.id, [flip.base_index for flip in flips])
    new = output_texts(store, compared.new.id, [flip.new_index for flip in flips])
    in_base = _not_passed(store, compared.base.id, [flip.base_index for flip in flips if not _is_worse(flip)])
    in_new = _not_passed(store, compared.new.id, [flip.new_index for flip in flips if _is_worse(flip)])
    check_ids = {metric.id: metric.check_id for metric in compared.metrics}
    texts = []
    for flip, base_text, new_text in zip(flips, base, new, strict=True):
        checks = in_new.get(flip.new_index, ()) if _is_worse(flip) else in_base.get(flip.base_index, ())
        check = next((check for check in checks if check.check_id == check_ids.get(flip.metric)), None)
        texts.append(FlipText(flip, base_text, new_text, _reason(flip, check)))
    return texts


def output_texts(store: Store, run_id: str, case_indices: Sequence[int]) -> list[str]:
    """Return the output of the first repeat of each case as text, or why there is none; long ones are cut."""
    texts = []
    for some in chunks(case_indices, OUTPUTS_AT_ONCE):
        outputs = store.results.outputs_at(run_id, some)
        texts += [brief(_output_text(outputs.get((case_index, 0))), LONGEST_OUTPUT) for case_index in some]
    return texts


def _output_text(stored: StoredOutput | None) -> str:
    if stored is None:
        return "(nothing came)"
    if stored.output.failure is not None:
        return f"(no output: {stored.output.failure['message']})"
    return text_of(stored.output.value)


def _is_worse(flip: Flip) -> bool:
    return flip.new < flip.base


def _not_passed(store: Store, run_id: str, case_indices: Sequence[int]) -> Mapping[int, Sequence[CheckResult]]:
    """Return the results of checks that did not pass, by case."""
    by_case: dict[int, list[CheckResult]] = defaultdict(list)
    for result in store.results.by_case(run_id, case_indices=sorted(set(case_indices)), whole=False):
        by_case[result.case_index] += [check for check in result.checks if not check.passed]
    return by_case


def _reason(flip: Flip, check: CheckResult | None) -> str | None:
    sentence = None if check is None else explain(check)
    if sentence is not None and not _is_worse(flip):
        sentence = f"before: {sentence}"
    if flip.same_output is None:
        return sentence
    return f"the output is the same; {flip.same_output}{f': {sentence}' if sentence else ''}"


def _figures(metric: MetricDifference, p: float | None) -> list[str]:
    """Return base, new, difference, interval, p, and how many cases worsened and improved."""
    estimate = metric.estimate
    values = [
        cell(metric.base),
        cell(metric.new),
        cell(estimate.value, "+"),
        interval_cell(estimate.low, estimate.high),
    ]
    return [*values, p_cell(p), str(metric.worsened), str(metric.improved)]


def as_markdown(
    store: Store, judged: JudgedComparisons, most_cases: int, preferred: JudgedPreferences | None = None
) -> Iterator[str]:
    """Yield lines of markdown; what agents and cases say stays text."""
    yield f"### {HEADLINES[judged.outcome]}"
    for compared in compared_runs(store, judged, most_cases):
        comparison = compared.comparison
        yield ""
        bases = listed([_linked(run) for run in (comparison.base, *comparison.pooled)])
        runs = f"{_linked(comparison.new)} against {bases}"
        yield f"{runs}, {escape_markdown(comparison.matched.sentence)}"
        page = compare_page(comparison.base.id, comparison.new.id)
        if page and not comparison.base.file and not comparison.new.file:
            yield ""
            yield link("Case by case", page)
        yield ""
        columns = ("metric", "base", "new", "difference", "interval", "p", "worse", "better")
        yield from markdown_table(columns, ([escape_markdown(name), *figures] for name, *figures in compared.rows))
        yield ""
        notes = [*(rule.reason for rule in compared.judged.rules), *compared.power]
        notes += [*(f"not compared: {why}" for why in compared.not_compared), *comparison.warnings]
        yield from (f"- {escape_markdown(note)}" for note in notes)
        for word, flips in compared.flips.items():
            if flips:
                yield from _markdown_flips(word, compared.shown[word], len(flips))
    if preferred is not None:
        yield from preferences_as_markdown(preferred)


def _linked(run: RunRecord) -> str:
    return f"`{run.file}`" if run.file else link(f"`{run.id[:8]}`", run_page(run.id))


def _markdown_flips(word: str, shown: Sequence[FlipText], total: int) -> Iterator[str]:
    yield ""
    yield f"<details><summary>{word.capitalize()} now: {len(shown)} of {total}</summary>"
    yield ""
    for text in shown:
        flip = text.flip
        name = f"{escape_markdown(flip.case_id, 100)}** ({escape_markdown(flip.metric, 100)}"
        yield f"- **{name}: {four_digits(flip.base)} → {four_digits(flip.new)})"
        yield f"  - base: {escape_markdown(text.base, MAX_OUTPUT)}"
        yield f"  - new: {escape_markdown(text.new, MAX_OUTPUT)}"
        if text.reason:
            yield f"  - why: {escape_markdown(text.reason)}"
    yield ""
    yield "</details>"


def as_json(store: Store, judged: JudgedComparisons, preferred: JudgedPreferences | None = None) -> dict[str, Any]:
    """Return everything as JSON data, with the outputs of the cases that flipped."""
    return {
        "outcome": judged.outcome,
        "base": _run(judged.comparisons[0].base),
        "pooled": [_run(run) for run in judged.comparisons[0].pooled],
        "compared": [_compared(compared) for compared in compared_runs(store, judged)],
        **({} if preferred is None else {"judge": preferences_as_json(preferred)}),
    }


def _compared(compared: ComparedRun) -> dict[str, Any]:
    judged, comparison, matched = compared.judged, compared.comparison, compared.comparison.matched
    return {
        "run": _run(comparison.new),
        "matched": len(matched.pairs),
        "not_matched": {name: getattr(matched, name) for name in ("changed", "only_base", "only_new")},
        "metrics": [_metric(metric, judged) for metric in comparison.metrics],
        "rules": [rule.model_dump(mode="json", exclude_none=True) for rule in judged.rules],
        "worsened": [_flip_data(text) for text in compared.shown["worse"]],
        "improved": [_flip_data(text) for text in compared.shown["better"]],
        "warnings": comparison.warnings,
    }


def _run(run: RunRecord) -> dict[str, Any]:
    return {"id": run.id, "suite": run.name, "created_at": run.created_at.isoformat(), "outcome": run.outcome}


def _metric(metric: MetricDifference, judged: JudgedComparison) -> dict[str, Any]:
    estimate = metric.estimate
    names: dict[str, Any] = {"id": metric.id, "check": metric.check_id, "why_not_compared": metric.why_not}
    if metric.why_not is not None:
        return names
    corrected = CorrectedShare.of(metric.corrected)
    return {
        **names,
        "base": metric.base,
        "new": metric.new,
        "difference": estimate.value,
        **estimate.figures(*FIGURES),
        "p": metric.p,
        "p_adjusted": judged.p_values.get(metric.id),
        "detectable": judged.detectable.get(metric.id),
        "worsened": metric.worsened,
        "improved": metric.improved,
        **({"corrected": corrected.model_dump(mode="json", exclude_none=True)} if corrected else {}),
    }


def _flip_data(text: FlipText) -> dict[str, Any]:
    data = asdict(text.flip)
    del data["base_index"], data["new_index"]
    if data["same_output"] is None:
        del data["same_output"]
    outputs = {"base_output": text.base[: 10 * MAX_OUTPUT], "new_output": text.new[: 10 * MAX_OUTPUT]}
    return {**data, **outputs, "reason": text.reason}


# --- a judge's preferences -------------------------------------------------------------------------------------------


PREFERENCE_COLUMNS = (
    "runs",
    "new preferred",
    "base preferred",
    "ties",
    "win rate of new",
    "interval",
    "p",
    "by position",
    "missing",
)
STRENGTH_COLUMNS = ("run", "strength (log odds)", "interval", "preferred to the first", "interval of it")

MAX_REASON = 2_000
"""Characters of a reason in JSON."""


def preference_rows(preferences: Preferences) -> Iterator[list[str]]:
    """Yield a row for each two runs, as `PREFERENCE_COLUMNS`; the p-values are Holm's."""
    for preference in preferences.between:
        counts, rate = preference.counts, preference.rate
        share = preference.share_by_position
        yield [
            f"{preference.runs.one.short_name} → {preference.runs.other.short_name}",
            str(counts["other"]),
            str(counts["one"]),
            f"{counts['tie']}" + (f" ({preference.same} the same)" if preference.same else ""),
            cell(rate.value),
            interval_cell(rate.low, rate.high),
            p_cell(preference.p_adjusted),
            "·" if share is None else percent(share),
            str(len(preference.missing) + len(preference.runs.absent)),
        ]


def strength_rows(preferences: Preferences) -> Iterator[list[str]]:
    """Yield a row for each run, the strongest first, as `STRENGTH_COLUMNS`."""
    pairs = zip(preferences.runs, preferences.strengths, strict=True)
    for run, strength in sorted(pairs, key=lambda pair: -_middle(pair[1])):
        if run is preferences.runs[0]:
            yield [run.short_name, "0 (the first)", "·", "·", "·"]
            continue
        yield [
            run.short_name,
            cell(strength.value),
            interval_cell(strength.low, strength.high),
            cell(_chance(strength.value)),
            interval_cell(_chance(strength.low), _chance(strength.high)),
        ]


def _middle(strength: Strength) -> float:
    if strength.value is not None or strength.low is None or strength.high is None:
        return strength.value or 0.0
    return (strength.low + strength.high) / 2


def _chance(log_odds: float | None) -> float | None:
    """Return the chance to be preferred to the first run."""
    return None if log_odds is None else 1 / (1 + math.exp(-log_odds))


def asked_sentence(judged: JudgedPreferences) -> str:
    """Say what it took to ask the judge."""
    requests = judged.usage.get("requests") or 0
    asked = sum(preference.asked for preference in judged.preferences.between)
    sentence = f"Answers about {plural(asked, 'pair')} in both orders: {plural(requests, 'request')}"
    if tokens := judged.usage.get("tokens"):
        sentence += f", {tokens:,} tokens"
    if usd := judged.usage.get("usd"):
        sentence += f", ${usd:.4g}"
    if not requests and asked:
        sentence += ", as it had answered before"
    return f"{sentence}. {judged.limit.capitalize()}." if judged.limit else f"{sentence}."


def preferences_as_markdown(judged: JudgedPreferences) -> Iterator[str]:
    """Yield lines of markdown; what people and models say stays text."""
    preferences = judged.preferences
    yield ""
    yield f"#### Judge: {escape_markdown(judged.question)}"
    yield ""
    yield from markdown_table(
        PREFERENCE_COLUMNS, ([*map(escape_markdown, row)] for row in preference_rows(preferences))
    )
    if preferences.strengths:
        yield ""
        yield from markdown_table(
            STRENGTH_COLUMNS, ([*map(escape_markdown, row)] for row in strength_rows(preferences))
        )
    yield ""
    yield from (f"- {escape_markdown(preference.sentence)}" for preference in preferences.between)
    yield from (
        f"- {escape_markdown(warning)}" for preference in preferences.between for warning in preference.warnings
    )
    yield f"- {escape_markdown(judged.model)}: {escape_markdown(asked_sentence(judged))}"


def preferences_as_json(judged: JudgedPreferences) -> dict[str, Any]:
    """Return everything as JSON data, with each pair and the judge's reasons."""
    preferences = judged.preferences
    return {
        "question": judged.question,
        "model": judged.model,
        "confidence": preferences.confidence,
        "between": [_between(preference) for preference in preferences.between],
        "strengths": [
            {
                "run": run.id,
                "log_odds": strength.value,
                "low": strength.low,
                "high": strength.high,
                "preferred_to_first": _chance(strength.value),
            }
            for run, strength in zip(preferences.runs, preferences.strengths, strict=False)
        ],
        "usage": dict(judged.usage),
        "not_asked": judged.limit,
    }


def _between(preference: Preference) -> dict[str, Any]:
    counts, rate = preference.counts, preference.rate
    return {
        "base": preference.runs.one.id,
        "new": preference.runs.other.id,
        "won": counts["other"],
        "lost": counts["one"],
        "tied": counts["tie"],
        "same": preference.same,
        "win_rate": rate.value,
        "low": rate.low,
        "high": rate.high,
        "method": rate.estimate.method,
        "p": rate.p,
        "p_adjusted": preference.p_adjusted,
        "preferred": {1: "new", -1: "base", 0: None}[preference.shown],
        "by_position": {
            "share": preference.share_by_position,
            "first": preference.by_position["first"],
            "second": preference.by_position["second"],
        },
        "n_expected": rate.estimate.counts.expected,
        "n_completed": rate.estimate.counts.completed,
        "absent": list(preference.runs.absent),
        "warnings": preference.warnings,
        "pairs": [_pair(verdict) for verdict in preference.verdicts],
    }


def _pair(verdict: PairVerdict) -> dict[str, Any]:
    sides = {"one": "base", "other": "new", "tie": "tie", None: None}
    data: dict[str, Any] = {
        "case_id": verdict.pair.case.id,
        "repeat": verdict.pair.repeat + 1,
        "preferred": sides[verdict.preferred],
    }
    if verdict.pair.is_same:
        data["same"] = True
    if verdict.positions is not None:
        data["positions"] = list(verdict.positions)
    if verdict.reasons is not None:
        data["reasons"] = [cut(reason, MAX_REASON) for reason in verdict.reasons]
    if verdict.why_none is not None:
        data["why_none"] = verdict.why_none
    return data
