"""The processes for requests of others, as the interfaces use them; see `fepflow.api.evaluations.check_process`."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import Any, Self, TypeVar, cast

from fepflow.api.evaluations.check_process import (
    CHECK_SECONDS,
    LENGTH_BYTES,
    PID_BYTES,
    READ_SECONDS,
    REQUEST_SECONDS,
    CaseResults,
    Place,
    RequestChecks,
    Source,
    Task,
)
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.errors import CheckTimeoutError, FepflowError, InfrastructureError, InputError, Problem
from fepflow.host import lower_priority

T = TypeVar("T")

READ_WAIT_SECONDS = 120.0
"""Seconds to wait for a request to be read, on a busy machine; the process itself counts CPU seconds."""

GRACE_SECONDS = 1.0
"""Seconds after its limit when a process that does not heed it is killed."""

LARGE = 100_000
"""Bytes of a large request: reading it takes much memory."""

QUICK_SECONDS = 0.25
"""Seconds that each request has before it waits for a slow place. Nearly all are done by then, so that requests which
hang keep no others waiting, however many they are; what a slow one has begun is begun again."""

QUICK_PLACES, SLOW_PLACES, LARGE_PLACES = 16, 16, 2
"""Requests that are worked on at once: new ones, slow ones, and large ones, which are slow from the beginning."""

NICE_SECONDS, NICENESS = 0.05, 4
"""Seconds after which a process lets others go first: most requests are done by then."""

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A request that has been read, its results that are there, and the places of those that are not.

    Without what runs elsewhere. What is wrong with a check is in its result.
    """

    request: EvaluationRequest
    results: CaseResults
    places: deque[Place]


@dataclass
class _Work:
    """The work on a request by one process after the other; a check that ends its process is an error."""

    task: Task
    begun: asyncio.Future[Reading]
    reading: Reading | None = None

    @property
    def is_done(self) -> bool:
        """True if all checks have results."""
        return self.reading is not None and not self.reading.places

    async def go_on(self) -> None:
        """Start a process that reads the request, and runs the checks that have no results yet."""
        left = None if self.reading is None else len(self.reading.places)
        self.task = replace(self.task, left=left)
        began, spent = monotonic(), None
        async with aclosing(_answers(self.task)) as answers:
            request = await _value(answers)
            reading = self.reading
            if reading is None:
                places = deque(self.task.places(request))
                reading = self.reading = Reading(request, CaseResults(request), places)
                self.begun.set_result(reading)
                left = len(places)
            async for answer in answers:
                if isinstance(answer, float):
                    spent = answer
                    break
                for result in answer:
                    reading.results.put(reading.places.popleft(), result)
        # A process that had to be killed has not told what it took.
        self.task = replace(self.task, seconds=self.task.seconds - (monotonic() - began if spent is None else spent))
        is_stuck = len(reading.places) == left
        if is_stuck and self.task.one_by_one:  # else it is one of those that were not sent yet
            place = reading.places.popleft()
            reading.results.put(place, RequestChecks(request).late(place, CHECK_SECONDS))
        self.task = replace(self.task, one_by_one=is_stuck and not self.task.one_by_one)


class CheckPool:
    """A process for each request, as many at once as there are places."""

    def __init__(self) -> None:
        self._quick_places = asyncio.Semaphore(QUICK_PLACES)
        self._slow_places, self._large_places = asyncio.Semaphore(SLOW_PLACES), asyncio.Semaphore(LARGE_PLACES)
        self._work: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        """Open a pool whose processes end with the context."""
        pool = cls()
        try:
            yield pool
        finally:
            for task in pool._work:
                task.cancel()
            await asyncio.gather(*pool._work, return_exceptions=True)

    async def read(self, source: Source[T]) -> T:
        """Return what a body is. Raises what its `read` raises, and InputError for one that takes too long to read."""
        task = Task(source, None)
        if len(source.data) <= LARGE:
            with suppress(TimeoutError):
                async with self._quick_places, asyncio.timeout(QUICK_SECONDS), aclosing(_answers(task)) as answers:
                    return cast(T, await _value(answers))
        async with self._slow_place(source), aclosing(_answers(task)) as answers:
            return cast(T, await _value(answers))

    async def begin(
        self, source: Source[EvaluationRequest], elsewhere: frozenset[str]
    ) -> tuple[Reading, asyncio.Task[None]]:
        """Read a request, and begin to run its checks but those of the types `elsewhere`. Raises as `read` does.

        Also returns the work, which ends when all these checks have results.
        """
        begun: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()
        work = asyncio.create_task(self._carry_out(source, elsewhere, begun))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        waiting: set[asyncio.Future[Any]] = {begun, work}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not begun.done():
            work.result()  # raises
        return begun.result(), work

    async def _carry_out(
        self, source: Source[EvaluationRequest], elsewhere: frozenset[str], begun: asyncio.Future[Reading]
    ) -> None:
        checks = _Work(Task(source, elsewhere), begun)
        if len(source.data) <= LARGE:
            with suppress(TimeoutError):
                async with self._quick_places, asyncio.timeout(QUICK_SECONDS):
                    await checks.go_on()
        if checks.is_done:
            return
        async with self._slow_place(source):
            while not checks.is_done and checks.task.seconds > 0:
                await checks.go_on()
        if checks.reading is not None:
            await _give_up(checks.reading)

    def _slow_place(self, source: Source[Any]) -> asyncio.Semaphore:
        return self._large_places if len(source.data) > LARGE else self._slow_places


async def _give_up(reading: Reading) -> None:
    """Give the remaining checks the error that they were not run."""
    checks = RequestChecks(reading.request)
    while reading.places:
        place = reading.places.popleft()
        spent = f"the checks before it took {REQUEST_SECONDS:g} s of CPU time"
        error = CheckTimeoutError(f"{checks.declared(place)[1]} was not run: {spent}")
        reading.results.put(place, checks.failed(place, error))
        if len(reading.places) % 100 == 0:
            await asyncio.sleep(0)


async def _value(answers: AsyncGenerator[Any, None]) -> Any:
    """Return what the body is. Raises what reading it raised, and InputError when there is no answer."""
    answer = await anext(answers, None)
    if isinstance(answer, FepflowError):
        raise answer
    if answer is None:
        why = f"the request takes more than {READ_SECONDS:g} s of CPU time, or too much memory, to be read"
        raise InputError(Problem(why, advice="send less at a time"))
    return answer[0]


async def _answers(task: Task) -> AsyncGenerator[Any, None]:
    """Yield what a process of its own answers to a task, until it ends, or is killed for not answering."""
    forking = asyncio.ensure_future(asyncio.to_thread(_fork_server.fork))
    try:
        pid, connection = await asyncio.shield(forking)
    except asyncio.CancelledError:
        forking.add_done_callback(_discard)
        raise
    aging = asyncio.get_running_loop().call_later(NICE_SECONDS, lower_priority, pid, NICENESS)
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        data = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
        writer.write(len(data).to_bytes(LENGTH_BYTES))
        writer.write(data)
        seconds = READ_WAIT_SECONDS
        while True:
            async with asyncio.timeout(seconds):
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))
            yield _unpickled(answer) if len(answer) <= LARGE else await asyncio.to_thread(_unpickled, answer)
            seconds = CHECK_SECONDS + GRACE_SECONDS
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return
    finally:
        aging.cancel()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        writer.transport.abort()


def _discard(forking: asyncio.Future[tuple[int, socket.socket]]) -> None:
    """End a process that nobody waits for any more."""
    if forking.cancelled() or forking.exception() is not None:
        return
    pid, connection = forking.result()
    connection.close()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _unpickled(data: bytes) -> Any:
    """Return the value of a large pickle. A million lists take 0.1 s, and 2 s with the collections that they cause."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(data)  # noqa: S301  # our own process wrote it
    finally:
        if was_enabled:
            gc.enable()


class _ForkServer:
    """The process that the others are forked from; this process has one, from the first time that it needs it on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def fork(self) -> tuple[int, socket.socket]:
        """Start a process: its id, and the connection with it. Blocks. Raises InfrastructureError."""
        with self._lock:
            try:
                return self._fork()
            except OSError:  # the server has been killed
                self._end()
            try:
                return self._fork()
            except OSError as error:
                raise InfrastructureError(f"no process for checks can be started: {error}") from None

    def _fork(self) -> tuple[int, socket.socket]:
        server = self._socket = self._socket or self._start()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(server, [b"f"], [theirs.fileno()])
                if len(pid := server.recv(PID_BYTES)) < PID_BYTES:
                    raise ConnectionResetError("the server of the processes has ended; the log says more")
            except OSError:
                ours.close()
                raise
        return int.from_bytes(pid), ours

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(START_SECONDS)
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-P", "-m", "fepflow.api.evaluations.check_process", str(descriptor)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor])  # noqa: S603  # ours
        return ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


_fork_server = _ForkServer()
