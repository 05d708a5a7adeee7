"""One machine's stack: `python -m fepflow.deployments.serve`, which `fepflow serve` starts.

    server ─► register, once ─► reaper, worker, api
    (local)

It runs in the foreground until Ctrl-C or SIGTERM, and then ends its children in the opposite order. A configured
Prefect API is used instead of a local server; a local server that ran before stays when the rest ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
from filelock import FileLock, Timeout
from sqlalchemy.engine import make_url

from fepflow.access.listening import listening_on
from fepflow.deployments import server
from fepflow.deployments.pool import POOL
from fepflow.deployments.supervisor import Child, Supervisor
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.security.redaction import redact
from fepflow.services import prefect_api
from fepflow.services.local_server import running
from fepflow.settings import Settings, settings
from fepflow.store.store import Store

PYTHON = (sys.executable, "-P", "-m")
PREFECT = (*PYTHON, prefect_api.PREFECT_MODULE)
REGISTER = Child("register", [*PREFECT, "fepflow.deployments.register"], grace_seconds=1)
CHILDREN = [
    Child("reaper", [*PREFECT, "fepflow.deployments.reaper"], grace_seconds=4),
    Child("worker", [*PREFECT, "fepflow.deployments.worker", "--pool", POOL], grace_seconds=3),
]
"""What works with Prefect's API, in the order of starting. The reaper ends after the worker, whose runs it may reap."""


def api_child(host: str, *, behind_tls: bool) -> Child:
    """The network's interfaces."""
    options = ["--host", host, *(["--behind-tls"] if behind_tls else [])]
    return Child("api", [*PYTHON, "fepflow.deployments.api", *options], grace_seconds=6)


def server_child(port: int) -> Child:
    """The local server."""
    return Child("server", [*PYTHON, "fepflow.deployments.server", "hold", "--port", str(port)], grace_seconds=5)


async def serve(config: Settings, api: Child) -> None:
    """Run the stack until Ctrl-C or SIGTERM. Raises InfrastructureError if it does not come up."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    external = prefect_api.external_api()
    local_server = running(config)
    port = local_server.port if local_server else prefect_api.own_port() or config.port
    local = None if external else server_child(port)
    api_url = external or f"http://127.0.0.1:{port}/api"
    env = environment(config, prefect_api.PrefectApi(api_url, local=external is None))
    secrets = secrets_of(env)
    supervisor = Supervisor(str(config.home.absolute()), env, lambda name, line: _say(name, redact(line, secrets)))
    try:
        await supervisor.end_leftovers([child.name for child in (api, REGISTER, *reversed(CHILDREN))])
        await _unless(stopping, _start(supervisor, local, api, config))
        if not stopping.is_set():
            prefect = redact(api_url.removesuffix("/api"), secrets)
            places = f"Prefect at {prefect}, REST at {_rest(config)}, results in {prefect_api.store_location()}"
            _say("serve", f"ready: {places}; Ctrl-C ends it")
        await stopping.wait()
    finally:
        _say("serve", "stopping")
        await supervisor.stop()


async def _start(supervisor: Supervisor, local: Child | None, api: Child, config: Settings) -> None:
    config.api_file.unlink(missing_ok=True)
    if local is None:
        await asyncio.to_thread(prefect_api.prefect_api)
    else:
        ended = await supervisor.supervise(local)
        while not await asyncio.to_thread(_answers, config):
            if ended.is_set():
                raise InfrastructureError("the local Prefect server did not start; its lines above say why")
            await asyncio.sleep(0.2)
    if await supervisor.run(REGISTER) != 0:
        raise InfrastructureError("the deployments were not registered; the lines above say why")
    for child in CHILDREN:
        await supervisor.supervise(child)
    ended = await supervisor.supervise(api)
    while not config.api_file.exists():
        if ended.is_set():
            raise InfrastructureError("the network's interfaces were not opened; the lines above say why")
        await asyncio.sleep(0.1)


def _rest(config: Settings) -> str:
    return str(json.loads(config.api_file.read_text(encoding="utf-8"))["rest"])


def _answers(config: Settings) -> bool:
    local_server = running(config)
    return local_server is not None and server.healthy(local_server)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, or leave it when the stack is stopped."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait({working})
    else:
        working.result()


def environment(config: Settings, api: prefect_api.PrefectApi) -> dict[str, str]:
    """What all children have in theirs. Runs inherit it from the worker."""
    if api.local:
        server.login(config)
    return {
        "PREFECT_CLIENT_MAX_RETRIES": "8",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # who has requested a run waits for it
        "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "WARNING",  # a run's log begins with the run, not the worker
        **os.environ,
        **api.environment,
        "FEPFLOW_HOME": str(config.home.absolute()),
        "PYTHONUNBUFFERED": "1",
    }


def secrets_of(env: dict[str, str]) -> frozenset[str]:
    """What no line of the log may show."""
    found = [env.get("PREFECT_API_KEY"), env.get("PREFECT_API_AUTH_STRING")]
    found += [make_url(url).password for url in (env.get("FEPFLOW_STORE_URL"), env["PREFECT_API_URL"]) if url]
    return frozenset(secret for secret in found if secret)


def _say(name: str, line: str) -> None:
    click.echo(f"{name:<8} │ {line}")


def _alone(config: Settings) -> FileLock:
    """The holder of this lock serves the home. Raises InfrastructureError if another process holds it."""
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(config.home / "serve.lock", timeout=0, mode=0o600)
    note = config.home / "serve.json"
    try:
        lock.acquire()
    except Timeout:
        raise InfrastructureError(
            f"fepflow serves {config.home} already ({_noted(note)}): stop it with Ctrl-C there, or name another "
            "folder in FEPFLOW_HOME"
        ) from None
    server.write_private(note, json.dumps({"pid": os.getpid()}))
    return lock


def _noted(note: Path) -> str:
    try:
        return f"process {json.loads(note.read_text(encoding='utf-8'))['pid']}"
    except (OSError, ValueError, KeyError):
        return "another process"


def main(arguments: list[str] | None = None) -> int:
    """Serve; what goes wrong is a sentence on stderr and exit code 2 or 3."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address that the network's interfaces listen on")
    parser.add_argument("--behind-tls", action="store_true", help="a proxy before them terminates TLS")
    options = parser.parse_args(arguments)
    try:
        config = settings()
        with Store.open(config.store_address) as store:  # whatever is wrong is said once, now
            listening_on(options.host, store, config, behind_tls=options.behind_tls)
        with _alone(config):
            asyncio.run(serve(config, api_child(options.host, behind_tls=options.behind_tls)))
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except OSError as error:
        click.echo(
            f"error: cannot use {config.home} ({error.strerror}): name a writable folder in FEPFLOW_HOME", err=True
        )
        return InfrastructureError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
