"""Runs and their results, as the evaluations contract has them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

from fepflow.api.evaluations.graders import grader_of
from fepflow.calls.client import BEFORE
from fepflow.protocol.results import CheckResult
from fepflow.store.records import CaseResult, OutputFacts, RunRecord, RunRequest, RunStatus
from fepflow.store.store import Store

Status = Literal["pending", "running", "completed", "failed"]

STATUSES: Mapping[Status, tuple[RunStatus, ...]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "cancelled", "interrupted"),
}
"""The contract's statuses, and those of runs."""
_STATUS_OF = {status: name for name, statuses in STATUSES.items() for status in statuses}

_UNDER_WAY = ("pending", "running")
_TIME_LIMIT = re.compile(r"within ([0-9.]+) s")


def evaluation(run: RunRecord, request: RunRequest, result_count: int) -> dict[str, Any]:
    """A run. It counts as started when it was requested, until it has really begun."""
    return {
        "id": str(UUID(run.id)),
        "test_case_ids": request.request["test_case_ids"],
        "agent_endpoint_url": request.request["agent_endpoint_url"],
        "grader_ids": request.request["grader_ids"],
        "status": _STATUS_OF[run.status],
        "started_at": _time(run.started_at or run.created_at),
        "completed_at": _time(run.completed_at) if run.completed_at else None,
        "result_count": result_count,
        "error_message": run.error if _STATUS_OF[run.status] == "failed" else None,
    }


def result_counts(store: Store, runs: Sequence[RunRecord]) -> dict[str, int]:
    """How many results each of the runs has."""
    over = [run.id for run in runs if run.status not in _UNDER_WAY]
    running = [run for run in runs if run.status == "running"]
    return {**store.results.output_counts(over), **{run.id: len(_outputs(store, run)) for run in running}}


def results_page(store: Store, run: RunRecord, request: RunRequest, limit: int, skip: int) -> dict[str, Any]:
    """The results that there are, those of a page, and a summary of all of them.

    A result is there once each grader has scored it; when the run is over, also without.
    """
    names: dict[str, str] = request.request["graders"]
    outputs = _outputs(store, run)
    page = [facts.case_index for facts in outputs[skip : skip + limit]]
    return {
        "evaluation_id": str(UUID(run.id)),
        "results": [_result(run, result, names) for result in store.results.by_case(run.id, case_indices=page)],
        "summary": _summary(store, run, outputs, list(names)),
    }


def _outputs(store: Store, run: RunRecord) -> list[OutputFacts]:
    return store.results.complete_outputs(run.id, len(run.suite["checks"]) if run.status in _UNDER_WAY else 0)


def _result(run: RunRecord, result: CaseResult, names: Mapping[str, str]) -> dict[str, Any]:
    output = result.output
    assert output is not None  # the page has those with outputs only
    checks = defaultdict(list)
    for check in result.checks:
        checks[grader_of(check.check_id)].append(check)
    failure = output.failure
    shown = {
        "result_id": str(uuid5(NAMESPACE_URL, f"fepflow:{run.id}/{result.case_index}/{result.repeat}")),
        "test_case_id": result.case.id,
        "test_case_input": result.case.input,
        "test_case_expected": result.case.expected,
        "agent_response": None if failure else output.value,
        "response_status": "error" if failure else "success",
        "response_latency_ms": _latency(output.metadata),
        "scores": [_score(run, grader_id, name, checks[grader_id], failure) for grader_id, name in names.items()],
    }
    return {**shown, "error_message": _cause(failure)} if failure else shown


def _score(
    run: RunRecord, grader_id: str, name: str, checks: Sequence[CheckResult], failure: Mapping[str, Any] | None
) -> dict[str, Any]:
    """All checks must pass; the score is their mean; an error of one is the grader's. `failure` is the output's."""
    errors = list(_errors(checks, failure))
    expected = [check["id"] for check in run.suite["checks"] if grader_of(check["id"]) == grader_id]
    if len(checks) < len(expected) and not errors:
        errors = [run.error or "The run ended before the grader was done."]
    passed = all(check.passed for check in checks)
    value = None if errors else sum(map(_number, checks)) / len(checks)
    return {
        "grader_id": grader_id,
        "grader_name": name,
        "score_value": value,
        "score_status": "error" if errors else "pass" if passed else "fail",
        "error_message": "; ".join(errors) or None,
    }


def _errors(checks: Sequence[CheckResult], failure: Mapping[str, Any] | None) -> Iterator[str]:
    for check in checks:
        if check.error is not None:
            yield check.error.message if failure is None else _with_cause(check.error.message, failure)
        elif check.status != "completed":
            yield "It was not checked: the run's limits were reached."
        elif check.passed is None:
            yield f"{check.check_type} gave neither a yes nor a no."


def _number(check: CheckResult) -> float:
    """The score that a check gives itself, else 1.0 or 0.0."""
    for results in (check.results, check.results.get("response")):
        score = results.get("score") if isinstance(results, dict) else None
        if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score):
            return float(score)
    return float(bool(check.passed))


def _summary(store: Store, run: RunRecord, outputs: Sequence[OutputFacts], graders: Sequence[str]) -> dict[str, Any]:
    units = {(facts.case_index, facts.repeat): facts for facts in outputs}
    checks_of: Counter[str] = Counter()
    for check in run.suite["checks"]:
        checks_of[grader_of(check["id"])] += 1
    done: dict[tuple[str, tuple[int, int]], list[bool | None]] = defaultdict(list)
    for row in store.results.check_rows(run.id, results=False):
        if (unit := (row.case_index, row.repeat)) in units:
            done[grader_of(row.check_id), unit].append(row.passed if row.status == "completed" else None)
    passes, fails = dict.fromkeys(graders, 0), dict.fromkeys(graders, 0)
    for (grader_id, _), passed in done.items():
        if len(passed) == checks_of[grader_id] and None not in passed:
            (passes if all(passed) else fails)[grader_id] += 1
    failed = sum(facts.failed for facts in outputs)
    latencies = [latency for facts in outputs if (latency := _latency(facts.metadata)) is not None]
    return {
        "total_results": len(outputs),
        "successful_responses": len(outputs) - failed,
        "failed_responses": failed,
        "grader_pass_counts": passes,
        "grader_fail_counts": fails,
        "average_latency_ms": sum(latencies) / len(latencies) if latencies else None,
    }


def _latency(metadata: Mapping[str, Any] | None) -> int | None:
    """Of the call that answered, in whole milliseconds."""
    found = (metadata or {}).get("latency_ms")
    return round(found) if isinstance(found, int | float) and math.isfinite(found) else None


def _with_cause(message: str, failure: Mapping[str, Any]) -> str:
    """What a check says of there being no response, which ends with the stored cause."""
    stored = str(failure["message"])
    return message.removesuffix(stored) + _cause(failure) if message.endswith(stored) else message


def _cause(failure: Mapping[str, Any]) -> str:
    """Why there is no response, in the contract's words where it has some."""
    message = str(failure["message"])
    if failure.get("type") == "timeout_error" and (limit := _TIME_LIMIT.search(message)):
        _, separator, answered = message.partition(BEFORE)
        return f"Timeout after {limit[1]} seconds{separator}{answered}"
    if message.startswith("connection refused"):
        return "Connection refused"
    return message


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
