"""An agent whose environment is its own: its interpreter has nothing of ours, and ours nothing of it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fepflow.calls.factory import open_target
from fepflow.calls.python import worker
from fepflow.cli.main import fepflow
from fepflow.errors import InputError
from fepflow.suite.target import Target

from .conftest import Ask, Open, value_of

pytestmark = pytest.mark.may_stall(reason="runs open targets in a thread, which tests do not")

WHERE = """
import importlib.util, sys
import pydantic

async def answer(question):
    ours = [name for name in ("fepflow", "prefect", "httpx") if importlib.util.find_spec(name)]
    return {"python": sys.executable, "pydantic": pydantic.VERSION, "ours": ours, "path": sys.path}
"""


async def test_the_function_runs_in_the_agents_environment_and_in_nothing_of_ours(
    ask: Ask, own_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    upwards = "../" * (len(tmp_path.parts) - 1)
    value = value_of(await ask(WHERE, interpreter=upwards + str(own_python)[1:]))
    assert (value["python"], value["pydantic"], value["ours"]) == (str(own_python), "0.1", [])
    assert value["path"][0] == str(tmp_path)
    assert not any("fepflow" in entry for entry in value["path"])


async def test_a_module_that_only_the_agents_environment_has_is_called(ask: Ask, own_python: Path) -> None:
    asked = await ask("", "shop_bot:answer", interpreter=str(own_python))
    assert value_of(asked) == "installed: What is 6 * 7?"
    with pytest.raises(
        InputError, match=r"cannot be loaded: ModuleNotFoundError: .*'no_bot' \(install it for .*python"
    ):
        await ask("", "no_bot:answer", interpreter=str(own_python))


async def test_a_program_in_path_is_an_interpreter_too(
    ask: Ask, own_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(own_python.parent), prepend=os.pathsep)
    assert value_of(await ask(WHERE, interpreter="python"))["python"] == str(own_python)


async def test_another_interpreter_is_another_target(open_agent: Open, own_python: Path) -> None:
    code = "def answer(question):\n    return question\n"
    targets = [open_agent(code, **options)[0] for options in ({}, {"isolate": "process"}, {"isolate": "interpreter"})]
    assert len({target.fingerprint for target in targets}) == 2


PROGRAMS = {
    "shell": "echo $2",
    "broken": "exit 3",
}


@pytest.mark.parametrize(
    ("interpreter", "says"),
    [
        ("../nowhere/.venv/bin/python", r"there is no program \.\./nowhere/\.venv/bin/python \(name the python of"),
        ("no-such-python", "no-such-python is not found in PATH"),
        ("./", r"there is no program \./"),
        ("./shell", r"the process that was to load .*/shell must be Python 3\.8 or newer"),
        ("./broken", r"the process that was to load .*/broken must be Python 3\.8 or newer"),
        ("./agent.py", r"there is no program \./agent\.py"),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_refused_before_any_call(
    tmp_path: Path, interpreter: str, says: str
) -> None:
    for name, line in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "agent.py").write_text("def answer(question):\n    return question\n")
    config = Target.model_validate({"python": {"function": "agent.py:answer", "interpreter": interpreter}})
    with pytest.raises(InputError, match=rf"^target\.python\.interpreter: .*{says}"):
        open_target(config, folder=tmp_path, case_ids=list)


def test_validate_says_what_the_agents_environment_lacks(tmp_path: Path, own_python: Path) -> None:
    (tmp_path / "agent.py").write_text("import numpy_of_theirs\ndef answer(question):\n    return question\n")
    suite = {
        "name": "s",
        "target": {"python": {"function": "agent.py:answer", "interpreter": str(own_python)}},
        "test_cases": [{"id": "a", "input": 1}],
        "checks": [{"type": "is_empty", "arguments": {"value": "$.output.value"}}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    done = CliRunner().invoke(fepflow, ["validate", str(tmp_path / "suite.json")])
    assert done.exit_code == 2
    assert f"cannot be loaded: ModuleNotFoundError: No module named 'numpy_of_theirs' (install it for {own_python}" in (
        done.stderr
    )
    assert "agent.py:1" in done.stderr


def test_an_interpreter_and_a_thread_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="leave isolate out"):
        Target.model_validate({"python": {"function": "agent.py:answer", "interpreter": "p", "isolate": "thread"}})


def test_the_worker_needs_the_standard_library_of_an_old_python_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("def answer(question):\n    yield from question\n")
    config = {
        "file": str(tmp_path / "agent.py"),
        "module": "agent",
        "name": "answer",
        "folder": str(tmp_path),
        "names": None,
        "limit": 1000,
        "reserved": [],
        "root": None,
        "interpreter": "python",
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(worker.__file__), json.dumps(config)],
        input='{"input": "ab"}\n{"input": 5}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    hello, answer, failure = map(json.loads, done.stdout.splitlines())
    assert hello["wants_case"] is False
    assert answer == {"answer": {"value": "ab", "metadata": {}}}
    assert failure["failure"]["message"] == "TypeError: 'int' object is not iterable"
    ast.parse(Path(str(worker.__file__)).read_text(encoding="utf-8"), feature_version=(3, 8))
