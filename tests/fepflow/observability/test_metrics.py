"""A scrape: it equals the store, costs little, and has whatever the dashboard and the alerts ask for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from fepflow.observability.metrics import OF_API, OF_REAPER, OF_WORKER, Metrics, Probe, store_probe
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewOutput, RunRecord
from fepflow.store.store import Store

FILES = Path(__file__).parents[3] / "deployments" / "observability"
DOWN = {"kind": "circuit_open", "type": "unknown_error", "message": "it is down", "recoverable": True}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a run that has ended: an answer after a retry, and a call that the breaker cut off."""
    with Store.open(f"sqlite:///{tmp_path / 'fepflow.db'}") as store:
        store.runs.create(
            RunRecord(id="run-1", name='a "suite"', suite={}, repeats=1), [TestCase(id=name, input=1) for name in "ab"]
        )
        store.leases.acquire("run-1", "me", 60)
        answered = Output(value="yes", metadata={"attempts": 2, "latency_ms": 300, "tokens": 7, "usd": 0.25})
        failed = Output(value=None, metadata={"attempts": 1, "error": DOWN})
        outputs = [NewOutput(0, 0, "a" * 64, answered), NewOutput(1, 0, "b" * 64, failed)]
        store.results.write("run-1", outputs, [], write_seconds=[0.02])
        store.leases.finish("run-1", "me", "completed", outcome="fail", metrics=[], verdict={})
        yield store


def metrics_of(store: Store) -> Metrics:
    probes = {"store": store_probe(store), "prefect": Probe(lambda: False)}
    return Metrics(store, probes, OF_API, OF_WORKER, OF_REAPER)


def samples_of(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(page.decode("utf-8"))
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


async def test_a_scrape_equals_the_store_and_shows_which_dependency_is_away(store: Store, tmp_path: Path) -> None:
    metrics = metrics_of(store)
    page, media_type = await metrics.scrape("")
    samples = samples_of(page)

    def value(name: str, **labels: str) -> float | None:
        return samples.get((name, frozenset(labels.items())))

    suite = 'a "suite"'
    assert media_type.startswith("text/plain")
    assert value("fepflow_runs_total", suite=suite, outcome="fail") == 1
    for outcome in ("pass", "inconclusive", "error", "interrupted"):
        assert value("fepflow_runs_total", suite=suite, outcome=outcome) == 0, "the first one is an increase, too"
    assert value("fepflow_calls_total", suite=suite, outcome="answered") == 1
    assert value("fepflow_calls_total", suite=suite, outcome="failed") == 1
    assert value("fepflow_call_errors_total", suite=suite, kind="circuit_open") == 1
    assert value("fepflow_call_retries_total", suite=suite) == 1
    assert value("fepflow_tokens_total", suite=suite, source="target") == 7
    assert value("fepflow_cost_usd_total", suite=suite, source="target") == 0.25
    assert value("fepflow_call_duration_seconds_sum") == 0.3
    assert value("fepflow_call_duration_seconds_bucket", le="0.25") == 0
    assert value("fepflow_call_duration_seconds_bucket", le="0.5") == 1
    assert value("fepflow_store_write_duration_seconds_count") == 1
    assert value("fepflow_dependency_up", dependency="prefect") == 0
    assert b"run-1" not in page, "no id is a label"
    assert (await metrics.scrape("application/openmetrics-text; version=1.0.0"))[0].endswith(b"# EOF\n")

    (tmp_path / "fepflow.db").rename(tmp_path / "away.db")
    samples = samples_of((await metrics_of(store).scrape(""))[0])
    assert value("fepflow_dependency_up", dependency="store") == 0
    assert not [name for name, _ in samples if name.startswith("fepflow_runs")], (
        "old numbers would look like a standstill"
    )


async def test_the_dashboard_and_the_alerts_ask_for_metrics_that_there_are(store: Store) -> None:
    page, _ = await metrics_of(store).scrape("")
    families = list(text_string_to_metric_families(page.decode("utf-8")))
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    known = {family.name + suffix for family in families for suffix in suffixes.get(family.type, ("",))}
    dashboard = json.loads((FILES / "grafana.json").read_text(encoding="utf-8"))
    rules = YAML(typ="safe").load((FILES / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for rule in rules]
    used = {name for text in expressions for name in re.findall(r"\b(?:fepflow|process)_[a-z_]+", text)}
    assert len(used) > 20
    assert used <= known, used - known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian's package prometheus has it)")
def test_prometheus_accepts_the_alerts() -> None:
    command = ["promtool", "check", "rules", str(FILES / "alerts.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
