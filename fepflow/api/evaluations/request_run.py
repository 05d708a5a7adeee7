"""A run that is requested over the network: a row in the store, from which the reaper has it started in Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from fepflow.access.caller import Caller
from fepflow.analysis.comparison import suite_hash
from fepflow.documents.loader import Document
from fepflow.errors import InputError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewOutput, NewRun, RunRecord, RunRequest
from fepflow.store.store import Store
from fepflow.suite.reader import read_suite

SECTIONS = frozenset({"name", "description", "target", "checks", "metrics", "gate", "tags"})
"""What the document of a requested run may say. It names no file, no code, no model and no key."""

MAX_KEY = 200
"""Characters of an idempotency key."""


def request_run(
    store: Store,
    document: dict[str, Any],
    cases: Sequence[TestCase],
    *,
    kind: str,
    caller: Caller,
    idempotency_key: str | None,
    request: dict[str, Any],
    details: dict[str, Any] | None = None,
    outputs: Sequence[Output] | None = None,
) -> RunRecord:
    """Create a pending run of test cases with different ids, and return it; all of it is stored, or nothing.

    `document` is a suite without test cases, whose target is an HTTP address, or nothing where there are `outputs`,
    one for each case: these are stored with the run, which only checks them. `request` is what the caller has asked:
    the same again under the same `idempotency_key` gives the run that there is, another is a ConflictError. `details`
    are stored beside it. `kind` is the interface. Raises InputError for a document that is no suite.
    """
    document = {**document, "test_cases": []}
    if outputs is not None:
        document["target"] = {"given": {}}
    _require_suite(document)
    run = NewRun(
        id=uuid4().hex,
        name=document["name"],
        suite=document,
        suite_path=None,
        repeats=1,
        tags=list(document.get("tags", [])),
        suite_hash=suite_hash(document, 1, Path()),
        cause="network",
    )
    key = None if idempotency_key is None else unique_key(kind, caller, idempotency_key)
    asked = RunRequest(
        run_id=run.id,
        kind=kind,
        caller=caller.name,
        idempotency_key=key,
        request_hash=content_hash(request),
        request={**request, **(details or {})},
        created_at=utc_now(),
    )
    return store.requests.create(run, cases, asked, _rows(cases, outputs or ()))


def unique_key(kind: str, caller: Caller, idempotency_key: str) -> str:
    """An idempotency key, which is a caller's own, among those of all callers and interfaces."""
    return content_hash(kind, caller.name, idempotency_key)


def _require_suite(document: dict[str, Any]) -> None:
    if unknown := sorted(document.keys() - SECTIONS - {"test_cases"}):
        raise ValueError(f"a requested run has no {unknown[0]}")
    loaded = read_suite(Document(document, "the request", ""), Path.cwd(), {})
    if errors := [problem for problem in loaded.problems if problem.severity == "error"]:
        raise InputError(errors)


def _rows(cases: Sequence[TestCase], outputs: Sequence[Output]) -> list[NewOutput]:
    return [
        NewOutput(index, 0, content_hash("given", case.id, output.model_dump()), output)
        for index, (case, output) in enumerate(zip(cases, outputs, strict=bool(outputs)))
    ]
