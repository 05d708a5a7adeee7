"""Checks that ask models: real requests over real sockets, in the shapes of three families, to a stand-in."""

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from pydantic import BaseModel

from checks.core.compiled import compile_checks
from checks.engine import evaluate, evaluate_async
from checks.llm_judge import LLMJudgeCheck
from checks.validation.checks import check_problems
from fepflow.documents.loader import Document
from fepflow.llm.client import ModelClient
from fepflow.llm.model_requests import ModelRequests
from fepflow.llm.request_context import DEFAULT_CONCURRENCY, RequestContext
from fepflow.protocol.check import Check
from fepflow.protocol.context import evaluation_context
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier")

FORMAT = {
    "type": "object",
    "properties": {
        "passed": {"type": "boolean"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "reason": {"type": "string"},
    },
    "required": ["passed", "reason"],
}
STRICT = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "passed": {"type": "boolean"},
        "score": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "passed", "score"],
    "additionalProperties": False,
}
CANARY = "sk-canary-4f1c9a77e0"
PARIS = "The capital of France is Paris."
FAMILIES = ["openai/gpt-4o-mini", "anthropic/claude-3-5-haiku-latest", "ollama_chat/llama3"]


@pytest.fixture(autouse=True)
def _own_key(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", CANARY)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HOSTED_VLLM_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def arguments_of(server, model, faults="", config=None, provider=None):
    base = server.address + ("/v1" if model.startswith(("openai", "hosted_vllm")) else "")
    return {
        "model_config": {"model": model + (f"?{faults}" if faults else ""), **(config or {})},
        "provider_config": {"api_base": base, "api_key": "${JUDGE_KEY}", **(provider or {})},
    }


CASE = TestCase(id="a", input="Capital of France?", expected="Paris")


def one(check, answer=PARIS):
    return evaluate([CASE], [Output(value=answer)], [check]).results[0].check_results[0]


@pytest.fixture
def one_by_one():
    """Runs a check after the other by one client, as the checks of an evaluation."""
    with asyncio.Runner() as runner:

        async def open_client():
            return ModelClient()

        client = runner.run(open_client())

        async def run(check, answer):
            (compiled,) = compile_checks([check])
            context = evaluation_context(CASE, Output(value=answer))
            result = compiled.run(context, ModelRequests(client, RequestContext()))
            return result if isinstance(result, CheckResult) else await result

        yield lambda check, answer=PARIS: runner.run(run(check, answer))
        runner.run(client.aclose())


@pytest.fixture
def judge(model_server, one_by_one):
    """Asks a judge about an answer; what is said about the model comes first, the check's other arguments last."""

    def judge(model="openai/stand-in", faults="", answer=PARIS, config=None, provider=None, **more):
        arguments = {
            "prompt": "Is this right? {{$.output.value}}",
            "response_format": FORMAT,
            **arguments_of(model_server, model, faults, config, provider),
            **more,
        }
        return one_by_one(Check(type="llm_judge", arguments=arguments), answer)

    return judge


@pytest.fixture
def compare(model_server, one_by_one):
    """Compares a text with PARIS."""

    def compare(text, model="openai/stand-in", faults="", config=None, **more):
        config = arguments_of(model_server, model, faults, config)
        arguments = {"text": "$.output.value", "reference": PARIS, **config, **more}
        return one_by_one(Check(type="semantic_similarity", arguments=arguments), text)

    return compare


@pytest.mark.parametrize("asking", ["judge", "compare"])
def test_half_a_character_does_not_look_like_a_provider_that_fails(request, model_server, asking):
    text = "Paris \ud800"
    ask = request.getfixturevalue(asking)
    result = ask(answer=text) if asking == "judge" else ask(text)
    assert (result.status, len(model_server.seen)) == ("completed", 1)


class TestAJudge:
    def test_of_openai_is_called_in_strict_mode(self, judge, model_server):
        result = judge("openai/gpt-4o-mini")
        (body,) = model_server.bodies
        assert body["response_format"]["json_schema"] == {"name": "verdict", "schema": STRICT, "strict": True}
        assert next(iter(body["response_format"]["json_schema"]["schema"]["properties"])) == "reason"
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("gpt-4o-mini", 1024, 0.0)
        assert set(result.results["response"]) == {"reason", "passed", "score"}
        metadata = result.results["metadata"]
        assert (metadata.pop("cost_usd"), metadata.pop("seconds")) > (0, 0)
        assert metadata.pop("prompt_tokens") > 50
        assert metadata == {
            "model": "openai/gpt-4o-mini",
            "model_answered": "gpt-4o-mini (stand-in)",
            "completion_tokens": 10,
            "mode": "json_schema",
            "attempts": 1,
            "cached": False,
            "not_honoured": [],
        }

    def test_of_anthropic_is_called_with_a_tool(self, judge, model_server):
        result = judge("anthropic/claude-3-5-haiku-latest")
        ((path, headers, body),) = model_server.seen
        assert (path, headers["x-api-key"]) == ("/v1/messages", CANARY)
        assert (body["tools"][0]["input_schema"], body["max_tokens"], body["temperature"]) == (STRICT, 1024, 0.0)
        assert result.results["metadata"]["mode"] == "json_schema"

    def test_of_ollama_is_called_with_a_format(self, judge, model_server):
        result = judge("ollama_chat/llama3")
        ((path, _, body),) = model_server.seen
        assert (path, body["format"], body["options"]) == (
            "/api/chat",
            STRICT,
            {"temperature": 0.0, "num_predict": 1024},
        )
        assert result.results["metadata"]["cost_usd"] is None

    def test_may_have_a_format_that_is_a_class(self, model_server):
        class Verdict(BaseModel):
            passed: bool
            reason: str = "none"

        check = LLMJudgeCheck(
            prompt="{{$.output.value}}?", response_format=Verdict, **arguments_of(model_server, "openai/stand-in")
        )
        assert one(check).results["response"]["reason"] == "A stand-in made this up."

    def test_that_answers_null_for_what_may_be_left_out_fits(self, judge):
        said = 'say={"reason":"so","passed":false,"score":null}'
        assert judge(faults=said).results["response"] == {"reason": "so", "passed": False}

    def test_is_validated_against_the_schema_as_it_was_given(self, judge, model_server):
        result = judge(faults='say={"reason":"so","passed":false,"score":9}')
        assert (result.status, result.results) == ("error", {})
        assert "asked 3 times" in result.error.message
        assert "score: 9 is greater than the maximum of 5" in result.error.message
        assert [turn["role"] for turn in model_server.bodies[-1]["messages"]] == [
            *["system", "user", "assistant", "user", "assistant", "user"]
        ]
        assert "9 is greater than" in model_server.bodies[1]["messages"][-1]["content"]

    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("fault", ["prose", "misfit"])
    def test_without_a_verdict_in_its_response_never_passes(self, judge, model_server, family, fault):
        result = judge(family, f"fault={fault}")
        assert (result.status, result.results) == ("error", {})
        assert len(model_server.bodies) == 3

    @pytest.mark.parametrize("family", FAMILIES)
    def test_that_puts_its_answer_into_a_code_fence_is_understood(self, judge, family):
        assert judge(family, "fault=fenced").status == "completed"

    @pytest.mark.parametrize("family", FAMILIES[:2])
    @pytest.mark.parametrize(
        ("fault", "why"),
        [("refusal", "refused"), ("filtered", "refused"), ("cut_off", "cut off (raise max_tokens"), ("empty", "empty")],
    )
    def test_without_a_response_gives_the_kind_of_error(self, judge, model_server, family, fault, why):
        result = judge(family, f"fault={fault}")
        assert result.status == "error"
        assert why in result.error.message
        assert len(model_server.bodies) == 1

    def test_without_reported_tokens_has_no_known_cost(self, judge):
        metadata = judge("openai/gpt-4o-mini", "fault=no_usage").results["metadata"]
        assert [metadata[name] for name in ("prompt_tokens", "completion_tokens", "cost_usd")] == [None] * 3

    @pytest.mark.parametrize("answer", ["", "  \n", ".", ":", None, [], {}])
    def test_is_not_called_for_an_empty_output(self, judge, model_server, answer):
        assert "nothing to judge at $.output.value" in judge(answer=answer).error.message
        assert model_server.seen == []


class TestTheLadder:
    @pytest.mark.parametrize(
        ("family", "refused", "mode"),
        [
            ("openai/stand-in", "json_schema", "json_object"),
            ("openai/stand-in", "json_schema,json_object", "prompt"),
            ("anthropic/claude-3-5-haiku-latest", "json_schema", "prompt"),
        ],
    )
    def test_falls_back_when_the_provider_refuses_and_stays_there(self, judge, model_server, family, refused, mode):
        first, second = judge(family, f"refuse={refused}"), judge(family, f"refuse={refused}")
        assert (first.status, first.results["metadata"]["mode"]) == ("completed", mode), first.error
        assert second.results["metadata"]["mode"] == mode
        assert (first.results["metadata"]["attempts"], second.results["metadata"]["attempts"]) == (
            2 + ("json_object" in refused),
            1,
        )
        assert '"maximum": 5' in json.dumps(
            model_server.bodies[-1]["messages"] + [model_server.bodies[-1].get("system")]
        ).replace('\\"', '"')

    def test_is_the_models_at_its_address_and_no_others(self, judge):
        judge(faults="refuse=json_schema")
        assert judge().results["metadata"]["mode"] == "json_schema"


class TestWhatIsNotHonoured:
    def test_rejected_by_the_provider_is_dropped_and_reported(self, judge, model_server):
        result = judge(faults="reject=temperature")
        assert result.results["metadata"]["not_honoured"] == ["temperature"]
        assert ["temperature" in body for body in model_server.bodies] == [True, False]
        assert judge(faults="reject=temperature").results["metadata"]["attempts"] == 1

    def test_rejected_by_litellm_is_reported_too(self, judge):
        assert judge("openai/o3-mini").results["metadata"]["not_honoured"] == ["temperature"]


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
            first = asyncio.create_task(run(check("fault=rate_limited&times=1&retry_after=2")))
            await model_server.until(2)
            await asyncio.sleep(0.2)
            other = await run(check("say={}&times=1"))
            assert other - started >= 2
            assert await first - started >= 2

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
        arguments = arguments_of(model_server, "openai/stand-in", "latency=0.5")
        check = LLMJudgeCheck(prompt="{{$.output.value}}?", response_format=FORMAT, **arguments)
        cases = [TestCase(id=str(index), input="?") for index in range(DEFAULT_CONCURRENCY + 1)]
        running = asyncio.create_task(evaluate_async(cases, [Output(value=PARIS)] * len(cases), [check]))
        await model_server.until(DEFAULT_CONCURRENCY)
        assert (await running).status == "completed"
        assert len(model_server.bodies) == DEFAULT_CONCURRENCY + 1


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


class TestBeforeTheRun:
    @pytest.mark.parametrize(
        ("check_type", "model", "why"),
        [
            ("llm_judge", "openai/gpt-4o-mini", "needs OPENAI_API_KEY, not set in the environment"),
            ("llm_judge", "claude-sonnet-4-5", "needs ANTHROPIC_API_KEY"),
            ("semantic_similarity", "openai/text-embedding-3-small", "needs OPENAI_API_KEY"),
            ("llm_judge", "gpt-nobody-knows", "no provider is known for the model gpt-nobody-knows"),
            ("llm_judge", "hosted_vllm/qwen", "a server of your own: say where, with api_base"),
        ],
    )
    def test_missing_configuration_is_found_at_the_latest_at_the_call(self, check_type, model, why):
        arguments: dict[str, dict[str, Any]] = {
            "llm_judge": {"prompt": "{{$.output.value}}?", "response_format": FORMAT},
            "semantic_similarity": {"text": "$.output.value", "reference": "b"},
        }
        check = Check(type=check_type, arguments={**arguments[check_type], "model_config": {"model": model}})
        (problem,) = check_problems(Document({"checks": [check.model_dump()]}, "suite.yaml", ""), [check])
        assert why in problem.message
        assert problem.path == "checks[0].arguments"
        result = one(check)
        assert (result.error.type, result.error.message) == ("validation_error", problem.message)

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            ({"prompt": "$.output.value"}, "a text from a path is data, and never instructions"),
            ({"response_format": "$.output.value"}, "response_format: must stand in the check"),
            ({"response_format": {"type": "array"}}, "must be the schema of an object"),
            ({"model_config": "$.output.value"}, "model_config must stand in the check"),
            ({"model_config": {"model": "$.output.value"}}, "model_config must stand in the check"),
            ({"provider_config": {"api_base": "$.output.value"}}, "provider_config must stand in the check"),
            ({"model_config": {"model": "a/b", "temprature": 1}}, "did you mean temperature?"),
            ({"model_config": {"model": "a/b", "api_key": "x"}}, "api_key belongs into provider_config"),
            ({"model_config": {"temperature": 1}}, "must name a model"),
            ({"provider_config": {"api_base": "https://me:pw@host"}}, "a secret must not stand in the address"),
            ({"provider_config": {"api_base": "https://host/${SOME_TOKEN}"}}, "named like a secret, and is not sent"),
            ({"provider_config": {"timeout": "long"}}, "timeout must be a number"),
        ],
    )
    def test_unusable_arguments_are_reported(self, refused, arguments, why):
        usual = {"prompt": "?", "response_format": FORMAT, "model_config": {"model": "a/b"}}
        assert why in refused("llm_judge", **{**usual, **arguments})


class TestSimilarity:
    @pytest.mark.parametrize("model", ["openai/text-embedding-3-small", "ollama/nomic-embed-text"])
    def test_both_texts_go_in_one_request(self, compare, model_server, model):
        result = compare("Paris is the capital of France.", model, threshold={"min_value": 0.8})
        assert result.status == "completed", result.error
        assert [body["input"] for body in model_server.bodies] == [["Paris is the capital of France.", PARIS]]
        assert result.results["response"] == {"score": pytest.approx(1), "passed": True}
        metadata = result.results["metadata"]
        assert (metadata["model"], metadata["dimensions"], metadata["prompt_tokens"], metadata["cached"]) == (
            *(model, 64, 12),
            False,
        )

    def test_vectors_are_sorted_by_their_index(self, compare):
        usual, shuffled = compare("Lyon", similarity_metric="dot"), compare("Lyon", faults="fault=shuffled")
        assert shuffled.results["response"]["score"] == pytest.approx(usual.results["response"]["score"])

    def test_one_that_is_missing_is_an_error(self, compare, model_server):
        result = compare("Lyon", faults="fault=no_index")
        assert "a vector for each text" in result.error.message

    def test_the_example_of_the_specification_works(self, compare, model_server):
        base = f"{model_server.address}/v1"
        provider = {
            "provider_name": "openai",
            "base_url": base,
            "timeout": 30,
            "max_retries": 3,
            "api_key": "${JUDGE_KEY}",
        }
        result = compare(
            "Lyon",
            provider_config=provider,
            model_config={"model": "text-embedding-3-small", "dimensions": 32},
        )
        assert result.status == "completed", result.error
        assert result.results["metadata"]["dimensions"] == 32
        assert result.resolved_arguments["provider_config"]["value"]["api_key"] == "***"

    def test_empty_texts_are_not_sent(self, compare, model_server):
        assert "text is empty" in compare(" ").error.message
        assert model_server.seen == []
