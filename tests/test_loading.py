"""What a command loads: it starts at once because it leaves alone what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fepflow.checks.registry import CHECKS
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

HEAVY = {"prefect", "litellm", "grpc", "sqlmodel", "sqlalchemy", "pydantic"}
OF_RUNS = {
    "prefect",
    "httpx",
    "aiohttp",
    "litellm",
    "jsonschema",
    "jsonschema_rs",
    "alembic",
    "ruamel",
}
"""What only runs, suites and migrations need."""

VERDICT = {"gate": "Every check must pass.", "blocks": False, "reasons": [], "rules": [], "warnings": []}
DEMO = Path(__file__).parent.parent / "deployments" / "suites" / "demo" / "suite.yaml"


def loaded_after(code: str, **environment: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return set(done.stdout.splitlines()[-1].split())


def loaded_by(*commands: str, home: Path) -> set[str]:
    """The modules that commands have loaded when they are done, one after the other."""
    calls = [f"fepflow.main({command.split()!r}, standalone_mode=False)" for command in commands]
    return loaded_after("\n".join(["from fepflow.cli.main import fepflow", *calls]), FEPFLOW_HOME=str(home))


def own_checks(loaded: set[str]) -> set[str]:
    """The check types of ours among the modules."""
    return {name for name in CHECKS if f"fepflow.checks.{name}" in loaded}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a run that has ended."""
    with Store.open(f"sqlite:///{tmp_path / 'fepflow.db'}") as store:
        store.runs.create(RunRecord(id="cafe0001", name="s", suite={}, repeats=1), [TestCase(id="a", input=1)])
        store.leases.acquire("cafe0001", "me", 60)
        store.leases.finish("cafe0001", "me", "completed", outcome="pass", metrics=[], verdict=VERDICT)
    return tmp_path


def test_importing_fepflow_loads_nothing_heavy() -> None:
    assert loaded_after("import fepflow") & HEAVY == set()
    assert loaded_after("import fepflow.pytest").isdisjoint({*HEAVY, "pytest"})


def test_the_library_half_needs_neither_prefect_nor_the_store() -> None:
    loaded = loaded_after("from fepflow import evaluate, TestCase, Output, ContainsCheck")
    assert loaded & {"prefect", "litellm", "grpc", "sqlmodel", "sqlalchemy", "aiohttp", "httpx"} == set()
    assert own_checks(loaded) == {"contains"}


def test_the_help_of_the_command_line_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_by("--help", home=tmp_path) & {*HEAVY, "rich", "asyncio"} == set()


def test_reading_the_store_loads_nothing_of_runs(home: Path) -> None:
    loaded = loaded_by("list", "list --json", "show", "show --json", home=home)
    assert "sqlmodel" in loaded
    assert loaded & {*OF_RUNS, "fepflow.services.prefect_api"} == set()
    assert own_checks(loaded) == set()


def test_validating_loads_neither_prefect_nor_the_store_nor_what_only_calls_need(tmp_path: Path) -> None:
    checks = "checks: [{type: contains, arguments: {text: $.output.value, phrases: a}}]"
    for kind in ("http: {url: 'http://127.0.0.1:9/'}", "a2a: {card: 'http://127.0.0.1:9/'}"):
        target = f"target: {{{kind}}}"
        (tmp_path / f"{kind.partition(':')[0]}.yaml").write_text(
            f"name: s\n{target}\ntest_cases: [{{id: a, input: 1}}]\n{checks}\n"
        )
    loaded = loaded_by(f"validate {tmp_path / 'http.yaml'}", f"validate {tmp_path / 'a2a.yaml'}", home=tmp_path)
    others = {"fepflow.calls.asgi", "fepflow.calls.python", "a2a", "grpc"}
    others |= {"fsspec", "huggingface_hub", "pyarrow", "openpyxl", "fepflow.datasets.tables"}
    assert loaded & {"prefect", "aiohttp", "sqlalchemy", "litellm", "jsonschema", *others} == set()
    assert own_checks(loaded) == {"contains"}


def test_validating_a_suite_with_judges_loads_neither_prefect_nor_litellm(tmp_path: Path) -> None:
    assert loaded_by(f"validate {DEMO}", home=tmp_path) & {"prefect", "litellm"} == set()


def test_a_target_that_is_called_has_loaded_its_connections_before() -> None:
    code = """
from pathlib import Path
from fepflow.suite.target import Target
from fepflow.calls.factory import open_target
target = Target.model_validate({"http": {"url": "http://127.0.0.1:9/"}})
open_target(target, folder=Path(), case_ids=list)
"""
    assert "aiohttp" in loaded_after(code)
