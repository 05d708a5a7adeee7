import asyncio
import json
import threading

import pytest
from pydantic import BaseModel

from fepflow.checks.engine import evaluate
from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

FORMAT = {
    "type": "object",
    "properties": {"passed": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["passed"],
}


class Verdict(BaseModel):
    passed: bool
    reason: str = "none"


class Judge:
    """A model that says what it was told to say, and remembers what it was asked."""

    def __init__(self, response=None, metadata=None):
        self.answer = ({"passed": True} if response is None else response, metadata)
        self.asked = []

    async def __call__(self, prompt, response_format):
        self.asked.append((prompt, response_format))
        await asyncio.sleep(0)
        return self.answer


def judged(judge, prompt="Good?", response_format=FORMAT, answer="Paris", **more):
    check = LLMJudgeCheck(prompt=prompt, response_format=response_format, llm_function=judge, **more)
    case = TestCase(id="a", input="Capital of France?", expected="Paris", metadata={"tags": ["geo"], "n": 1.5})
    return evaluate([case], [Output(value=answer)], [check]).results[0].check_results[0]


class TestThePrompt:
    def test_its_placeholders_are_filled_texts_as_they_are_and_the_rest_as_json(self):
        judge = Judge()
        prompt = "Q: {{$.test_case.input}} A: {{ $.output.value }} {{$.test_case.metadata}} {{$.output.metadata.x}}"
        case = TestCase(id="a", input="Why?", metadata={"tags": ["é"]})
        check = LLMJudgeCheck(prompt=prompt, response_format=FORMAT, llm_function=judge)
        evaluate([case], [Output(value=None, metadata={"x": True})], [check])
        assert judge.asked[0][0] == 'Q: Why? A: null {"tags": ["é"]} true'

    def test_outputs_are_not_searched_for_placeholders(self):
        judge = Judge()
        judged(judge, "{{$.output.value}} | {{$.test_case.id}}", answer="{{$.test_case.expected}} {{$.test_case.id}}")
        assert judge.asked[0][0] == "{{$.test_case.expected}} {{$.test_case.id}} | a"

    def test_a_prompt_that_comes_from_a_path_is_not_searched_either(self):
        judge = Judge()
        judged(judge, "$.output.value", answer="Is {{$.test_case.expected}} right?")
        assert judge.asked[0][0] == "Is {{$.test_case.expected}} right?"

    def test_other_braces_stay_and_an_escaped_placeholder_is_text(self):
        judge = Judge()
        judged(judge, "{a: {{b}}} {{\\$.output.value}} {{$.output.value}}")
        assert judge.asked[0][0] == "{a: {{b}}} {{$.output.value}} Paris"

    def test_the_filled_prompt_is_shown(self):
        shown = judged(Judge(), "Is {{$.output.value}} right?").resolved_arguments
        assert shown["prompt"] == {"value": "Is Paris right?"}

    @pytest.mark.parametrize("prompt", ["{{$.output.nothing}}", "{{$.output.[}}", "ask {{$.output.value"])
    def test_a_placeholder_without_a_match_is_a_jsonpath_error(self, prompt):
        judge = Judge()
        assert judged(judge, prompt).error.type == "jsonpath_error"
        assert judge.asked == []


class TestTheResponse:
    @pytest.mark.parametrize(
        "response",
        [{"passed": False, "reason": "no"}, '{"passed": false, "reason": "no"}', Verdict(passed=False, reason="no")],
    )
    @pytest.mark.parametrize("response_format", [FORMAT, Verdict, json.dumps(FORMAT)])
    def test_it_is_an_object_json_text_or_a_model_and_is_checked(self, response, response_format):
        result = judged(Judge(response, {"model": "m"}), response_format=response_format)
        assert result.results == {"response": {"passed": False, "reason": "no"}, "metadata": {"model": "m"}}

    def test_a_model_fills_in_its_defaults(self):
        result = judged(Judge({"passed": True}), response_format=Verdict)
        assert result.results == {"response": {"passed": True, "reason": "none"}, "metadata": {}}

    @pytest.mark.parametrize(
        ("response", "why"),
        [
            ("It is good.", "is not valid JSON"),
            ('```json\n{"passed": true}\n```', "is not valid JSON"),
            ('{"passed": true', "is not valid JSON"),
            ("true", "must be an object, not bool"),
            (["passed"], "must be an object, not list"),
            ({"reason": "good"}, "passed"),
            ({"passed": "certainly"}, "passed"),
            (5, "must be an object, not int"),
        ],
    )
    @pytest.mark.parametrize("response_format", [FORMAT, Verdict])
    def test_a_response_that_violates_the_schema_is_an_error(self, response, why, response_format):
        result = judged(Judge(response), response_format=response_format)
        assert (result.status, result.results, result.error.type) == ("error", {}, "validation_error")
        assert why in result.error.message

    @pytest.mark.parametrize("score", [float("inf"), float("nan"), 10**400, True, "1"])
    def test_a_score_that_is_no_finite_number_is_an_error_and_no_pass(self, score):
        result = judged(Judge({"score": score}), response_format={"type": "object"}, pass_at=0.5)
        assert "the judge gave no score, which is a finite number" in result.error.message

    @pytest.mark.parametrize("answer", [None, {"passed": True}, ({"passed": True},), ({"passed": True}, "cheap")])
    def test_a_function_that_does_not_return_a_pair_is_an_error(self, answer):
        async def judge(prompt, response_format):
            return answer

        assert "must return a pair" in judged(judge).error.message

    def test_a_function_that_raises_is_an_unknown_error(self):
        async def judge(prompt, response_format):
            raise ConnectionError("no model")

        assert judged(judge).error.message == "llm_judge failed: ConnectionError: no model"

    def test_an_invalid_response_format_is_refused_before_any_call(self):
        judge = Judge()
        check = Check(
            type="llm_judge", arguments={"prompt": "?", "response_format": {"type": "verdict"}, "llm_function": judge}
        )
        result = evaluate([TestCase(id="a", input="?")], [Output(value="")], [check]).results[0].check_results[0]
        assert result.error.type == "validation_error"
        assert judge.asked == []


class TestTheFunction:
    def test_it_gets_the_format_as_it_was_given_and_its_own_copy(self):
        def spoil(prompt, response_format):
            response_format.clear()
            return {"passed": True}, None

        assert judged(spoil).results["response"] == {"passed": True}
        assert FORMAT["required"] == ["passed"]
        judge = Judge()
        judged(judge, response_format=Verdict)
        assert judge.asked == [("Good?", Verdict)]

    def test_one_that_is_not_async_runs_in_a_thread_beside_others(self):
        together = threading.Barrier(2, timeout=10)

        def slow(prompt, response_format):
            together.wait()
            return {"passed": True}, {"thread": threading.current_thread() is threading.main_thread()}

        checks = [LLMJudgeCheck(prompt=str(n), response_format=FORMAT, llm_function=slow) for n in range(2)]
        result = evaluate([TestCase(id="a", input="?")], [Output(value="")], checks)
        assert [item.results["metadata"] for item in result.results[0].check_results] == [{"thread": False}] * 2

    def test_without_a_model_the_error_says_that_one_is_needed(self, refused):
        message = refused("llm_judge", prompt="Good?", response_format=FORMAT)
        assert "llm_judge needs a model: name one in model_config" in message

    def test_a_text_is_no_function(self, refused):
        assert "llm_function" in refused("llm_judge", prompt="?", response_format=FORMAT, llm_function="print")


def test_a_key_in_the_configuration_is_never_shown():
    config = {"base_url": "https://models", "api_key": "sk-secret", "nested": [{"auth_token": "sk-secret"}]}
    result = judged(Judge(), provider_config=config, model_config={"temperature": 0})
    assert result.resolved_arguments["provider_config"]["value"] == {
        "base_url": "https://models",
        "api_key": "***",
        "nested": [{"auth_token": "***"}],
    }
    assert result.resolved_arguments["model_config"] == {"value": {"temperature": 0}}
    assert "sk-secret" not in result.model_dump_json()


def test_a_key_that_comes_from_a_path_is_not_shown_either():
    result = judged(Judge(), answer={"api_key": "sk-secret"}, provider_config="$.output.value")
    assert "sk-secret" not in result.model_dump_json()
