"""The wheel, alone in an environment with what `pip install fepflow` brings: what works, and what says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from fepflow.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = "7.8.9"
SOURCES = ("checks", "deployments", "fepflow", "flows", "tasks", "pyproject.toml", "README.md", "LICENSE")
OF_EXTRAS = {"prefect", "litellm", "sqlmodel", "sqlalchemy", "fastapi", "grpcio", "aiohttp", "pandas"}
MOST_DEPENDENCIES = 14
MOST_BYTES = 80_000_000


class Environment(NamedTuple):
    """A virtual environment, and a folder to work in."""

    python: Path
    packages: Path
    folder: Path

    def run(self, *words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python in the folder with nothing of ours in the environment's variables."""
        ours = ("FEPFLOW_", "PREFECT_", "PY")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env["FEPFLOW_HOME"] = str(self.folder / "home")
        command = [str(self.python), *(["-c", code] if code is not None else words)]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def fepflow(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.run("-m", "fepflow.cli.main", *words)


def closure(requirements: Iterable[str], known: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return what is installed here of these requirements, and of theirs."""
    for text in requirements:
        requirement = Requirement(text)
        extras = requirement.extras or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        found = distribution(requirement.name)
        if (name := found.metadata["Name"].lower().replace("_", "-")) not in known:
            known[name] = found
            closure((need for need in found.requires or () if _wanted(need, extras)), known)
    return known


def _wanted(need: str, extras: set[str]) -> bool:
    marker = Requirement(need).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def copy(packages: Iterable[Distribution], folder: Path) -> None:
    """Copy installed packages, without what is outside of their folder, such as scripts."""
    for package in packages:
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / file)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy: building leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / "project" / name, symlinks=True, ignore=left_out)
        else:
            shutil.copyfile(ROOT / name, folder / "project" / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    version = {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_FEPFLOW": VERSION}  # the copy has no tags, as in the image
    subprocess.run([*command, str(folder / "project")], env={**os.environ, **version}, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the wheel into an empty environment, with what it asks for and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    scheme = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    paths = sysconfig.get_paths("venv", scheme)
    python, packages = Path(paths["scripts"]) / Path(sys.executable).name, Path(paths["purelib"])
    copy(closure(PROJECT["dependencies"], {}).values(), packages)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    (folder / "work").mkdir()
    return Environment(python, packages, folder / "work")


def test_the_base_asks_for_little_and_pins_nothing() -> None:
    requirements = [Requirement(text) for text in PROJECT["dependencies"]]
    assert len(requirements) <= MOST_DEPENDENCIES
    assert not any(clause.operator in ("==", "===") for need in requirements for clause in need.specifier)
    assert {need.name for need in requirements}.isdisjoint(OF_EXTRAS)


def test_every_module_that_an_extra_brings_belongs_to_it() -> None:
    from fepflow.extras import EXTRAS

    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS) | {"all", "dev", "bench"} == set(extras)
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(EXTRAS) - {"ragas"}, "ragas drags in langchain: who wants it asks for it"


def test_only_what_asks_a_model_needs_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    from fepflow import extras

    monkeypatch.setattr(extras, "_is_there", lambda module: module != "litellm")  # as in the image of the API
    extras.require("run", "`fepflow keys create`")
    assert extras.is_installed("run")
    assert not extras.is_installed("run", "litellm")
    with pytest.raises(MissingExtraError, match=r"asking a model needs litellm"):
        extras.require("run", "asking a model", "litellm")


def test_the_wheel_has_one_package_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}
        assert "fepflow/checks/contains.py" in archive.namelist()
        kubernetes = "fepflow/deployments/kubernetes"  # folders that are no packages
        assert {f"{kubernetes}/base/base-job-template.json", f"{kubernetes}/overlays/redis/kustomization.yaml"} <= set(
            archive.namelist()
        )
    assert {name for name in names if not name.endswith(".dist-info")} == {"fepflow"}


def test_the_version_that_the_wheel_was_built_with_is_shown(base: Environment) -> None:
    assert base.fepflow("--version").stdout == f"fepflow, version {VERSION}\n"


def test_the_base_is_small(base: Environment) -> None:
    installed = {path.name.partition("-")[0].lower() for path in base.packages.glob("*.dist-info")}
    assert installed.isdisjoint(OF_EXTRAS)
    assert sum(file.stat().st_size for file in base.packages.rglob("*") if file.is_file()) <= MOST_BYTES


EVALUATE_ALL = """
from importlib.resources import files
from ruamel.yaml import YAML
from fepflow import *
from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import CHECKS, find_check
examples = YAML(typ="safe").load(files("fepflow.checks").joinpath("examples.yaml").read_text(encoding="utf-8"))
done = set()
case = {"id": "a", "input": "?"}
for name, example in examples.items():
    if name == "custom_function":
        check = CustomFunctionCheck(validation_function=lambda x: {"passed": x == 1}, function_args={"x": 1})
    elif issubclass(find_check(name), ModelCheck):
        done.add(name)
        continue
    else:
        check = YAML(typ="safe").load(example["check"])
    found = evaluate([{**case, "expected": example.get("expected")}], [Output(value=example["output"])], [check])
    assert found.results[0].status == "completed", (name, found.results[0].check_results)
    done.add(name)
print(len(done), len(CHECKS))
"""


def test_all_checks_that_ask_no_model_are_evaluated(base: Environment) -> None:
    done = base.run(code=EVALUATE_ALL)
    assert done.returncode == 0, done.stderr
    evaluated, known = map(int, done.stdout.split())
    assert evaluated == known


def test_a_first_suite_is_validated_and_planned(base: Environment) -> None:
    assert base.fepflow("init", "first").returncode == 0
    valid = base.fepflow("validate", "first/suite.yaml")
    assert (valid.returncode, valid.stdout) == (0, "first/suite.yaml is valid: 10 test cases, 3 shared checks.\n")
    assert valid.stderr == 'To run it here: pip install "fepflow[run]"\n'
    assert base.fepflow("plan", "first/suite.yaml", "--min", "0.9", "--expect", "0.95").returncode == 0
    assert base.fepflow("checks").returncode == 0
    assert base.fepflow("evalguard", "validate", "first").returncode == 0


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["run", "first/suite.yaml"], "run"),
        (["list"], "run"),
        (["show", "latest", "-o", "x.html"], "run"),
        (["schedule", "list"], "run"),
        (["evalguard", "import", "x"], "run"),
        (["serve"], "serve"),
        (["view"], "serve"),
    ],
)
def test_a_command_that_needs_an_extra_says_which(base: Environment, words: list[str], extra: str) -> None:
    done = base.fepflow(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f', which is not installed here: pip install "fepflow[{extra}]"\n')


SUITE = """name: s
target: {http: {url: 'http://127.0.0.1:9/'}}
test_cases: [{id: a, input: 1, expected: a}]
checks: [%s]
"""
EMBEDDING = (
    "{type: semantic_similarity, arguments: {text: $.output.value, reference: a, "
    "model_config: {model: openai/text-embedding-3-small}, threshold: {min_value: 0.5}}}"
)


@pytest.mark.battery
def test_a_suite_that_needs_an_extra_is_refused_before_anything_is_called(base: Environment) -> None:
    (base.folder / "plain.yaml").write_text(
        SUITE % "{type: contains, arguments: {text: $.output.value, phrases: $.test_case.expected}}"
    )
    assert base.fepflow("validate", "plain.yaml").returncode == 0
    (base.folder / "judged.yaml").write_text(SUITE % EMBEDDING)
    done = base.fepflow("validate", "judged.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: judged.yaml:4: checks[0].arguments: asking the model openai/text-embedding-3")
    assert 'pip install "fepflow[run]"' in done.stderr


PYTHON = """
import fepflow
from fepflow import Check, evaluate
def table():
    empty = Check(type="is_empty", arguments={"value": "$.output.value"})
    return evaluate([{"id": "a", "input": 1}], ["b"], [empty]).to_dataframe()
for call in (lambda: fepflow.run("s.yaml"), fepflow.load_run, table):
    try:
        call()
    except fepflow.FepflowError as error:
        print(error)
"""


def test_functions_that_need_an_extra_say_so(base: Environment) -> None:
    done = base.run(code=PYTHON)
    assert done.returncode == 0, done.stderr
    told = [line.partition("pip install ")[2] for line in done.stdout.splitlines()]
    assert told == ['"fepflow[run]"', '"fepflow[run]"', '"fepflow[dataframe]"']


@pytest.mark.battery
def test_pytest_runs_evaluations_of_a_project_with_names_like_ours(base: Environment) -> None:
    project = base.folder / "project"
    for name in ("checks", "flows", "tasks", "deployments"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("NAME = 'mine'\n")
    (project / "test_capitals.py").write_text(
        "import checks, deployments, flows, tasks\n"
        "from fepflow import ContainsCheck, TestCase\nfrom fepflow.pytest import evaluate\n\n\n"
        "@evaluate(test_cases=[TestCase(id='q1', input='?', expected='Paris')],\n"
        "          checks=[ContainsCheck(text='$.output.value', phrases='$.test_case.expected')], samples=5)\n"
        "async def test_capitals(test_case):\n"
        "    assert {each.NAME for each in (checks, deployments, flows, tasks)} == {'mine'}\n"
        "    return 'Paris'\n"
    )
    copy(closure(["pytest"], {}).values(), base.packages)
    done = base.run("-m", "pytest", "-q", str(project))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    kept = base.run("-m", "pytest", "-q", "--fepflow-store=", str(project))
    assert kept.returncode == 4
    assert 'pip install "fepflow[run]"' in kept.stderr
