"""Two hundred evaluations requested at once: each is accepted, each ends truthfully, and no more run than may."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest

from fepflow.store.store import Store

from .agent import agent_served
from .served import Served, place, serve

logger = logging.getLogger("load")

RUNS = 200
LIMIT = 1 + (os.cpu_count() or 1)
"""Of the queue of requested runs."""


@dataclass
class Watched:
    """The most processes, and the most memory that they had together, in bytes; pages that they share count in each."""

    before: int
    processes: int = 0
    memory: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def watching(served: Served) -> Iterator[Watched]:
    """Look at the stack's processes every second."""
    watched = Watched(len(served.family()))

    def look() -> None:
        while not watched.ended.wait(1):
            family = served.family()
            watched.processes = max(watched.processes, len(family))
            watched.memory = max(watched.memory, sum(map(_memory, family)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watched
    finally:
        watched.ended.set()
        thread.join()


def _memory(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


async def post_at_once(rest: str, body: dict[str, Any], count: int) -> tuple[list[str], list[float]]:
    """The ids of as many evaluations, and the seconds that each answer took."""

    async def post(client: httpx.AsyncClient) -> tuple[str, float]:
        began = time.perf_counter()
        response = await client.post("/api/evaluations", json=body)
        took = time.perf_counter() - began
        assert response.status_code == 201, response.text
        return response.json()["data"]["id"], took

    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=rest, timeout=120, trust_env=False, limits=limits) as client:
        answers = await asyncio.gather(*(post(client) for _ in range(count)))
    return [each for each, _ in answers], [took for _, took in answers]


def wait_until_over(rest: str, seconds: float) -> None:
    """Wait until no evaluation is pending or running."""
    deadline = time.monotonic() + seconds
    with httpx.Client(base_url=rest, timeout=60, trust_env=False) as client:
        while time.monotonic() < deadline:
            under_way = sum(
                client.get("/api/evaluations", params={"status": status, "limit": 1}).json()["data"]["total"]
                for status in ("pending", "running")
            )
            if not under_way:
                return
            time.sleep(2)
    raise AssertionError(f"{under_way} evaluations are not over after {seconds:g} s")


@pytest.mark.battery
def test_two_hundred_evaluations_at_once_end_truthfully_in_a_bounded_number_of_processes(
    stack: Any, tmp_path: Path
) -> None:
    env = {"FEPFLOW_AGENT_HOSTS": "127.0.0.1"}
    env |= dict.fromkeys(("FEPFLOW_STARTS_PER_MINUTE", "FEPFLOW_REQUESTS_PER_MINUTE"), "100000")
    with agent_served() as agent, serve(place(stack, tmp_path, **env)) as served, watching(served) as watched:
        with httpx.Client(base_url=served.rest, timeout=60, trust_env=False) as client:
            case = {"id": "one", "input": "Paris", "expected": "Paris"}
            assert client.post("/api/test-cases", json=case).status_code == 201
        body = {"test_case_ids": ["one"], "agent_endpoint_url": agent, "grader_ids": ["string-match"]}
        began = time.monotonic()
        ids, took = asyncio.run(post_at_once(served.rest, body, RUNS))
        accepted = time.monotonic() - began
        wait_until_over(served.rest, 1500)
        over = time.monotonic() - began
        with Store.open(served.workplace.env["FEPFLOW_STORE_URL"]) as store:
            runs = [store.runs.get(UUID(each).hex) for each in ids]
            results = [store.results.output_counts([run.id]).get(run.id, 0) for run in runs]
        flow_runs = {run.flow_run_id for run in runs}
    logger.info("%d accepted in %.1f s, p50 %.0f ms, p99 %.0f ms", RUNS, accepted, *_percentiles(took))
    logger.info("over after %.0f s, %.1f s each of %d at once", over, over * LIMIT / RUNS, LIMIT)
    logger.info("%d processes before, %d at most, %.0f MB", watched.before, watched.processes, watched.memory / 1e6)
    assert len(set(ids)) == len(flow_runs) == RUNS
    assert {run.status for run in runs} == {"completed"}
    assert set(results) == {1}
    assert watched.processes <= watched.before + 2 * LIMIT + 2, "a run is a process, and one that starts it"


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    percents = quantiles(seconds, n=100)
    return percents[49] * 1000, percents[98] * 1000
