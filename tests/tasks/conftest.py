"""A real store, a real agent on the loopback, and runs of both; no Prefect server."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.create_run import RunOptions, create_run

Plan = Callable[..., str]

SAME = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}


@dataclass
class Agent:
    """Says back what it is asked; `fail n` fails n times first. Knows who asked what, and how many at once."""

    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    under_way: int = 0
    most_at_once: int = 0
    delay: float = 0.0
    wrong: set[str] = field(default_factory=set)
    """Questions that are answered wrongly."""
    hanging: set[str] = field(default_factory=set)
    """Questions of which the first call hangs for two seconds."""
    traceparents: list[str | None] = field(default_factory=list)
    tokens: int | None = None
    """Tokens that each answer says it has cost."""
    wrong_for: dict[str, int] = field(default_factory=dict)
    """Wrong answers, to the first questions (`q0`, `q1`, ...), of each variant: it is named in the request, as `of`."""
    down_for: set[str] = field(default_factory=set)
    """Variants that are not answered."""

    async def respond(self, request: web.Request) -> web.Response:
        asked = await request.json()
        question, variant = asked["question"], str(asked.get("of"))
        self.requests[str(question)] += 1
        self.traceparents.append(request.headers.get("traceparent"))
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        hangs = str(question) in self.hanging and self.requests[str(question)] == 1
        await asyncio.sleep(2 if hangs else self.delay)
        self.under_way -= 1
        words = str(question).split()
        if words[:1] == ["fail"] and self.requests[str(question)] <= int(words[1]):
            return web.Response(status=503, text=f"not yet: {request.headers.get('Authorization')}")
        if variant in self.down_for:
            return web.Response(status=500, text="down")
        is_wrong = str(question) in self.wrong
        if variant in self.wrong_for:
            is_wrong = int(str(question).removeprefix("q")) < self.wrong_for[variant]
        return web.json_response({"answer": "wrong" if is_wrong else question, "tokens": self.tokens})


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    running = Agent()
    app = web.Application()
    app.router.add_post("/ask", running.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    running.url = f"http://127.0.0.1:{runner.addresses[0][1]}/ask"
    yield running
    await runner.cleanup()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Callable[[str], str]) -> Iterator[Store]:
    """The store that `open_run` opens too."""
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEPFLOW_STORE_URL", raising=False)
    settings.cache_clear()
    with Store.open(new_store(settings().store_address)) as opened:
        yield opened
    settings.cache_clear()


@pytest.fixture
def plan(store: Store, agent: Agent, tmp_path: Path) -> Plan:
    """Plans a run that asks the agent each case's input; a case that is a text is its own id, input and answer."""

    def make(
        cases: Sequence[Any],
        *,
        checks: Sequence[Any] = (SAME,),
        in_file: bool = False,
        options: RunOptions | None = None,
        **sections: Any,
    ) -> str:
        whole = [case if isinstance(case, dict) else {"id": case, "input": case} for case in cases]
        whole = [{"expected": case.get("input"), **case} for case in whole]
        http = {"url": agent.url, "body": {"question": "$.test_case.input"}, "output": "$.answer"}
        target = {"attempts": 2, "retries": 0, **sections.pop("target", {})}
        target["http"] = {**http, **target.get("http", {})}
        if in_file:
            (tmp_path / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in whole), encoding="utf-8")
        source = "cases.jsonl" if in_file else whole
        document = {"name": "s", "target": target, "test_cases": source, "checks": list(checks), **sections}
        path = tmp_path / "suite.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return create_run(
            store, validate_suite(path, replacements=options.replacements if options else ()), options
        ).run.id

    return make
