"""Evaluations of agents over HTTP: stored test cases, graders, runs and results, as the evaluations contract has them.

Every method gives what the contract has as `data`. All block, as the store does.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from fepflow.access.caller import Caller
from fepflow.api.evaluations.bodies import CASE_ID, GRADER_ID, MAX_KEY, NewEvaluation, NewGrader, Status, shown
from fepflow.api.evaluations.fep import request_run, unique_key
from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.client import BEFORE
from fepflow.checks.core.declarations import CaseChecks, CheckDefaults
from fepflow.checks.registry import CheckType
from fepflow.errors import ConflictError, InputError, InvalidRequestError, NotFoundError, TooLargeError
from fepflow.protocol.check import Check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import holds_secret_parts
from fepflow.settings import settings
from fepflow.store.records import CaseResult, Grader, OutputFacts, RunRecord, RunRequest, RunStatus
from fepflow.store.store import Store

SEPARATOR = "--"
"""Separator of a grader's id and the number of a check, in the check's id; no grader's id holds it."""

_OUTPUT, _EXPECTED = "$.output.value", "$.test_case.expected"
_COMPARED = {"actual": _OUTPUT, "expected": _EXPECTED}


def _built_in(grader_id: str, name: str, check_type: CheckType, **arguments: Any) -> Grader:
    declared = {"type": str(check_type), "arguments": arguments}
    return Grader(id=grader_id, name=name, checks=[declared], created_at=utc_now())


BUILT_IN: Mapping[str, Grader] = {
    grader.id: grader
    for grader in (
        _built_in("string-match", "String Match", CheckType.EXACT_MATCH, **_COMPARED),
        _built_in("exact-match", "Exact Match", CheckType.EXACT_MATCH, **_COMPARED),
        _built_in("contains", "Contains", CheckType.CONTAINS, text=_OUTPUT, phrases=_EXPECTED),
        _built_in("regex", "Regex", CheckType.REGEX, text=_OUTPUT, pattern=_EXPECTED),
        _built_in("equals", "Equals", CheckType.EQUALS, **_COMPARED),
        _built_in("is-empty", "Is Empty", CheckType.IS_EMPTY, value=_OUTPUT),
        _built_in("subset", "Subset", CheckType.SUBSET, collection=_OUTPUT, required=_EXPECTED),
        _built_in("superset", "Superset", CheckType.SUPERSET, collection=_OUTPUT, allowed=_EXPECTED),
        _built_in("set-equal", "Set Equal", CheckType.SET_EQUAL, **_COMPARED),
        _built_in("disjoint", "Disjoint", CheckType.DISJOINT, collection=_OUTPUT, forbidden=_EXPECTED),
        _built_in("json-valid", "JSON Valid", CheckType.JSON_VALID, text=_OUTPUT),
        _built_in(
            "schema-validation", "Schema Validation", CheckType.SCHEMA_VALIDATION, data=_OUTPUT, schema=_EXPECTED
        ),
        _built_in(
            "text-match", "Text Match", CheckType.TEXT_MATCH, text=_OUTPUT, condition="contains", value=_EXPECTED
        ),
    )
}
"""Graders that need nothing but an output and what was expected, by id."""


def require_allowed(checks: Sequence[Check]) -> None:
    """Raise InvalidRequestError for a check that asks a model which the operator does not allow."""
    policy = CaseChecks(CheckDefaults(), [], settings().allowed_models, from_data=True)
    for index, check in enumerate(checks):
        if refusal := policy.refusal(check):
            raise InvalidRequestError("INVALID_REQUEST", shown(f"checks[{index}]: {refusal}"))


def checks_of(graders: Sequence[Grader]) -> list[dict[str, Any]]:
    """Return the checks of graders as those of a suite, each with an id by which `grader_of` knows its grader."""
    return [
        {**check, "id": f"{grader.id}{SEPARATOR}{number}"}
        for grader in graders
        for number, check in enumerate(grader.checks, 1)
    ]


def grader_of(check_id: str) -> str:
    """Return the id of the grader that a check of a run belongs to."""
    return check_id.partition(SEPARATOR)[0]


STATUSES: Mapping[Status, tuple[RunStatus, ...]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "cancelled", "interrupted"),
}
"""The contract's statuses, and those of runs."""
_STATUS_OF = {status: name for name, statuses in STATUSES.items() for status in statuses}

_TIME_LIMIT = re.compile(r"within ([0-9.]+) s")


def evaluation(run: RunRecord, request: RunRequest, result_count: int) -> dict[str, Any]:
    """Return a run. It counts as started when it was requested, until it has really begun."""
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
    """Return how many results each of the runs has."""
    over = [run.id for run in runs if not run.is_under_way]
    running = [run for run in runs if run.status == "running"]
    return {**store.results.output_counts(over), **{run.id: len(_outputs(store, run)) for run in running}}


def results_page(store: Store, run: RunRecord, request: RunRequest, limit: int, skip: int) -> dict[str, Any]:
    """Return the results that there are, those of a page, and a summary of all of them.

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
    return store.results.complete_outputs(run.id, len(run.suite["checks"]) if run.is_under_way else 0)


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
    """Return a grader's score: the mean of its checks, all of which must pass. `failure` is the output's."""
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
    """Return the score that a check gives itself, else 1.0 or 0.0."""
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
    """Return the latency of the call that answered, in whole milliseconds."""
    latency = (metadata or {}).get("latency_ms")
    return round(latency) if isinstance(latency, int | float) and math.isfinite(latency) else None


def _with_cause(message: str, failure: Mapping[str, Any]) -> str:
    """Return a check's message about a missing response, its cause in the contract's words."""
    stored = str(failure["message"])
    return message.removesuffix(stored) + _cause(failure) if message.endswith(stored) else message


def _cause(failure: Mapping[str, Any]) -> str:
    """Return why there is no response, in the contract's words where it has some."""
    message = str(failure["message"])
    if failure.get("type") == "timeout_error" and (limit := _TIME_LIMIT.search(message)):
        _, separator, answered = message.partition(BEFORE)
        return f"Timeout after {limit[1]} seconds{separator}{answered}"
    if message.startswith("connection refused"):
        return "Connection refused"
    return message


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


KIND = "evaluation"
MAX_STORED_CASES = 100_000
MAX_STORED_GRADERS = 1_000
MAX_URL = 2_000

AGENT_OUTPUT = ["$.output", "$.response", "$"]
"""Path to the response in an agent's answer."""
MAX_ANSWER = 1_000_000
TIMEOUT = "30s"
"""Time that an agent has for a test case, all attempts together."""


class EvaluationService:
    """Service of the evaluations contract, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _addresses(self) -> AgentAddresses:
        """The policy of addresses, read once: with the first request, when it is known which ports are ours."""
        return AgentAddresses.configured()

    def create(self, caller: Caller, body: NewEvaluation, idempotency_key: str | None = None) -> dict[str, Any]:
        """Request an evaluation. Mistakes are looked for in this order: the test cases, the graders, the URL.

        Raises InvalidRequestError, ConflictError.
        """
        request = body.model_dump()
        if idempotency_key is not None:
            _require_key(idempotency_key)
            key = unique_key(KIND, caller, idempotency_key)
            if (before := self._store.requests.requested_before(key, content_hash(request))) is not None:
                return self.get(before.id)
        cases = self._cases(request["test_case_ids"])
        graders = self._graders(request["grader_ids"])
        _require_address(request["agent_endpoint_url"], self._addresses)
        run = request_run(
            self._store,
            _document(request["agent_endpoint_url"], graders),
            cases,
            kind=KIND,
            caller=caller,
            idempotency_key=idempotency_key,
            request=request,
            details={"graders": {grader.id: grader.name for grader in graders}},
        )
        return self.get(run.id)

    def get(self, evaluation_id: str) -> dict[str, Any]:
        """Return an evaluation and its progress. Raises NotFoundError."""
        run, request = self._store.requests.get(KIND, _run_id(evaluation_id))
        return evaluation(run, request, result_counts(self._store, [run]).get(run.id, 0))

    def evaluations(self, limit: int, skip: int, status: Status | None = None) -> dict[str, Any]:
        """Return the evaluations, newest first, all or those of a status."""
        statuses = STATUSES[status] if status is not None else ()
        runs, total = self._store.requests.newest(KIND, limit, skip, statuses)
        counts = result_counts(self._store, [run for run, _ in runs])
        shown = [evaluation(run, request, counts.get(run.id, 0)) for run, request in runs]
        return {"evaluations": shown, "count": len(shown), "total": total}

    def results(self, evaluation_id: str, limit: int, skip: int) -> dict[str, Any]:
        """Return the results so far. Raises NotFoundError."""
        run, request = self._store.requests.get(KIND, _run_id(evaluation_id))
        return results_page(self._store, run, request, limit, skip)

    def add_cases(self, cases: Sequence[TestCase]) -> list[dict[str, Any]]:
        """Store test cases, all or none. Raises ConflictError, TooLargeError."""
        if self._store.requests.test_cases(1)[1] + len(cases) > MAX_STORED_CASES:
            raise TooLargeError(f"There may be {MAX_STORED_CASES:,} test cases: delete some first.")
        self._store.requests.add_test_cases(cases)
        return [_shown_case(case) for case in cases]

    def case(self, case_id: str) -> dict[str, Any]:
        """Return a stored test case. Raises NotFoundError."""
        return _shown_case(self._store.requests.test_case(case_id))

    def cases(self, limit: int, skip: int) -> dict[str, Any]:
        """Return the stored test cases, oldest first."""
        cases, total = self._store.requests.test_cases(limit, skip)
        return {"test_cases": [_shown_case(case) for case in cases], "count": len(cases), "total": total}

    def delete_case(self, case_id: str) -> dict[str, Any]:
        """Delete a test case; evaluations keep their copies. Raises NotFoundError."""
        self._store.requests.delete_test_case(case_id)
        return {"id": case_id, "deleted": True}

    def add_grader(self, body: NewGrader) -> dict[str, Any]:
        """Store a grader. Raises InvalidRequestError, ConflictError, TooLargeError."""
        require_allowed(body.checks)
        checks = [check.model_copy(update={"id": None}).model_dump(exclude_none=True) for check in body.checks]
        grader = Grader(id=body.id or str(uuid4()), name=body.name, checks=checks, created_at=utc_now())
        if grader.id in BUILT_IN:
            raise ConflictError(f"The grader {grader.id} is built in: choose another id.")
        if len(self._store.requests.graders()) >= MAX_STORED_GRADERS:
            raise TooLargeError(f"There are {MAX_STORED_GRADERS:,} graders already: delete some first.")
        self._store.requests.add_grader(grader)
        return _shown_grader(grader)

    def grader(self, grader_id: str) -> dict[str, Any]:
        """Return a grader, built in or stored. Raises NotFoundError."""
        wanted = BUILT_IN.get(grader_id) or self._store.requests.find_graders([grader_id]).get(grader_id)
        if wanted is None:
            raise NotFoundError("Grader not found")
        return _shown_grader(wanted)

    def graders(self, limit: int, skip: int) -> dict[str, Any]:
        """Return the graders: the built-in ones, then the stored ones, oldest first."""
        everything = [*BUILT_IN.values(), *self._store.requests.graders()]
        page = [_shown_grader(grader) for grader in everything[skip : skip + limit]]
        return {"graders": page, "count": len(page), "total": len(everything)}

    def delete_grader(self, grader_id: str) -> dict[str, Any]:
        """Delete a stored grader; evaluations keep their copies. Raises NotFoundError, ConflictError."""
        if grader_id in BUILT_IN:
            raise ConflictError(f"The grader {grader_id} is built in, and stays.")
        self._store.requests.delete_grader(grader_id)
        return {"id": grader_id, "deleted": True}

    def _cases(self, ids: Sequence[str]) -> list[TestCase]:
        cases = self._store.requests.find_test_cases([case_id for case_id in ids if re.fullmatch(CASE_ID, case_id)])
        for case_id in ids:
            if case_id not in cases:
                raise InvalidRequestError("INVALID_TEST_CASE_ID", f"Test case not found: {shown(case_id, 200)}")
        return [cases[case_id] for case_id in ids]

    def _graders(self, ids: Sequence[str]) -> list[Grader]:
        stored = self._store.requests.find_graders(
            [grader_id for grader_id in ids if grader_id not in BUILT_IN and re.fullmatch(GRADER_ID, grader_id)]
        )
        graders = {**stored, **BUILT_IN}
        for grader_id in ids:
            if grader_id not in graders:
                raise InvalidRequestError("INVALID_GRADER_ID", f"Grader not found: {shown(grader_id, 200)}")
        return [graders[grader_id] for grader_id in ids]


def _require_key(key: str) -> None:
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InvalidRequestError("INVALID_REQUEST", f"Idempotency-Key: 1 to {MAX_KEY} characters of ASCII")


def _require_address(url: Any, addresses: AgentAddresses) -> None:
    if not isinstance(url, str):
        problem: str | None = "it is no text"
    elif len(url) > MAX_URL:
        problem = f"it has more than {MAX_URL:,} characters"
    else:
        problem = addresses.problem(url) or _unusable(url)
        if problem is None and holds_secret_parts(url):
            problem = "it holds a secret, which would be stored and shown; an agent's address has none"
    if problem is not None:
        raise InvalidRequestError("INVALID_URL", f"Agent endpoint URL must be valid HTTP(S): {shown(problem, 200)}")


def _unusable(url: str) -> str | None:
    """Return why the run's HTTP client could not read an address, whose run would end before its first call."""
    from fepflow.calls.http_client import parse_address  # loads httpx, which the service needs for this only

    try:
        parse_address(url, "agent_endpoint_url")
    except InputError as error:
        return error.problems[0].message
    return None


def _document(url: str, graders: Sequence[Grader]) -> dict[str, Any]:
    http = {"url": url, "body": {"input": "$.test_case.input"}, "output": AGENT_OUTPUT, "max_bytes": MAX_ANSWER}
    limits = {"timeout": TIMEOUT, "case_timeout": TIMEOUT, "attempts": 3, "retries": 0, "concurrency": 8}
    return {
        "name": f"evaluation of {urlsplit(url).hostname}"[:200],
        "target": {"http": http, **limits},
        "checks": checks_of(graders),
        "tags": ["evaluation"],
    }


def _run_id(evaluation_id: str) -> str:
    """Return the store's form of an id, which is a UUID. Raises NotFoundError for anything else."""
    try:
        if len(evaluation_id) <= 36:
            return UUID(evaluation_id).hex
    except ValueError:
        pass
    raise NotFoundError("Evaluation run not found")


def _shown_case(case: TestCase) -> dict[str, Any]:
    return {"id": case.id, "input": case.input, "expected": case.expected, "metadata": case.metadata}


def _shown_grader(grader: Grader) -> dict[str, Any]:
    built_in = grader.id in BUILT_IN
    return {"id": grader.id, "name": grader.name, "checks": grader.checks, "built_in": built_in}
