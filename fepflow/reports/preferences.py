"""A judge's preferences, as rows, markdown and JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fepflow.analysis.preferences import JudgedPreferences, PairVerdict, Preference, Preferences
from fepflow.statistics.preferences import Strength
from fepflow.text import cell, cut, escape_markdown, interval_cell, markdown_table, p_cell, percent, plural

COLUMNS = (
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

MAX_TEXT = 2_000
"""Characters of a reason in JSON."""


def rows_of(found: Preferences) -> Iterator[list[str]]:
    """Yield a row for each two runs, as `COLUMNS`; the p-values are Holm's."""
    for each in found.between:
        counts, rate = each.counts, each.rate
        share = each.share_by_position
        yield [
            f"{each.runs.one.short_name} → {each.runs.other.short_name}",
            str(counts["other"]),
            str(counts["one"]),
            f"{counts['tie']}" + (f" ({each.same} the same)" if each.same else ""),
            cell(rate.value),
            interval_cell(rate.low, rate.high),
            p_cell(each.p_adjusted),
            "·" if share is None else percent(share),
            str(len(each.missing) + len(each.runs.absent)),
        ]


def strength_rows(found: Preferences) -> Iterator[list[str]]:
    """Yield a row for each run, the strongest first, as `STRENGTH_COLUMNS`."""
    pairs = zip(found.runs, found.strengths, strict=True)
    for run, strength in sorted(pairs, key=lambda pair: -_middle(pair[1])):
        if run is found.runs[0]:
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
    asked = sum(each.asked for each in judged.preferences.between)
    sentence = f"Answers about {plural(asked, 'pair')} in both orders: {plural(requests, 'request')}"
    if tokens := judged.usage.get("tokens"):
        sentence += f", {tokens:,} tokens"
    if usd := judged.usage.get("usd"):
        sentence += f", ${usd:.4g}"
    if not requests and asked:
        sentence += ", as it had answered before"
    return f"{sentence}. {judged.limit.capitalize()}." if judged.limit else f"{sentence}."


def as_markdown(judged: JudgedPreferences) -> Iterator[str]:
    """Yield lines of markdown; what people and models say stays text."""
    found = judged.preferences
    yield ""
    yield f"#### Judge: {escape_markdown(judged.question)}"
    yield ""
    yield from markdown_table(COLUMNS, ([*map(escape_markdown, row)] for row in rows_of(found)))
    if found.strengths:
        yield ""
        yield from markdown_table(STRENGTH_COLUMNS, ([*map(escape_markdown, row)] for row in strength_rows(found)))
    yield ""
    yield from (f"- {escape_markdown(each.sentence)}" for each in found.between)
    yield from (f"- {escape_markdown(warning)}" for each in found.between for warning in each.warnings)
    yield f"- {escape_markdown(judged.model)}: {escape_markdown(asked_sentence(judged))}"


def as_json(judged: JudgedPreferences) -> dict[str, Any]:
    """Return everything as JSON data, with each pair and the judge's reasons."""
    found = judged.preferences
    return {
        "question": judged.question,
        "model": judged.model,
        "confidence": found.confidence,
        "between": [_between(each) for each in found.between],
        "strengths": [
            {
                "run": run.id,
                "log_odds": strength.value,
                "low": strength.low,
                "high": strength.high,
                "preferred_to_first": _chance(strength.value),
            }
            for run, strength in zip(found.runs, found.strengths, strict=False)
        ],
        "usage": dict(judged.usage),
        "not_asked": judged.limit,
    }


def _between(each: Preference) -> dict[str, Any]:
    counts, rate = each.counts, each.rate
    return {
        "base": each.runs.one.id,
        "new": each.runs.other.id,
        "won": counts["other"],
        "lost": counts["one"],
        "tied": counts["tie"],
        "same": each.same,
        "win_rate": rate.value,
        "low": rate.low,
        "high": rate.high,
        "method": rate.estimate.method,
        "p": rate.p,
        "p_adjusted": each.p_adjusted,
        "preferred": {1: "new", -1: "base", 0: None}[each.shown],
        "by_position": {
            "share": each.share_by_position,
            "first": each.by_position["first"],
            "second": each.by_position["second"],
        },
        "n_expected": rate.estimate.counts.expected,
        "n_completed": rate.estimate.counts.completed,
        "absent": list(each.runs.absent),
        "warnings": each.warnings,
        "pairs": [_pair(verdict) for verdict in each.verdicts],
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
        data["reasons"] = [cut(reason, MAX_TEXT) for reason in verdict.reasons]
    if verdict.why_none is not None:
        data["why_none"] = verdict.why_none
    return data
