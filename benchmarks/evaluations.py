"""Evaluations that are posted to a whole `fepflow serve`: two test cases on an idle stack, and a hundred at once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import click
import psutil

from benchmarks.measuring import House, Line, endpoint, free_port

CASES = ("Paris", "Rome")
IDLE_SECONDS, TURNS = 1.5, 7
"""Budget of one evaluation on an idle stack, and how many are measured."""
AT_ONCE, ALL_SECONDS = 100, 60.0
"""Evaluations that are posted together, and the budget until all are completed, on two cores without other work."""
SETTLE_SECONDS = 5.0
"""Time after which Prefect's server has written the last events."""
PARTS = {
    "fepflow.deployments.prefect_server": "Prefect's server",
    "multiprocessing.forkserver": "processes of runs",
    "fepflow.deployments.worker": "worker",
    "fepflow.deployments.api": "API",
}
"""Processes of `fepflow serve`, by a word of their command lines."""


def evaluations() -> Iterator[Line]:
    """Measure the time from the request until the evaluation is completed."""
    with (
        TemporaryDirectory(prefix="fepflow-bench-") as name,
        endpoint(0.0) as url,
        _serving(House(Path(name), free_port())) as (stack, rest),
    ):
        singles, together, computing = asyncio.run(_measure(stack, rest, f"{url}/ask"))
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
        f"{sum(computing.values()):.2f} s CPU each: "
        + ", ".join(f"{part} {seconds:.2f}" for part, seconds in computing.items()),
    )


@contextmanager
def _serving(home: House) -> Iterator[tuple[psutil.Process, str]]:
    """Run `fepflow serve`; yield its process and the address of its REST interface once it executes runs."""
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
        interfaces = json.loads(Path(home.env["FEPFLOW_HOME"], "api.json").read_text(encoding="utf-8"))
        yield psutil.Process(stack.pid), interfaces["rest"]
    finally:
        stack.terminate()
        stack.wait()


def _computing(stack: psutil.Process) -> dict[str, float]:
    """Return the CPU seconds of each part so far, with those of its processes that have ended."""
    seconds: dict[str, float] = {}
    for process in stack.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            part = next((part for word, part in PARTS.items() if word in command), None)
            if part is not None:  # the runs' own processes are counted when they have ended
                seconds[part] = seconds.get(part, 0.0) + sum(process.cpu_times()[:4])
    return seconds


async def _measure(stack: psutil.Process, rest: str, agent: str) -> tuple[list[float], float, dict[str, float]]:
    body = {"test_case_ids": list(CASES), "agent_endpoint_url": agent, "grader_ids": ["string-match"]}
    async with aiohttp.ClientSession(rest) as session:
        for case in CASES:
            await _post(session, "/api/test-cases", {"id": case, "input": case, "expected": case})
        await _completed(session, body)  # the first one also waits for the worker
        singles = []
        for _ in range(TURNS):
            await asyncio.sleep(1)
            singles.append(await _completed(session, body))
        began, before = time.perf_counter(), _computing(stack)
        await asyncio.gather(*(_completed(session, body) for _ in range(AT_ONCE)))
        together = time.perf_counter() - began
        await asyncio.sleep(SETTLE_SECONDS)
        computing = {part: (seconds - before[part]) / AT_ONCE for part, seconds in _computing(stack).items()}
        return singles, together, computing


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
