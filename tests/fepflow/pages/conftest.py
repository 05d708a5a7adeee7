"""Runs in a store of a test's own, and the pages over it on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from fepflow.access.access import Access
from fepflow.analysis.metrics import compute_verdict
from fepflow.deployments.view import application
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import settings
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite
from fepflow.suite.variants import run_name
from tests.http_server import serving

OWNER = "host/1/a"
CHECKS: list[dict[str, Any]] = [{"type": "contains", "id": name, "arguments": {}} for name in ("says_so", "polite")]
SUITE = {
    "name": "refunds",
    "target": {"http": {"url": "http://127.0.0.1:9/"}},
    "test_cases": [],
    "checks": CHECKS,
    "metrics": [{"id": "accuracy", "check": "says_so"}, {"id": "politeness", "check": "polite"}],
    "gate": {"min": {"accuracy": 0.9}},
}


@dataclass
class Row:
    """A case, its output at each repeat (None: not got to), and what its checks answered at each."""

    case: TestCase
    outputs: Sequence[Output | None] = (Output(value="yes"),)
    checks: Mapping[str, CheckResult] = field(default_factory=dict)


def answer(passed: bool | None = True, *, error: str | None = None, metadata: Any = None, **arguments: Any):
    """A check's answer."""
    return CheckResult(
        check_type="contains",
        status="error" if error else "completed",
        results={} if error else {"passed": passed, **({"metadata": metadata} if metadata else {})},
        evaluated_at=utc_now(),
        resolved_arguments={name: {"value": value} for name, value in arguments.items()},
        metadata={"check_version": "1.0.0"},
        **({"error": CheckError(type="timeout_error", message=error)} if error else {}),
    )


def _of_check(result: CheckResult, check_id: str) -> CheckResult:
    return result.model_copy(update={"metadata": {**result.metadata, "check_id": check_id}})


def simple(case_id: str, passed: bool = True, **case: Any) -> Row:
    """A case whose check passed or failed."""
    said = Output(value="yes" if passed else "no")
    fields = {"input": f"input of {case_id}", "expected": "yes", **case}
    return Row(
        TestCase(id=case_id, **fields),
        [said],
        {"says_so": answer(passed, text=said.value, phrases="yes"), "polite": answer()},
    )


def fill(
    store: Store,
    rows: Sequence[Row],
    *,
    run_id: str,
    ended: bool = True,
    tags: Sequence[str] = (),
    options: dict[str, Any] | None = None,
    rescored_from: str | None = None,
    **suite: Any,
) -> RunRecord:
    """Store a run with these results, and the verdict that they come to unless it has not `ended`."""
    document = {**SUITE, **suite}
    repeats = len(rows[0].outputs)
    name = run_name(document["name"], document.get("variant"))
    new = RunRecord(
        id=run_id,
        name=name,
        suite=document,
        repeats=repeats,
        tags=list(tags),
        cause="command",
        options=options,
        rescored_from=rescored_from,
    )
    store.runs.create(new, [row.case for row in rows])
    store.leases.acquire(run_id, OWNER, 600)
    outputs = [
        NewOutput(index, repeat, "a" * 64, output)
        for index, row in enumerate(rows)
        for repeat, output in enumerate(row.outputs)
        if output is not None
    ]
    results = [
        NewCheckResult(index, repeat, name, "b" * 64, _of_check(found, name), found.results.get("passed"))
        for index, row in enumerate(rows)
        for repeat, output in enumerate(row.outputs)
        if output is not None
        for name, found in row.checks.items()
    ]
    store.results.write(run_id, outputs, results)
    if ended:
        verdict = compute_verdict(store, store.runs.get(run_id), Suite.model_validate(document))
        found = verdict.model_dump(mode="json", exclude_none=True)
        metrics = found.pop("metrics")
        store.leases.finish(
            run_id, OWNER, "completed", outcome=verdict.outcome, metrics=metrics, verdict=found, stats={}
        )
    return store.runs.get(run_id)


@contextmanager
def store_in(home: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    """A new store, which is meanwhile the one that the settings name."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FEPFLOW_HOME", str(home))
        settings.cache_clear()
        with Store.open(new_store(settings().store_address)) as opened:
            yield opened
    settings.cache_clear()


@pytest.fixture
def store(tmp_path: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    with store_in(tmp_path / "home", new_store) as opened:
        yield opened


OF_A_PAGE = {"Sec-Fetch-Site": "same-origin"}
"""Headers that a browser sends with requests of our own pages."""

Serve = Callable[[], AbstractContextManager[str]]


@contextmanager
def served(store: Store) -> Iterator[str]:
    """The address of the pages."""

    @asynccontextmanager
    async def pages() -> AsyncIterator[ASGIApp]:
        async with Access(store, settings(), may_be_open=True) as access:
            yield application(store, settings(), access)

    with serving(pages) as found:
        yield found


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    with served(store) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60, headers=OF_A_PAGE) as opened:
        yield opened
