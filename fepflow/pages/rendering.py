"""Templates, and the functions with which they show values. Text of agents and people is escaped, everything in it is
visible, and nothing takes effect."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from fepflow.checks.explanation import arguments_of, explain, findings
from fepflow.page_links import case_path, cases_path, compare_path, run_path, suite_path, trends_path, variants_path
from fepflow.pages.charts import interval_chart
from fepflow.protocol.results import CheckResult
from fepflow.protocol.tool_calls import tool_name
from fepflow.store.records import CheckMark, GridRow
from fepflow.store.result_rows import declared_check_ids
from fepflow.text import as_json, brief, four_digits

MAX_TEXT = 100_000
"""Characters of one value on a page; the rest is counted."""
MAX_DIFF_WORDS = 2_000
"""Words of both texts that are compared with each other; longer ones stand side by side unmarked."""
MAX_DIFF_PAIRS = 20_000
"""Pairs of equal words, one of each text, up to which texts are compared: each difference takes so many steps."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters that a browser does not show, or would obey: control characters, changes of direction, characters without
width, lone surrogates, tags. Joiners stay: emoji and some scripts are written with them."""
_WORD = re.compile(r"(\w+|[^\w\s]|^)(\s*)")
"""A word, or a punctuation mark, and the space behind it."""

Change = Literal["same", "changed"]


_Word = tuple[str, str]


class Span(NamedTuple):
    """A part of a text, and whether the other text has it too."""

    text: str
    change: Change


def visible(text: str) -> str:
    """Return the text with escapes for what a browser would not show, or would obey."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shown(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a value as a person reads it: a text as it is, all else as indented JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return brief(text, limit)


def snippet(value: Any, limit: int = 200) -> str:
    """Return the beginning of a value on one line."""
    text = value if isinstance(value, str) else as_json(value, 4 * limit + 1)
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def differences(one: str, other: str) -> tuple[list[Span], list[Span]] | None:
    """Return both texts as spans, with the differences marked; None if comparing them would take too long."""
    words, others = _WORD.findall(one[:MAX_TEXT]), _WORD.findall(other[:MAX_TEXT])
    names, other_names = [word for word, _ in words], [word for word, _ in others]
    if len(names) + len(other_names) > MAX_DIFF_WORDS or _pairs(names, other_names) > MAX_DIFF_PAIRS:
        return None
    left: list[Span] = []
    right: list[Span] = []
    matcher = difflib.SequenceMatcher(None, names, other_names, autojunk=False)
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        here, there = words[start:stop], others[other_start:other_stop]
        left += _spans(here, there, are_equal=kind == "equal")
        right += _spans(there, here, are_equal=kind == "equal")
    return _joined(left), _joined(right)


def _pairs(words: Sequence[str], others: Sequence[str]) -> int:
    """Count the pairs of equal words."""
    counts, other_counts = Counter(words), Counter(others)
    return sum(count * other_counts[word] for word, count in counts.items())


def _spans(words: Sequence[_Word], others: Sequence[_Word], *, are_equal: bool) -> Iterator[Span]:
    """Yield words and the spaces behind them. Of words that differ, the last space is the same if both have it."""
    for index, (word, space) in enumerate(words):
        yield Span(word, "same" if are_equal else "changed")
        if are_equal:
            is_same = space == others[index][1]
        else:
            is_same = index == len(words) - 1 and bool(others) and others[-1][1] == space
        yield Span(space, "same" if is_same else "changed")


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Join neighbours that are alike, and leave out empty ones."""
    groups = groupby((span for span in spans if span.text), key=lambda span: span.change)
    return [Span("".join(span.text for span in alike), change) for change, alike in groups]


MAX_LINE = 20_000
"""Characters of a line that a check found, or of an argument."""

NAMES = (
    *("htmx.min.js", "icon.svg", "page.js", "pico.min.css", "style.css"),
    *("vega.min.js", "vega-interpreter.min.js"),
)


@cache
def read_asset(name: str) -> bytes:
    """Return a file of `NAMES`."""
    return files("fepflow.pages").joinpath("static", name).read_bytes()


@cache
def asset_address(name: str) -> str:
    """Return the address that a page loads a file from; it changes with its content, so that browsers keep it."""
    return f"/static/{sha256(read_asset(name)).hexdigest()[:12]}/{name}"


class PageLinks:
    """Addresses of pages that are served, for templates."""

    run = staticmethod(run_path)
    case = staticmethod(case_path)
    cases = staticmethod(cases_path)
    compare = staticmethod(compare_path)
    suite = staticmethod(suite_path)
    trends = staticmethod(trends_path)
    variants = staticmethod(variants_path)

    def runs(self, **wanted: str) -> str:
        """Return the list of runs, with filters."""
        return f"/runs?{urlencode(wanted, errors='replace')}" if wanted else "/runs"

    def blind(self, base: str, new: str, question: str, after: str = "0", pair: str = "", last: str = "") -> str:
        """Return the page on which a person compares two runs without knowing which is which."""
        wanted = {"base": base, "new": new, "question": question, "after": after, "pair": pair, "last": last}
        return f"/compare/blind?{urlencode({name: text for name, text in wanted.items() if text}, errors='replace')}"

    def labels(
        self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0", last: str = "", again: str = ""
    ) -> str:
        """Return the queue of a judge's outputs for a person to label: `last` is the one before, `again` one to change.

        Both are a repeat from 1, a colon and the id of a case.
        """
        wanted = {"check": check_id, "field": field, "order": order, "after": after, "last": last, "again": again}
        wanted = {name: text for name, text in wanted.items() if text or name not in ("last", "again")}
        return f"{run_path(run_id)}/labels?{urlencode(wanted, errors='replace')}"


LINKS = PageLinks()


State = Literal["passed", "failed", "error", "skipped", "no verdict", "absent"]
"""The outcome of a check or a case in one word. Absence is never a pass."""


def state(result: CheckResult | CheckMark | None) -> State:
    """Return how a check came out; `absent` if there is no result, or the case has no such check."""
    if result is None:
        return "absent"
    if result.status == "error":
        return "error"
    if result.status == "skip":
        return "skipped"
    return "no verdict" if result.passed is None else "passed" if result.passed else "failed"


def score_of_mark(row: GridRow, repeat: int, check_id: str) -> str | None:
    """Return the score of a check, as a page shows it; None without one."""
    mark = row.marks.get((repeat, check_id))
    return None if mark is None or mark.score is None else number(mark.score)


def states_of(row: GridRow, repeats: int, check_id: str) -> list[State]:
    """Return how a check came out for each output of a case."""
    return [state(row.marks.get((repeat, check_id))) for repeat in range(repeats)]


def state_of(row: GridRow, repeats: int, shared: Sequence[str]) -> State:
    """Return the worst state of a case's results; `absent` if an output, or a check that it was to have, is.

    `shared` are the ids of the checks that all cases share.
    """
    states = {known for check_id in declared_check_ids(row.case, shared) for known in states_of(row, repeats, check_id)}
    states |= set(map(state, row.marks.values()))
    if any(output.failed for output in row.outputs.values()):
        states.add("error")
    if len(row.outputs) < repeats:
        states.add("absent")
    order: tuple[State, ...] = ("failed", "error", "absent", "skipped", "no verdict", "passed")
    return next((known for known in order if known in states), "no verdict")


_OF_ONE_MODEL = ("model_answered", "mode")
"""Metadata of an answer that a jury has of its first model only."""
_OF_MODEL = (*(*_OF_ONE_MODEL, "prompt_tokens", "completion_tokens", "cost_usd", "seconds", "attempts", "cached"),)
"""Metadata of a judge's answer that a page shows."""

WORDS = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive"}
STATE_SIGNS: dict[State, str] = {
    "passed": "✓",
    "failed": "✗",
    "error": "!",
    "skipped": "-",
    "no verdict": "•",
    "absent": "·",
}
SIGNS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "error": "!", "skip": "-", None: "·"}


def render(template: str, **values: Any) -> str:
    """Return a page as text that UTF-8 can hold."""
    return _environment().get_template(template).render(**values)


def prepare() -> None:
    """Load templates and what draws charts, which takes most of a second: else the first page of a process waits."""
    for name in _environment().list_templates():
        _environment().get_template(name)
    interval_chart({"value": 0.5}, [])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fepflow.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {
            "number": number,
            "moment": moment,
            "day": day,
            "gated_first": gated_first,
            "lasting": lasting,
            "shown": shown,
            "snippet": snippet,
            "cost": cost,
            "explain": explain,
            "findings": findings,
            "arguments": arguments_of,
            "state": state,
            "model": model_of,
            "judged": judged_view,
            "tool_calls": _tool_calls,
            "tool_name": tool_name,
        }
    )
    environment.globals.update(
        {
            "MAX_LINE": MAX_LINE,
            "SIGNS": SIGNS,
            "STATE_SIGNS": STATE_SIGNS,
            "WORDS": WORDS,
            "asset": asset_address,
            "differences": differences,
            "state_of": state_of,
            "states_of": states_of,
            "score_of_mark": score_of_mark,
        }
    )
    return environment


def _tool_calls(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool calls of a step; of what an agent says in their place, nothing."""
    calls = step.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _finalize(value: Any) -> Any:
    """Return the value of a template's expression as it goes into the page: escaped, None as nothing."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


def number(value: float | Undefined | None, sign: str = "") -> str:
    """Return a number with four digits; a dot for None, and for one that a verdict does not have."""
    return "·" if value is None or isinstance(value, Undefined) else four_digits(value, sign)


def moment(value: datetime | None) -> Markup:
    """Return a time in UTC."""
    if value is None:
        return Markup("·")
    return Markup('<time datetime="{}">{}</time>').format(value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC")


def day(value: datetime) -> str:
    """Return a day of the year in few letters: `25 Nov`."""
    return f"{value:%d %b}"


def gated_first(metrics: Sequence[Mapping[str, Any]], most: int = 3) -> list[Mapping[str, Any]]:
    """Return a few metrics, those first that the gate judges."""
    return sorted(metrics, key=lambda metric: not metric.get("outcome"))[:most]


def lasting(seconds: float | None) -> str:
    """Return a duration: `1.5 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds is None:
        return "·"
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def model_of(check: CheckResult) -> dict[str, Any]:
    """Return what is known of a check's model and its answer; empty for a check without one."""
    metadata = check.results.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    left_out = _OF_ONE_MODEL if "jury" in known else ()
    return {name: known[name] for name in _OF_MODEL if name not in left_out and known.get(name) is not None}


def cost(models: Any) -> str:
    """Return the sentence about the cost of models in a verdict."""
    from fepflow.verdict.verdict import ModelCosts

    return str(ModelCosts.model_validate(models))


_ASKED = ("prompt", "criteria")
"""Arguments that hold the question of a judge, the first that is there."""

Words = str | list[dict[str, str]]
"""A value in words: a text, or what each of several objects says."""


class JudgedView(NamedTuple):
    """A judge's question, None if the result does not have it; its answer by field; and what each sample said."""

    asked: str | None
    answer: list[tuple[str, Words]]
    votes: list[str]


def judged_view(check: CheckResult) -> JudgedView | None:
    """Return the question to a judge and its answer; None for a check without a judge, or without an answer."""
    response = check.results.get("response")
    if not isinstance(response, dict):
        return None
    arguments = check.resolved_arguments or {}
    texts = (arguments[name].get("value") for name in _ASKED if isinstance(arguments.get(name), dict))
    asked = next((text for text in texts if isinstance(text, str)), None)
    answer = [(_name(name), in_words(value)) for name, value in response.items() if value is not None]
    return JudgedView(asked, answer, list(_votes(check.results.get("metadata"))))


def in_words(value: Any) -> Words:
    """Return a value of an answer in words."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [{_name(name): _plain(part) for name, part in item.items() if part is not None} for item in value]
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return four_digits(value)
    if isinstance(value, list):
        return "; ".join(map(_plain, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{_name(name)}: {_plain(part)}" for name, part in value.items()) or "none"
    return "none" if value is None else str(value)


def _votes(metadata: Any) -> Iterator[str]:
    """Yield what each sample, or each judge of a jury, said."""
    details = metadata.get("jury") or metadata.get("samples") if isinstance(metadata, Mapping) else None
    samples = details.get("said") if isinstance(details, Mapping) else None
    for number, sample in enumerate(samples if isinstance(samples, list) else (), 1):
        if isinstance(sample, Mapping):
            name = sample.get("judge", f"sample {number}")
            rest = {field: value for field, value in sample.items() if field != "judge"}
            yield f"{_plain(name)}: {_plain(rest)}"


def _name(name: str) -> str:
    return str(name).replace("_", " ")
