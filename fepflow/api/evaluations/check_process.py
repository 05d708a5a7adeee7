"""Processes that read requests of others and run their checks: nothing that they send holds up the interfaces.

Each does one task after the other, in its one thread, so that an alarm can stop whatever takes too long, and its memory
has a limit. `fepflow.api.evaluations.check_pool` sends it tasks, reads what comes of them, and kills it when even the
alarm is not heard.

As a script this is the server that forks them, which costs milliseconds where loading all the libraries costs half a
second. It ends when its socket is closed, also by the death of the process at the other end, and its children with it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any, BinaryIO, Generic, TypeVar

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.calls.thread_pool import work_inline
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.engine import CheckedOutput
from fepflow.checks.extension.entry_points import installed_checks
from fepflow.checks.registry import CHECKS
from fepflow.errors import CheckTimeoutError, FepflowError, TooLargeError
from fepflow.host import limit_memory, memory_in_use
from fepflow.jsonpath.path import compile_path
from fepflow.protocol.check import AnyCheck, to_check
from fepflow.protocol.results import CheckResult
from fepflow.store.large_arguments import LargeArguments
from fepflow.system.guard import fork

T = TypeVar("T")

MEMORY = 160_000_000
"""Bytes that a task may take beyond what the process has when it starts."""

KEPT_MEMORY = 64_000_000
"""Bytes beyond which a process is not used any more when its task is done: caches hold what was compiled."""

LENGTH_BYTES, PID_BYTES = 8, 8
FLUSH_SECONDS, FLUSH_RESULTS = 0.005, 50
"""After which results are sent, before the next check begins: they are not lost if that one has to be killed."""

_LIBRARIES = ("regex", "fepflow.checks.core.json_schema_2020", "fepflow.jsonpath.rfc9535", "fepflow.jsonpath.extended")
"""Loaded at the start: an alarm must not ring in the middle of an import."""

Place = tuple[int, int]
"""Indexes of a check result: the test case, and the check among its own and then the shared ones."""


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """A body as it came, and the function of a module that reads it."""

    read: Callable[[bytes], T]
    data: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """Read a request, or take one that was read, and run its checks, until `slice_seconds` are over.

    Tasks of the same `number` are about the same request: the process that had the last one still has it read.
    `places` are the checks to run; None: all but those of the types `elsewhere`. Where none is run, what is read need
    not be a request. Beyond `check_seconds` a check is an error if the task `is_last`, else left for another process.
    """

    number: int
    given: Source[Any] | bytes
    places: list[Place] | None
    elsewhere: frozenset[str]
    read_seconds: float
    check_seconds: float
    slice_seconds: float
    is_last: bool

    def is_here(self, check_type: str) -> bool:
        """Return whether checks of a type are run in the pool."""
        return check_type not in self.elsewhere

    @property
    def longest(self) -> float:
        """Seconds without a word after which no alarm was heard."""
        return max(self.read_seconds, self.check_seconds)


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a task. A process that `is_spent` has ended."""

    is_spent: bool


Answer = bytes | FepflowError | list[tuple[Place, CheckResult | None]] | Done | None
"""The request that was read, as pickled; or why it cannot be carried out; results, None of what took too long; the end.
None: it could not be read in time."""


def places_of(request: EvaluationRequest, is_wanted: Callable[[str], bool]) -> Iterator[Place]:
    """Yield the places of the checks of a request whose types are wanted."""
    shared = [is_wanted(to_check(check).type) for check in request.checks]
    for index in range(len(request.test_cases)):
        own = [is_wanted(to_check(check).type) for check in request.own_checks(index)]
        yield from ((index, number) for number, wanted in enumerate([*own, *shared]) if wanted)


class Alarm:
    """A time limit that ends what the main thread is at, by an exception, whatever that is in Python."""

    def __init__(self) -> None:
        self._end = 0.0
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: Any) -> None:
        if self._end and monotonic() >= self._end:  # else it was set anew just now
            raise TimeoutError

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """Return what `work` returns. Raises TimeoutError, also if `work` made another error, or none, of that."""
        end = monotonic() + seconds
        try:
            self._set(end)
            result = work()
        except BaseException:
            self._set(0)
            if monotonic() >= end:
                raise TimeoutError from None
            raise
        self._set(0)
        if monotonic() >= end:
            raise TimeoutError
        return result

    def inline(self, work: Callable[[], Any], limit: float | None, who: str) -> Any:
        """Do what a pool of threads would do, within a time limit inside of that of the check."""
        outer, end = self._end, monotonic() + (limit or 0)
        if limit is None or end >= outer:
            return work()
        try:
            self._set(end)
            return work()
        except Exception:
            if monotonic() < end:
                raise
            raise CheckTimeoutError(f"{who} did not answer within {limit:g} s") from None
        finally:
            self._set(outer)

    def _set(self, end: float) -> None:
        """Ring then, and again each tenth of a second: code may drop an exception. At 0 do not ring."""
        self._end = end
        if end:
            signal.setitimer(signal.ITIMER_REAL, max(end - monotonic(), 1e-6), 0.1)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)


class Worker:
    """Does tasks, and gives `send` what comes of them."""

    def __init__(self, alarm: Alarm, send: Callable[[Answer], None]) -> None:
        self._alarm = alarm
        self._send = send
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self._checks: RequestChecks | None = None

    def work(self, task: Task) -> None:
        """Do a task."""
        if self._number != task.number:
            self._number, self._checks = task.number, None
            self._begin(task)
        if self._checks is not None and task.places != []:
            self._run(task, self._checks)

    def _begin(self, task: Task) -> None:
        try:
            request = self._alarm.within(task.read_seconds, lambda: self._read(task.given))
        except TimeoutError:
            self._send(None)
            return
        except MemoryError:
            self._send(TooLargeError("The request takes more memory than one may have: send less at a time."))
            return
        except FepflowError as error:
            self._send(error)
            return
        except Exception:
            traceback.print_exc()
            self._send(FepflowError("This is a fault of fepflow; its log says more."))
            return
        if isinstance(task.given, Source):
            self._send(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
        if isinstance(request, EvaluationRequest):
            self._checks = RequestChecks(request)

    def _read(self, given: Source[Any] | bytes) -> Any:
        if isinstance(given, bytes):
            return pickle.loads(given)  # noqa: S301  # this program wrote it
        return given.read(given.data)

    def _run(self, task: Task, checks: RequestChecks) -> None:
        end = monotonic() + task.slice_seconds
        flush = monotonic() + FLUSH_SECONDS
        results: list[tuple[Place, CheckResult | None]] = []
        for place in places_of(checks.request, task.is_here) if task.places is None else task.places:
            now = monotonic()
            if now >= end:
                break
            if results and (now >= flush or len(results) >= FLUSH_RESULTS):
                self._send(results)
                results, flush = [], now + FLUSH_SECONDS
            results.append((place, self._result(task, checks, place)))
        self._send(results)

    def _result(self, task: Task, checks: RequestChecks, place: Place) -> CheckResult | None:
        try:
            return self._alarm.within(task.check_seconds, lambda: self._answer(checks, place))
        except TimeoutError:
            self._loop.close()  # it may have been in the middle of something
            self._loop = asyncio.new_event_loop()
            return checks.late(place, task.check_seconds) if task.is_last else None
        except MemoryError as error:
            return checks.failed(place, error)

    def _answer(self, checks: RequestChecks, place: Place) -> CheckResult:
        seen, large, check = checks.at(place)
        answer = seen.answer(check)
        if not isinstance(answer, CheckResult):
            answer = self._loop.run_until_complete(answer)
        return large.left_out(answer, check.check)


class RequestChecks:
    """The checks of a request that has been read, each made ready when it is its turn; shared ones once."""

    def __init__(self, request: EvaluationRequest, refusal: Callable[[AnyCheck], str | None] = lambda _: None) -> None:
        self.request = request
        self._refusal = refusal
        self._shared_ids = request.shared_ids()
        self._shared: dict[int, CompiledCheck] = {}
        self._index = -1
        self._own: list[AnyCheck] = []
        self._ids: list[str] = []

    def at(self, place: Place) -> tuple[CheckedOutput, LargeArguments, CompiledCheck]:
        """Return what a check looks at, and the check."""
        check, check_id = self.declared(place)
        shared = place[1] - len(self._own)
        if shared < 0:
            return self._seen, self._large, CompiledCheck(check, check_id, self._refusal(check))
        if shared not in self._shared:
            self._shared[shared] = CompiledCheck(check, check_id, self._refusal(check))
        return self._seen, self._large, self._shared[shared]

    def declared(self, place: Place) -> tuple[AnyCheck, str]:
        """Return a check as it was sent, and its id."""
        index, number = place
        if index != self._index:
            self._index = -1  # an alarm may ring before all of it is set
            self._own = list(self.request.own_checks(index))
            self._ids = self.request.own_ids(index, self._shared_ids)
            self._seen = CheckedOutput(self.request.test_cases[index], self.request.outputs[index])
            self._large = LargeArguments()
            self._index = index
        if number < len(self._own):
            return self._own[number], self._ids[number]
        return self.request.checks[number - len(self._own)], self._shared_ids[number - len(self._own)]

    def failed(self, place: Place, error: BaseException) -> CheckResult:
        """Return the result of a check that an error ended. It is not made ready: that may be what takes too long."""
        check, check_id = self.declared(place)
        bare = to_check(check).model_copy(update={"arguments": {}})
        return CompiledCheck(bare, check_id, "it was not run").failed(error)

    def late(self, place: Place, seconds: float) -> CheckResult:
        """Return the result of a check that took too long."""
        message = f"{self.declared(place)[1]} did not answer within {seconds:g} s"
        return self.failed(place, CheckTimeoutError(message))


def main() -> None:
    """Fork a process for each request on the socket: two descriptors, for tasks and answers, and its niceness."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process at the other end
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for children
    for module in (*_LIBRARIES, *{address.partition(":")[0] for (address, *_) in CHECKS.values()}):
        import_module(module)
    installed_checks()
    compile_path("$.`len`")  # loads the library for such paths
    gc.collect()
    gc.freeze()
    while True:
        niceness, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
        if not niceness:
            return
        child = fork(partial(_begin, requests, descriptors, niceness[0]))
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(child.to_bytes(PID_BYTES))


def _begin(requests: socket.socket, descriptors: Sequence[int], niceness: int) -> None:
    requests.close()
    os.nice(niceness)
    _serve(os.fdopen(descriptors[0], "rb"), os.fdopen(descriptors[1], "wb"))


def _serve(tasks: BinaryIO, answers: BinaryIO) -> None:
    """Do the tasks that come in, until there are no more."""
    os.dup2(2, 1)  # whatever a library prints
    warnings.simplefilter("ignore")
    used = memory_in_use()
    limit_memory(MEMORY)
    alarm = Alarm()
    work_inline(alarm.inline)
    worker = Worker(alarm, lambda answer: _write(answers, answer))
    while (task := _read(tasks)) is not None:
        worker.work(task)
        del task
        is_spent = memory_in_use() > used + KEPT_MEMORY
        _write(answers, Done(is_spent))
        if is_spent:
            return


def _read(file: BinaryIO) -> Any:
    header = file.read(LENGTH_BYTES)
    if len(header) < LENGTH_BYTES:
        return None
    return pickle.loads(file.read(int.from_bytes(header)))  # noqa: S301  # the parent wrote it


def _write(file: BinaryIO, answer: Any) -> None:
    data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    file.write(len(data).to_bytes(LENGTH_BYTES) + data)
    file.flush()


if __name__ == "__main__":
    from fepflow.api.evaluations import check_process  # as the parent knows its classes

    check_process.main()
