"""The house: imports go down only, and each floor keeps away from what it must not know."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

FLOORS = {
    "deployments": 7,
    "surfaces": 6,
    "flows": 5,
    "tasks": 4,
    "checks": 3,
    "fepflow.targets": 2,
    "fepflow.verdict": 2,
    "fepflow.store": 2,
    "fepflow.llm": 2,
    "fepflow.evalguard": 1,
    "fepflow": 0,
}
SIBLINGS = ("fepflow.targets", "fepflow.verdict", "fepflow.store", "fepflow.llm")
FOREIGN = {
    "fepflow": ("prefect",),
    "checks": ("prefect", "httpx", "aiohttp", "sqlmodel", "sqlalchemy"),
}
FACES = (ROOT / "fepflow" / "__init__.py", ROOT / "fepflow" / "pytest.py")
"""Where users import from: they define nothing and load what is asked for only then."""

FILES = sorted(
    path
    for folder in ("fepflow", "checks", "tasks", "flows", "surfaces", "deployments")
    for path in (ROOT / folder).rglob("*.py")
    if path not in FACES
)


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
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_imports_go_down_only() -> None:
    for path in FILES:
        here = room_of(module_of(path))
        assert here is not None, path
        for place, module in imports_of(path):
            there = room_of(module)
            if there is None or there == here:
                continue
            assert FLOORS[there] < FLOORS[here], f"{place} imports {module}: a step up"
            siblings = here in SIBLINGS and there in SIBLINGS
            assert not siblings, f"{place} imports {module}: siblings do not import each other"


STARTED_ABOVE = {
    "fepflow.services.prefect_api": {"fepflow.deployments.server"},
    "fepflow.cli.alert": {"fepflow.deployments.alerts"},
    "fepflow.cli.schedule": {"fepflow.deployments.schedule"},
    "fepflow.cli.server": {"fepflow.deployments.serve"},
    "fepflow.cli.view": {"fepflow.deployments.view"},
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
        foreign = FOREIGN.get(path.relative_to(ROOT).parts[0], ())
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
        if path != ROOT / "fepflow" / "llm" / "_litellm.py":
            assert not any(module.startswith("litellm") for _, module in imports_of(path)), path


def test_a_face_defines_no_public_name_of_its_own() -> None:
    for face in FACES:
        defined = [node for node in ast.parse(face.read_text(encoding="utf-8")).body if hasattr(node, "name")]
        assert all(node.name.startswith("_") for node in defined), face


def test_every_public_name_is_there() -> None:
    import fepflow

    for name in fepflow.__all__:
        assert getattr(fepflow, name) is not None


def test_the_package_reports_another_one_that_hides_ours(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "__init__.py").touch()
    # As in an ordinary installation, where folders on the path and nothing else say what a package is.
    code = (
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'editable' not in repr(finder).lower()]\n"
        f"sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "from fepflow import evaluate"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert str(tmp_path / "checks" / "__init__.py") in last
    assert "an environment of its own" in last
