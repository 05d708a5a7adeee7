"""A manifest's target: a command, with or without a shell, or an address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fepflow.suite.reader import LoadedSuite
from fepflow.suite.target import EcpTarget

from .conftest import Read, told

TargetOf = Callable[..., EcpTarget]
REST = "\nscenarios: [{name: a, steps: [{input: b}]}]\n"


@pytest.fixture
def target_of(read: Read) -> TargetOf:
    def target_of(lines: str, **env: str) -> EcpTarget:
        loaded = read('manifest_version: "v1"\nname: a\n' + lines + REST, **env)
        assert loaded.suite is not None, loaded.problems
        assert loaded.suite.target.ecp is not None
        return loaded.suite.target.ecp

    return target_of


def test_a_command_is_split_as_by_a_shell_and_none_runs_it(target_of: TargetOf) -> None:
    ecp = target_of("target: python3 'my agent.py' --name=\"a b\" $HOME; ls")
    assert ecp.command == ["python3", "my agent.py", "--name=a b", "$HOME;", "ls"]


def test_a_shell_runs_it_only_where_the_manifest_says_so(target_of: TargetOf) -> None:
    ecp = target_of("target: cd sub && python3 agent.py\nshell: true\nenv: [OPENAI_API_KEY]")
    assert ecp.command == ["/bin/sh", "-c", "cd sub && python3 agent.py"]
    assert ecp.env == ["OPENAI_API_KEY"]


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("target: cd sub && python3 agent.py", True),
        ("target: MODE=test python3 agent.py", True),
        ("target: cd sub && python3 agent.py\nshell: true", False),
        ("target: python3 agent.py --query=a 'b && c'", False),
    ],
)
def test_a_command_that_is_written_for_a_shell_is_warned_of(read: Read, line: str, warned: bool) -> None:
    loaded = read('manifest_version: "v1"\nname: a\n' + line + REST)
    found = [problem.message for problem in loaded.problems if problem.severity == "warning"]
    assert found == (["is written for a shell, but runs without one"] if warned else [])


@pytest.mark.parametrize("address", ["http://127.0.0.1:8765/ecp", "HTTPS://agent.example/ecp", "${AGENT}/ecp"])
def test_an_address_is_called(target_of: TargetOf, address: str) -> None:
    ecp = target_of(f"target: {address}", AGENT="http://agent.example")
    assert (ecp.command, ecp.url) == (None, address.replace("${AGENT}", "http://agent.example"))


@pytest.mark.parametrize(
    ("lines", "mistake"),
    [
        ("target: python3 'agent.py", "3: target: cannot be split as a shell would: no closing quotation"),
        ("target: http://user:pw@agent.example/", "3: target: a secret must not stand in the address"),
        ("target: http:///ecp", "3: target: "),
        ("target: python3 ${AGENT}", "3: target: ${AGENT} is not set in the environment"),
        ("target: http://agent.example/\nenv: [A]", "3: target: env has no meaning with url"),
    ],
)
def test_what_is_wrong_with_it_is_told_at_its_line(read: Read, lines: str, mistake: str) -> None:
    found = told(read('manifest_version: "v1"\nname: a\n' + lines + REST))
    assert len(found) == 1
    assert found[0].startswith(f"error {mistake}")


def in_folder(tmp_path: Path, manifest: str, target: str) -> LoadedSuite:
    from fepflow.suite.reader import load_suite

    path = tmp_path / manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'manifest_version: "v1"\nname: a\ntarget: {target}' + REST)
    return load_suite(path, {})


@pytest.mark.parametrize(
    ("agent", "cwd"),
    [("demo/agents/agent.py", "../.."), ("examples/demo/agents/agent.py", "."), ("other/agent.py", "../..")],
)
def test_files_may_be_named_from_a_folder_above(tmp_path: Path, agent: str, cwd: str) -> None:
    (tmp_path / agent).parent.mkdir(parents=True)
    (tmp_path / agent).touch()
    named = "other/agent.py" if "other" in agent else "demo/agents/agent.py"
    folder = "examples" if agent.startswith("examples") else "examples/demo"
    loaded = in_folder(tmp_path, f"{folder}/manifest.yaml", f"python3 {named}")
    assert loaded.suite is not None
    assert loaded.suite.target.ecp is not None
    assert loaded.suite.target.ecp.cwd == cwd
    assert [problem.severity for problem in loaded.problems] == (["warning"] if cwd != "." else [])


@pytest.mark.parametrize(
    "target", ["agent a/b", "python3 -m agent", "python3 --config=demo/agent.py", "python3 agent.py"]
)
def test_what_is_nowhere_or_no_path_is_looked_for_in_the_manifests_own_folder(tmp_path: Path, target: str) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "agent.py").touch()
    loaded = in_folder(tmp_path, "manifests/manifest.yaml", target)
    assert loaded.suite is not None
    assert loaded.suite.target.ecp is not None
    assert loaded.suite.target.ecp.cwd == "."
    assert loaded.problems == []
