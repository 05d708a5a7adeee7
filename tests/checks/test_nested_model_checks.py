"""Users' checks that call a judge or an evaluation themselves do so by the client of the run that they are part of."""

import asyncio
from collections.abc import Awaitable

import pytest

from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.checks.base import BaseAsyncCheck, BaseCheck
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.custom_function import CustomFunctionCheck
from fepflow.checks.engine import evaluate, evaluate_async
from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier")

FORMAT = {"type": "object", "properties": {"passed": {"type": "boolean"}}, "required": ["passed"]}
CASE, OUTPUT = TestCase(id="a", input="?"), Output(value="Paris")


class InMemory:
    """A ResponseCache."""

    def __init__(self):
        self.kept: dict[str, CachedResponse] = {}

    async def get(self, keys):
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def put(self, key, response):
        self.kept[key] = response


@pytest.fixture
def judge(model_server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-any")
    return LLMJudgeCheck(
        prompt="Is this right? Paris",
        response_format=FORMAT,
        model_config={"model": "openai/stand-in"},
        provider_config={"api_base": f"{model_server.address}/v1", "api_key": "${JUDGE_KEY}"},
    )


@pytest.fixture(params=["await judge()", "await evaluate_async", "evaluate", "a function's evaluate"])
def outer(request, judge):
    """A user's check around the judge."""

    def passed(run):
        return {"passed": run.results[0].check_results[0].results["response"]["passed"]}

    class Calls(BaseAsyncCheck):
        async def __call__(self):
            return {"passed": (await judge())["response"]["passed"]}

    class EvaluatesAsync(BaseAsyncCheck):
        async def __call__(self):
            return passed(await evaluate_async([CASE], [OUTPUT], [judge]))

    class Evaluates(BaseCheck):
        def __call__(self):
            return passed(evaluate([CASE], [OUTPUT], [judge]))

    function = CustomFunctionCheck(validation_function=lambda: passed(evaluate([CASE], [OUTPUT], [judge])))
    return dict(
        zip(
            ("await judge()", "await evaluate_async", "evaluate", "a function's evaluate"),
            (Calls(), EvaluatesAsync(), Evaluates(), function),
            strict=True,
        )
    )[request.param]


async def result_of(answer: CheckResult | Awaitable[CheckResult]) -> CheckResult:
    return answer if isinstance(answer, CheckResult) else await answer


async def run(check, client, repeat=0):
    (compiled,) = compile_checks([check])
    context = RequestContext(repeat=repeat)
    result = await result_of(compiled.run(evaluation_context(CASE, OUTPUT), ModelRequests(client, context)))
    assert result.status == "completed", result.error
    return context.requests


async def test_the_cache_is_the_runs_and_repeats_have_responses_of_their_own(outer, model_server):
    memory = InMemory()
    async with ModelClient(memory) as client:
        assert await run(outer, client) == 1
        assert await run(outer, client) == 0
        assert await run(outer, client, repeat=1) == 1
    assert (len(model_server.seen), len(memory.kept)) == (2, 2)


async def test_nested_requests_keep_to_the_limits_around_them(judge, model_server):
    slow = judge.model_copy(update={"llm_config": {"model": "openai/stand-in?latency=0.1"}})

    class Calls(BaseAsyncCheck):
        async def __call__(self):
            return {"passed": (await slow())["response"]["passed"]}

    (compiled,) = compile_checks([Calls()])
    async with ModelClient() as client:
        requests = ModelRequests(client, RequestContext(concurrency=1))
        started = asyncio.get_running_loop().time()
        calls = [result_of(compiled.run(evaluation_context(CASE, OUTPUT), requests)) for _ in range(3)]
        results = await asyncio.gather(*calls)
        assert asyncio.get_running_loop().time() - started > 0.27
    assert {result.status for result in results} == {"completed"}
    assert requests.context.requests == len(model_server.seen) == 3


async def test_called_directly_a_judge_has_a_client_of_its_own(judge, model_server):
    assert set((await judge())["response"]) == {"passed"}
    assert len(model_server.seen) == 1
