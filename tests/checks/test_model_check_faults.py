"""Checks that ask a model: trouble on the way to it, and the key that it is asked with."""

import asyncio
import json
import logging
import time

import pytest

from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import DEFAULT_CONCURRENCY, RequestContext
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.engine import evaluate_async
from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

from .judged import CANARY, CASE, FAMILIES, FORMAT, PARIS, arguments_of

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier"),
    pytest.mark.usefixtures("judge_key"),
]


class TestTroubleOnTheWay:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("fault", ["error", "overloaded", "dropped", "truncated", "garbled"])
    def test_is_tried_again(self, judge, model_server, family, fault):
        result = judge(family, f"fault={fault}&times=1")
        assert result.status == "completed", result.error
        assert (len(model_server.bodies), result.results["metadata"]["attempts"]) == (2, 2)

    @pytest.mark.parametrize("fault", ["error", "rate_limited&retry_after=0"])
    def test_that_does_not_end_is_a_recoverable_error_after_as_many_requests_as_allowed(
        self, judge, model_server, fault
    ):
        result = judge(faults=f"fault={fault}", provider={"max_retries": 1})
        assert (result.status, result.error.recoverable) == ("error", True)
        assert len(model_server.bodies) == 2

    @pytest.mark.parametrize("fault", ["quota", "unauthorized"])
    def test_that_is_permanent_is_not_retried(self, judge, model_server, fault):
        assert judge(faults=f"fault={fault}").error.recoverable is False
        assert len(model_server.bodies) == 1

    def test_a_model_that_hangs_is_a_timeout(self, judge):
        result = judge(faults="fault=hang", provider={"timeout": 0.2, "max_retries": 0})
        assert result.error.type == "timeout_error"
        assert "within 0.2 s" in result.error.message

    @pytest.mark.parametrize("ask", ["judge", "compare"])
    @pytest.mark.parametrize("fault", ["error", "dropped"])
    def test_neither_litellm_nor_an_sdk_retries_by_itself(self, judge, compare, model_server, ask, fault):
        faults = f"fault={fault}"
        if ask == "judge":
            judge(faults=faults, provider={"max_retries": 0})
        else:
            base = arguments_of(model_server, "openai/stand-in")["provider_config"]
            compare("Paris", faults=faults, provider_config={**base, "max_retries": 0})
        assert len(model_server.bodies) == 1

    async def test_retry_after_holds_for_all_requests_of_the_key(self, model_server):
        def check(faults):
            arguments = arguments_of(model_server, "openai/stand-in", faults)
            return LLMJudgeCheck(prompt="? {{$.output.value}}", response_format=FORMAT, **arguments)

        async def run(check):
            (compiled,) = compile_checks([check])
            answer = compiled.run(evaluation_context(CASE, Output(value=PARIS)), requests)
            assert not isinstance(answer, CheckResult)
            await answer
            return time.monotonic()

        async with ModelClient() as client:
            requests = ModelRequests(client, RequestContext())
            await run(check(""))
            started = time.monotonic()
            first = asyncio.create_task(run(check("fault=rate_limited&times=1&retry_after=1")))
            await model_server.until(2)
            await asyncio.sleep(0.5)
            other = await run(check("say={}&times=1"))
            assert other - started >= 1
            assert await first - started >= 1

    async def test_a_hung_model_stalls_no_other_check(self, model_server):
        hung = Check(
            type="llm_judge",
            arguments={
                "prompt": "{{$.output.value}}?",
                "response_format": FORMAT,
                **arguments_of(model_server, "openai/hung", "fault=hang", provider={"timeout": 30}),
            },
        )
        other = arguments_of(model_server, "ollama_chat/llama3")
        well = Check(type="llm_judge", arguments={**hung.arguments, **other})

        async def run(check, requests):
            (compiled,) = compile_checks([check])
            answer = compiled.run(evaluation_context(CASE, Output(value=PARIS)), requests)
            assert not isinstance(answer, CheckResult)
            return await answer

        async with ModelClient() as client:
            requests = ModelRequests(client, RequestContext())
            stalled = [asyncio.create_task(run(hung, requests)) for _ in range(20)]
            await model_server.until(DEFAULT_CONCURRENCY)
            results = await asyncio.gather(*(run(well, requests) for _ in range(20)))
            assert {result.status for result in results} == {"completed"}
            assert not any(task.done() for task in stalled)
            hung_requests = [body for body in model_server.bodies if body["model"].startswith("hung")]
            assert len(hung_requests) == DEFAULT_CONCURRENCY
            for task in stalled:
                task.cancel()
            ended = await asyncio.gather(*stalled, return_exceptions=True)
            assert {type(end) for end in ended} == {asyncio.CancelledError}

    async def test_requests_are_concurrent_up_to_the_limit(self, model_server):
        arguments = arguments_of(model_server, "openai/stand-in", "latency=0.2")
        check = LLMJudgeCheck(prompt="{{$.output.value}}?", response_format=FORMAT, **arguments)
        cases = [TestCase(id=str(index), input="?") for index in range(DEFAULT_CONCURRENCY + 1)]
        running = asyncio.create_task(evaluate_async(cases, [Output(value=PARIS)] * len(cases), [check]))
        await model_server.until(DEFAULT_CONCURRENCY)
        assert (await running).status == "completed"
        assert len(model_server.bodies) == DEFAULT_CONCURRENCY + 1

    async def test_requests_of_many_cases_are_under_way_at_once(self, model_server):
        arguments = arguments_of(model_server, "openai/hung", "fault=hang", provider={"timeout": 30})
        check = LLMJudgeCheck(prompt="{{$.output.value}}?", response_format=FORMAT, **arguments)
        cases = [TestCase(id=str(index), input="?") for index in range(DEFAULT_CONCURRENCY + 1)]
        running = asyncio.create_task(evaluate_async(cases, [Output(value=PARIS)] * len(cases), [check]))
        await model_server.until(DEFAULT_CONCURRENCY)  # none is answered, so none waits for another
        assert len(model_server.bodies) == DEFAULT_CONCURRENCY
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


class TestTheKey:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("fault", ["", "unauthorized", "error&times=1", "garbled", "dropped"])
    def test_is_sent_and_seen_nowhere(self, judge, model_server, family, fault, caplog, capfd):
        caplog.set_level(logging.DEBUG)
        result = judge(family, f"fault={fault}", provider={"max_retries": 1})
        assert CANARY in json.dumps([headers for _, headers, _ in model_server.seen])
        assert CANARY not in result.model_dump_json()
        assert CANARY not in caplog.text
        assert all(CANARY not in text for text in capfd.readouterr())

    def test_in_the_check_is_refused_and_not_shown(self, refused):
        for config in ({"api_key": CANARY}, {"api_key": "${JUDGE_KEY:-" + CANARY + "}"}):
            message = refused(
                "llm_judge", prompt="?", response_format=FORMAT, model_config={"model": "a/b"}, provider_config=config
            )
            assert "write it as ${NAME}" in message
            assert CANARY not in message

    def test_that_is_not_set_is_named(self, refused):
        config = {"api_key": "${NOT_SET}"}
        message = refused(
            "llm_judge", prompt="?", response_format=FORMAT, model_config={"model": "a/b"}, provider_config=config
        )
        assert "${NOT_SET} is not set" in message
