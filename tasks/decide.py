"""The verdict of a run: more results while it is open, its comparison with the baseline, and its end in the store."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from fepflow.analysis.dependence import end_of_cluster
from fepflow.analysis.metrics import compute_verdict, costs_of
from fepflow.analysis.regressions import compare, find_baseline, why_none
from fepflow.analysis.sampling import Size, may_be_decided, next_size, outcome_of_top_up
from fepflow.errors import FepflowError
from fepflow.store.records import REPLACED, RunRecord
from fepflow.suite.models import Gate
from fepflow.suite.variants import Replacement
from fepflow.tasks.batches import Batch, split_into_batches
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log, verdict_state
from fepflow.text import listed, plural
from fepflow.verdict.gate import with_rules
from fepflow.verdict.verdict import RuleOutcome, Verdict


async def decide_run(context: RunContext) -> Verdict:
    """Compute the run's verdict and store it: from here on it does not depend on Prefect."""
    verdict = await asyncio.to_thread(compute_verdict, context.store, context.run, context.suite)
    if left_out := await asyncio.to_thread(_left_out, context):
        decisive, *others = verdict.reasons
        verdict = verdict.model_copy(update={"reasons": [decisive, *left_out, *others]})
    if context.suite.top_up is not None and context.rescoring is None:
        reached = outcome_of_top_up(context.run, context.suite.top_up, verdict)
        verdict = verdict.model_copy(update={"top_up": reached})
    verdict = await asyncio.to_thread(_with_second_tries, context, verdict)
    verdict = await asyncio.to_thread(_with_reused_outputs, context, verdict)
    verdict = _of_its_cases(context.run, context.suite.gate or Gate(), verdict)
    if context.rescoring is None:
        verdict = _with_replaced(context.run, verdict)
    else:
        verdict = _rescored(context.rescoring.source, context.run, context.suite.gate or Gate(), verdict)
    if context.uses_models:
        verdict = await asyncio.to_thread(_with_costs, context, verdict)
    noticed = [*context.target_client.budget.warnings(), *(context.traces.warnings() if context.traces else ())]
    if noticed:
        verdict = verdict.model_copy(update={"warnings": [*verdict.warnings, *noticed]})
    if context.suite.baseline is not None:
        verdict = await _beside_baseline(context, verdict, context.suite.baseline)
    document = verdict.model_dump(mode="json", exclude_none=True)
    await context.finish(
        "completed",
        outcome=verdict.outcome,
        metrics=document.pop("metrics"),
        verdict=document,
        stats=dict(context.counts),
    )
    return verdict


def _of_its_cases(run: RunRecord, gate: Gate, verdict: Verdict) -> Verdict:
    """Return the verdict with what part of the suite's cases it is about. Cases that filters chose are no sample of the
    suite: if they pass, the suite is not shown to."""
    if run.sample:
        warning = f"{run.sample[0].upper()}{run.sample[1:]}."
        verdict = verdict.model_copy(update={"warnings": [warning, *verdict.warnings]})
    if not run.filtered:
        return verdict
    if verdict.outcome == "pass":
        reason = f"{run.filtered} were run, and meet the gate. This is no verdict of the suite: run it whole for one."
    else:
        reason = f"Only {run.filtered} were run: this is no verdict of the suite."
    return with_rules(verdict, [RuleOutcome(rule="all test cases", outcome="inconclusive", reason=reason)], gate)


def _with_replaced(run: RunRecord, verdict: Verdict) -> Verdict:
    """Return the verdict with what the run has replaced in its suite: whoever reads the file sees another one."""
    options = [Replacement(tuple(steps), None).option for steps, _ in (run.options or {}).get(REPLACED, ())]
    if not options:
        return verdict
    warning = f"This is not the suite as its file has it: {listed(options)}."
    return verdict.model_copy(update={"warnings": [warning, *verdict.warnings]})


def _with_second_tries(context: RunContext, verdict: Verdict) -> Verdict:
    """Return the verdict with how many results are second tries, and whether a pass rests on them.

    It stays a pass: a run is resumed for good reasons, too. But an agent that breaks where it would be wrong, and is
    asked until it is right, would pass so.
    """
    store, run = context.store, context.run
    units = store.results.second_tries(run)
    if not units:
        return verdict
    warning = (
        f"{len(units)} of {run.calls} results are second tries: the first ended in an error, and was asked again "
        "(--resume, or Retry in Prefect)."
    )
    if verdict.outcome == "pass":
        outcome = compute_verdict(store, run, context.suite, units).outcome
        decides = "it would pass all the same" if outcome == "pass" else "it would not pass"
        warning = f"{warning} If the first tries counted as errors, {decides}."
    return verdict.model_copy(update={"second_tries": len(units), "warnings": [warning, *verdict.warnings]})


def _with_reused_outputs(context: RunContext, verdict: Verdict) -> Verdict:
    """Return the verdict with how many outputs are of earlier runs: it says nothing of how the target answers now."""
    reused = context.store.results.progress(context.run.id).reused if context.run.reuses_outputs else 0
    if not reused:
        return verdict
    warning = (
        f"{reused} of {plural(context.run.calls, 'output')} from earlier runs: the target was not called for them "
    )
    warning += "(--reuse-outputs)."
    return verdict.model_copy(update={"reused_outputs": reused, "warnings": [warning, *verdict.warnings]})


def _rescored(source: RunRecord, run: RunRecord, gate: Gate, verdict: Verdict) -> Verdict:
    """Return the verdict with the outputs that it is about; those of another target show nothing of the suite's."""
    noted, then = run.rescoring, f"run {source.id[:8]} of {source.created_at:%Y-%m-%d}"
    taken = " Its check results are taken as they are." if noted["gate_only"] else ""
    warnings = [f"Rescored from {then}: the target was not asked.{taken}", *noted["notes"]]
    if verdict.outcome == "pass" and source.outcome not in ("pass", None):
        warnings.append(
            f"Run {source.id[:8]} was {source.outcome} by the rules that it had. Rules that are changed when results "
            "are known pass more often than promised: a new run of the suite confirms a pass."
        )
    verdict = verdict.model_copy(update={"warnings": [*warnings, *verdict.warnings]})
    if noted["target"] is None:
        return verdict
    rule = RuleOutcome(rule="the suite's target", outcome="inconclusive", reason=noted["target"])
    return with_rules(verdict, [rule], gate)


def _left_out(context: RunContext) -> list[str]:
    """Return the calls and checks that were left out, as the target was down or the run reached its deadline or
    budget, in sentences."""
    reached, store, run = context.target_client.budget.ended, context.store, context.run
    never_asked = store.results.never_asked(run.id)
    down = f"{plural(never_asked, 'output')} of {run.calls} could not be asked for, as the target was down"
    reasons_of_target = [f"{down}: fepflow run --resume {run.id[:8]} asks for them."] if never_asked else []
    if not reached:
        return reasons_of_target
    outputs = context.run.calls - context.store.results.progress(context.run.id).outputs
    checks = sum(context.left_out.values())
    reasons = [f"{outputs} of {context.run.calls} outputs are missing"] if outputs else []
    if checks:
        reasons.append(f"{checks} {'check' if checks == 1 else 'checks'} by models are missing")
    return [*reasons_of_target, *(f"{reason}: the run reached {reached}." for reason in reasons)]


def _with_costs(context: RunContext, verdict: Verdict) -> Verdict:
    """Return the verdict with what models have cost, and a warning where a budget of money cannot know it."""
    costs = costs_of(context.store, context.run.id)
    budget = context.suite.budget
    warnings = verdict.warnings
    if budget and budget.usd is not None and costs.without_usd:
        uncounted = f"{costs.without_usd} of {costs.answers} answers of models"
        warnings = [*warnings, f"The budget of {budget.usd:g} usd does not count {uncounted}: their cost is not known."]
    return verdict.model_copy(update={"models": costs, "warnings": warnings})


async def _beside_baseline(context: RunContext, verdict: Verdict, named: str) -> Verdict:
    try:
        baseline = await asyncio.to_thread(find_baseline, context.store, context.run, named)
        if baseline is not None:
            return verdict.model_copy(update={"baseline": compare(verdict, baseline)})
        reason = await asyncio.to_thread(why_none, context.store, context.run)
    except FepflowError as error:
        reason = str(error)
    run_log().warning("there is no baseline to compare with: %s", reason)
    return verdict.model_copy(update={"not_compared": reason})


@task(name="decide", task_run_name="decide", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def decide_task(context: RunContext) -> State[Verdict]:
    """`decide_run` as a Prefect task run, whose state is the verdict's."""
    verdict = await decide_run(context)
    return verdict_state(verdict, context.retried, data=verdict)


async def top_up(context: RunContext) -> tuple[list[Batch], str]:
    """Extend an open run by what comes next; return its batches, none if that is the end, and why, in words."""
    rule = context.suite.top_up
    assert rule is not None  # the flow has looked
    verdict = await asyncio.to_thread(compute_verdict, context.store, context.run, context.suite)
    client, size = context.target_client, next_size(context.run, rule, context.suite.target.calls_at_once)
    if size is None or not may_be_decided(verdict) or client.budget.ended or client.is_down:
        return [], outcome_of_top_up(context.run, rule, verdict).summary
    had = Size(context.run.n_cases, context.run.repeats)
    if rule.max_cases:
        whole = await asyncio.to_thread(end_of_cluster, context.store, context.run, context.suite, size.cases)
        size = size._replace(cases=whole)
    await context.extend(size.cases, size.repeats)
    batch_size = context.suite.batch_size
    if size.cases == had.cases:
        more, batches = f"repeat {size.repeats}", split_into_batches(range(size.cases), batch_size, had.repeats)
    else:
        more = f"test cases {had.cases + 1} to {size.cases}"
        batches = split_into_batches(range(had.calls, size.calls), batch_size)
    return batches, f"Open; next: {more}. {verdict.distinct_reasons[0]}"


@task(name="top-up", task_run_name="top up", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def top_up_task(context: RunContext) -> State[list[Batch]]:
    """`top_up` as a Prefect task run, whose state says what the verdict is by now, and what comes next."""
    batches, words = await top_up(context)
    run_log().info("%s", words)
    return Completed(message=words, data=batches)
