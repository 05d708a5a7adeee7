"""The table of what did not pass, as Prefect shows it; what decided the verdict comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from fepflow.checks.explanation import MAX_SENTENCE, explain
from fepflow.page_links import link, run_page
from fepflow.store.records import CaseResult
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.events import slug
from fepflow.text import plain_markdown
from fepflow.verdict.verdict import Verdict

MAX_ROWS = 100

MAX_CELL = 200
"""Characters; the UI does not break a cell's line."""

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class FailedCases:
    """What did not pass, a row for each check or call without an answer, as text of others; escape it to show it.

    `case_ids` are the rows' test cases. `cases` counts all cases that did not pass; `about` says of them what the table
    cannot, as markdown.
    """

    rows: list[Row]
    case_ids: list[str]
    cases: int
    about: str

    def table(self) -> list[Row]:
        """The rows as Prefect's UI may show them."""
        limits = {"why": MAX_SENTENCE + len("error: ")}
        return [
            {name: plain_markdown(text, limits.get(name, MAX_CELL)) for name, text in row.items()} for row in self.rows
        ]


def failed_cases(context: RunContext, verdict: Verdict) -> FailedCases:
    """The first rows of what did not pass, the cases of the rule that decided first, and how much is left out."""
    store, run = context.store, context.run
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
    for result in store.results.by_case(run.id, failed_only=True, case_indices=case_indices[:MAX_ROWS]):
        if found := list(islice(_rows_of(result, run.repeats, decided), MAX_ROWS - len(rows))):
            rows += found
            case_ids += [result.case.id] * len(found)
            shown.add(result.case_index)
    cases, left_out = len(case_indices), len(case_indices) - len(shown)
    where = f"{len(shown)} of them are here, {left_out} are left out" if left_out else "all here"
    page = run_page(run.id)
    results = f"{link('The results', page)}. " if page else ""
    about = (
        f"{cases} of {run.n_cases} cases did not pass ({where}). In full: `fepflow show {run.id[:8]} --failed`. "
        f"{results}The [verdicts](../../artifacts/key/verdict-{slug(run.name)}) of this suite."
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
    return {
        "case": case.id if repeats == 1 else f"{case.id} #{result.repeat + 1}",
        "check": check,
        "why": why,
        "input": _text(case.input),
        "expected": _text(case.expected),
        "output": _text(output.value if output else None),
        "attempts": str(((output.metadata if output else None) or {}).get("attempts", "")),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
