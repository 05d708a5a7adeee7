"""An agent in a file, opened as a target."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.client import CallRecord, RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target

CASE = TestCase(id="c1", input="What is 6 * 7?", expected="42", metadata={"topic": "sums"})

Open = Callable[..., Any]
Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def own_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an agent's own environment, which has no fepflow, and another pydantic than ours."""
    folder = tmp_path_factory.mktemp("agent") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "pydantic").mkdir()
    (packages / "pydantic" / "__init__.py").write_text("VERSION = '0.1'\n")
    (packages / "shop_bot.py").write_text("def answer(question):\n    return f'installed: {question}'\n")
    return folder / "bin" / "python"


@pytest.fixture
async def open_agent(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Writes agent.py and opens its function as a target; `isolate` may be `interpreter`, that of `own_python`."""
    opened = []

    def start(code: str, function: str = "agent.py:answer", folder: Path = tmp_path, **options: Any) -> Any:
        top = {name: options.pop(name) for name in ("timeout", "attempts", "concurrency") if name in options}
        if options.get("isolate") == "interpreter":
            del options["isolate"]
            options["interpreter"] = str(request.getfixturevalue("own_python"))
        folder.mkdir(exist_ok=True)
        # Of two files of one second and one size Python takes the first one's bytecode.
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
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
