"""Runs whose target is a model, beside a bare loop over the library that asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.children import CONCURRENCY, cases
from benchmarks.measuring import House, Line, child, house, language_model

CASES, LATENCY, MAX_RATIO, TIMES = 1_000, 0.05, 1.25, 3


def openai() -> Iterator[Line]:
    """Calls of `target.openai`, against litellm alone: time inside the run, and inside the loop."""
    with house() as home, language_model(LATENCY) as url:
        suite = _suite(home, url)
        # In turns, so that what else the machine does falls on both alike.
        pairs = [(home.run(suite)[1], float(child("litellm", url, str(CASES)).stdout)) for _ in range(TIMES)]
    inside, bare = (median(column) for column in zip(*pairs, strict=True))
    ratio = inside / bare
    yield Line(
        f"{CASES:,} openai calls, {LATENCY:g} s",
        f"{inside:.2f} s, {ratio:.2f} x litellm",
        f"{MAX_RATIO:g} x",
        ratio <= MAX_RATIO,
        f"bare litellm loop {bare:.2f} s",
    )


def _suite(home: House, url: str) -> Path:
    document = {
        "name": "bench-openai",
        "target": {
            "openai": {"model": "openai/gpt-4o-mini", "base_url": f"{url}/v1", "api_key": "${BENCH_JUDGE_KEY}"},
            "concurrency": CONCURRENCY,
        },
        "test_cases": list(cases(CASES)),
        "checks": [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["stand-in"]}}],
    }
    path = home.folder / "openai.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
