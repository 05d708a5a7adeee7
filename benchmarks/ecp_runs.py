"""Runs of an ECP agent, beside the protocol's own runner over the same manifest."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click

from benchmarks.measuring import ROOT, House, Line, house

BIN = ROOT / ".venv-ecp" / "bin"
"""Folder in which `make bench` installs ecp-sdk and ecp-runtime: the pytest plugin of the latter breaks pytest."""

SHORT, SLOW, STEP_SECONDS, WORKERS, TURNS = 200, 40, 0.5, 8, 3
MAX_FRESH, MAX_REUSED, MAX_SLOW = 0.5, 2.0, 4.0


def ecp() -> Iterator[Line]:
    """Many scenarios of one step, with a process each and with processes reused; and few slow ones."""
    if not BIN.is_dir():
        yield Line("ECP agents", "not measured: ecp-sdk is not installed (`make bench` does that)")
        return
    with house() as home:
        yield from _short(home)
        yield from _slow(home)


def _short(home: House) -> Iterator[Line]:
    manifest, fresh = _manifest(home.folder, SHORT, 0.0), _suite(home.folder, SHORT, 0.0, reuse=False)
    # In turns, so that what else the machine does falls on both alike.
    pairs = [(home.run(fresh)[0].seconds, _reference(manifest)) for _ in range(TURNS)]
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    yield Line(
        f"ECP, {SHORT} scenarios, a process each",
        f"{ours:.1f} s, {ours / theirs:.2f} x the reference",
        f"{MAX_FRESH:g} x",
        ours <= MAX_FRESH * theirs,
        f"ecp-runtime {theirs:.1f} s",
    )
    yield _reused(home, manifest, f"ECP, {SHORT} scenarios, reused", MAX_REUSED, theirs)


def _slow(home: House) -> Iterator[Line]:
    manifest, ours = _manifest(home.folder, SLOW, STEP_SECONDS), _suite(home.folder, SLOW, STEP_SECONDS, reuse=True)
    name = f"ECP, {SLOW} steps of {STEP_SECONDS} s, {WORKERS} at once"
    yield _reused(home, ours, name, MAX_SLOW, _reference(manifest))


def _reused(home: House, suite: Path, name: str, budget: float, theirs: float) -> Line:
    runs = [home.run(suite) for _ in range(TURNS)]
    whole, inside = median(ended.seconds for ended, _ in runs), median(seconds for _, seconds in runs)
    return Line(
        name,
        f"{inside:.1f} s inside the run, {whole:.1f} s in all",
        f"{budget:g} s inside",
        inside <= budget,
        f"ecp-runtime {theirs:.1f} s",
    )


def _reference(manifest: Path) -> float:
    """Return the seconds that the protocol's own runner takes for a manifest, which has to pass there."""
    began = time.perf_counter()
    command = [str(BIN / "ecp"), "run", "--manifest", str(manifest)]
    ended = subprocess.run(command, cwd=manifest.parent, env=os.environ, capture_output=True, text=True, check=False)  # noqa: S603  # of our own making
    if ended.returncode:
        raise click.ClickException(f"`ecp run` ended with {ended.returncode}: {ended.stderr[-500:]}")
    return time.perf_counter() - began


def _manifest(folder: Path, count: int, latency: float) -> Path:
    """So many scenarios of one step."""
    grader = {"type": "text_match", "field": "public_output", "condition": "contains"}
    scenarios = [
        {"name": f"scenario {i}", "steps": [{"input": f"hello {i}", "graders": [{**grader, "value": f"hello {i}"}]}]}
        for i in range(count)
    ]
    document = {
        "manifest_version": "v1",
        "name": f"bench ecp {count}",
        "target": " ".join(_command(latency)),
        "scenarios": scenarios,
    }
    path = folder / f"manifest-{count}.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _suite(folder: Path, count: int, latency: float, *, reuse: bool) -> Path:
    """The same scenarios as a suite, which says more: how many at once, and whether processes are reused."""
    cases = [{"id": f"scenario {i}", "input": [f"hello {i}"], "expected": f"hello {i}"} for i in range(count)]
    text = "$.output.value.steps[0].public_output"
    document = {
        "name": f"bench ecp suite {count}",
        "target": {"ecp": {"command": _command(latency), "reuse": reuse}, "concurrency": WORKERS},
        "test_cases": cases,
        "checks": [{"type": "contains", "arguments": {"text": text, "phrases": ["$.test_case.expected"]}}],
    }
    path = folder / f"ecp-{count}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _command(latency: float) -> list[str]:
    return [str(BIN / "python"), str(ROOT / "benchmarks" / "ecp_agent.py"), str(latency)]
