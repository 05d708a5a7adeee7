"""Runs of conversations, against the time that the agent alone takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.children import CONCURRENCY
from benchmarks.measuring import House, Line, endpoint, house

CASES, TURNS, LATENCY, MAX_RATIO, TIMES = 200, 5, 0.05, 2.0, 3


def conversations() -> Iterator[Line]:
    """Conversations of several turns, each with a check, at an endpoint."""
    ideal = math.ceil(CASES / CONCURRENCY) * TURNS * LATENCY  # so many rounds of whole conversations
    with house() as home, endpoint(LATENCY) as url:
        suite = _suite(home, url)
        inside = median(home.run(suite)[1] for _ in range(TIMES))
    ratio = inside / ideal
    yield Line(
        f"{CASES} conversations of {TURNS} turns, {LATENCY:g} s",
        f"{inside:.2f} s, {ratio:.2f} x ideal {ideal:.2f} s",
        f"{MAX_RATIO:g} x",
        ratio <= MAX_RATIO,
    )


def _suite(home: House, url: str) -> Path:
    check = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["on its way"]}}
    turns = [{"input": f"Where is order {number}?", "checks": [check]} for number in range(TURNS)]
    document = {
        "name": "bench-conversations",
        "target": {"http": {"url": f"{url}/ask", "output": "$.answer"}, "concurrency": CONCURRENCY},
        "test_cases": [{"id": f"case-{number}", "turns": turns} for number in range(CASES)],
    }
    path = home.folder / "conversations.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
