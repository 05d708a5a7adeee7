import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from fepflow.calls.thread_pool import ThreadPool
from fepflow.errors import CheckTimeoutError


async def test_work_runs_in_a_thread_and_its_value_or_error_is_returned():
    workers = ThreadPool("test", 2)
    assert await workers.run(threading.current_thread) is not threading.main_thread()
    with pytest.raises(KeyError):
        await workers.run(lambda: dict[str, int]()["a"])


async def test_what_leaves_a_program_or_a_loop_is_an_error_like_any_other():
    def leave():
        raise SystemExit(3)

    def stop():
        raise StopIteration

    workers = ThreadPool("test", 1)
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await workers.run(leave)
    with pytest.raises(RuntimeError):
        await workers.run(stop)
    assert await workers.run(lambda: 5) == 5


async def test_jobs_are_done_one_after_the_other_by_one_worker_and_side_by_side_by_many():
    order: list[int] = []
    one = ThreadPool("test", 1)
    await asyncio.gather(*[one.run(partial(order.append, n)) for n in range(20)])
    assert order == list(range(20))

    barrier = threading.Barrier(5, timeout=10)
    many = ThreadPool("test", 5)
    assert sorted(await asyncio.gather(*[many.run(barrier.wait) for _ in range(5)])) == [0, 1, 2, 3, 4]


async def test_the_limit_counts_from_the_beginning_and_not_while_waiting_for_a_thread():
    worker = ThreadPool("test", 1)
    pause = threading.Event()
    jobs = [worker.run(lambda: pause.wait(0.1), 0.7) for _ in range(10)]
    assert await asyncio.gather(*jobs) == [False] * 10


async def test_a_job_that_overruns_is_given_up_and_another_thread_takes_over():
    worker = ThreadPool("test", 1)
    released = threading.Event()
    stuck = asyncio.create_task(worker.run(lambda: released.wait(10), 0.05, "my check"))
    behind = asyncio.create_task(worker.run(lambda: "done", 5))
    with pytest.raises(CheckTimeoutError, match=r"my check did not answer within 0\.05 s"):
        await stuck
    assert await behind == "done"
    released.set()
    assert await worker.run(lambda: "still there") == "still there"


async def test_a_job_whose_caller_was_cancelled_does_not_start():
    worker = ThreadPool("test", 1)
    released, begun = threading.Event(), []
    first = asyncio.create_task(worker.run(lambda: released.wait(10)))
    for limit in (None, 5):
        second = asyncio.create_task(worker.run(lambda: begun.append(1), limit))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    released.set()
    await first
    await worker.run(lambda: None)
    assert begun == []


async def test_the_callers_context_is_there():
    number: ContextVar[int] = ContextVar("number")
    number.set(5)
    assert await ThreadPool("test", 1).run(number.get) == 5


async def test_threads_are_started_as_they_are_needed_and_no_more():
    before = set(threading.enumerate())
    workers = ThreadPool("test", 8)
    for _ in range(50):
        await workers.run(lambda: None)
    assert len(set(threading.enumerate()) - before) == 1


async def test_a_host_process_keeps_its_switch_interval():
    usual = sys.getswitchinterval()
    assert await ThreadPool("test", 1).run(sys.getswitchinterval) == usual


def test_a_process_ends_although_a_job_never_does():
    code = (
        "import asyncio\n"
        "from fepflow.calls.thread_pool import ThreadPool\n"
        "def forever():\n    while True: pass\n"
        "try:\n    asyncio.run(ThreadPool('test', 1).run(forever, 0.1))\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "CheckTimeoutError\n", "")
