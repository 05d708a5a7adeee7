"""What a command loads: it starts at once because it leaves alone what it does not need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from fepflow.checks.registry import CHECKS
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.api_process import api_process

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
    "fepflow.checks.base",
}
"""What only runs, suites and migrations need."""

VERDICT = {"gate": "Every check must pass.", "blocks": False, "reasons": [], "rules": [], "warnings": []}
DEMO = Path(__file__).parent.parent / "deployments" / "suites" / "demo" / "suite.yaml"


def loaded_after(code: str, **environment: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return set(done.stdout.splitlines()[-1].split())


def loaded_by(*words: str, home: Path) -> set[str]:
    """The modules that a command has loaded when it is done."""
    code = f"from fepflow.cli.main import fepflow\nfepflow.main({words!r}, standalone_mode=False)"
    return loaded_after(code, FEPFLOW_HOME=str(home))


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


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "--json"),
        pytest.param(("list", "--json"), marks=pytest.mark.battery),
        pytest.param(("show",), marks=pytest.mark.battery),
    ],
)
def test_reading_the_store_loads_nothing_of_runs(words: tuple[str, ...], home: Path) -> None:
    loaded = loaded_by(*words, home=home)
    assert "sqlmodel" in loaded
    assert loaded & {*OF_RUNS, "fepflow.services.prefect_api"} == set()
    assert own_checks(loaded) == set()


@pytest.mark.parametrize("kind", ["http: {url: 'http://127.0.0.1:9/'}", "a2a: {card: 'http://127.0.0.1:9/'}"])
def test_validating_loads_neither_prefect_nor_the_store_nor_what_only_calls_need(tmp_path: Path, kind: str) -> None:
    target = f"target: {{{kind}}}"
    checks = "checks: [{type: contains, arguments: {text: $.output.value, phrases: a}}]"
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"name: s\n{target}\ntest_cases: [{{id: a, input: 1}}]\n{checks}\n")
    loaded = loaded_by("validate", str(suite), home=tmp_path)
    others = {"fepflow.calls.asgi", "fepflow.calls.python", "a2a", "grpc"}
    others |= {"fsspec", "huggingface_hub", "pyarrow", "openpyxl", "fepflow.datasets.tables"}
    assert loaded & {"prefect", "aiohttp", "sqlalchemy", "litellm", "jsonschema", *others} == set()
    assert own_checks(loaded) == {"contains"}


def test_validating_a_suite_with_judges_does_not_load_prefect(tmp_path: Path) -> None:
    assert "prefect" not in loaded_by("validate", str(DEMO), home=tmp_path)


def test_a_target_that_is_called_has_loaded_its_connections_before() -> None:
    code = """
from pathlib import Path
from fepflow.suite.target import Target
from fepflow.calls.factory import open_target
target = Target.model_validate({"http": {"url": "http://127.0.0.1:9/"}})
open_target(target, folder=Path(), case_ids=list)
"""
    assert "aiohttp" in loaded_after(code)


def test_the_process_of_the_networks_interfaces_loads_neither_prefect_nor_litellm(tmp_path: Path) -> None:
    with api_process(tmp_path, PYTHONPROFILEIMPORTTIME="1") as api, urlopen(f"{api.rest}/openapi.json") as document:
        assert document.status == 200
        loaded = set(re.findall(r"^import time:.*\| +([a-z_.]+)$", api.log.read_text(), re.MULTILINE))
    assert {"fastapi", "fepflow.api.rest.evaluations"} <= loaded
    assert loaded & {"prefect", "litellm"} == set()
