"""The stack of compose.yaml, up to verdicts, and with each of its services killed.

Everything comes from the file: the order, commands, environment, users, secrets, volumes, empty folders, read-only
roots and health checks of all services. Each is a container without an engine
(`containers.py`) with its own files, process ids, host name, network and user, and without capabilities.

It needs no container engine, so these are not tested here: the file as Docker reads it, published ports, and limits of
memory and processes, which are compared with what the services use. The image is the environment of the tests;
test_image.py makes one by the steps of the Dockerfile. PostgreSQL is this machine's, started as the entrypoint of its
image does.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML
from sqlalchemy.engine import make_url

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.conftest import in_memory

from .agent import Agent
from .conftest import wait_for
from .containers import BRIDGE, Container, Engine, Image, Mount, Spec, end, missing, this_environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text(encoding="utf-8")
DOCUMENT = YAML(typ="safe").load((ROOT / "deployments" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
POSTGRESQL = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
POSTGRES_USER = 999  # that of its image
PASSWORD = "p@ss:w/o?rd#% $X'\"\\"
"""A password with the characters that mean something in an address or a shell."""
GIVEN = {"FEPFLOW_LOG": "json"}
HEALTHY_SECONDS = 200

SUITE = """\
name: mine
target:
  http:
    url: ${AGENT_URL}
    headers: {Authorization: "Bearer ${AGENT_TOKEN}"}
    body: {input: $.test_case.input}
    output: $.output
  timeout: 120s
test_cases: quick.jsonl
plugins: [checks.py]
checks: [{type: same_letters, arguments: {text: $.output.value, expected: $.test_case.expected}}]
"""
CHECKS = '''\
"""Our own check."""

from fepflow import BaseCheck, JSONPath, register


@register("same_letters", version="1.0.0")
class SameLetters(BaseCheck):
    """The same letters in any case."""

    text: str | JSONPath
    expected: str | JSONPath

    def __call__(self):
        return {"passed": self.text.lower() == self.expected.lower()}
'''

# What the entrypoint of PostgreSQL's image does with its environment and the files that compose gives it.
POSTGRES_ENTRYPOINT = """
set -e
if [ ! -s $PGDATA/PG_VERSION ]; then
  initdb --no-sync --encoding=UTF8 --username=$POSTGRES_USER --pwfile=$POSTGRES_PASSWORD_FILE \
    --auth-local=trust --auth-host=scram-sha-256 --pgdata=$PGDATA
  echo 'host all all all scram-sha-256' >> $PGDATA/pg_hba.conf
  pg_ctl --wait start --options="-c listen_addresses= -c unix_socket_directories=/tmp"
  createdb --host=/tmp --username=$POSTGRES_USER $POSTGRES_DB
  for file in /docker-entrypoint-initdb.d/*; do
    psql --host=/tmp --username=$POSTGRES_USER --dbname=$POSTGRES_DB --set=ON_ERROR_STOP=1 --file=$file
  done
  pg_ctl --wait --mode=fast stop
fi
exec postgres -c listen_addresses=* -c unix_socket_directories=/tmp
"""


def service_of(container: str) -> str:
    """Return the service of a container."""
    return container.partition("-")[0]


def image_environment() -> dict[str, str]:
    """Return the variables that the image sets."""
    return dict(re.findall(r"([A-Z_]+)=(\S+)", DOCKERFILE.partition("ENV ")[2].partition("\n\n")[0]))


def workdir() -> str:
    """Return the folder in which the image starts commands."""
    return re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)[-1]


class Asked(Agent):
    """The agent of the suite, which wants a token."""

    def do_POST(self) -> None:  # noqa: N802  # its base calls it so
        if self.headers["Authorization"] == "Bearer token-of-the-file":
            super().do_POST()
        else:
            self.send_error(401)


class Composed:
    """The services of the file, and the folder that holds their volumes."""

    def __init__(self, engine: Engine, images: Mapping[str, Image], given: Mapping[str, str]) -> None:
        self.engine = engine
        self.images = images
        self.folder = engine.folder
        self.suites = self.folder / "suites"
        self.containers: dict[str, Container] = {}
        self.restarts: dict[str, int] = {}
        self._given = {"FEPFLOW_SUITES": str(self.suites), "FEPFLOW_SECRETS": str(self.folder / "secrets"), **given}
        self._addresses: dict[str, str] = {}

    def filled(self, value: str) -> str:
        """Return a value of the file with the variables that compose fills in."""

        def variable(match: re.Match[str]) -> str:
            name, operator, rest = match.groups()
            if name in self._given:
                return self._given[name]
            assert operator == "-", f"{name} has to be set"
            return str(rest)

        return re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", variable, value)

    def up(self, *services: str) -> None:
        """Start services that have not been started, each after those that it waits for, and wait until all are ready.

        They are all of the file if none is named.
        """
        for name in services or SERVICES:
            if self.of(name):
                continue
            if before := SERVICES[name].get("depends_on"):
                self.up(*before)
            for number in range(1, self.replicas(name) + 1):
                self.start(f"{name}-{number}")
            if SERVICES[name]["restart"] == "no":
                (job,) = self.of(name)
                job.process.wait(HEALTHY_SECONDS)
                assert job.process.returncode == 0, self.logs()
        for name in services or SERVICES:
            if "healthcheck" in SERVICES[name]:
                self.wait_until_healthy(name)

    def replicas(self, service: str) -> int:
        """Return how many containers a service has."""
        return int(self.filled(str(SERVICES[service]["deploy"].get("replicas", 1))))

    def of(self, service: str) -> list[Container]:
        """Return the containers of a service."""
        return [one for name, one in self.containers.items() if service_of(name) == service]

    def start(self, name: str) -> None:
        """Start the container NUMBER of a service, by its name `SERVICE-NUMBER`."""
        if name not in self._addresses:
            self._addresses[name] = self.engine.address()
        self.containers[name] = self.engine.start(self._spec(service_of(name), name), self._addresses[name])

    def run(self, service: str, *command: str) -> str:
        """Run a command as `docker compose run --rm` does; return what it printed."""
        name = f"{service}-run-{len(self._addresses)}"
        self._addresses[name] = self.engine.address()
        container = self.engine.start(self._spec(service, name, command), self._addresses[name])
        try:
            self.wait_for(lambda: container.process.poll() is not None, f"the end of {command}")
        finally:
            container.kill()
        assert container.process.returncode == 0, container.text
        return container.text

    def _spec(self, service: str, name: str, command: Sequence[str] = ()) -> Spec:
        config = SERVICES[service]
        env: dict[str, str] = {}
        for file in config.get("env_file", []):
            lines = (self.folder / file["path"]).read_text(encoding="utf-8").splitlines()
            env |= dict(line.split("=", 1) for line in lines)
        env |= {key: self.filled(value) for key, value in config["environment"].items()}
        hosts = {host: self._addresses[f"{host}-1"] for host in SERVICES if f"{host}-1" in self._addresses}
        user = int(str(config.get("user", POSTGRES_USER)).partition(":")[0])
        image = self.images.get(service, self.images["worker"])
        if "build" in config:
            env = {**image_environment(), "PATH": image.path, **env}
            words = [self.filled(word) for word in command or config["command"]]
            words, folder = [image.entrypoint, *words], workdir()
        else:
            env |= {"PATH": f"{POSTGRESQL}:{image.path}", "PGDATA": "/var/lib/postgresql/data"}
            words, folder = ["/bin/sh", "-c", POSTGRES_ENTRYPOINT], "/tmp"
        mounts = (*self._mounts(config, user), self._users())
        empty = tuple(dict.fromkeys(["/tmp", *config.get("tmpfs", [])]))
        return Spec(name, words, env, user, image, folder, mounts, empty, {"localhost": "127.0.0.1", **hosts})

    def _mounts(self, config: Mapping[str, Any], user: int) -> Iterator[Mount]:
        for entry in config.get("volumes", []):
            source, target, *mode = self.filled(entry).split(":")
            if source in DOCUMENT["volumes"]:
                volume = self.folder / "volumes" / source
                if not volume.exists():
                    volume.mkdir(parents=True, mode=0o700)
                    shutil.chown(volume, user, user)
                yield Mount(volume, target, writable=True)
            else:
                yield Mount(Path(source), target, writable=mode != ["ro"])
        for entry in config.get("secrets", []):
            secret = {"source": entry, "target": entry} if isinstance(entry, str) else entry
            secret_file = self.filled(DOCUMENT["secrets"][secret["source"]]["file"])
            yield Mount(Path(secret_file), f"/run/secrets/{secret['target']}")
        for entry in config.get("configs", []):
            content = self.folder / f"config-{entry['source']}"
            content.write_text(DOCUMENT["configs"][entry["source"]]["content"], encoding="utf-8")
            yield Mount(content, entry["target"])

    def _users(self) -> Mount:
        file = self.folder / "passwd"
        file.write_text(f"root:x:0:0::/:/bin/sh\npostgres:x:{POSTGRES_USER}:{POSTGRES_USER}::/:/bin/sh\n", "utf-8")
        return Mount(file, "/etc/passwd")

    def tend(self) -> None:
        """Start each service again that has ended, as `restart: unless-stopped` does."""
        for name, container in list(self.containers.items()):
            if container.process.poll() is not None and SERVICES[service_of(name)]["restart"] == "unless-stopped":
                self.restarts[name] = self.restarts.get(name, 0) + 1
                self.start(name)

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = HEALTHY_SECONDS) -> None:
        """Wait, and tend the services meanwhile."""

        def tended() -> object:
            self.tend()
            return condition()

        try:
            wait_for(tended, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self) -> str:
        """Return the end of each container's log."""
        return "\n".join(f"== {name}\n{one.text[-3000:]}" for name, one in self.containers.items())

    def wait_until_healthy(self, service: str) -> None:
        """Wait until the health check of each of its containers passes."""
        check = SERVICES[service]["healthcheck"]["test"][1:]

        def is_healthy() -> bool:
            time.sleep(1)  # each look starts a process, while the service computes
            return all(one.process.poll() is None and one.execute(check).returncode == 0 for one in self.of(service))

        self.wait_for(is_healthy, f"{service} that is healthy")

    def address(self, service: str) -> str:
        """Return the address of a service's first container."""
        return self._addresses[f"{service}-1"]

    def newest_run(self) -> RunRecord | None:
        """Return the newest run in the store."""
        with self.engine.inside(), Store.open(self.store_url) as store:
            return next(iter(store.runs.newest(1)), None)

    @property
    def store_url(self) -> str:
        """The store's address, with the password."""
        url = make_url(SERVICES["worker"]["environment"]["FEPFLOW_STORE_URL"])
        return url.set(password=f"{PASSWORD}ü", host=self.address("postgres")).render_as_string(hide_password=False)


@contextmanager
def agent_in(engine: Engine) -> Iterator[str]:
    """Serve the agent in the network of the containers; give its address."""
    with engine.inside():
        server = ThreadingHTTPServer((BRIDGE, 0), Asked)
    with server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{BRIDGE}:{server.server_port}/"
        finally:
            Asked.may_answer.set()
            server.shutdown()
            thread.join()


@contextmanager
def composed_from(images: Mapping[str, Image]) -> Iterator[Composed]:
    """Start the whole stack with the images of its services; that of the worker is everybody's who has none."""
    # Not below pytest's folder, which is its user's alone.
    folder = Path(tempfile.mkdtemp(prefix="fepflow-compose-", dir=in_memory()))
    folder.chmod(0o755)
    engine = Engine(folder)
    running = None
    try:
        with agent_in(engine) as agent:
            running = Composed(
                engine, images, {**GIVEN, "FEPFLOW_AGENT_HOSTS": agent.removeprefix("http://").rstrip("/")}
            )
            (running.suites / "mine").mkdir(parents=True)
            files = {"mine/suite.yaml": SUITE, "mine/checks.py": CHECKS, ".env": "AGENT_TOKEN=token-of-the-file\n"}
            for name in ("quick", "waiting"):
                inputs = ["Paris", "never"] if name == "waiting" else ["Paris", "Rome"]
                rows = [{"id": one, "input": one, "expected": one.upper()} for one in inputs]
                files[f"mine/{name}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
            files["mine/waiting.yaml"] = SUITE.replace("quick.jsonl", "waiting.jsonl")
            for name, text in files.items():
                (running.suites / name).write_text(text, encoding="utf-8")
            (folder / "agents.env").write_text(f"AGENT_URL={agent}\n", encoding="utf-8")
            (folder / "secrets").mkdir(mode=0o700)
            (folder / "secrets" / "postgres_password").write_text(f"{PASSWORD}ü\n", encoding="utf-8")
            (folder / "secrets" / "prefect_auth").write_text(f"me:{PASSWORD}\n", encoding="utf-8")
            running.up("server")
            running.run("api", "fepflow", "keys", "create", "first")  # without a key, the API refuses to listen
            running.up()
            yield running
    finally:
        for container in reversed(running.containers.values() if running else ()):
            end(container)
        engine.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    """The stack, with the environment of the tests as its image."""
    if lacking := missing() or ("" if POSTGRESQL else "no PostgreSQL with pg_trgm here (Debian's postgresql)"):
        pytest.skip(lacking)
    with composed_from({"worker": this_environment(str(ROOT / "deployments" / "entrypoint.sh"))}) as running:
        yield running


def start_run(composed: Composed, suite: str, *options: str) -> str:
    """Start a suite of the user's as the documentation says."""
    return composed.run(
        "worker", "prefect", "deployment", "run", "evaluate/suite", "--param", f"suite=mine/{suite}.yaml", *options
    )


def evaluate(composed: Composed) -> RunRecord:
    """Evaluate the user's suite, and return its run."""
    start_run(composed, "suite", "--watch")
    run = composed.newest_run()
    assert run is not None
    return run


def test_a_suite_of_the_users_comes_to_a_verdict(composed: Composed) -> None:
    run = evaluate(composed)
    assert (run.name, run.outcome, run.n_cases) == ("mine", "pass", 2)
    assert composed.restarts == {}
    assert {name.partition("-")[0] for name in composed.containers} == set(SERVICES)


@pytest.mark.battery
@pytest.mark.parametrize("service", [name for name in SERVICES if name != "deploy"])
def test_a_run_comes_to_a_verdict_though_a_service_is_killed(composed: Composed, service: str) -> None:
    kill_during_a_run(composed, service)


def kill_during_a_run(composed: Composed, service: str) -> None:
    """Kill a service while a run waits for its agent; it comes back, and that run, or the next one, has a verdict."""
    before = composed.newest_run()
    Asked.may_answer.clear()
    start_run(composed, "waiting")

    def run_under_way() -> RunRecord | None:
        run = composed.newest_run()
        return run if run and run.id != (before and before.id) and run.status == "running" else None

    composed.wait_for(run_under_way, "a run that is under way")
    run = run_under_way()
    assert run is not None
    assert run.lease_owner is not None
    name = run.lease_owner.partition(":")[0] if service == "worker" else f"{service}-1"
    composed.containers[name].kill()
    restarts = composed.restarts.get(name, 0)
    composed.wait_until_healthy(service)
    assert composed.restarts[name] == restarts + 1
    Asked.may_answer.set()
    if service in ("worker", "postgres"):  # what executed the run, or what it writes to
        composed.wait_for(lambda: composed.newest_run().status != "running", "a truthful end of the run")
        run = evaluate(composed)
    else:
        composed.wait_for(lambda: composed.newest_run().status != "running", "the end of the run")
        run = composed.newest_run()
    assert run.outcome == "pass"


def test_the_audit_log_outlives_the_container_that_writes_it(composed: Composed) -> None:
    (key,) = re.findall(r"fep_\w+_\S+", composed.run("api", "fepflow", "keys", "create", "ci"))
    with composed.engine.inside(), httpx.Client(timeout=60, trust_env=False) as client:
        rest = f"http://{composed.address('api')}:4280"
        answer = client.get(f"{rest}/api/test-cases", headers={"X-API-Key": key})
        page = client.get(f"http://{composed.address('server')}:4200/", follow_redirects=True)
    assert answer.status_code == 200, answer.text
    assert "<title>Prefect Server</title>" in page.text
    assert list((composed.folder / "volumes" / "api" / "audit").glob("*.jsonl"))


def test_secrets_are_in_no_configuration_and_no_log(composed: Composed) -> None:
    assert all(PASSWORD not in str(one.spec) and PASSWORD not in one.text for one in composed.containers.values())


def test_every_service_stays_within_its_limits(composed: Composed) -> None:
    for name, container in composed.containers.items():
        limits = SERVICES[service_of(name)]["deploy"]["resources"]["limits"]
        if container.process.poll() is None:
            allowed = bytes_of(composed.filled(limits["memory"]))
            assert container.memory() < 0.8 * allowed, name
            assert len(container.first.children(recursive=True)) < limits["pids"]


def bytes_of(size: str) -> int:
    """Return a size such as 512m in bytes."""
    return int(size[:-1]) * {"m": 2**20, "g": 2**30}[size[-1]]
