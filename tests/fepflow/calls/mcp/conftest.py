"""MCP servers as targets: one built with the SDK, and scripts that speak as they like."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.target import Target

ORDERS = [sys.executable, str(Path(__file__).parent / "orders.py")]
HOSTILE = [sys.executable, "-I", "-S", str(Path(__file__).parent / "hostile.py")]

Open = Callable[..., TargetClient]


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """Load what an event loop would wait for."""
    import fepflow.calls.mcp.session  # noqa: F401


@pytest.fixture
async def open_server(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens a server as a target. In the end no process of it may be left."""
    opened = []
    before = set(psutil.Process().children(recursive=True))

    def start(secrets: frozenset[str] = frozenset(), **options: Any) -> TargetClient:
        names = ("timeout", "attempts", "concurrency")
        top = {name: options.pop(name) for name in names if name in options}
        config = Target.model_validate({"attempts": 1, "timeout": 60, **top, "mcp": options})
        target = open_target(config, folder=tmp_path, case_ids=list, secrets=secrets)
        opened.append(target)
        return TargetClient(target, RetryPolicy.of(config))

    yield start
    for target in opened:
        await target.aclose()
    started = set(psutil.Process().children(recursive=True)) - before
    left = [child for child in started if child.status() != psutil.STATUS_ZOMBIE]
    assert [child.cmdline() for child in left] == []


async def ask(client: TargetClient, tool: str, case_id: str = "c1", **arguments: Any) -> Output:
    """The output of one call of a tool, as a run gets it."""
    is_error = {"is_error": True} if arguments.pop("is_error", False) else {}
    case = TestCase(id=case_id, input={"tool": tool, "arguments": arguments, **is_error})
    return (await client.ask(case)).output()


def error_of(output: Output) -> dict[str, Any]:
    """Why a call has no output."""
    assert output.failure is not None, output
    return output.failure
