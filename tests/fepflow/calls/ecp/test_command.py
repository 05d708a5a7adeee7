"""Which program is started, and what is said of one that cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fepflow.calls.processes import find_command
from fepflow.errors import InputError
from fepflow.suite.target import EcpTarget

from .conftest import AGENT, PYTHON, Open, metadata_of, run, said


def problem_of(folder: Path, **ecp: object) -> str:
    with pytest.raises(InputError) as caught:
        find_command(EcpTarget.model_validate(ecp), folder)
    (problem,) = caught.value.problems
    return str(problem)


def test_a_program_that_cannot_be_started_is_a_mistake_of_the_suite(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    where = "a path starts at target.ecp.cwd or the suite's folder; chmod +x makes a file executable"
    assert [
        problem_of(tmp_path, command=["no-such-agent"]),
        problem_of(tmp_path, command=["./no-agent.sh"]),
        problem_of(tmp_path, command=["./agent.sh"]),
        problem_of(tmp_path, command=["./folder"]),
        problem_of(tmp_path, command=["sh"], cwd="agents"),
    ] == [
        "target.ecp.command: the program no-such-agent is not found in PATH (install it, or name its path)",
        *(
            f"target.ecp.command: the program {name} does not exist, or is not executable ({where})"
            for name in ("./no-agent.sh", "./agent.sh", "./folder")
        ),
        "target.ecp.cwd: agents is not a folder",
    ]


def test_a_relative_program_is_looked_for_where_it_is_started_then_beside_the_suite(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "agents"):
        place.mkdir(exist_ok=True)
        (place / "both").touch(mode=0o755)
    (tmp_path / "one").touch(mode=0o755)
    both = find_command(EcpTarget(command=["./both", "x"], cwd="agents"), tmp_path)
    assert both.arguments == [str(tmp_path / "agents" / "both"), "x"]
    assert both.folder == tmp_path / "agents"
    assert find_command(EcpTarget(command=["./one"], cwd="agents"), tmp_path).arguments == [str(tmp_path / "one")]


def test_a_link_to_a_program_stays_one(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    assert find_command(EcpTarget(command=["./python"]), tmp_path).arguments == [str(tmp_path / "python")]


def test_a_command_in_one_text_is_split_as_by_a_shell() -> None:
    assert EcpTarget.model_validate({"command": "python 'my agent.py' --name \"a b\" c\\ d $HOME"}).command == [
        "python",
        "my agent.py",
        "--name",
        "a b",
        "c d",
        "$HOME",
    ]


async def test_spaces_and_other_characters_in_paths_are_nothing_special(open_agent: Open, tmp_path: Path) -> None:
    folder = tmp_path / "my agent ü 日本"
    folder.mkdir()
    agent = folder / "the agent; touch oops.py"
    agent.write_text(f"#!{sys.executable} -IS\n" + AGENT % "", encoding="utf-8")
    agent.chmod(0o755)
    _, client = open_agent(command=[f"./{folder.name}/{agent.name}", "a b", "$(touch oops)"])
    assert said(await run(client, "hi")) == ["echo: hi"]
    _, client = open_agent(command=f"'./{agent.name}'", cwd=folder.name)
    assert said(await run(client, "hi")) == ["echo: hi"]
    assert not (tmp_path / "oops").exists()


NOT_STARTED = {
    "no interpreter line": (
        "print('hi')",
        "the file is not a program: begin a script with #! and the path of its interpreter",
    ),
    "no interpreter": ("#!/no/such\n", "the program, or the interpreter in its first line, does not exist"),
}


@pytest.mark.parametrize(("text", "why"), NOT_STARTED.values(), ids=NOT_STARTED)
async def test_a_program_that_the_system_refuses_is_an_error_that_says_why(
    open_agent: Open, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "agent").write_text(text)
    (tmp_path / "agent").chmod(0o755)
    _, client = open_agent(command=["./agent"], attempts=3)
    output = await run(client, "hi", "ho")
    error = metadata_of(output)["error"]
    message = f"before step 1 of 2: agent/initialize: the agent cannot be started: {why} (target.ecp.command)"
    assert (error["message"], error["kind"], error["recoverable"]) == (message, "not_started", False)
    assert metadata_of(output)["attempts"] == 1


async def test_a_program_that_has_gone_since_is_an_error_of_its_case(open_agent: Open, tmp_path: Path) -> None:
    (tmp_path / "agent").write_text(f"#!{PYTHON[0]}\n")
    (tmp_path / "agent").chmod(0o755)
    _, client = open_agent(command=["./agent"])
    os.remove(tmp_path / "agent")
    error = metadata_of(await run(client, "hi"))["error"]
    assert "the agent cannot be started: the program ./agent does not exist" in error["message"]
