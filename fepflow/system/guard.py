"""The guard of a process that runs other people's code: it ends when the run says so, and when the run is dead.

A guard runs no such code itself. Its child, the worker, does, in a process group of its own. The guard lives as long as
the other end of its control connection is open. When that closes, or when the worker ends, it kills all that is left:
the worker, its process group, and whatever these have started.

As a script it is the server that `fepflow.system.guarded` talks to, with one argument: the number of the socket that
requests come on. For each request it forks a guard, which costs a millisecond where a start of the interpreter would
cost thirty. It needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PASSED_FDS = 4
LENGTH_BYTES = 4


def watch(work: Callable[[], object], control: int, of_worker: Sequence[int] = ()) -> int | None:
    """Part into guard and worker, and have the worker do `work`, after which it ends.

    In the guard it returns when all is over: the worker's exit code, negative for a signal; None if the guard was told
    to end it, or its run is dead. Anything read from `control` is passed on to the worker's process group as SIGTERM.
    Only the worker keeps the descriptors `of_worker`.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the worker leaves behind becomes ours
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(wake)
        _work(work, guard)
    for descriptor in of_worker:
        os.close(descriptor)
    with suppress(OSError):  # whoever of the two is first
        os.setpgid(worker, worker)
    return _guard(worker, control, woken)


def _work(work: Callable[[], object], guard: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        if _die_with(guard):
            work()
            os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _guard(worker: int, control: int, woken: int) -> int | None:
    status = None
    while status is None:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            ended, code = os.waitpid(worker, os.WNOHANG)
            status = code if ended else None
        if control in ready:
            if not _received(control):
                break
            with suppress(OSError):
                os.killpg(worker, signal.SIGTERM)
    _kill_all(worker, reaped=status is not None)
    return None if status is None else os.waitstatus_to_exitcode(status)


def _received(control: int) -> bytes:
    try:
        return os.read(control, 4096)
    except ConnectionError:
        return b""


def _kill_all(worker: int, *, reaped: bool) -> None:
    try:
        os.killpg(worker, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        if not reaped:
            os.kill(worker, signal.SIGKILL)
    for pause in (0.0, 0.001, 0.002, 0.004, 0.008):  # mostly the group is all
        time.sleep(pause)
        if _nothing_left():
            return
    for _ in range(1_000):  # who is orphaned meanwhile comes to us
        for process in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
        if _nothing_left():
            return


def _descendants() -> list[int]:
    """Return the processes below this one, each before those that it has started."""
    parents = _parents_in_proc() if os.path.isdir("/proc/self") else _parents_by_ps()
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def _parents_in_proc() -> dict[int, int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])  # after the name: state, parent
    return parents


def _parents_by_ps() -> dict[int, int]:
    import subprocess

    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=False).stdout  # noqa: S607  # the system's
    return {int(pid): int(parent) for pid, parent in (line.split() for line in told.splitlines())}


def _nothing_left() -> bool:
    """Whether there are no children any more; those that have ended are let go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def fork(work: Callable[[], object]) -> int:
    """Do the work in a child, which then ends, and is killed when this process ends. Return its number."""
    parent = os.getpid()
    child = os.fork()
    if child != 0:
        return child
    try:
        if _die_with(parent):
            work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _die_with(parent: int) -> bool:
    """Have this process killed when its parent ends; False if that has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the guard's other means have to do."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def serve(requests: socket.socket) -> None:
    """Fork a guard for each request, until there are no more.

    A request is its length, 4 bytes, and JSON, `{arguments, env, folder}`, the program's path first among the
    arguments; with it come stdin, stdout and stderr of the worker, and its guard's control connection. There the guard
    says, in JSON, how the worker has ended: `{"code": exit code, negative for a signal}`, before it `{"errno": why it
    could not be started}` if so. It says no code if it was to kill the worker.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 0)  # loads what is needed for it once, for all guards
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards that have ended need no one to wait for them
    while True:
        header, descriptors, _, _ = socket.recv_fds(requests, LENGTH_BYTES, _PASSED_FDS)
        if len(header) < LENGTH_BYTES:
            return
        request = json.loads(_exactly(requests, int.from_bytes(header, "big")))
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        _fork_guard(request, descriptors, requests)
        for descriptor in descriptors:
            os.close(descriptor)


def _exactly(requests: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = requests.recv(size - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return bytes(parts)


def _fork_guard(request: dict[str, Any], descriptors: list[int], requests: socket.socket) -> None:
    *streams, control = descriptors
    try:
        child = os.fork()
    except OSError as error:
        _say(control, {"errno": error.errno})
        return
    if child != 0:
        return
    try:
        requests.close()
        code = watch(lambda: _execute(request, streams, control), control, streams)
        if code is not None:
            _say(control, {"code": code})
    finally:
        os._exit(0)


def _execute(request: dict[str, Any], streams: Sequence[int], control: int) -> None:
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for number in signal.valid_signals():
            # By Python, for itself; by whoever started the run in the background, for the run.
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(request["folder"])
        os.execve(request["arguments"][0], request["arguments"], request["env"])  # noqa: S606  # the suite's own program
    except OSError as error:
        _say(control, {"errno": error.errno})


def _say(control: int, what: dict[str, Any]) -> None:
    with suppress(OSError):  # the run may be dead
        os.write(control, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
