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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from time import monotonic, process_time
from typing import Any, Generic, TypeVar

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.checked_output import MAX_WAITING, CheckedOutput, case_result
from fepflow.checks.core.compiled import LARGE_LIMIT, CompiledCheck
from fepflow.checks.core.declarations import REQUEST, CaseChecks, CheckDefaults, left_to_defaults
from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import CHECKS, installed_checks, others_checks, our_checks
from fepflow.errors import CheckTimeoutError, FepflowError, TooLargeError
from fepflow.host import fork, limit_memory
from fepflow.json.values import is_small
from fepflow.jsonpath.path import compile_path
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.results import CheckResult, TestCaseResult
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.large_arguments import LargeArguments

Place = tuple[int, int]
"""Indexes of a check result: the test case, and the check among its own and then the shared ones."""

Tell = Callable[[TestCaseResult], None]


def places_of(request: EvaluationRequest, is_wanted: Callable[[str], bool]) -> Iterator[Place]:
    """Yield the places of the checks of a request whose types are wanted."""
    shared = [is_wanted(to_check(check).type) for check in request.checks]
    for index in range(len(request.test_cases)):
        own = [is_wanted(to_check(check).type) for check in request.own_checks(index)]
        yield from ((index, number) for number, wanted in enumerate([*own, *shared]) if wanted)


class RequestChecks:
    """The checks of a request. Shared ones are made ready once; `refusal` says why a check may not be run."""

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
            return self._seen, self._large, CompiledCheck(check, check_id, self._why_not(check))
        if shared not in self._shared:
            self._shared[shared] = CompiledCheck(check, check_id, self._why_not(check))
        return self._seen, self._large, self._shared[shared]

    def _why_not(self, check: AnyCheck) -> str | None:
        return self._refusal(check) or left_to_defaults(to_check(check))

    def declared(self, place: Place) -> tuple[AnyCheck, str]:
        """Return a check as it was sent, and its id."""
        index, number = place
        if index != self._index:
            self._index = -1  # a time limit may end this before all of it is set
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


class CaseResults:
    """Check results by their places; a test case is done when all of its are there."""

    def __init__(self, request: EvaluationRequest) -> None:
        self._request = request
        self._checks: dict[Place, CheckResult] = {}
        shared = len(request.checks)
        self._counts = [shared + len(request.own_checks(index)) for index in range(len(request.test_cases))]
        self._missing = list(self._counts)
        self._results: dict[int, TestCaseResult] = {}
        self._tell: Tell | None = None
        for index, count in enumerate(self._counts):
            if not count:
                self._complete(index)

    def put(self, place: Place, result: CheckResult) -> None:
        """Add the result of a check."""
        self._checks[place] = result
        self._missing[place[0]] -= 1
        if not self._missing[place[0]]:
            self._complete(place[0])

    def tell(self, tell: Tell) -> None:
        """Call `tell` with each test case that is done, beginning with those that are done already."""
        self._tell = tell
        for result in list(self._results.values()):
            tell(result)

    def all(self) -> list[TestCaseResult]:
        """Return the results of all test cases, in their order, when all are done."""
        return [self._results[index] for index in range(len(self._counts))]

    def _complete(self, index: int) -> None:
        checks = [self._checks[index, number] for number in range(self._counts[index])]
        result = case_result(bare(self._request.test_cases[index]), self._request.outputs[index], checks)
        self._results[index] = result
        if self._tell is not None:
            self._tell(result)


def bare(case: TestCase) -> TestCase:
    """Return a test case as FEP 4.1 has it in results, without checks."""
    if case.checks is None:
        return case
    return TestCase.model_validate({name: getattr(case, name) for name in case.model_fields_set - {"checks"}})


MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS = 500, 20_000
"""Values in the schema of a judge's response, which is read in this process; a judgement has a dozen."""


def types_here() -> frozenset[str]:
    """Return the types of the checks that run in this process."""
    return frozenset({*_model_types(), *others_checks()})


@cache
def _model_types() -> frozenset[str]:
    return frozenset(name for name in CHECKS if any(issubclass(check, ModelCheck) for check in our_checks(name)))


class ChecksHere:
    """Runs checks of a request. One that may not ask its model is an error."""

    def __init__(self, request: EvaluationRequest, requests: ModelRequests, put: Callable[[Place, CheckResult], None]):
        policy = CaseChecks(CheckDefaults(), (), settings().allowed_models, from_data=True, source=REQUEST)
        self._ready = partial(RequestChecks, request, lambda check: _refusal(policy, to_check(check)))
        self._checks = self._ready()
        self._requests = requests
        self._put = put
        self._places = asyncio.Semaphore(MAX_WAITING)

    async def run(self, places: Sequence[Place]) -> None:
        """Run the checks; each result is put as it comes. What is wrong with a check is in its result."""
        async with asyncio.TaskGroup() as group:
            for place in places:
                await self._places.acquire()
                try:
                    making = partial(self._checks.at, place)
                    seen, large, check = await LOOKUPS.run(making, LARGE_LIMIT, "making the check ready")
                except FepflowError as error:
                    self._checks = self._ready()  # the thread that was given up still has the other one
                    self._put(place, self._checks.failed(place, error))
                    self._places.release()
                else:
                    group.create_task(self._finish(place, check, seen, large))

    async def _finish(self, place: Place, check: CompiledCheck, seen: CheckedOutput, large: LargeArguments) -> None:
        try:
            answer = seen.answer(check, self._requests)
            result = answer if isinstance(answer, CheckResult) else await answer
            self._put(place, large.left_out(result, check.check))
        finally:
            self._places.release()


def _refusal(policy: CaseChecks, check: Check) -> str | None:
    """Return why a check is not run here: it asks a model that it may not ask, or its response_format is too large."""
    if refusal := policy.refusal(check):
        return refusal
    if is_small(check.arguments.get("response_format"), MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS):
        return None
    most = f"{MAX_FORMAT_NODES} values, {MAX_FORMAT_CHARACTERS:,} characters"
    return f"response_format: in a request over the network it holds up to {most}"


T = TypeVar("T")

READ_SECONDS = 10.0
"""CPU seconds that reading a request may take: a busy machine refuses nothing that a free one reads."""

CHECK_SECONDS = 5.0
"""Seconds that a check may take, with making it ready and looking up its paths; most have stricter limits within."""

MEMORY = 160_000_000
"""Bytes that a process may take beyond what it has at its start."""

LENGTH_BYTES, PID_BYTES = 8, 8
FLUSH_SECONDS = 0.005
"""Seconds after which results are sent before the next check begins, so that they are not lost with it."""

SPENT_SECONDS = 0.25
"""CPU seconds of a check after which its process runs no further one: another process does."""

REQUEST_SECONDS = 30.0
"""CPU seconds that the slow checks of a request may take together; its further ones are errors."""

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

    Those of the types `elsewhere` are left out; of the others the last `left` are run, or all, until `seconds` of
    CPU time are over. `one_by_one` has each result sent before the next check begins.
    """

    source: Source[Any]
    elsewhere: frozenset[str] | None
    left: int | None = None
    one_by_one: bool = False
    seconds: float = REQUEST_SECONDS

    def places(self, request: EvaluationRequest) -> list[Place]:
        """Return the places of the checks to run."""
        left_out = self.elsewhere or ()
        places = list(places_of(request, lambda check_type: check_type not in left_out))
        return places if self.left is None else places[len(places) - self.left :]


class _LateError(BaseException):
    """A time limit is over. No `except Exception` stops it on its way."""


@contextmanager
def _within(seconds: float, clock: int = signal.ITIMER_REAL) -> Iterator[None]:
    """End what the main thread is at after so many seconds, whatever that is in Python. Raises _LateError."""
    signal.setitimer(clock, seconds, 0.1)  # again and again: code may drop even this exception
    try:
        yield
    finally:
        signal.setitimer(clock, 0)


def _ring(*_: Any) -> None:
    raise _LateError


def _work(task: Task, send: Callable[[Any], None]) -> None:
    """Send what a body is, or the FepflowError of reading it, or None when that took too long; then the results.

    At the end, send the seconds that all of it took: of CPU time, and on the clock for a check that timed out.
    """
    limit_memory(MEMORY)
    signal.signal(signal.SIGALRM, _ring)
    signal.signal(signal.SIGPROF, _ring)
    try:
        with _within(READ_SECONDS, signal.ITIMER_PROF):
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
    flushed, waited = monotonic(), 0.0
    for place in task.places(checks.request):
        if results and (task.one_by_one or monotonic() > flushed + FLUSH_SECONDS):
            send(results)
            results, flushed = [], monotonic()
        cpu_begun, begun = process_time(), monotonic()
        try:
            with _within(CHECK_SECONDS):
                results.append(_result(checks, place, loop))
        except _LateError:
            loop = asyncio.new_event_loop()  # the other one may be in the middle of something
            results.append(checks.late(place, CHECK_SECONDS))
        except MemoryError as error:
            results.append(checks.failed(place, error))
        failure = results[-1].error
        if failure is not None and failure.type == "timeout_error":  # its limit was on the wall, and so it counts
            waited = max(0.0, monotonic() - begun - (process_time() - cpu_begun))
        # A thread that was given up may go on, and take time and memory.
        if waited or process_time() > min(cpu_begun + SPENT_SECONDS, task.seconds):
            break
    send(results)
    send(process_time() + waited)


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
