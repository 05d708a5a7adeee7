"""Evaluations that are posted to a whole `fepflow serve`: two test cases on an idle stack, and a hundred at once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import click

from benchmarks.measuring import House, Line, endpoint, free_port

CASES = ("Paris", "Rome")
IDLE_SECONDS, TURNS = 1.5, 7
"""Budget of one evaluation on an idle stack, and how many are measured."""
AT_ONCE, ALL_SECONDS = 100, 60.0
"""Evaluations that are posted together, and the budget until all are completed, on two cores without other work."""


def evaluations() -> Iterator[Line]:
    """Time from the request until the evaluation is completed."""
    with (
        TemporaryDirectory(prefix="fepflow-bench-") as name,
        endpoint(0.0) as url,
        _serving(House(Path(name), free_port())) as rest,
    ):
        singles, together = asyncio.run(_measure(rest, f"{url}/ask"))
    slowest = max(singles)
    yield Line(
        f"posted evaluation, {len(CASES)} cases, idle",
        f"{median(singles):.2f} s, slowest of {len(singles)} {slowest:.2f} s",
        f"{IDLE_SECONDS:g} s",
        slowest <= IDLE_SECONDS,
    )
    yield Line(
        f"{AT_ONCE} evaluations posted at once",
        f"{together:.0f} s until all are completed",
        f"{ALL_SECONDS:g} s",
        together <= ALL_SECONDS,
    )


@contextmanager
def _serving(home: House) -> Iterator[str]:
    """Run `fepflow serve`, and give the address of its REST interface once it executes runs."""
    home.env |= {"FEPFLOW_API_PORT": "0", "FEPFLOW_GRPC_PORT": "0", "FEPFLOW_AGENT_HOSTS": "127.0.0.1"}
    home.env |= dict.fromkeys(("FEPFLOW_STARTS_PER_MINUTE", "FEPFLOW_REQUESTS_PER_MINUTE"), "1000000")
    log = home.folder / "serve.log"
    with log.open("wb") as output:
        command = [sys.executable, "-P", "-m", "fepflow.cli.main", "serve"]
        stack = subprocess.Popen(command, cwd=home.folder, env=home.env, stdout=output, stderr=output)  # noqa: S603  # ours
    try:
        while "ready: " not in log.read_text(encoding="utf-8"):
            if stack.poll() is not None:
                raise click.ClickException(f"`fepflow serve` ended with {stack.returncode}")
            time.sleep(0.1)
        yield json.loads(Path(home.env["FEPFLOW_HOME"], "api.json").read_text(encoding="utf-8"))["rest"]
    finally:
        stack.terminate()
        stack.wait()


async def _measure(rest: str, agent: str) -> tuple[list[float], float]:
    body = {"test_case_ids": list(CASES), "agent_endpoint_url": agent, "grader_ids": ["string-match"]}
    async with aiohttp.ClientSession(rest) as session:
        for case in CASES:
            await _post(session, "/api/test-cases", {"id": case, "input": case, "expected": case})
        await _completed(session, body)  # the first one also waits for the worker
        singles = []
        for _ in range(TURNS):
            await asyncio.sleep(1)
            singles.append(await _completed(session, body))
        began = time.perf_counter()
        await asyncio.gather(*(_completed(session, body) for _ in range(AT_ONCE)))
        return singles, time.perf_counter() - began


async def _completed(session: aiohttp.ClientSession, body: dict[str, Any]) -> float:
    """Post an evaluation and wait until it is completed; return how long that took."""
    began = time.perf_counter()
    answer = await _post(session, "/api/evaluations", body)
    address, pause = f"/api/evaluations/{answer['data']['id']}", 0.02
    while True:
        async with session.get(address) as response:
            status = (await response.json())["data"]["status"]
        if status == "completed":
            return time.perf_counter() - began
        if status not in ("pending", "running"):
            raise click.ClickException(f"an evaluation ended as {status}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, 1.0)  # a hundred that wait do not load what they wait for


async def _post(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(path, json=body) as response:
        if response.status != 201:
            raise click.ClickException(f"POST {path} answers {response.status}: {await response.text()}")
        answer: dict[str, Any] = await response.json()
        return answer
