"""Prefect as fepflow uses it: its API's address, the local server, requests of commands, and the work pool.

The local server is started as a separate process. Prefect is imported in functions only: listing and showing runs, and
`fepflow serve`, do without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from fepflow.errors import InfrastructureError, UserError
from fepflow.observability.logs import MARK
from fepflow.prefect_settings import API_URL, configured_api, configured_value, import_prefect
from fepflow.security.redaction import remember
from fepflow.settings import Settings, settings, usual_runs

if TYPE_CHECKING:
    import httpx
    from prefect.client.orchestration import PrefectClient

    from fepflow.store.records import RunRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """A server that `fepflow up` started: its process, with its start time (seconds since 1970), and its port."""

    pid: int
    started: float
    port: int

    @property
    def api_url(self) -> str:
        """Address of its API."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def ui_url(self) -> str:
        """Address of its UI."""
        return f"http://127.0.0.1:{self.port}"

    def process(self) -> psutil.Process | None:
        """Return its process if it is still running."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if same else None


def running(config: Settings) -> Server | None:
    """Return the server that `up` started, if its process is alive."""
    try:
        server = Server(**json.loads(config.server_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.process() else None


LOOPBACK = ("127.0.0.1", "localhost")
PREFECT_MODULE = "fepflow.prefect_settings"


@dataclass(frozen=True)
class PrefectApi:
    """An API, whether it is the local server that `fepflow up` starts, and sentences about that server's errors."""

    url: str
    local: bool
    pid: int | None = None
    errors: Sequence[str] = ()

    @property
    def login(self) -> str | None:
        """Login of the local server, `user:password`; None for other servers, which have their own settings."""
        try:
            return settings().login_file.read_text(encoding="ascii").strip() if self.local else None
        except OSError:  # a server that an older version has started asks for nothing
            return None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make Prefect use the API. They contain a secret."""
        login = self.login
        past_proxies = _past_proxies() if self.local else {}
        return {API_URL: self.url, **({"PREFECT_API_AUTH_STRING": login} if login else {}), **past_proxies}

    @property
    def ui_url(self) -> str:
        """Address of the UI of a local or self-hosted server."""
        return self.url.removesuffix("/").removesuffix("/api")


def cheap_client(url: str) -> dict[str, str]:
    """Return settings of Prefect's client that spare each of a run's dozen clients a request and, without TLS, reading
    all certificates of the system: together a third of what a short run computes."""
    settings_of_client = {"PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false"}
    if not url.startswith("http://"):
        return settings_of_client
    file = _one_authority()
    return settings_of_client if file is None else {**settings_of_client, "PREFECT_API_SSL_CERT_FILE": str(file)}


def _one_authority() -> Path | None:
    """Return a file with one certificate, where 150 would be read for a connection that uses none."""
    file = settings().home.absolute() / "one-authority.pem"
    if not file.exists():
        import certifi

        certificate, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = file.with_suffix(f".{os.getpid()}")
            new.write_text(f"{certificate}{end}\n", encoding="utf-8")
            new.replace(file)
        except OSError:  # whatever is wrong with the folder is said where something has to be in it
            return None
    return file


def _past_proxies() -> dict[str, str]:
    """Return variables that keep Prefect's client from asking a proxy of the environment for this machine."""
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in os.environ):
        return {}
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    value = ",".join(dict.fromkeys([*filter(None, hosts), *LOOPBACK]))
    return {"NO_PROXY": value, "no_proxy": value}


def prefect_api(port: int | None = None) -> PrefectApi:
    """Return the API that Prefect's settings name, else the local server, started if need be.

    Raises InfrastructureError when it does not answer or cannot be started.
    """
    configured = external_api()
    if configured is None:
        wanted = port or own_port()
        api = _ask_server("up", *(["--port", str(wanted)] if wanted else []))
        assert api is not None
        return api
    if not _answers(configured, seconds=10):
        raise InfrastructureError(
            f"the Prefect API that {settings_source()} names does not answer: start it, or unset {API_URL}"
        )
    return PrefectApi(configured, local=False)


def usable_api() -> PrefectApi:
    """Return the same as `prefect_api`, but start no process if the local server answers; `errors` stays empty then."""
    if external_api() is None:
        server = running(settings())
        if server is not None and _answers(server.api_url):
            return PrefectApi(server.api_url, local=True, pid=server.pid)
    return prefect_api()


def known_api() -> PrefectApi | None:
    """Return the API in Prefect's settings, or that of the running local server, without a request."""
    if (configured := external_api()) is not None:
        return PrefectApi(configured, local=False)
    server = running(settings())
    return PrefectApi(server.api_url, local=True, pid=server.pid) if server else None


def external_api() -> str | None:
    """Return the API in Prefect's settings; None if it is the local server's own address.

    `eval "$(fepflow status --env)"` sets that address; a stopped local server is then started again.
    """
    configured = configured_api()
    return configured.url if configured is not None and own_port() is None else None


def own_port() -> int | None:
    """Return the port of the local server, running or not, if the configured API is its address."""
    configured = configured_api()
    state = _own_state()
    if configured is None or "port" not in state:
        return None
    if configured.url.rstrip("/") not in {f"http://{host}:{state['port']}/api" for host in LOOPBACK}:
        return None
    # Another server may have got the port since.
    return state["port"] if "pid" in state or not _answers(configured.url) else None


def starts_server() -> bool:
    """Return whether `prefect_api` would start the local server, as far as is known without a request."""
    return external_api() is None and "pid" not in _own_state()


def _own_state() -> dict[str, Any]:
    """Return the local server's own record; only its port if it was stopped."""
    try:
        state = json.loads(settings().server_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def running_api() -> PrefectApi | None:
    """Return the API that a run would use now, or None."""
    configured = external_api()
    return _ask_server("status") if configured is None else PrefectApi(configured, local=False)


def stop_local_server() -> PrefectApi | None:
    """Stop the local server. Returns None if there was none."""
    return _ask_server("down")


def use(api: PrefectApi, *, show_logs: bool) -> None:
    """Set Prefect's environment, and import it: it reads it once."""
    _in_use.append(api)
    remember(filter(None, [os.environ.get("PREFECT_API_AUTH_STRING")]))  # another server's is a secret, too
    os.environ.update(api.environment)
    for name, value in cheap_client(api.url).items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "8")
    os.environ.setdefault("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # else Prefect's client tells its makers of its use
    if not show_logs and MARK not in os.environ:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
        logging.raiseExceptions = False  # past its own levels, Prefect writes to stderr that its API is away
    import_prefect()


_in_use: list[PrefectApi] = []


def ui_login() -> str | None:
    """Return the file with the login of the UI that this process uses; None for other servers."""
    return str(settings().login_file) if _in_use and _in_use[-1].login else None


def flow_run_address(flow_run_id: str) -> str | None:
    """Return the address of a flow run in the UI of the configured or local server; None if it is unknown."""
    api = known_api()
    ui = os.environ.get("PREFECT_UI_URL") or (api.ui_url if api else None)
    if ui is None or "/accounts/" in ui:  # Prefect Cloud's API is not where its UI is
        return None
    root = without_credentials(ui).rstrip("/")
    return f"{_default_ui(root, int(time.monotonic() // ASK_AGAIN))}/runs/flow-run/{flow_run_id}"


UI_SECONDS, ASK_AGAIN = 1.0, 60.0


@lru_cache(maxsize=8)
def _default_ui(root: str, _minute: int) -> str:
    """Return the address of the UI that a server opens by default. Prefect serves two; `ui-settings` says which.

    The older one is at the root, also in versions without another one, and if the server does not answer.
    """
    from http.client import HTTPException
    from urllib.parse import urljoin
    from urllib.request import urlopen

    try:
        with urlopen(f"{root}/ui-settings", timeout=UI_SECONDS) as response:  # noqa: S310  # http, as Prefect's client
            answer = json.loads(response.read(100_000))
        base = answer[f"{answer['default_ui']}_base_url"]
        return urljoin(f"{root}/", f"/{base.strip('/')}").rstrip("/")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, HTTPException):
        return root


def is_gone() -> bool:
    """Return whether this process uses an API that does not answer now."""
    return bool(_in_use) and not _answers(_in_use[-1].url)


def is_answering() -> bool | None:
    """Return whether Prefect's API answers; None if no API is known to this process."""
    api = known_api()
    return None if api is None else _answers(api.url)


def _answers(url: str, seconds: float = 2) -> bool:
    # Not httpx, whose every client reads the certificates of the system first.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(f"{url.removesuffix('/')}/health", timeout=seconds):  # noqa: S310  # what Prefect's client would ask
            return True
    except HTTPError as error:
        return error.code < 500
    except (OSError, ValueError, HTTPException):
        return False


def _ask_server(*arguments: str) -> PrefectApi | None:
    """Run a command of the local server, and return its API; None if there is no server."""
    # -P: no module in the working directory is imported.
    command = [sys.executable, "-P", "-m", "fepflow.deployments.server", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # see above
    if done.returncode != 0:
        message = "\n".join(done.stderr.strip().splitlines()[-6:]) or "the local Prefect server could not be asked"
        raise (UserError if done.returncode == UserError.exit_code else InfrastructureError)(message)
    state = json.loads(done.stdout)["server"]
    return state and PrefectApi(state["api_url"], local=True, pid=state["pid"], errors=state["errors"])


def settings_source() -> str:
    """Return the variable, file or profile that names the configured API."""
    configured = configured_api()
    return API_URL if configured is None else configured.location


def store_location() -> str:
    """Return the place of the store, without credentials."""
    config = settings()
    return str(config.home / "fepflow.db") if config.store_url is None else without_credentials(config.store_url)


def without_credentials(address: str) -> str:
    """Return an address without user, password and query, which may contain secrets."""
    scheme, _, rest = address.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


MAX_REFUSAL = 500
"""Characters that are shown of what Prefect answers."""


def ask_prefect(work: Callable[[PrefectClient], Awaitable[T]]) -> T:
    """Do a command's work with a client of Prefect's API, and return its result. Raises FepflowError."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    async def do() -> T:
        async with get_client() as client:
            return await work(client)

    try:
        return asyncio.run(do())
    except httpx.HTTPStatusError as error:
        raise InfrastructureError(f"Prefect refused: {error.response.text[:MAX_REFUSAL]}") from None
    except (httpx.HTTPError, PrefectException) as error:
        raise InfrastructureError(f"Prefect's API could not be used: {error}") from None


# --- scheduled runs, and deletion ------------------------------------------------------------------------------------


SECONDS = 3.0
"""Longest wait for Prefect's API: the page has more to show."""
MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class ScheduledRuns:
    """The scheduled runs, the next one first. `known` is false if Prefect could not be asked."""

    known: bool
    runs: list[dict[str, Any]]

    def next_of(self, run: RunRecord) -> datetime | None:
        """Return the time of the next run of a run's suite; None if none is scheduled."""
        moments = [scheduled["expected_start_time"] for scheduled in self.runs if _is_of(scheduled, run)]
        return datetime.fromisoformat(moments[0]) if moments else None


def suite_tag(suite: str) -> str:
    """Return the tag of a scheduled suite's deployment, and so of its runs before they start."""
    return f"suite:{suite}"


def scheduled_runs() -> ScheduledRuns:
    """Ask the configured API, or the local server, for scheduled runs. Nothing is started."""
    import httpx

    api = known_api()
    if api is None:
        return ScheduledRuns(False, [])
    wanted = {
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        "sort": "EXPECTED_START_TIME_ASC",
        "limit": MAX_RUNS,
    }
    try:
        with _client(api, SECONDS) as client:
            answer = client.post("flow_runs/filter", json=wanted).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return ScheduledRuns(False, [])
    runs = [run for run in answer if isinstance(run, dict) and run.get("expected_start_time")]
    return ScheduledRuns(True, runs)


DELETION_SECONDS = 30.0
"""Longest wait for a deletion: on SQLite, Prefect's server waits for other writers."""
_IDS_AT_ONCE = 50


def delete_flow_runs(flow_run_ids: Sequence[str], *, artifacts_only: bool = False) -> bool:
    """Delete flow runs with their artifacts in Prefect, or these alone. One that is not there counts as deleted.

    Returns False if no API is known, or it did not do it; nothing is started.
    """
    import httpx

    api = known_api()
    if api is None or not flow_run_ids:
        return not flow_run_ids
    try:
        with _client(api, DELETION_SECONDS) as client:
            for start in range(0, len(flow_run_ids), _IDS_AT_ONCE):
                ids = list(flow_run_ids[start : start + _IDS_AT_ONCE])
                wanted = {"artifacts": {"flow_run_id": {"any_": ids}}}
                while artifacts := client.post("artifacts/filter", json=wanted).raise_for_status().json():
                    _delete(client, [f"artifacts/{artifact['id']}" for artifact in artifacts])
                if not artifacts_only:
                    _delete(client, [f"flow_runs/{flow_run_id}" for flow_run_id in ids])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return True


def _delete(client: httpx.Client, paths: Sequence[str]) -> None:
    for path in paths:
        response = client.delete(path)
        if response.status_code != 404:
            response.raise_for_status()


def _client(api: PrefectApi, seconds: float) -> httpx.Client:
    import httpx

    login = api.login if api.local else configured_value("PREFECT_API_AUTH_STRING")
    key = None if api.local else configured_value("PREFECT_API_KEY")
    return httpx.Client(
        base_url=api.url,
        auth=tuple(login.split(":", 1)) if login and ":" in login else None,  # type: ignore[arg-type]  # two texts
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=seconds,
        trust_env=not api.local,
    )


def _is_of(scheduled: dict[str, Any], run: RunRecord) -> bool:
    if suite_tag(run.name) in (scheduled.get("tags") or ()):
        return True
    path = (scheduled.get("parameters") or {}).get("suite")
    if not isinstance(path, str) or not path or run.suite_path is None:
        return False
    return run.suite_path == path or run.suite_path.endswith(f"/{path}")


def require_schedule(cron: str | None, timezone: str) -> None:
    """Raise UserError for an unknown timezone, and for a cron expression that is invalid or whose time never comes.

    Importing Prefect's parser of these expressions would import Prefect, which takes its settings at import: this is
    for the time before that, and before a server is started.
    """
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    from zoneinfo import available_timezones

    if timezone not in available_timezones():
        raise UserError(f"There is no timezone {timezone!r}: give a name such as UTC or Europe/Berlin.")
    prefect = find_spec("prefect")
    if cron is None or prefect is None:
        return
    file = Path(str(prefect.origin)).with_name("_vendor") / "croniter" / "croniter.py"
    spec: Any = spec_from_file_location("croniter_of_prefect", file)
    parser: Any = module_from_spec(spec)
    spec.loader.exec_module(parser)
    try:
        parser.croniter(cron).get_next()
    except parser.CroniterBadDateError:  # Prefect's scheduler would fail over it, again and again
        raise UserError(f"The moment of {cron!r} never comes.") from None
    except ValueError:
        raise UserError(
            f"{cron!r} is not a cron expression: give minute, hour, day, month and weekday, such as '0 2 * * *'."
        ) from None


# --- the work pool of our deployments --------------------------------------------------------------------------------


POOL = "fepflow"
REQUESTED = "requested"
"""The queue, and the deployment, of runs that are requested over the network."""
SUITES = "suites"
"""The queue of `evaluate/suite`. What is scheduled is in another one, and waits for neither."""


async def ensure_pool(client: PrefectClient, kind: str | None = None, template: dict[str, Any] | None = None) -> None:
    """Create the pool and its queues, unless they are there.

    Args:
        client: Prefect's API.
        kind: The type of the pool, such as kubernetes; default: that of the existing pool, else process.
        template: The base job template of a pool of that type. An existing pool gets it, too.

    Raises:
        UserError: The pool exists and has another type.
    """
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        pool = await client.read_work_pool(POOL)
    except ObjectNotFound:
        created = WorkPoolCreate(
            name=POOL,
            type=kind or "process",
            base_job_template=template or ProcessWorker.get_default_base_job_template(),
        )
        with contextlib.suppress(ObjectAlreadyExists):  # another process was faster
            await client.create_work_pool(created)
        pool = await client.read_work_pool(POOL)
    if kind is not None and pool.type != kind:
        raise UserError(
            f"the work pool {POOL} already exists, and its type is {pool.type}, not {kind}: "
            f"`prefect work-pool delete {POOL}` removes it, with the runs that wait in it"
        )
    if template is not None and pool.base_job_template != template:
        await client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=template))
    config = settings()
    await _ensure_queue(client, SUITES, config.suite_runs)
    await _ensure_queue(client, REQUESTED, config.requested_runs)


async def _ensure_queue(client: PrefectClient, name: str, wanted: int | None) -> None:
    """Create a queue, or give it its limit: what the setting says, else what it has, else the default.

    A queue's runs wait for a place in it without a change of their state. With the limit of a deployment, Prefect looks
    at each waiting run again every 30 s, and a place that comes free stays empty meanwhile.
    """
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    try:
        queue = await client.read_work_queue_by_name(name, work_pool_name=POOL)
    except ObjectNotFound:
        with contextlib.suppress(ObjectAlreadyExists):
            await client.create_work_queue(name, concurrency_limit=wanted or usual_runs(), work_pool_name=POOL)
        return
    limit = wanted or queue.concurrency_limit or usual_runs()
    if queue.concurrency_limit != limit:
        await client.update_work_queue(queue.id, concurrency_limit=limit)


async def is_worked(client: PrefectClient) -> bool:
    """Return whether a worker of the pool is alive, as far as Prefect knows: it misses one a minute after its end."""
    from prefect.client.schemas.objects import WorkerStatus
    from prefect.exceptions import ObjectNotFound

    try:
        workers = await client.read_workers_for_work_pool(POOL)
    except ObjectNotFound:  # the pool is not created yet
        return False
    return any(worker.status == WorkerStatus.ONLINE for worker in workers)
