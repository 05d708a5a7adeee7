"""Evaluations of agents over HTTP: stored test cases, graders, runs and results, as the evaluations contract has them.

Every method gives what the contract has as `data`. All block, as the store does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from fepflow.access.caller import Caller
from fepflow.api.evaluations.cases import CASE_ID, INVALID, MAX_CASES, read_case, read_cases
from fepflow.api.evaluations.graders import BUILT_IN, checks_of, require_allowed
from fepflow.api.evaluations.request_run import MAX_KEY, request_run, unique_key
from fepflow.api.evaluations.results import STATUSES, Status, evaluation, result_counts, results_page
from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.errors import ConflictError, InvalidRequestError, NotFoundError, TooLargeError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.secret_names import holds_secret_parts
from fepflow.store.records import Grader
from fepflow.store.store import Store
from fepflow.text import brief, printable

KIND = "evaluation"
FIELDS = ("test_case_ids", "agent_endpoint_url", "grader_ids")
MAX_GRADERS = 20
"""Graders of one evaluation."""
MAX_STORED_CASES = 100_000
MAX_STORED_GRADERS = 1_000
MAX_URL = 2_000

AGENT_OUTPUT = ["$.output", "$.response", "$"]
"""Where the response is in what an agent answers."""
MAX_ANSWER = 1_000_000
TIMEOUT = "30s"
"""What an agent has for a test case, all attempts together."""


class EvaluationService:
    """What the evaluations contract offers, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _addresses(self) -> AgentAddresses:
        """Read with the first request, when it is known which ports are ours, and once: it reads several files."""
        return AgentAddresses.configured()

    def create(self, caller: Caller, body: Any, idempotency_key: str | None = None) -> dict[str, Any]:
        """Request an evaluation. What is wrong is looked for in this order: the body, its fields, the test cases, the
        graders, the URL. Raises InvalidRequestError, ConflictError, TooLargeError, PermissionDeniedError.
        """
        caller.require("evaluate")
        request = _read_request(body)
        if idempotency_key is not None:
            _require_key(idempotency_key)
            key = unique_key(KIND, caller, idempotency_key)
            if (before := self._store.requests.requested_before(key, content_hash(request))) is not None:
                return self.get(caller, before.id, needs="evaluate")
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
        return self.get(caller, run.id, needs="evaluate")

    def get(self, caller: Caller, evaluation_id: str, *, needs: Any = "read") -> dict[str, Any]:
        """An evaluation and how far it is. Raises NotFoundError, PermissionDeniedError."""
        caller.require(needs)
        run, request = self._store.requests.get(KIND, _run_id(evaluation_id))
        return evaluation(run, request, result_counts(self._store, [run]).get(run.id, 0))

    def evaluations(self, caller: Caller, limit: int, skip: int, status: Status | None = None) -> dict[str, Any]:
        """The evaluations, the newest first, all or those of a status."""
        caller.require("read")
        statuses = STATUSES[status] if status is not None else ()
        runs, total = self._store.requests.newest(KIND, limit, skip, statuses)
        counts = result_counts(self._store, [run for run, _ in runs])
        shown = [evaluation(run, request, counts.get(run.id, 0)) for run, request in runs]
        return {"evaluations": shown, "count": len(shown), "total": total}

    def results(self, caller: Caller, evaluation_id: str, limit: int, skip: int) -> dict[str, Any]:
        """The results that there are by now. Raises NotFoundError."""
        caller.require("read")
        run, request = self._store.requests.get(KIND, _run_id(evaluation_id))
        return results_page(self._store, run, request, limit, skip)

    def add_case(self, caller: Caller, document: Any) -> dict[str, Any]:
        """Store a test case. Raises InvalidRequestError, ConflictError, TooLargeError."""
        caller.require("evaluate")
        case = read_case(document)
        self._add([case])
        return _shown_case(case)

    def add_cases(self, caller: Caller, documents: Any) -> dict[str, Any]:
        """Store test cases, all or none. Raises as `add_case` does."""
        caller.require("evaluate")
        cases = read_cases(documents)
        self._add(cases)
        return {"test_cases": [_shown_case(case) for case in cases], "count": len(cases)}

    def case(self, caller: Caller, case_id: str) -> dict[str, Any]:
        """A stored test case. Raises NotFoundError."""
        caller.require("read")
        return _shown_case(self._store.requests.test_case(case_id))

    def cases(self, caller: Caller, limit: int, skip: int) -> dict[str, Any]:
        """The stored test cases, the oldest first."""
        caller.require("read")
        cases, total = self._store.requests.test_cases(limit, skip)
        return {"test_cases": [_shown_case(case) for case in cases], "count": len(cases), "total": total}

    def delete_case(self, caller: Caller, case_id: str) -> dict[str, Any]:
        """Delete a test case; evaluations keep their copies. Raises NotFoundError."""
        caller.require("evaluate")
        self._store.requests.delete_test_case(case_id)
        return {"id": case_id, "deleted": True}

    def add_grader(self, caller: Caller, grader: Grader) -> dict[str, Any]:
        """Store a grader. Raises InvalidRequestError, ConflictError, TooLargeError."""
        caller.require("evaluate")
        require_allowed(grader)
        if grader.id in BUILT_IN:
            raise ConflictError(f"The grader {grader.id} is built in: choose another id.")
        if len(self._store.requests.graders()) >= MAX_STORED_GRADERS:
            raise TooLargeError(f"There are {MAX_STORED_GRADERS:,} graders already: delete some first.")
        self._store.requests.add_grader(grader)
        return _shown_grader(grader)

    def grader(self, caller: Caller, grader_id: str) -> dict[str, Any]:
        """A grader, built in or stored. Raises NotFoundError."""
        caller.require("read")
        found = BUILT_IN.get(grader_id) or self._store.requests.find_graders([grader_id]).get(grader_id)
        if found is None:
            raise NotFoundError("Grader not found")
        return _shown_grader(found)

    def graders(self, caller: Caller, limit: int, skip: int) -> dict[str, Any]:
        """The graders: those built in, then the stored ones, the oldest first."""
        caller.require("read")
        everything = [*BUILT_IN.values(), *self._store.requests.graders()]
        page = [_shown_grader(grader) for grader in everything[skip : skip + limit]]
        return {"graders": page, "count": len(page), "total": len(everything)}

    def delete_grader(self, caller: Caller, grader_id: str) -> dict[str, Any]:
        """Delete a stored grader; evaluations keep their copies. Raises NotFoundError, ConflictError."""
        caller.require("evaluate")
        if grader_id in BUILT_IN:
            raise ConflictError(f"The grader {grader_id} is built in, and stays.")
        self._store.requests.delete_grader(grader_id)
        return {"id": grader_id, "deleted": True}

    def _add(self, cases: Sequence[TestCase]) -> None:
        if self._store.requests.test_cases(1)[1] + len(cases) > MAX_STORED_CASES:
            raise TooLargeError(f"There may be {MAX_STORED_CASES:,} test cases: delete some first.")
        self._store.requests.add_test_cases(cases)

    def _cases(self, ids: Sequence[str]) -> list[TestCase]:
        found = self._store.requests.find_test_cases([case_id for case_id in ids if CASE_ID.fullmatch(case_id)])
        for case_id in ids:
            if case_id not in found:
                raise InvalidRequestError("INVALID_TEST_CASE_ID", f"Test case not found: {_shown(case_id)}")
        return [found[case_id] for case_id in ids]

    def _graders(self, ids: Sequence[str]) -> list[Grader]:
        stored = self._store.requests.find_graders([grader_id for grader_id in ids if grader_id not in BUILT_IN])
        found = {**stored, **BUILT_IN}
        for grader_id in ids:
            if grader_id not in found:
                raise InvalidRequestError("INVALID_GRADER_ID", f"Grader not found: {_shown(grader_id)}")
        return [found[grader_id] for grader_id in ids]


def _read_request(body: Any) -> dict[str, Any]:
    """The fields of a request for an evaluation; an id that stands twice is taken once."""
    if not isinstance(body, dict):
        raise InvalidRequestError(INVALID, f"the body must be an object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if body.get(name) in (None, [], ""):
            raise InvalidRequestError("MISSING_FIELD", f"{name} is required")
    return {
        "test_case_ids": _ids(body, "test_case_ids", "INVALID_TEST_CASE_ID", MAX_CASES),
        "agent_endpoint_url": body["agent_endpoint_url"],
        "grader_ids": _ids(body, "grader_ids", "INVALID_GRADER_ID", MAX_GRADERS),
    }


def _ids(body: dict[str, Any], name: str, code: str, limit: int) -> list[str]:
    ids = body[name]
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise InvalidRequestError(code, f"{name} must be an array of ids, each a text")
    unique = list(dict.fromkeys(ids))
    if len(unique) > limit:
        raise TooLargeError(f"{name}: an evaluation has at most {limit:,}, and here are {len(unique):,}")
    return unique


def _require_key(key: str) -> None:
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InvalidRequestError(INVALID, f"Idempotency-Key: 1 to {MAX_KEY} characters of ASCII")


def _require_address(url: Any, addresses: AgentAddresses) -> None:
    if not isinstance(url, str):
        problem: str | None = "it is no text"
    elif len(url) > MAX_URL:
        problem = f"it has more than {MAX_URL:,} characters"
    else:
        problem = addresses.problem(url)
        if problem is None and holds_secret_parts(url):
            problem = "it holds a secret, which would be stored and shown; an agent's address has none"
    if problem is not None:
        raise InvalidRequestError("INVALID_URL", f"Agent endpoint URL must be valid HTTP(S): {_shown(problem)}")


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
    """The store's form of an id, which is a UUID's; raises NotFoundError for anything else."""
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


def _shown(text: str) -> str:
    return printable(brief(text, 200))
