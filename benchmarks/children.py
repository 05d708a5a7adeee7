"""Processes that the benchmarks start: an endpoint, and the same work done in other ways.

    python -m benchmarks.children endpoint SECONDS    serves until it is terminated; prints its address
    python -m benchmarks.children bare URL N          a bare aiohttp loop, 64 at a time
    python -m benchmarks.children pydantic URL N      pydantic-evals
    python -m benchmarks.children engine LIBRARY N    EVALUATE on outputs that are there: fepflow's, or flex_evals'

All ask the same questions and judge the answers by the same four checks. All but the endpoint print the seconds that
the work itself took.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import Any

import aiohttp
import click
from aiohttp import web

CONCURRENCY = 64

CHECKS: list[dict[str, Any]] = [
    {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["order", "days"]}},
    {"type": "regex", "arguments": {"text": "$.output.value", "pattern": "number [0-9]+"}},
    {"type": "exact_match", "arguments": {"actual": "$.output.metadata.topic", "expected": "$.test_case.expected"}},
    {"type": "threshold", "arguments": {"value": "$.output.metadata.score", "min_value": 0.5}},
]
"""The first three or all four are a suite's checks."""

Case = dict[str, Any]
Reply = dict[str, Any]

BY_HAND: list[Callable[[Case, Reply], bool]] = [
    lambda case, reply: all(phrase in reply["answer"] for phrase in ("order", "days")),
    lambda case, reply: re.search("number [0-9]+", reply["answer"]) is not None,
    lambda case, reply: bool(reply["topic"] == case["expected"]),
    lambda case, reply: bool(reply["score"] >= 0.5),
]
"""`CHECKS`, written without a framework."""


def cases(count: int) -> Iterator[Case]:
    """Yield the test cases, as a suite's file has them."""
    for number in range(count):
        yield {"id": f"case-{number}", "input": f"Where is my order, number {number}?", "expected": "delivery"}


def reply(question: str) -> Reply:
    """Return the endpoint's answer."""
    answer = f"We have looked for you: {question[:60]} It is on its way, an order takes three to five days to arrive."
    return {"answer": answer, "topic": "delivery", "score": 0.9}


async def endpoint(latency: float) -> None:
    """Answer after `latency` seconds; `GET /count` says how many calls have come."""
    calls = 0

    async def ask(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        body = await request.json()
        question = body.get("question") or body["input"]  # a posted evaluation has only `input`
        if latency:
            await asyncio.sleep(latency)
        return web.json_response(reply(question))

    async def count(_: web.Request) -> web.Response:
        return web.Response(text=str(calls))

    app = web.Application()
    app.add_routes([web.post("/ask", ask), web.get("/count", count)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)  # noqa: T201  # whoever started it reads this
    await asyncio.Event().wait()


async def bare(url: str, count: int) -> None:
    """Call with 64 workers, without a store, records or retries: the least that this work can be."""
    waiting = cases(count)
    passed = 0

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal passed
        for case in waiting:
            async with session.post(f"{url}/ask", json={"question": case["input"]}) as response:
                answer = await response.json()
            passed += sum(judge(case, answer) for judge in BY_HAND)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(worker(session) for _ in range(CONCURRENCY)))
    _expect(passed, count)


async def pydantic(url: str, count: int) -> None:
    """Do the same with pydantic-evals."""
    library: Any = import_module("pydantic_evals")
    evaluators: Any = import_module("pydantic_evals.evaluators")

    @dataclass(repr=False)
    class Passes(evaluators.Evaluator):  # type: ignore[misc]  # not installed where types are checked
        number: int

        def evaluate(self, context: Any) -> bool:
            return BY_HAND[self.number](context.inputs, context.output)

        def get_default_evaluation_name(self) -> str:
            return str(CHECKS[self.number]["type"])

    asked = [library.Case(name=case["id"], inputs=case) for case in cases(count)]
    dataset = library.Dataset(name="bench", cases=asked, evaluators=[Passes(number) for number in range(len(BY_HAND))])
    async with aiohttp.ClientSession() as session:

        async def ask(case: Case) -> Reply:
            async with session.post(f"{url}/ask", json={"question": case["input"]}) as response:
                return dict(await response.json())

        report = await dataset.evaluate(ask, max_concurrency=CONCURRENCY, progress=False)
    _expect(sum(check.value for case in report.cases for check in case.assertions.values()), count)


def engine(library: str, count: int) -> float:
    """Return the seconds that fepflow, or flex-evals, takes for the checks alone."""
    names: Any = import_module(library)
    test_cases = [names.TestCase(**case) for case in cases(count)]
    replies = [reply(case["input"]) for case in cases(count)]
    outputs = [names.Output(value=answer.pop("answer"), metadata=answer) for answer in replies]
    checks = [names.Check(**check) for check in CHECKS]
    evaluate = names.evaluate if library == "fepflow" else names.evaluate_sync
    started = perf_counter()
    result = evaluate(test_cases, outputs, checks)
    seconds = perf_counter() - started
    _expect(sum(check.results["passed"] for case in result.results for check in case.check_results), count)
    return seconds


def _expect(passed: float, count: int) -> None:
    if passed != count * len(CHECKS):
        raise SystemExit(f"{passed:.0f} checks of {count * len(CHECKS)} passed: this measures something else")


def _timed(work: Coroutine[Any, Any, None]) -> float:
    started = perf_counter()
    asyncio.run(work)
    return perf_counter() - started


def main(name: str, *arguments: str) -> None:
    """Run one of them; the module's docstring says what there is."""
    if name == "endpoint":
        asyncio.run(endpoint(float(arguments[0])))
    elif name == "engine":
        click.echo(engine(arguments[0], int(arguments[1])))
    else:
        work = {"bare": bare, "pydantic": pydantic}[name]
        click.echo(_timed(work(arguments[0], int(arguments[1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
