"""The report of a failed test for a terminal: the verdict, then the cases that failed, worst first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fepflow.analysis.causes import Causes
from fepflow.checks.explanation import complaint
from fepflow.pytest.calls import Plan
from fepflow.text import as_json, cut, plural, printable
from fepflow.verdict.pass_rule import SampleOutcome, SampleResult
from fepflow.verdict.verdict import Verdict

MAX_CASES = 10
MAX_LINE = 300
MAX_INPUT = 80
MAX_SAMPLES = 20


def failure_report(plan: Plan, results: Sequence[SampleResult], verdict: Verdict) -> str:
    """Return several lines of text; the first says it all. What agents wrote is escaped and cut."""
    blocks = [
        *_block("failed", "Failed", plan, results),
        *_block("error", "Errors: no answer, which is neither a pass nor a fail", plan, results),
        *_block("skipped", "Skipped", plan, results),
    ]
    head = [verdict.reasons[0]]
    if plan.rule == "sample":
        head.append("A sample passes if all its test cases do.")
    return "\n".join([*head, *_all_causes(plan, results), *blocks])


def _all_causes(plan: Plan, results: Sequence[SampleResult]) -> Iterator[str]:
    """Yield what kept results from passing, each cause once; a single result says so itself."""
    without = [result for result in results if result.outcome in ("failed", "error")]
    if len(without) < 2:
        return
    causes = Causes()
    for result in without:
        causes.add(plan.cases[result.case_index].id, result.output, result.checks)
    if lines := causes.summary().lines():
        yield from ["", "Causes:", *(cut(printable(f"  {line}"), MAX_LINE) for line in lines)]


def _block(outcome: SampleOutcome, title: str, plan: Plan, results: Sequence[SampleResult]) -> Iterator[str]:
    by_case: dict[int, list[SampleResult]] = defaultdict(list)
    for result in results:
        if result.outcome == outcome:
            by_case[result.case_index].append(result)
    if not by_case:
        return
    total = sum(map(len, by_case.values()))
    yield ""
    yield f"{title}: {plural(total, 'result')} of {plural(len(by_case), 'test case')}"
    worst_first = sorted(by_case.items(), key=lambda item: (-len(item[1]), item[0]))
    for case_index, results_of_case in worst_first[:MAX_CASES]:
        yield from _case(plan, case_index, sorted(results_of_case, key=lambda result: result.sample))
    if len(worst_first) > MAX_CASES:
        names = ", ".join(plan.cases[case_index].id for case_index, _ in worst_first[MAX_CASES:])
        yield cut(f"  ... and {plural(len(worst_first) - MAX_CASES, 'more test case')}: {printable(names)}", MAX_LINE)


def _case(plan: Plan, case_index: int, results: Sequence[SampleResult]) -> Iterator[str]:
    case = plan.cases[case_index]
    which = f" in {len(results)} of {plan.samples} samples" if plan.samples > 1 else ""
    yield f"  {cut(printable(case.id), MAX_INPUT)}{which}, input: {cut(printable(as_json(case.input)), MAX_INPUT)}"
    causes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for result in results:
        for name, line in _causes(plan, result):
            causes[name].append((result.sample + 1, line))
    for name, examples in causes.items():
        yield f"    {cut(printable(name), MAX_INPUT)}{_where(plan, examples)}: {examples[0][1]}"


def _causes(plan: Plan, result: SampleResult) -> Iterator[tuple[str, str]]:
    """Yield what kept this result from passing: its kind (a check, an exception), and how it was this time."""
    if result.why is not None:
        kind, _, message = result.why.partition(": ")
        yield (kind, cut(printable(message), MAX_LINE)) if message else ("reason", cut(printable(kind), MAX_LINE))
        return
    for check in result.checks:
        if (text := complaint(check)) is not None:
            yield check.check_id, text


def _where(plan: Plan, examples: Sequence[tuple[int, str]]) -> str:
    if plan.samples == 1:
        return ""
    numbers = [str(sample) for sample, _ in examples]
    if len(numbers) == 1:
        return f", sample {numbers[0]}"
    more = ", ..." if len(numbers) > MAX_SAMPLES else ""
    return f", samples {', '.join(numbers[:MAX_SAMPLES])}{more}; the first"
