"""A suite is parsed and validated once in each process that works with it; spies count it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Workplace

SPY = """
import asyncio, atexit, json, sys
from collections import Counter
from pathlib import Path
from fepflow.documents import loader
from fepflow.suite import reader

counts = Counter()

def spy(module, name):
    original = getattr(module, name)
    def counted(*arguments, **options):
        counts[name] += 1
        return original(*arguments, **options)
    for user in list(sys.modules.values()):
        if getattr(user, "__dict__", {}).get(name) is original:
            setattr(user, name, counted)

spy(loader, "parse_yaml")
spy(reader, "read_suite")
atexit.register(lambda: Path("counts.json").write_text(json.dumps(counts)))
"""
COMMAND = f"{SPY}\nfrom fepflow.cli.main import main\nmain()\n"
ONCE = {"parse_yaml": 1, "read_suite": 1}
FLOW = f"{SPY}\nfrom fepflow.flows.evaluate import evaluate\nasyncio.run(evaluate(sys.argv[1], return_state=True))\n"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["run"], marks=pytest.mark.battery),  # what options add is on top of it
        ["run", "--repeats", "2", "--max-concurrency", "3", "--timeout", "9s", "--verdict", "point"],
        ["validate"],
    ],
    ids=["run", "run with options", "validate"],
)
def test_a_suite_is_parsed_and_validated_once(workplace: Workplace, words: list[str]) -> None:
    workplace.write_suite(["a", "b"], gate={"min": {"exact_match": 0.1}}, baseline="previous")
    verb, options = words[:1], words[1:]
    with workplace.running(*verb, workplace.suite, *options, code=COMMAND) as process:
        _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert json.loads((workplace.folder / "counts.json").read_text()) == ONCE


@pytest.mark.battery
def test_a_resumed_run_reads_the_suite_of_the_store_once(workplace: Workplace) -> None:
    workplace.write_suite(["a"])
    assert workplace.run().returncode == 0
    with workplace.running("run", "--resume", "latest", code=COMMAND) as process:
        process.communicate(timeout=120)
    assert json.loads((workplace.folder / "counts.json").read_text()) == {"read_suite": 1}


def test_a_worker_parses_a_suite_once_and_names_its_run_after_it(workplace: Workplace) -> None:
    gated: dict[str, Any] = {"gate": {"min": {"exact_match": 0.1}}, "baseline": "previous"}
    workplace.write_suite(["a"], name="refund answers", tags=["nightly"], **gated)
    with workplace.running(workplace.suite, code=FLOW, **workplace.stack.prefect) as process:
        process.communicate(timeout=120)
    assert json.loads((workplace.folder / "counts.json").read_text()) == ONCE
    flow_run = workplace.stack.api.get(f"/flow_runs/{workplace.record.flow_run_id}").json()
    assert flow_run["name"] == f"refund answers · {workplace.record.outcome}"
    assert "nightly" in flow_run["tags"]
