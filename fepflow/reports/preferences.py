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


def rows_of(preferences: Preferences) -> Iterator[list[str]]:
    """Yield a row for each two runs, as `COLUMNS`; the p-values are Holm's."""
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


def as_markdown(judged: JudgedPreferences) -> Iterator[str]:
    """Yield lines of markdown; what people and models say stays text."""
    preferences = judged.preferences
    yield ""
    yield f"#### Judge: {escape_markdown(judged.question)}"
    yield ""
    yield from markdown_table(COLUMNS, ([*map(escape_markdown, row)] for row in rows_of(preferences)))
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


def as_json(judged: JudgedPreferences) -> dict[str, Any]:
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
        data["reasons"] = [cut(reason, MAX_TEXT) for reason in verdict.reasons]
    if verdict.why_none is not None:
        data["why_none"] = verdict.why_none
    return data
