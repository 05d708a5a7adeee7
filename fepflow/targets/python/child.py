"""The process of an isolated agent: a guard, which runs no user's code, and under it the worker, which calls the agent.

Started as a script by `fepflow.targets.python.process`, with one argument, JSON: `{root, socket, function, folder,
roots, names, limit}`. The worker reads requests and writes replies, a line of JSON each, on the socket. What the agent
prints goes to stderr and stdout, which are no part of this.

The guard lives as long as its stdin is open. When that closes, because the run wants it so or is dead, or when the
worker ends, it kills all that is left: the worker, its process group, and whatever these have started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Part into guard and worker."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the agent leaves behind becomes ours
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(wake)
        _work(config, guard)
    os.close(config["socket"])
    _guard(worker, woken)


def _guard(worker: int, woken: int) -> NoReturn:
    status = None
    while status is None:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            ended, status = os.waitpid(worker, os.WNOHANG)
            status = status if ended else None
        if 0 in ready and not os.read(0, 4096):
            break
    _kill_all(worker, reaped=status is not None)
    code = 0 if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:  # end as the worker has
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _kill_all(worker: int, *, reaped: bool) -> None:
    try:
        os.killpg(worker, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        if not reaped:
            os.kill(worker, signal.SIGKILL)
    import psutil

    myself = psutil.Process()
    for _ in range(100):  # processes that are orphaned meanwhile become our children
        left = [child for child in myself.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
        if not left:
            return
        for child in left:
            try:
                child.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=0.2)


def _work(config: dict[str, Any], guard: int) -> NoReturn:
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
    os.set_inheritable(config["socket"], False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    sys.path.append(config["root"])
    from fepflow.targets.python.worker import serve

    serve(config)
    os._exit(0)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the guard's other means have to do."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


if __name__ == "__main__":
    main()
