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

OF_VERDICTS = {"fepflow.analysis.accumulation", "fepflow.evalguard.models", "fepflow.verdict.gate"}
"""Modules that only compute verdicts and reports."""

VERDICT = {"gate": "Every check must pass.", "blocks": False, "reasons": [], "rules": [], "warnings": []}
DEMO = Path(__file__).parent.parent / "deployments" / "suites" / "demo" / "suite.yaml"


def loaded_after(*steps: str, **environment: str) -> list[set[str]]:
    """The modules that a process has loaded after each of these steps."""
    code = "import sys\n" + "".join(f"{step}\nprint('loaded:', *sys.modules)\n" for step in steps)
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return [set(line.split()) for line in done.stdout.splitlines() if line.startswith("loaded:")]


def loaded_by(*commands: str, home: Path) -> list[set[str]]:
    """The modules that one process has loaded after each of these commands."""
    calls = [f"fepflow.main({command.split()!r}, standalone_mode=False)" for command in commands]
    return loaded_after("from fepflow.cli.main import fepflow", *calls, FEPFLOW_HOME=str(home))[1:]


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


def test_the_library_half_loads_no_more_than_it_needs() -> None:
    imported, plugin, library, target = loaded_after(
        "import fepflow",
        "import fepflow.pytest",
        "from fepflow import evaluate, TestCase, Output, ContainsCheck",
        TARGET,
    )
    assert imported & HEAVY == set()
    assert plugin.isdisjoint({*HEAVY, "pytest"})
    assert library & {"prefect", "litellm", "grpc", "sqlmodel", "sqlalchemy", "aiohttp", "httpx"} == set()
    assert own_checks(library) == {"contains"}
    assert "aiohttp" in target, "a target that is called has loaded its connections before"


TARGET = """
from pathlib import Path
from fepflow.suite.target import Target
from fepflow.calls.factory import open_target
target = Target.model_validate({"http": {"url": "http://127.0.0.1:9/"}})
open_target(target, folder=Path(), case_ids=list)
"""


def test_the_process_that_runs_checks_of_callers_has_nothing_of_the_store() -> None:
    (process,) = loaded_after("from fepflow.api.evaluations.check_process import *")
    assert not {"sqlalchemy", "sqlmodel"} & process


def test_reading_the_store_loads_nothing_of_runs(home: Path) -> None:
    *_, loaded = loaded_by("list", "list --json", "show", "show --json", home=home)
    assert "sqlmodel" in loaded
    assert loaded & {*OF_RUNS, *OF_VERDICTS, "fepflow.services.prefect_api"} == set()
    assert own_checks(loaded) == set()


def test_help_and_validating_load_neither_prefect_nor_what_only_calls_need(tmp_path: Path) -> None:
    checks = "checks: [{type: contains, arguments: {text: $.output.value, phrases: a}}]"
    model = "openai: {model: Qwen/Qwen3-8B, base_url: 'http://127.0.0.1:9/v1'}"
    for kind in ("http: {url: 'http://127.0.0.1:9/'}", "a2a: {card: 'http://127.0.0.1:9/'}", model):
        target = f"target: {{{kind}}}\nbudget: {{tokens: 1000}}" if kind is model else f"target: {{{kind}}}"
        (tmp_path / f"{kind.partition(':')[0]}.yaml").write_text(
            f"name: s\n{target}\ntest_cases: [{{id: a, input: 1}}]\n{checks}\n"
        )
    suites = [*(tmp_path / f"{kind}.yaml" for kind in ("http", "a2a", "openai")), DEMO]
    start, _, validated, with_model, with_judges = loaded_by(
        "--help", *(f"validate {suite}" for suite in suites), home=tmp_path
    )
    assert start & {*HEAVY, "rich", "asyncio"} == set()
    others = {"fepflow.calls.asgi", "fepflow.calls.python", "a2a", "grpc"}
    others |= {"fsspec", "huggingface_hub", "pyarrow", "openpyxl"}
    assert validated & {"prefect", "aiohttp", "sqlalchemy", "litellm", "jsonschema", *others} == set()
    assert own_checks(validated) == {"contains"}
    assert with_model & {"prefect", "litellm"} == set()
    assert with_judges & {"prefect", "litellm"} == set()
