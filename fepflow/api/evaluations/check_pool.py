"""The processes that read requests of others and run their checks, each killed when it overruns its limit.

Two kinds share the work. What a request needs at first is done by a quick process, which gives each request a moment:
most are done by then, so one that takes long cannot keep the others waiting. The rest is done by slow processes, a
slice at a time and in turn, so that one request has at most one of them.
"""

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
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any, BinaryIO, Self, TypeVar

from fepflow.api.evaluations.case_results import CaseResults
from fepflow.api.evaluations.check_process import (
    LENGTH_BYTES,
    PID_BYTES,
    Answer,
    Done,
    Place,
    RequestChecks,
    Source,
    Task,
    places_of,
)
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.errors import CheckTimeoutError, FepflowError, InfrastructureError, InputError, Problem
from fepflow.protocol.results import CheckResult

T = TypeVar("T")

READ_SECONDS = 10.0
"""Seconds that reading a request may take."""

CHECK_SECONDS = 5.0
"""Seconds that a check may take, with making it ready and looking up its paths; most have stricter limits within."""

REQUEST_SECONDS = 30.0
"""Seconds of a slow process that one request may have; its further checks are errors."""

QUICK_SECONDS = 0.05
"""Seconds for which a request, or a check, may hold up others."""

SLICE_SECONDS = 0.5
"""Seconds for which a request has a slow process until it is the turn of another one."""

GRACE_SECONDS = 1.0
"""Seconds after its limit when a process that does not heed it is killed."""

START_SECONDS = 60.0
AT_ONCE = 10_000
"""Checks of one task."""

LARGE = 100_000
"""Bytes of a request from which on a quick process does not even begin with it, and a thread takes over its form."""

SLOW_PROCESSES = min(os.cpu_count() or 1, 4)

_NICENESS = 4
_AFTER_KILL = 50
"""Checks that are run one by one when a process was killed: one of them was the cause, and not yet known to be."""


class _EndedError(Exception):
    """A process has ended, or had to be killed."""


@dataclass(eq=False, slots=True)
class Reading:
    """A request that has been read, those of its results that are there, and the checks that are left for the pool."""

    number: int
    request: EvaluationRequest
    pickled: bytes
    results: CaseResults
    todo: list[Place]


class CheckPool:
    """The processes. Each is started when it is first needed, and stays; before the first, half a second is loading."""

    def __init__(self) -> None:
        self._quick = _Processes(1, 0)
        self._slow = _Processes(SLOW_PROCESSES, _NICENESS)
        self._numbers = count(1)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        """Have the processes end with the context."""
        pool = cls()
        try:
            yield pool
        finally:
            await pool._quick.close()
            await pool._slow.close()

    async def read(self, source: Source[T]) -> T:
        """Return what a body is. Raises what its `read` raises, and InputError for one that takes too long to read."""
        return (await self._read(source, [], frozenset()))[1]

    async def begin(self, source: Source[EvaluationRequest], elsewhere: frozenset[str]) -> Reading:
        """As `read`, and run what checks there is time for, but those of the types `elsewhere`."""
        number, request, pickled, results = await self._read(source, None, elsewhere)
        left = places_of(request, lambda check_type: check_type not in elsewhere)
        reading = Reading(
            number, request, pickled, CaseResults(request), [place for place in left if place not in results]
        )
        for place, result in results.items():
            reading.results.put(place, result)
        return reading

    async def _read(
        self, source: Source[T], places: list[Place] | None, elsewhere: frozenset[str]
    ) -> tuple[int, T, bytes, dict[Place, CheckResult]]:
        """Return the number of a body, what it is, also as pickled, and the first results."""
        number = next(self._numbers)
        pickled: bytes | None = None
        results: dict[Place, CheckResult] = {}

        def take(answer: Answer) -> None:
            nonlocal pickled
            if isinstance(answer, FepflowError):
                raise answer
            if isinstance(answer, bytes):
                pickled = answer
            results.update((place, result) for place, result in _results(answer) if result is not None)

        if len(source.data) <= LARGE:
            task = Task(number, source, places, elsewhere, QUICK_SECONDS, QUICK_SECONDS, QUICK_SECONDS, is_last=False)
            await self._quick.run(task, take)
        if pickled is None:
            task = Task(number, source, places, elsewhere, READ_SECONDS, CHECK_SECONDS, SLICE_SECONDS, is_last=True)
            await self._slow.run(task, take)
        if pickled is None:
            why = f"the request takes more than {READ_SECONDS:g} s, or too much memory, to be read"
            raise InputError(Problem(why, advice="send less at a time"))
        if len(pickled) <= LARGE:
            found = pickle.loads(pickled)  # noqa: S301  # our own process wrote it
        else:
            found = await asyncio.to_thread(_unpickled, pickled)
        return number, found, pickled, results

    async def finish(self, reading: Reading) -> None:
        """Run the checks that are left for the pool. What is wrong with a check is in its result."""
        used, singles = 0.0, 0
        checks = RequestChecks(reading.request)
        while reading.todo and used < REQUEST_SECONDS:
            most = 1 if singles else AT_ONCE
            places, later = reading.todo[:most], reading.todo[most:]
            seconds, ended = await self._run_slice(reading, places)
            used += seconds
            reading.todo = [place for place in places if place not in reading.results]
            singles = max(singles - 1, 0)
            if not ended or len(reading.todo) == len(places):  # one of them is the cause, or the request itself
                if len(places) == 1:
                    reading.results.put(places[0], checks.late(places[0], CHECK_SECONDS))
                    reading.todo = []
                else:
                    singles = _AFTER_KILL
            reading.todo += later
        for number, place in enumerate(reading.todo):
            spent = f"the checks before it took {REQUEST_SECONDS:g} s"
            error = CheckTimeoutError(f"{checks.declared(place)[1]} was not run: {spent}")
            reading.results.put(place, checks.failed(place, error))
            if number % 100 == 0:
                await asyncio.sleep(0)
        reading.todo = []

    async def _run_slice(self, reading: Reading, places: list[Place]) -> tuple[float, bool]:
        """Run checks until their slice of time is over; the seconds that it took, and whether its process lives."""
        begun: list[float] = []

        def take(answer: Answer) -> None:
            for place, result in _results(answer):
                if result is not None:
                    reading.results.put(place, result)

        limits = READ_SECONDS, CHECK_SECONDS, SLICE_SECONDS
        task = Task(reading.number, reading.pickled, places, frozenset(), *limits, is_last=True)
        ended = await self._slow.run(task, take, begun.append)
        return monotonic() - begun[0], ended


def _unpickled(data: bytes) -> Any:
    """Return the value of a large pickle. A million lists take 0.1 s, and 2 s with the collections that they cause."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(data)  # noqa: S301  # our own process wrote it
    finally:
        if was_enabled:
            gc.enable()


def _results(answer: Answer) -> list[tuple[Place, CheckResult | None]]:
    return answer if isinstance(answer, list) else []


class _Processes:
    """Up to `most` processes of one kind; tasks have them in turn."""

    def __init__(self, most: int, niceness: int) -> None:
        self._turn = asyncio.Semaphore(most)
        self._niceness = niceness
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._tasks: set[asyncio.Task[bool]] = set()

    async def run(
        self, task: Task, take: Callable[[Answer], None], begin: Callable[[float], None] | None = None
    ) -> bool:
        """Do a task when it is its turn; False if its process has ended before it was done.

        `take` gets each answer, and what it raises is raised when the process is ready for others. A caller who leaves
        does not end the task, which is short: a process that is killed is a new one to be started.
        """
        doing = asyncio.create_task(self._run(task, take, begin))
        self._tasks.add(doing)
        doing.add_done_callback(self._forget)
        return await asyncio.shield(doing)

    def _forget(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is raised where somebody waits

    async def _run(self, task: Task, take: Callable[[Answer], None], begin: Callable[[float], None] | None) -> bool:
        async with self._turn:
            process = self._idle.pop() if self._idle else await self._start()
            if begin is not None:
                begin(monotonic())
            problem: FepflowError | None = None
            try:
                async for answer in process.do(task):
                    try:
                        take(answer)
                    except FepflowError as error:
                        problem = error
            except _EndedError:
                self._remove(process)
                return False
            except BaseException:
                self._remove(process)
                raise
            if process.is_spent:
                self._remove(process)
            else:
                self._idle.append(process)
            if problem is not None:
                raise problem
            return True

    async def _start(self) -> _Process:
        process = await _Process.start(self._niceness)
        self._all.add(process)
        return process

    def _remove(self, process: _Process) -> None:
        self._all.discard(process)
        process.kill()

    async def close(self) -> None:
        """End all, whatever they are at."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._all:
            process.kill()


class _ForkServer:
    """The process that the others are forked from; this process has one, from the first time that it needs it on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def fork(self, niceness: int) -> tuple[int, BinaryIO, BinaryIO]:
        """Start a process: its id, where it reads its tasks, and where it writes its answers. Blocks.

        Raises InfrastructureError where none can be started.
        """
        with self._lock:
            try:
                return self._fork(niceness)
            except OSError:  # the server has been killed
                self._end()
            try:
                return self._fork(niceness)
            except OSError as error:
                raise InfrastructureError(f"no process for checks can be started: {error}") from None

    def _fork(self, niceness: int) -> tuple[int, BinaryIO, BinaryIO]:
        server = self._socket = self._socket or self._start()
        with ExitStack() as theirs:
            task_reader, task_writer = os.pipe()
            theirs.callback(os.close, task_reader)
            answer_reader, answer_writer = os.pipe()
            theirs.callback(os.close, answer_writer)
            ours = os.fdopen(task_writer, "wb", 0), os.fdopen(answer_reader, "rb", 0)
            try:
                socket.send_fds(server, [bytes([niceness])], [task_reader, answer_writer])
                if len(pid := server.recv(PID_BYTES)) < PID_BYTES:
                    raise ConnectionResetError("the server of the processes has ended; the log says more")
            except OSError:
                for file in ours:
                    file.close()
                raise
        return int.from_bytes(pid), *ours

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


class _Process:
    """One process, see `fepflow.api.evaluations.check_process`."""

    def __init__(
        self, pid: int, tasks: asyncio.WriteTransport, answers: asyncio.StreamReader, reading: asyncio.ReadTransport
    ) -> None:
        self._pid = pid
        self._tasks = tasks
        self._answers = answers
        self._reading = reading
        self.is_spent = False

    @classmethod
    async def start(cls, niceness: int) -> _Process:
        """Start one. Raises InfrastructureError where none can be started."""
        pid, tasks, answers = await asyncio.to_thread(_fork_server.fork, niceness)
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), answers)
        writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, tasks)
        return cls(pid, writing, reader, reading)

    async def do(self, task: Task) -> AsyncIterator[Answer]:
        """Yield the answers to a task. Raises _EndedError when the process has ended, or had to be killed."""
        data = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
        self._tasks.write(len(data).to_bytes(LENGTH_BYTES))
        self._tasks.write(data)
        while True:
            answer = await self._answer(task.longest + GRACE_SECONDS)
            if isinstance(answer, Done):
                self.is_spent = answer.is_spent
                return
            yield answer

    async def _answer(self, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                header = await self._answers.readexactly(LENGTH_BYTES)
                data = await self._answers.readexactly(int.from_bytes(header))
        except (TimeoutError, asyncio.IncompleteReadError):
            raise _EndedError from None
        answer: Answer = pickle.loads(data)  # noqa: S301  # our own process wrote it
        return answer

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        if not self._tasks.is_closing():
            self._tasks.abort()
        self._reading.close()
