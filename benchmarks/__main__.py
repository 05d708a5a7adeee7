"""Speed and memory against the budgets: `python -m benchmarks [NAME ...]`. By default all but `fleet` are run.

Each line is a figure, its budget and what it was measured against, in this run: machines are noisy, so read the ratios,
and repeat before you believe one. It judges nothing: the exit code is 0 whatever the figures are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median

import click

from benchmarks.children import CHECKS, CONCURRENCY
from benchmarks.evaluations import evaluations
from benchmarks.fleet import fleet, growth
from benchmarks.measuring import (
    House,
    Line,
    Started,
    calls_at,
    child,
    endpoint,
    house,
    middle,
)

LATENCY = 0.05
SMALL, LARGE, HUGE = 1_000, 10_000, 100_000
MAX_CHECK, MAX_HELP, MAX_MEMORY, MAX_RESUME = 40.0, 0.4, 400.0, 5.0
MAX_FLOW = ((LATENCY, SMALL, 5, 2.0), (1.0, SMALL, 3, 1.1), (LATENCY, LARGE, 3, 1.4))
"""Latency of the endpoint, cases, measurements, and how many times the ideal the run may take inside."""

MAX_START, MAX_READ, TURNS = 1.35, 0.8, 5
MAX_COMMAND, MIN_FASTER, LINEAR = 1.6, 3.0, 1.25


def engine() -> Iterator[Line]:
    """Measure the checks alone, on existing outputs."""
    costs = {}
    for count, times in ((SMALL, 5), (LARGE, 3), (HUGE, 1)):
        costs[count] = _microseconds("fepflow", count, times)
        yield Line(f"engine, {count:,} cases", _cost(costs[count]), f"{MAX_CHECK:g} µs", costs[count] <= MAX_CHECK)
    growth = costs[HUGE] / costs[SMALL]
    yield Line("engine, 100,000 cases to 1,000", f"{growth:.2f} times a check", f"{LINEAR:g} times", growth <= LINEAR)
    if find_spec("flex_evals") is None:
        yield _missing("flex-evals")
        return
    for count, times in ((SMALL, 5), (LARGE, 1)):
        theirs = _microseconds("flex_evals", count, times)
        faster = theirs / costs[count]
        budget, kept = (f"{MIN_FASTER:g} times", faster >= MIN_FASTER) if count == SMALL else ("", None)
        yield Line(
            f"engine, {count:,} cases", f"{faster:.1f} times faster", budget, kept, f"flex-evals {_cost(theirs)}"
        )


def _microseconds(library: str, count: int, times: int) -> float:
    return middle(lambda: float(child("engine", library, str(count)).stdout), times) / count / len(CHECKS) * 1e6


def _cost(microseconds: float) -> str:
    return f"{microseconds:.1f} µs a check"


def help_page() -> Iterator[Line]:
    """Measure the time of `fepflow --help`."""
    seconds = middle(lambda: Started("-P", "-m", "fepflow.cli.main", "--help").end().seconds, 9)
    yield Line("fepflow --help", f"{seconds:.2f} s", f"{MAX_HELP:g} s", seconds < MAX_HELP)


def start() -> Iterator[Line]:
    """Measure the CPU seconds, children included, that commands take before they have anything to do."""
    with house() as home, endpoint(0.0) as url:
        suite = home.suite(url, 1)
        # In turns, so that what else the machine does falls on all alike.
        pairs = [(home.run(suite)[0].cpu, home.bare_flow().cpu) for _ in range(TURNS)]
        ours, bare = (median(column) for column in zip(*pairs, strict=True))
        figure, against = f"{ours:.2f} s CPU, {ours / bare:.2f} x a bare flow", f"a bare Prefect script {bare:.2f} s"
        yield Line("fepflow run, 1 case", figure, f"{MAX_START:g} x", ours / bare <= MAX_START, against)
        commands = {"--help": ["--help"], "list": ["list"], "show": ["show"], "validate": ["validate", str(suite)]}
        turns = [{name: home.start(*words).end().cpu for name, words in commands.items()} for _ in range(TURNS)]
    middles = {name: median(turn[name] for turn in turns) for name in commands}
    beside = f"--help {middles['--help']:.2f} s"
    for name in ("list", "show", "validate"):
        seconds = middles[name]
        yield Line(f"fepflow {name}", f"{seconds:.2f} s CPU", f"{MAX_READ:g} s", seconds <= MAX_READ, beside)


def flow() -> Iterator[Line]:
    """Measure the time inside a run against the ideal: calls times latency, divided by the calls at once."""
    with house() as home:
        for latency, count, times, budget in MAX_FLOW:
            ideal = count * latency / CONCURRENCY
            with endpoint(latency) as url:
                suite = home.suite(url, count)
                # In turns, so that what else the machine does falls on both alike.
                pairs = [(home.run(suite)[1], float(child("bare", url, str(count)).stdout)) for _ in range(times)]
            inside, bare = (median(column) for column in zip(*pairs, strict=True))
            ratio = inside / ideal
            yield Line(
                f"inside the run, {count:,} x {len(CHECKS)} checks, {latency:g} s",
                f"{inside:.2f} s, {ratio:.2f} x ideal {ideal:.2f} s",
                f"{budget:g} x",
                ratio <= budget,
                f"bare aiohttp loop {bare:.2f} s, {bare / ideal:.2f} x",
            )


def command() -> Iterator[Line]:
    """Measure the whole command, from start to exit, against other tools."""
    for absent in ("promptfoo", "inspect_ai"):
        yield Line(f"fepflow run against {absent}", "not measured: it is not installed")
    if find_spec("pydantic_evals") is None:
        yield _missing("pydantic-evals")
        return
    with house() as home, endpoint(LATENCY) as url:
        suite = home.suite(url, SMALL)
        pairs = [(home.run(suite)[0].seconds, child("pydantic", url, str(SMALL)).seconds) for _ in range(5)]
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    ratio = ours / theirs
    figure = f"{ours:.2f} s, {ratio:.2f} x pydantic-evals"
    against = f"pydantic-evals {theirs:.2f} s, without a store"
    yield Line(f"fepflow run, {SMALL:,} cases", figure, f"{MAX_COMMAND:g} x", ratio <= MAX_COMMAND, against)


def memory() -> Iterator[Line]:
    """Measure the peak memory of a long run, and how soon a killed one continues."""
    with house() as home, endpoint(0.0) as url:
        small = home.run(home.suite(url, LARGE, checks=3))[0].megabytes
        yield Line(f"memory, {LARGE:,} cases x 3 checks", f"{small:.0f} MB", f"{MAX_MEMORY:g} MB", small < MAX_MEMORY)
        killed, seconds, resumed = _kill_and_resume(home, url)
    large = max(killed, resumed)
    yield Line(f"memory, {HUGE:,} cases x 3 checks", f"{large:.0f} MB", f"{MAX_MEMORY:g} MB", large < MAX_MEMORY)
    growth = large / small
    yield Line("memory, 100,000 cases to 10,000", f"{growth:.2f} times", f"{LINEAR:g} times", growth <= LINEAR)
    figure = f"{seconds:.1f} s from command to first call"
    yield Line("resume, half of 100,000 cases done", figure, f"{MAX_RESUME:g} s", seconds < MAX_RESUME)


def _kill_and_resume(home: House, url: str) -> tuple[float, float, float]:
    """Return the megabytes of a run that is killed half-way, the seconds until the next call, and its megabytes."""
    before = calls_at(url)
    first = home.start("run", str(home.suite(url, HUGE, checks=3)), "-q")
    _wait_for_calls(url, before + HUGE // 2)
    killed = first.kill()
    time.sleep(1)  # the calls that were under way have come to an end
    begun = calls_at(url)
    second = home.start("run", "--resume", "latest", "-q")
    _wait_for_calls(url, begun + 1)
    seconds = time.perf_counter() - second.began
    return killed.megabytes, seconds, second.end().megabytes


def _wait_for_calls(url: str, count: int) -> None:
    deadline = time.monotonic() + 900
    while calls_at(url) < count:
        if time.monotonic() > deadline:
            raise click.ClickException("the run does not get on")
        time.sleep(0.05)


def _missing(package: str) -> Line:
    return Line(f"against {package}", "not measured: it is not installed (`make bench` does that)")


BENCHES: dict[str, Callable[[], Iterator[Line]]] = {
    "engine": engine,
    "help": help_page,
    "start": start,
    "flow": flow,
    "command": command,
    "memory": memory,
    "evaluations": evaluations,
    "growth": growth,
    "fleet": fleet,
}
ONLY_BY_NAME = {"fleet"}
"""Benchmarks that take over ten minutes."""


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHES)))
def main(names: tuple[str, ...]) -> None:
    """Run the named benchmarks, or all."""
    for name in names or [name for name in BENCHES if name not in ONLY_BY_NAME]:
        try:
            for line in BENCHES[name]():
                line.show()
        except click.ClickException as error:
            Line(name, f"could not be measured: {error.message}").show()


if __name__ == "__main__":
    main()
