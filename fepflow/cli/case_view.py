"""Single test cases as a person sees them: input, output, and what the checks found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fepflow.checks.explanation import MAX_SENTENCE, explain, findings
from fepflow.cli.text import MAX_TEXT, one_line, safe
from fepflow.protocol.results import CheckResult
from fepflow.services.failed_results import Selection
from fepflow.store.records import CaseResult, RunRecord
from fepflow.text import cut


def case_view(run: RunRecord, result: CaseResult, selection: Selection) -> Iterator[str]:
    """Lines of markup about one repeat of a case, with the checks that were selected."""
    repeat = f" #{result.repeat + 1}" if run.repeats > 1 else ""
    yield f"\n[bold]{safe(result.case.id)}{repeat}[/]"
    yield f"  input     {one_line(result.case.input)}"
    if "expected" in result.case.model_fields_set:
        yield f"  expected  {one_line(result.case.expected)}"
    if result.output is None:
        yield "  output    [yellow]not asked yet[/]"
        return
    failure = result.output.failure
    if failure:
        yield f"  {'broke off' if result.output.is_partial else 'no output'} {one_line(failure['message'])}"
    if not failure or result.output.is_partial:
        yield f"  output    {one_line(result.output.value)}"
    metadata = dict(result.output.metadata or {})
    attempts = metadata.pop("attempt_log", None) or ()
    if failure:
        del metadata["error"]
    if metadata:
        yield f"  metadata  {one_line(metadata)}"
    yield from (f"            {safe(_attempt(attempt))}" for attempt in attempts)
    for check in selection.checks(result):
        yield from _check(check)


def _attempt(attempt: dict[str, Any]) -> str:
    cause = (attempt.get("error") or {}).get("message", "answered")
    return cut(
        f"attempt {attempt['attempt']} at {attempt['started_at']}, {attempt['latency_ms']} ms: {cause}", MAX_TEXT
    )


def _check(check: CheckResult) -> Iterator[str]:
    """A line for a check, or several for one that failed and found more than a sentence holds."""
    why, name, passed = safe(explain(check)), safe(check.check_id), check.passed
    if check.error is not None:
        yield f"  [yellow]error[/]     {name}: {why}"
    elif check.status == "skip":
        yield f"  [dim]skipped[/]   {name}"
    elif passed is False:
        yield f"  [red]failed[/]    {name}: {why}"
        found = findings(check, 10 * MAX_TEXT)
        if sum(map(len, found)) > MAX_SENTENCE:
            yield from (f"            {safe(line)}" for line in found)
    else:
        word = "[green]passed[/]" if passed else "[dim]result[/]"
        yield f"  {word}    {name}{': ' if why else ''}{why}"
