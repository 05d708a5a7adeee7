"""An agent in a file, opened as a target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from fepflow.targets.call_record import CallRecord
from fepflow.targets.client import RetryPolicy, TargetClient
from fepflow.targets.factory import open_target

CASE = TestCase(id="c1", input="What is 6 * 7?", expected="42", metadata={"topic": "sums"})

Open = Callable[..., Any]
Ask = Callable[..., Any]


@pytest.fixture
async def open_agent(tmp_path: Path) -> AsyncIterator[Open]:
    """Writes agent.py and opens its function as a target."""
    opened = []

    def start(code: str, function: str = "agent.py:answer", folder: Path = tmp_path, **options: Any) -> Any:
        top = {name: options.pop(name) for name in ("timeout", "attempts", "concurrency") if name in options}
        folder.mkdir(exist_ok=True)
        (folder / "agent.py").write_text(code, encoding="utf-8")
        config = Target.model_validate({"attempts": 1, **top, "python": {"function": function, **options}})
        target = open_target(config, folder=folder, case_ids=list)
        opened.append(target)
        return target, TargetClient(target, RetryPolicy.of(config))

    yield start
    for target in opened:
        await target.aclose()


@pytest.fixture
def ask(open_agent: Open) -> Ask:
    async def once(code: str, *arguments: Any, case: TestCase = CASE, **options: Any) -> CallRecord:
        return await open_agent(code, *arguments, **options)[1].ask(case)

    return once


def value_of(asked: CallRecord) -> Any:
    assert asked.error is None, asked.error
    assert asked.response is not None
    return asked.response.value
