"""`POST /v1/evaluate` of 10 test cases and 4 checks, against a bare FastAPI application; `POST /api/evaluations`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from benchmarks.children import CHECKS
from benchmarks.measuring import Line, free_port

CASES, CONNECTIONS, SECONDS = 10, 8, 8.0
CALLERS = 2
"""Number of callers that request runs at the same time: as many as one processor answers without a queue."""
CREATED_MS = 300.0
"""Within which `POST /api/evaluations` answers, 99 of 100 times."""


def rest() -> Iterator[Line]:
    """Requests a second and the slowest percent, of both, one after the other."""
    body = json.dumps(_request()).encode()
    with TemporaryDirectory() as folder:
        with _ours(Path(folder)) as url:
            answer = asyncio.run(_one(f"{url}/v1/evaluate", body))
            ours = asyncio.run(_load(f"{url}/v1/evaluate", body))
            case = json.dumps({"id": "one", "input": "?", "expected": "Paris"}).encode()
            asyncio.run(_one(f"{url}/api/test-cases", case))
            created = asyncio.run(_load(f"{url}/api/evaluations", json.dumps(CREATION).encode(), CALLERS))
        saved = Path(folder, "answer.json")
        saved.write_bytes(answer)
        with _bare(saved) as url:
            bare = asyncio.run(_load(f"{url}/v1/evaluate", body))
    times = bare[0] / ours[0]
    yield Line(
        f"POST /v1/evaluate, {CASES} x {len(CHECKS)} checks",
        f"{ours[0]:.0f} a second, p50 {ours[1]:.0f} ms, p99 {ours[2]:.0f} ms, {times:.1f} times slower",
        against=f"bare FastAPI {bare[0]:.0f} a second, p50 {bare[1]:.0f} ms, p99 {bare[2]:.0f} ms",
    )
    yield Line(
        f"POST /api/evaluations, {CALLERS} at once",
        f"{created[0]:.0f} a second, p50 {created[1]:.0f} ms, p99 {created[2]:.0f} ms",
        f"p99 {CREATED_MS:g} ms",
        created[2] <= CREATED_MS,
        "each is stored, with its audit entry, before it is answered",
    )


CREATION = {
    "test_case_ids": ["one"],
    "agent_endpoint_url": "https://agent.example.com/evaluate",
    "grader_ids": ["string-match"],
}


def _request() -> dict[str, Any]:
    cases = range(CASES)
    return {
        "test_cases": [
            {"id": f"case-{number}", "input": f"Order {number}?", "expected": "delivery"} for number in cases
        ],
        "outputs": [
            {"value": f"Your order, number {number}, takes days.", "metadata": {"topic": "delivery", "score": 0.9}}
            for number in cases
        ],
        "checks": CHECKS,
    }


@contextmanager
def _ours(folder: Path) -> Iterator[str]:
    env = {**os.environ, "FEPFLOW_HOME": str(folder), "FEPFLOW_API_PORT": "0", "FEPFLOW_GRPC_PORT": "0"}
    env |= dict.fromkeys(("FEPFLOW_STARTS_PER_MINUTE", "FEPFLOW_REQUESTS_PER_MINUTE"), "1000000")
    with _started([sys.executable, "-P", "-m", "fepflow.deployments.api"], env):
        file = folder / "api.json"
        while not file.exists():
            time.sleep(0.05)
        yield json.loads(file.read_text())["rest"]


@contextmanager
def _bare(answer: Path) -> Iterator[str]:
    port = free_port()
    with _started([sys.executable, "-m", "benchmarks.bare_rest", str(port), str(answer)], dict(os.environ)):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _started(command: Sequence[str], env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)  # noqa: S603  # our own interpreter
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def _one(url: str, body: bytes) -> bytes:
    """An answer, once there are any."""
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for _ in range(200):
            try:
                async with session.post(url, data=body) as response:
                    answer = await response.read()
                    if response.status < 300:
                        return answer
                    raise SystemExit(f"{response.status}: {answer[:500]!r}")
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
    raise SystemExit("it does not answer")


async def _load(url: str, body: bytes, connections: int = CONNECTIONS) -> tuple[float, float, float]:
    """Requests a second, and the median and 99th percentile of their milliseconds."""
    await _one(url, body)
    taken: list[float] = []
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        until = time.perf_counter() + SECONDS

        async def send() -> None:
            while (began := time.perf_counter()) < until:
                async with session.post(url, data=body) as response:
                    await response.read()
                    if response.status >= 300:
                        raise SystemExit(f"it answers {response.status}")
                taken.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(send() for _ in range(connections)))
    cuts = quantiles(taken, n=100)
    return len(taken) / SECONDS, cuts[49], cuts[98]
