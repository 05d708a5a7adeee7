"""The house: packages import each other without circles, and each keeps away from what it must not know."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import util
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT_PREFECT = ("deployments", "flows", "tasks", "services")
FOREIGN = {"checks": ("httpx", "aiohttp", "sqlmodel", "sqlalchemy")}
FACES = (ROOT / "fepflow" / "__init__.py", ROOT / "fepflow" / "pytest" / "__init__.py")
"""Where users import from: they define nothing and load what is asked for only then."""

LINKED = ("checks", "tasks", "flows", "deployments")
"""Packages of fepflow whose folders stand at the top of the repository."""

FILES = sorted(path for folder in ("fepflow", *LINKED) for path in (ROOT / folder).rglob("*.py") if path not in FACES)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path) -> list[tuple[str, str]]:
    """Every module that a file imports, also inside functions, with the place where it does."""
    imports = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node, ast.Import):
                imports += [(place, alias.name) for alias in node.names]
            else:
                assert node.level == 0, f"{place} imports relatively"
                imports += [(place, f"{node.module}.{alias.name}") for alias in node.names]
    return imports


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "fepflow" else ("fepflow", *parts))


def package_of(module: str) -> str | None:
    """A folder of fepflow, or a module beside them (`errors`); None for other people's modules, and for the face."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fepflow" and len(parts) > 1 else None


STARTED_ABOVE = {
    ("fepflow.services.prefect_api", "fepflow.deployments.server"),  # the local server is one of the stack's commands
    ("fepflow.deployments.demo", "fepflow.cli.main"),  # the demo shows what users type
}
"""Modules that are started as processes (`python -m`) by a package that their own one uses."""


@cache
def packages_in_use() -> dict[str, dict[str, str]]:
    """The packages that each package imports, or starts as processes, with a place where it does."""
    modules = {module_of(path) for path in FILES}
    packages: dict[str, dict[str, str]] = defaultdict(dict)
    for path in FILES:
        module, here = module_of(path), package_of(module_of(path)) or ""
        texts = {node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)}
        started = [(module, text) for text in modules & texts if (module, text) not in STARTED_ABOVE]
        for place, used in (*imports_of(path), *started):
            there = package_of(used)
            if there is not None and there != here:
                packages[here].setdefault(there, f"{place} uses {used}")
    return packages


def test_packages_do_not_use_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(packages_in_use()).prepare()
    except CycleError as error:
        steps = [packages_in_use()[later][earlier] for earlier, later in pairwise(error.args[1])]
        pytest.fail("packages use each other in a circle:\n" + "\n".join(steps))


@cache
def reached_from(package: str) -> frozenset[str]:
    """All packages that a package uses, directly or not."""
    used = packages_in_use().get(package, {})
    return frozenset(used).union(*map(reached_from, used))


@pytest.mark.parametrize("package", ["documents", "jsonpath", "protocol", "suite", "checks", "calls", "statistics"])
def test_what_is_evaluated_knows_neither_runs_nor_surfaces(package: str) -> None:
    above = {"store", "analysis", "tasks", "services", "api", "cli", "pages", "reports", "deployments"}
    assert above.isdisjoint(reached_from(package))


def test_no_file_imports_its_own_package() -> None:
    for path in FILES:
        package = module_of(path).rpartition(".")[0]
        for place, module in imports_of(path):
            origin = module.rpartition(".")[0]
            is_package = origin == package and not (path.parent / f"{module.rpartition('.')[2]}.py").exists()
            is_folder = (ROOT / module.replace(".", "/")).is_dir()
            assert not is_package or is_folder, f"{place} imports {module} from its package"


def test_packages_import_only_the_libraries_that_they_may() -> None:
    for path in FILES:
        package = package_of(module_of(path)) or ""
        foreign = (*FOREIGN.get(package, ()), *(() if package in MAY_IMPORT_PREFECT else ("prefect",)))
        for place, module in imports_of(path):
            assert module.partition(".")[0] not in foreign, f"{place} imports {module}"


def test_flows_do_no_io_themselves() -> None:
    for path in (ROOT / "flows").glob("*.py"):
        names = {module.partition(".")[0] for _, module in imports_of(path)}
        assert names.isdisjoint({"os", "pathlib", "httpx", "aiohttp", "sqlalchemy", "sqlmodel"}), path


def test_litellm_is_imported_in_one_file_inside_functions_only() -> None:
    for path in FILES:
        at_import = [node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in at_import for alias in node.names}
        assert "litellm" not in names, path
        if path != ROOT / "fepflow" / "calls" / "models" / "_litellm.py":
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


@pytest.mark.battery
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
