"""compose.yaml's services as processes: each with its command, its user, and the environment that compose gives it.

No container engine runs here. What stands for one: hosts are 127.0.0.1 with free ports, `/suites` is the folder that
would be mounted there, and the home in the image is a folder of each service. Where PostgreSQL comes without the
extension pg_trgm, which the image has, Prefect's own database is SQLite.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ruamel.yaml import YAML
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from fepflow.store.store import Store
from tests.conftest import PostgreSQL, free_port

from .agent import agent_served
from .conftest import wait_for
from .endpoint import Endpoint, serving

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text(encoding="utf-8")
DOCUMENT = YAML(typ="safe").load((ROOT / "deployments" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
OF_IMAGE = dict(re.findall(r"([A-Z_]+)=(\S+)", DOCKERFILE.partition("ENV ")[2].partition("\n\n")[0]))
HOME, SUITES = "/var/lib/fepflow", "/suites"
PORTS = {"server": "4200", "postgres": "5432", "api": "4280", "grpc": "4281", "worker": "8080"}
GIVEN = {"FEPFLOW_POSTGRES_PASSWORD": "hunter2hunter2", "FEPFLOW_PREFECT_AUTH": "me:hunter3hunter3"}

SUITE = """\
name: mine
target:
  http:
    url: ${AGENT_URL}
    headers: {Authorization: "Bearer ${AGENT_TOKEN}"}
    body: {question: $.test_case.input}
    output: $.answer
test_cases: cases.jsonl
checks: [{type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}]
"""


class Composed:
    """The services, and the folder that holds what containers and volumes would."""

    def __init__(
        self,
        folder: Path,
        ports: Mapping[str, int],
        given: Mapping[str, str],
        stack: ExitStack,
        prefect_has_postgresql: bool,
    ) -> None:
        self.folder = folder
        self.suites = folder / "suites"
        self.ports = ports
        self._given = given
        self._stack = stack
        self._prefect_has_postgresql = prefect_has_postgresql

    def here(self, value: str, service: str) -> str:
        """A value of the file, with the variables that compose fills in, and with the places of this machine."""
        filled = re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", self._variable, value)
        for name, port in PORTS.items():
            filled = re.sub(rf"\b(?:{name}|127\.0\.0\.1):{port}\b", f"127.0.0.1:{self.ports[name]}", filled)
        filled = re.sub(rf"^{PORTS['server']}$", str(self.ports["server"]), filled)
        filled = re.sub(rf"(?<!\w){SUITES}(?!\w)", str(self.suites), filled)
        return filled.replace(HOME, str(self.home(service)))

    def _variable(self, match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if name in self._given:
            return self._given[name]
        assert operator == "-", f"{name} has to be set"
        return str(rest)

    def home(self, service: str) -> Path:
        home = self.folder / service
        if not home.exists():
            home.mkdir(mode=0o700)
            _hand_over(home)
        return home

    def environment(self, service: str) -> dict[str, str]:
        """All that a process of the service has; ports are those of this machine, which others use, too."""
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        env = {"PATH": path, "HOME": HOME, "TMPDIR": HOME, **OF_IMAGE}  # a container has a /tmp of its own
        for file in SERVICES[service].get("env_file", []):
            lines = (self.folder / file["path"]).read_text(encoding="utf-8").splitlines()
            env |= dict(line.split("=", 1) for line in lines)
        env |= SERVICES[service].get("environment", {})
        ports = {"FEPFLOW_API_PORT": "api", "FEPFLOW_GRPC_PORT": "grpc", "PREFECT_WORKER_WEBSERVER_PORT": "worker"}
        here = {name: self.here(value, service) for name, value in env.items()}
        if not self._prefect_has_postgresql:
            here.pop("PREFECT_SERVER_DATABASE_CONNECTION_URL", None)
        return here | {name: str(self.ports[port]) for name, port in ports.items()}

    def run(self, service: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A command in the service's container."""
        process, log = self._start(service, command, f"{service}-{len(list(self.folder.glob('*.log')))}")
        process.wait(timeout=200)
        return subprocess.CompletedProcess(command, process.returncode, log.read_text(encoding="utf-8"))

    def start(self, service: str) -> None:
        process, log = self._start(service, SERVICES[service]["command"], service)
        self._stack.callback(_end, process)
        if "healthcheck" in SERVICES[service]:
            check = SERVICES[service]["healthcheck"]["test"][1:]

            def is_healthy() -> bool:
                assert process.poll() is None, log.read_text(encoding="utf-8")
                return self.run(service, check).returncode == 0

            wait_for(is_healthy, f"{service} that is healthy", 200)

    def _start(self, service: str, command: Sequence[str], name: str) -> tuple[subprocess.Popen[bytes], Path]:
        env, log = self.environment(service), self.folder / f"{name}.log"
        words = [self.here(word, service) for word in command]
        program = shutil.which(words[0], path=env["PATH"])
        assert program, words
        mounted = any(volume.endswith(f":{SUITES}:ro") for volume in SERVICES[service].get("volumes", []))
        cwd = self.suites if mounted else self.home(service)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, *words[1:]],
                cwd=cwd,
                env=env,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                user=USER,
                group=USER,
            )
        return process, log


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


def _is_open_to_others(path: Path) -> bool:
    return all(part.stat().st_mode & 0o5 == 0o5 for part in [path, *path.parents])


def _user() -> int | None:
    """The image's user, where these tests may take it and it may read what they run."""
    (uid,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    places = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
    may = os.geteuid() == 0 and all(map(_is_open_to_others, places))
    return int(uid) if may else None


USER = _user()


def _hand_over(folder: Path) -> None:
    """Make a folder the user's, with all that is in it."""
    if USER is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)


@contextmanager
def port_of(socket_path: Path) -> Iterator[int]:
    """A port of 127.0.0.1 that leads to a socket of the file system."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def carry(near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(str(socket_path))
            back = threading.Thread(target=pump, args=(far, near), daemon=True)
            back.start()
            pump(near, far)
            back.join()

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                threading.Thread(target=carry, args=[near], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=[server], daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def make_databases(postgresql: PostgreSQL) -> bool:
    """Do as the image of PostgreSQL does with its environment, and then with the file that compose gives it.

    Returns whether Prefect's server can use it.
    """
    service = SERVICES["postgres"]["environment"]
    user, database = service["POSTGRES_USER"], service["POSTGRES_DB"]
    url = make_url(postgresql.url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (f"CREATE ROLE {user} SUPERUSER LOGIN", f"CREATE DATABASE {database} OWNER {user}"):
            connection.execute(text(statement))
        extension = text("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_trgm'")
        has_trigrams = connection.execute(extension).scalar_one() == 1
    engine.dispose()
    engine = create_engine(url.set(username=user, database=database), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(DOCUMENT["configs"]["databases"]["content"]))
    engine.dispose()
    return has_trigrams


@pytest.fixture(scope="module")
def composed(
    postgresql: PostgreSQL, agent_url: str, agent: Endpoint, new_home: Callable[[Path], Path]
) -> Iterator[Composed]:
    """The services up to the worker, started in the order in which compose starts them."""
    prefect_has_postgresql = make_databases(postgresql)
    host = Path(str(make_url(postgresql.url).query["host"]))
    with ExitStack() as stack:
        # Not below pytest's folder, which is its user's alone.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fepflow-compose-")))
        folder.chmod(0o755)
        ports = {name: free_port() for name in PORTS}
        ports["postgres"] = stack.enter_context(port_of(host / ".s.PGSQL.5432"))
        given = {**GIVEN, "FEPFLOW_AGENT_HOSTS": agent_url.removeprefix("http://").rstrip("/")}
        running = Composed(folder, ports, given, stack, prefect_has_postgresql)
        _hand_over(new_home(folder / "server"))
        (running.suites / "mine").mkdir(parents=True)
        (running.suites / "mine" / "suite.yaml").write_text(SUITE, encoding="utf-8")
        cases = '{"id": "a", "input": "hello", "expected": "hello"}\n'
        (running.suites / "mine" / "cases.jsonl").write_text(cases, encoding="utf-8")
        (running.suites / ".env").write_text("AGENT_TOKEN=token-of-the-file\n", encoding="utf-8")
        (folder / "agents.env").write_text(f"AGENT_URL={agent.url}\n", encoding="utf-8")
        running.start("server")
        done = running.run("deploy", SERVICES["deploy"]["command"])
        assert done.returncode == 0, done.stdout
        running.start("worker")
        yield running


@pytest.fixture(scope="module")
def agent_url() -> Iterator[str]:
    """The address of an agent of a caller's."""
    with agent_served() as address:
        yield address


@pytest.fixture(scope="module")
def agent() -> Iterator[Endpoint]:
    """The agent of the suite."""
    with serving() as running:
        yield running


def test_the_server_has_its_ui(composed: Composed) -> None:
    page = httpx.get(f"http://127.0.0.1:{composed.ports['server']}/", follow_redirects=True, trust_env=False)
    assert "<title>Prefect Server</title>" in page.text
    assert {path.name for path in (composed.home("server") / "ui").iterdir()} == {"v1", "v2"}


def test_a_suite_of_the_users_is_run_by_the_worker(composed: Composed, agent: Endpoint) -> None:
    order = ["prefect", "deployment", "run", "evaluate/suite", "--param", "suite=mine/suite.yaml", "--watch"]
    done = composed.run("worker", order)
    assert done.returncode == 0, done.stdout
    store_url = composed.environment("worker")["FEPFLOW_STORE_URL"]
    with Store.open(store_url) as store:
        run = store.runs.get("latest")
    assert (run.name, run.outcome) == ("mine", "pass")
    assert {asked.headers["authorization"] for asked in agent.asked} == {"Bearer token-of-the-file"}


@pytest.mark.battery
def test_an_evaluation_that_is_requested_over_rest_is_run_by_the_worker(composed: Composed, agent_url: str) -> None:
    made = composed.run("api", ["fepflow", "keys", "create", "ci"])
    assert made.returncode == 0, made.stdout
    (key,) = re.findall(r"fep_\w+_\S+", made.stdout)
    composed.start("reaper")
    composed.start("api")
    rest = f"http://127.0.0.1:{composed.ports['api']}"
    with httpx.Client(base_url=rest, headers={"X-API-Key": key}, trust_env=False, timeout=30) as client:

        def post(path: str, body: Any) -> Any:
            answer = client.post(f"/api/{path}", json=body)
            assert answer.status_code == 201, answer.text
            return answer.json()["data"]

        post("test-cases", [{"id": "Paris", "input": "Paris", "expected": "Paris"}])
        wanted = {"test_case_ids": ["Paris"], "agent_endpoint_url": agent_url, "grader_ids": ["contains"]}
        evaluation = post("evaluations", wanted)["id"]

        def status() -> str:
            return str(client.get(f"/api/evaluations/{evaluation}").json()["data"]["status"])

        wait_for(lambda: status() in ("completed", "failed"), "the evaluation's end", 120)
        assert status() == "completed"
