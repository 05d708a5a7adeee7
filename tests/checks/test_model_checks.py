"""Checks that ask a model: judges by the interfaces of three providers, and similarity."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.diagnose.checks import check_problems
from fepflow.documents.loader import Document
from fepflow.protocol.check import Check

from .judged import CANARY, FAMILIES, FORMAT, PARIS, STRICT, arguments_of, one

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier"),
    pytest.mark.usefixtures("judge_key"),
]


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

    @pytest.mark.parametrize("answer", ["", "  \n", ".", ":", "\u3164 \u2800", None, [], {}])
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
            ({"prompt": "$.output.value"}, "a text from a path is data, which must not instruct"),
            ({"response_format": "$.output.value"}, "response_format: must be in the check"),
            ({"response_format": {"type": "array"}}, "must be the schema of an object"),
            ({"model_config": "$.output.value"}, "model_config must be in the check"),
            ({"model_config": {"model": "$.output.value"}}, "model_config must be in the check"),
            ({"provider_config": {"api_base": "$.output.value"}}, "provider_config must be in the check"),
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
