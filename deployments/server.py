"""The local Prefect server: `python -m fepflow.deployments.server up|down|status|hold`.

One server on loopback, started once, that survives the command which started it (`hold` stays with it instead, and
stops what it started). Prints one JSON object on stdout; a failure is a sentence on stderr and exit code 3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import psutil
from filelock import FileLock

from fepflow.errors import FepflowError, InfrastructureError
from fepflow.services.prefect_api import Server, running
from fepflow.settings import Settings, settings
from fepflow.text import shortened

START_SECONDS = 240
STOP_SECONDS = 15
LOOK_SECONDS = 2.0
"""Pause between looks of `hold` for errors in the log."""

_ERROR = re.compile(
    r"^(?P<time>\d\d:\d\d:\d\d)\.\d+ \| (?:ERROR|CRITICAL) *\| "
    r"(?:prefect\.server\.)?(?P<logger>\S+) - (?P<message>.*)\n"
    r"(?P<more>(?:(?!\d\d:\d\d:\d\d\.\d+ \| ).*\n)*)",
    re.MULTILINE,
)
"""A serious record of the server's log, with the lines of its traceback."""
_SERVICE = re.compile(r"\b(?P<name>\w+)\([^)]{0,200}\)\{")
"""The name of a service in the log of docket, which runs them: `↩ [98ms] schedule_deployments(){…}`."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?(?P<words>[A-Za-z_]\w*[a-z]: .+)$", re.MULTILINE)
"""The last line of a traceback; not one that uvicorn writes, which begins with a level in capitals."""
LOCKED, LOCKED_TOLERATED = "database is locked", 10
"""An error of writes on SQLite, which Prefect's server repeats, and how many of them are no trouble."""
MAX_READ = 4_000_000
"""Bytes of the log's end that are read: a service that fails every five seconds fills it."""


def up(config: Settings, port: int | None = None) -> Server:
    """Return the running server, or start one. Two callers at once get the same server."""
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(config.home / "server.lock", timeout=START_SECONDS + 30, mode=0o600):
        server = running(config)
        if server is None:
            server = _start(config, port or config.port)
            write_private(config.server_file, json.dumps(asdict(server)))
        _wait_until_healthy(server, config)
        return server


def down(config: Settings) -> Server | None:
    """Stop the server with all its processes. Returns None if none runs."""
    server = running(config)
    process = server.process() if server else None
    if server is not None and process is not None:
        end_processes([process, *process.children(recursive=True)], STOP_SECONDS)
        # A shell may still have its address in PREFECT_API_URL: the port stays known.
        write_private(config.server_file, json.dumps({"port": server.port}))
    return server


def hold(config: Settings, port: int | None = None) -> None:
    """Keep a server running until SIGTERM, and stop it then if it was started here. Raises if it ends by itself."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ours = running(config) is None
    try:
        server = up(config, port)
        log = log_file(config)
        _say(f"the Prefect server listens at {server.ui_url}; its log is {log}")
        told: set[str] = set()
        while server.process() is not None:
            for kind, sentence in errors_in(log).items():
                if kind not in told:
                    told.add(kind)
                    _say(sentence)
            time.sleep(LOOK_SECONDS)
        raise InfrastructureError(f"the Prefect server has ended; its log is {log}")
    finally:
        if ours:
            down(config)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # this module is a command


def login(config: Settings) -> str:
    """Return the server's login, `user:password`, which is created when it is first needed."""
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(config.home / "prefect-login.lock", timeout=10, mode=0o600):
        if not config.login_file.exists():
            write_private(config.login_file, f"fepflow:{secrets.token_urlsafe(24)}\n")
        return config.login_file.read_text(encoding="ascii").strip()


def log_file(config: Settings) -> Path:
    """Return the file to which the server writes its warnings and errors."""
    return config.home / "server.log"


def errors_in(log: Path) -> dict[str, str]:
    """Return the errors in a server's log, a sentence for each kind, in the order of their first occurrence.

    The server continues after them, and reports them nowhere else: if the scheduler fails, every deployment stays
    Active and Ready in the UI, but no scheduled run starts.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MAX_READ))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return {}
    times: dict[tuple[str, str], list[str]] = {}
    for record in _ERROR.finditer(text):
        service = _SERVICE.search(record["message"])
        raised = _EXCEPTION.findall(record["more"])
        message = shortened((raised[-1] if raised else record["message"]).rstrip(". "), 200)
        times.setdefault((service["name"] if service else record["logger"], message), []).append(record["time"])
    return {
        f"{service}: {message}": _sentence(service, message, moments, log)
        for (service, message), moments in times.items()
        if LOCKED not in message or len(moments) > LOCKED_TOLERATED
    }


def _sentence(service: str, message: str, moments: Sequence[str], log: Path) -> str:
    often = f"{len(moments)} times, last at {moments[-1]}" if len(moments) > 1 else f"at {moments[0]}"
    follows = " Scheduled runs may not come." if "schedule" in service else ""
    return f"{service} of the Prefect server failed ({often}): {message}.{follows} Its log is {log}"


def healthy(server: Server) -> bool:
    """Return whether the API answers."""
    try:
        past_proxies = build_opener(ProxyHandler({}))
        with past_proxies.open(f"{server.api_url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError, ValueError):
        return False


def _start(config: Settings, port: int) -> Server:
    _refuse_taken_port(port)
    log = log_file(config)
    write_private(log, "")
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  # our own interpreter, fixed arguments
            [
                sys.executable,
                "-P",
                "-m",
                "fepflow.deployments.prefect_server",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            env=_environment(config, port),
            cwd=config.home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o077,
        )
    return Server(process.pid, psutil.Process(process.pid).create_time(), port)


def _environment(config: Settings, port: int) -> dict[str, str]:
    """Return the settings of the server, which do not depend on the shell that starts it."""
    address = f"http://127.0.0.1:{port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **kept,
        "PREFECT_HOME": str(config.home / "prefect"),
        "PREFECT_SERVER_API_AUTH_STRING": login(config),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_API_URL": f"{address}/api",
        "PREFECT_UI_URL": address,  # for addresses in notifications
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{address},http://localhost:{port}",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        **BATCHES,
    }


BATCHES = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "2",
}
"""Settings by which the server writes many events in one transaction. By default each of a run's twenty states of task
runs is a transaction of its own."""


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InfrastructureError(
                f"port {port} on 127.0.0.1 cannot be used ({error.strerror}). Choose another with FEPFLOW_PORT=4201, "
                f"or, if a Prefect server is there, use it with PREFECT_API_URL=http://127.0.0.1:{port}/api."
            ) from None


def _wait_until_healthy(server: Server, config: Settings) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not healthy(server):
        if server.process() is None or time.monotonic() > deadline:
            log = log_file(config)
            last = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:])
            raise InfrastructureError(f"the Prefect server did not start; its log is {log} and ends:\n{last}")
        time.sleep(0.1)


def end_processes(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Terminate processes, and kill those that are still running after some seconds."""
    alive = processes
    for how in ("terminate", "kill"):
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                getattr(process, how)()
        _, alive = psutil.wait_procs(alive, timeout=seconds)


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read. Readers see the old or the new content, never a part."""
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def _state(server: Server, config: Settings) -> dict[str, Any]:
    return {
        **asdict(server),
        "api_url": server.api_url,
        "ui_url": server.ui_url,
        "errors": list(errors_in(log_file(config)).values()),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run one command and print its result."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.server", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "hold"])
    parser.add_argument("--port", type=int, default=None, help="port to listen on (default: FEPFLOW_PORT, or 4200)")
    options = parser.parse_args(arguments)
    try:
        config = settings()
        if options.command == "up":
            server: Server | None = up(config, options.port)
        elif options.command == "down":
            server = down(config)
        elif options.command == "hold":
            hold(config, options.port)
            server = None
        else:
            server = running(config)
    except FepflowError as error:
        print(error, file=sys.stderr)  # noqa: T201  # this module is a command
        return error.exit_code
    except OSError as error:
        print(f"cannot use {config.home} ({error.strerror}): name a writable folder in FEPFLOW_HOME", file=sys.stderr)  # noqa: T201  # this module is a command
        return InfrastructureError.exit_code
    state = None if server is None else _state(server, config)
    print(json.dumps({"server": state}))  # noqa: T201  # this module is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
