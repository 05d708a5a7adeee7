"""EVALUATE: checks that users write, and when, where and for how long they are called."""

import asyncio
import threading
import time
from typing import Any

import pytest

from fepflow.checks.base import BaseAsyncCheck, BaseCheck, JSONPath
from fepflow.checks.core import compiled
from fepflow.checks.core.checked_output import MAX_WAITING
from fepflow.checks.engine import evaluate, evaluate_async
from fepflow.checks.registry import register
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

from .engine_cases import SAME, capital, results_of


class TestCustomChecks:
    def test_an_async_check_is_awaited_and_results_stay_in_order(self):
        @register("slow_check")
        class SlowCheck(BaseAsyncCheck):
            text: str | JSONPath

            async def __call__(self):
                await asyncio.sleep(0.001)
                return {"passed": self.text == "Paris"}

        checks = [SlowCheck(text="$.output.value"), SAME, Check(type="slow_check", arguments={"text": "Rome"})]
        result = evaluate([capital()], [Output(value="Paris")], checks)
        assert results_of(result) == [
            ("slow_check", "completed", True),
            ("exact_match", "completed", True),
            ("slow_check-2", "completed", False),
        ]

    def test_the_checks_of_a_case_wait_at_the_same_time(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 5)
        here: set[str] = set()
        all_here = asyncio.Event()

        class Meeting(BaseAsyncCheck):
            check_type = "meeting"
            name: str

            async def __call__(self):
                here.add(self.name)
                if len(here) == 3:
                    all_here.set()
                await all_here.wait()  # each waits for the others: one after the other, none would end
                return {"passed": True}

        checks = [Meeting(name=name, id=name) for name in ("a", "b", "c")]
        assert evaluate([capital()], [Output(value="")], checks).pass_rate == 1

    def test_the_number_of_waiting_cases_is_bounded(self):
        under_way: list[Any] = []
        most = 0

        class Counting(BaseAsyncCheck):
            check_type = "counting"

            async def __call__(self):
                nonlocal most
                under_way.append(self)
                most = max(most, len(under_way))
                await asyncio.sleep(0.001)
                under_way.pop()
                return {"passed": True}

        count = MAX_WAITING * 3
        cases = [TestCase(id=str(index), input="") for index in range(count)]
        result = evaluate(cases, [Output(value="")] * count, [Counting()])
        assert [item.execution_context.test_case.id for item in result.results] == [case.id for case in cases]
        assert 1 < most <= MAX_WAITING

    def test_a_check_that_never_returns_times_out(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 0.05)

        class Silent(BaseAsyncCheck):
            check_type = "silent"

            async def __call__(self):
                await asyncio.Event().wait()

        result = evaluate([capital()], [Output(value="Paris")], [Silent(), SAME])
        assert result.results[0].check_results[0].error.type == "timeout_error"
        assert results_of(result)[1] == ("exact_match", "completed", True)

    def test_a_time_out_of_its_own_is_its_own(self):
        class Impatient(BaseAsyncCheck):
            check_type = "impatient"

            async def __call__(self):
                raise TimeoutError("the model is busy")

        error = evaluate([capital()], [Output(value="")], [Impatient()]).results[0].check_results[0].error
        assert error.type == "timeout_error"
        assert "60 s" not in error.message

    @pytest.mark.parametrize("seconds", [0, 0.03])
    def test_one_that_is_not_async_runs_in_a_thread_and_one_at_a_time(self, seconds):
        under_way: list[Any] = []

        class Blocking(BaseCheck):
            check_type = "blocking"
            text: str | JSONPath

            def __call__(self):
                assert not under_way
                under_way.append(self.text)
                time.sleep(seconds)
                under_way.clear()
                return {"passed": True, "thread": threading.current_thread().name}

        cases = [capital(str(index)) for index in range(4)]
        result = evaluate(cases, [Output(value="Paris")] * 4, [Blocking(text="$.output.value"), SAME])
        assert {case.check_results[0].results["thread"] for case in result.results} == {"fepflow-checks"}
        assert [case.check_results[1].results["passed"] for case in result.results] == [True] * 4

    async def test_a_blocking_check_does_not_block_the_loop(self):
        loop_is_alive = threading.Event()

        class Waiting(BaseCheck):
            check_type = "waiting"

            def __call__(self):
                return {"passed": loop_is_alive.wait(10)}

        asyncio.get_running_loop().call_later(0.1, loop_is_alive.set)
        result = await evaluate_async([capital()], [Output(value="Paris")], [Waiting()])
        assert results_of(result) == [("waiting", "completed", True)]

    def test_a_check_that_blocks_times_out_and_the_next_one_runs(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 0.4)
        released = threading.Event()

        class Stuck(BaseCheck):
            check_type = "stuck"
            text: str | JSONPath

            def __call__(self):
                return {"passed": self.text != "stuck" or released.wait(20)}

        cases = [capital("a"), capital("b")]
        result = evaluate(cases, [Output(value="stuck"), Output(value="Paris")], [Stuck(text="$.output.value"), SAME])
        released.set()
        error = result.results[0].check_results[0].error
        assert (error.type, error.message) == ("timeout_error", "stuck did not answer within 0.4 s")
        assert results_of(result, 1) == [("stuck", "completed", True), ("exact_match", "completed", True)]
