"""A process for each request of others, which reads it and runs its checks: nothing sent to us holds up the interfaces.

The operating system shares the processor among them, limits their memory, and ends what does not stop by itself. As a
script, this is the server that forks them: a fork costs milliseconds, where loading all the libraries costs half a
second. It ends when its socket is closed, also by the death of the process at the other end, and its children with it.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any, Generic, TypeVar

from fepflow.api.evaluations.request_checks import Place, RequestChecks, places_of
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.checks.registry import CHECKS, installed_checks, our_checks
from fepflow.errors import FepflowError, TooLargeError
from fepflow.host import fork, limit_memory
from fepflow.jsonpath.path import compile_path
from fepflow.protocol.results import CheckResult

T = TypeVar("T")

READ_SECONDS = 10.0
"""Seconds that reading a request may take."""

CHECK_SECONDS = 5.0
"""Seconds that a check may take, with making it ready and looking up its paths; most have stricter limits within."""

MEMORY = 160_000_000
"""Bytes that a process may take beyond what it has at its start."""

LENGTH_BYTES, PID_BYTES = 8, 8
FLUSH_SECONDS = 0.005
"""Seconds after which results are sent before the next check begins, so that they are not lost with it."""

SPENT_SECONDS = 0.25
"""Seconds of a check after which its process runs no further one: another process does."""

_LIBRARIES = (
    "ctypes",
    "regex",
    "fepflow.api.evaluations.bodies",
    "fepflow.api.grpc.messages",
    "fepflow.checks.schema_validation",
    "fepflow.jsonpath.queries",
)
"""Loaded before the first fork."""


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """A body as it came, and the function of a module that reads it."""

    read: Callable[[bytes], T]
    data: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """Read a body and, unless `elsewhere` is None, run the checks of the request that it is.

    Those of the types `elsewhere` are left out; of the others the last `left` are run, or all. `one_by_one` has each
    result sent before the next check begins.
    """

    source: Source[Any]
    elsewhere: frozenset[str] | None
    left: int | None = None
    one_by_one: bool = False

    def places(self, request: EvaluationRequest) -> list[Place]:
        """Return the places of the checks to run."""
        left_out = self.elsewhere or ()
        places = list(places_of(request, lambda check_type: check_type not in left_out))
        return places if self.left is None else places[len(places) - self.left :]


class _LateError(BaseException):
    """A time limit is over. No `except Exception` stops it on its way."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End what the main thread is at after so many seconds, whatever that is in Python. Raises _LateError."""
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)  # again and again: code may drop even this exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ring(*_: Any) -> None:
    raise _LateError


def _work(task: Task, send: Callable[[Any], None]) -> None:
    """Send what a body is, or the FepflowError of reading it, or None when that took too long; then the results."""
    limit_memory(MEMORY)
    signal.signal(signal.SIGALRM, _ring)
    try:
        with _within(READ_SECONDS):
            value = task.source.read(task.source.data)
    except _LateError:
        send(None)
    except MemoryError:
        send(TooLargeError("The request takes more memory than one may have: send less at a time."))
    except FepflowError as error:
        send(error)
    except Exception:
        traceback.print_exc()
        send(FepflowError("This is a fault of fepflow; its log says more."))
    else:
        send((value,))
        if task.elsewhere is not None:
            _run_checks(task, RequestChecks(value), send)


def _run_checks(task: Task, checks: RequestChecks, send: Callable[[Any], None]) -> None:
    loop = asyncio.new_event_loop()
    results: list[CheckResult] = []
    flushed = monotonic()
    for place in task.places(checks.request):
        if results and (task.one_by_one or monotonic() > flushed + FLUSH_SECONDS):
            send(results)
            results, flushed = [], monotonic()
        begun = monotonic()
        try:
            with _within(CHECK_SECONDS):
                results.append(_result(checks, place, loop))
        except _LateError:
            loop = asyncio.new_event_loop()  # the other one may be in the middle of something
            results.append(checks.late(place, CHECK_SECONDS))
        except MemoryError as error:
            results.append(checks.failed(place, error))
        if monotonic() > begun + SPENT_SECONDS:  # a thread that was given up may go on, and take time and memory
            break
    send(results)


def _result(checks: RequestChecks, place: Place, loop: asyncio.AbstractEventLoop) -> CheckResult:
    seen, large, check = checks.at(place)
    answer = seen.answer(check)
    result = answer if isinstance(answer, CheckResult) else loop.run_until_complete(answer)
    return large.left_out(result, check.check)


def main() -> None:
    """Fork a process for each socket that is sent here, and say its number."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process at the other end
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for children
    warnings.simplefilter("ignore")
    for module in _LIBRARIES:
        import_module(module)
    for check_type in CHECKS:
        our_checks(check_type)
    installed_checks()
    compile_path("$.`len`")  # loads the library for such paths
    gc.collect()
    gc.freeze()  # else the first collection of each child would copy all pages
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            child = fork(partial(_serve, requests, connection))
        requests.sendall(child.to_bytes(PID_BYTES))


def _serve(requests: socket.socket, connection: socket.socket) -> None:
    requests.close()
    with connection.makefile("rb") as tasks:
        data = tasks.read(int.from_bytes(tasks.read(LENGTH_BYTES)))
    if not data:  # the request was given up
        return

    def send(answer: Any) -> None:
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        connection.sendall(len(data).to_bytes(LENGTH_BYTES) + data)

    with suppress(ConnectionError):
        _work(pickle.loads(data), send)  # noqa: S301  # the parent wrote it


if __name__ == "__main__":
    from fepflow.api.evaluations import check_process  # as the parent knows its classes

    check_process.main()
