"""The house: imports go down only, and each floor keeps away from what it must not know."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOORS = {
    "fepflow.deployments": 14,
    "fepflow.cli": 13,
    "fepflow.pages": 12,
    "fepflow.api": 11,
    "fepflow.python_api": 11,
    "fepflow.pytest": 11,
    "fepflow.services": 10,
    "fepflow.reports": 9,
    "fepflow.access": 8,
    "fepflow.flows": 7,
    "fepflow.tasks": 6,
    "fepflow.diagnose": 5,
    "fepflow.analysis": 4,
    "fepflow.checks": 3,
    "fepflow.verdict": 2,
    "fepflow.store": 2,
    "fepflow.models": 2,
    "fepflow.calls": 1,
    "fepflow.evalguard": 1,
    "fepflow": 0,
}
MAY_IMPORT_PREFECT = ("fepflow.deployments", "fepflow.flows", "fepflow.tasks", "fepflow.services")
FOREIGN = {"fepflow.checks": ("httpx", "aiohttp", "sqlmodel", "sqlalchemy")}
FACES = (ROOT / "fepflow" / "__init__.py", ROOT / "fepflow" / "pytest" / "__init__.py")
"""Where users import from: they define nothing and load what is asked for only then."""

LINKED = ("checks", "tasks", "flows", "deployments")
"""Packages of fepflow whose folders stand at the top of the repository."""

FILES = sorted(path for folder in ("fepflow", *LINKED) for path in (ROOT / folder).rglob("*.py") if path not in FACES)


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """Every module that a file imports, also inside functions, with the place where it does."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node, ast.Import):
                yield from ((place, alias.name) for alias in node.names)
            else:
                assert node.level == 0, f"{place} imports relatively"
                yield from ((place, f"{node.module}.{alias.name}") for alias in node.names)


def room_of(module: str) -> str | None:
    """The most particular room of the house that a module is in; None for other people's."""
    rooms = [room for room in FLOORS if module == room or module.startswith(f"{room}.")]
    return max(rooms, key=len, default=None)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "fepflow" else ("fepflow", *parts))


def test_imports_go_down_only() -> None:
    for path in FILES:
        here = room_of(module_of(path))
        assert here is not None, path
        for place, module in imports_of(path):
            there = room_of(module)
            if there is None or there == here:
                continue
            assert FLOORS[there] < FLOORS[here], f"{place} imports {module}: no step down"


STARTED_ABOVE = {
    "fepflow.services.prefect_api": {"fepflow.deployments.server"},
    "fepflow.cli.stack": {
        "fepflow.deployments.alerts",
        "fepflow.deployments.schedule",
        "fepflow.deployments.serve",
        "fepflow.deployments.view",
    },
}
"""What is started as a process of its own (`python -m`) from a floor below: commands of the stack."""


def test_modules_of_a_floor_above_are_named_only_to_be_started_as_processes() -> None:
    modules = {module_of(path) for path in FILES}
    named: dict[str, set[str]] = {}
    for path in FILES:
        texts = {node.value for node in ast.walk(TREES[path]) if isinstance(node, ast.Constant)}
        floor = FLOORS[room_of(module_of(path)) or ""]
        if above := {module for module in modules & texts if FLOORS[room_of(module) or ""] > floor}:
            named[module_of(path)] = above
    assert named == STARTED_ABOVE


def test_no_file_imports_its_own_package() -> None:
    for path in FILES:
        package = module_of(path).rpartition(".")[0]
        for place, module in imports_of(path):
            origin = module.rpartition(".")[0]
            is_package = origin == package and not (path.parent / f"{module.rpartition('.')[2]}.py").exists()
            is_folder = (ROOT / module.replace(".", "/")).is_dir()
            assert not is_package or is_folder, f"{place} imports {module} from its package"


def test_floors_import_only_what_they_may() -> None:
    for path in FILES:
        room = room_of(module_of(path)) or ""
        foreign = (*FOREIGN.get(room, ()), *(() if room in MAY_IMPORT_PREFECT else ("prefect",)))
        for place, module in imports_of(path):
            assert module.partition(".")[0] not in foreign, f"{place} imports {module}"


def test_flows_do_no_io_themselves() -> None:
    for path in (ROOT / "flows").glob("*.py"):
        names = {module.partition(".")[0] for _, module in imports_of(path)}
        assert names.isdisjoint({"os", "pathlib", "httpx", "aiohttp", "sqlalchemy", "sqlmodel"}), path


def test_litellm_is_imported_in_one_file_inside_functions_only() -> None:
    for path in FILES:
        at_import = [node for node in TREES[path].body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in at_import for alias in node.names}
        assert "litellm" not in names, path
        if path != ROOT / "fepflow" / "models" / "_litellm.py":
            assert not any(module.startswith("litellm") for _, module in imports_of(path)), path


def test_a_face_defines_no_public_name_of_its_own() -> None:
    for face in FACES:
        defined = [node for node in ast.parse(face.read_text(encoding="utf-8")).body if hasattr(node, "name")]
        assert all(node.name.startswith("_") for node in defined), face


def test_every_public_name_is_there() -> None:
    import fepflow

    for name in fepflow.__all__:
        assert getattr(fepflow, name) is not None


@pytest.mark.parametrize("name", LINKED)
def test_a_folder_at_the_top_is_a_package_of_fepflow_and_of_nothing_else(name: str) -> None:
    package = util.find_spec(f"fepflow.{name}")
    assert package is not None
    assert package.submodule_search_locations is not None
    (location,) = package.submodule_search_locations
    assert Path(location).resolve() == ROOT / name


def test_names_of_ours_that_a_project_has_too_are_no_trouble(tmp_path: Path) -> None:
    """A user's modules in the working directory, beside an agent, and first on the path."""
    for name in (*LINKED, "surfaces", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("NAME = 'mine'\n")
    (tmp_path / "agent.py").write_text(
        "import checks, deployments, flows, tasks\n\n\ndef answer(question):\n"
        "    assert {package.NAME for package in (checks, deployments, flows, tasks)} == {'mine'}\n"
        "    return 'Paris'\n"
    )
    (tmp_path / "plugin.py").write_text(
        "import checks\nfrom fepflow import BaseCheck, JSONPath, register\n\n\n@register('same')\n"
        "class Same(BaseCheck):\n    text: str | JSONPath\n\n    def __call__(self):\n"
        "        return {'passed': checks.NAME == 'mine' and self.text == 'Paris'}\n"
    )
    (tmp_path / "suite.yaml").write_text(
        "name: capitals\ntarget: {python: agent.py:answer}\nplugins: [plugin.py]\n"
        "test_cases: [{id: a, input: 'What is the capital of France?', expected: Paris}]\n"
        "checks: [{type: same, arguments: {text: $.output.value}}]\n"
    )
    code = (
        "import asyncio, checks\nfrom pathlib import Path\n"
        "from fepflow.flows.evaluate import evaluate\nfrom fepflow.protocol.test_case import TestCase\n"
        "from fepflow.suite.target import Target\nfrom fepflow.calls.factory import open_target\n"
        "async def call(isolate):\n"
        "    config = Target.model_validate({'python': {'function': 'agent.py:answer', 'isolate': isolate}})\n"
        "    target = open_target(config, folder=Path.cwd(), case_ids=list)\n"
        "    answer = await target.call(target.render(TestCase(id='a', input='?')))\n"
        "    await target.aclose()\n"
        "    return answer.value\n"
        "assert asyncio.run(call('thread')) == asyncio.run(call('process')) == 'Paris'\n"
        "assert checks.NAME == 'mine'\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for words in (["-c", code], ["-m", "fepflow.cli.main", "validate", "suite.yaml"]):
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
