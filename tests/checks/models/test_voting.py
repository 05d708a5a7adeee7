"""Several answers of a judge made into one: pure here, over real sockets below."""

import asyncio
import json
from collections import Counter
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fepflow.checks.engine import evaluate
from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.checks.models.voting import Sample, combine
from fepflow.checks.schema_validation import schema_errors
from fepflow.diagnose.checks import check_problems
from fepflow.documents.loader import Document
from fepflow.errors import ModelError, ModelTimeoutError, RunLimitExceededError
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier")

TONES = ["rude", "plain", "kind"]
SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "passed": {"type": "boolean"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "tone": {"anyOf": [{"$ref": "#/$defs/tone"}, {"type": "null"}]},
        "detail": {"type": "object", "properties": {"safe": {"type": "boolean"}}},
        "tags": {"type": "array"},
    },
    "required": ["passed"],
    "$defs": {"tone": {"enum": TONES}},
}
DOWN = ModelError("the model is down", kind="http_status", retryable=True)
REFUSED = ModelError("the model refuses", kind="refused")

answers = st.fixed_dictionaries(
    {"passed": st.booleans()},
    optional={
        "reason": st.text(max_size=5),
        "score": st.integers(1, 5),
        "tone": st.sampled_from([*TONES, None]),
        "detail": st.fixed_dictionaries({}, optional={"safe": st.booleans()}),
        "tags": st.lists(st.integers(0, 3), max_size=2),
    },
)


def samples(*responses, **metadata):
    return [one if isinstance(one, Exception) else Sample(one, dict(metadata)) for one in responses]


def said(*responses, **metadata):
    return combine(samples(*responses, **metadata), SCHEMA)


class TestCombining:
    def test_booleans_and_enumerations_go_by_majority_numbers_by_the_median(self):
        one = said(
            {"passed": True, "score": 5, "tone": "kind"},
            {"passed": False, "score": 1, "tone": "kind"},
            {"passed": True, "score": 4, "tone": None},
        )
        assert one.response == {"passed": True, "score": 4, "tone": "kind"}
        told = one.metadata["samples"]
        assert told["agreement"] == {"passed": 0.6667, "tone": 0.6667}
        assert told["spread"] == {"score": [1, 5]}
        assert told["said"][1] == {"passed": False, "score": 1, "tone": "kind"}
        assert (told["asked"], told["failed"]) == (3, 0)

    def test_reasons_come_from_the_sample_that_agrees_best(self):
        one = said(
            {"passed": False, "score": 4, "reason": "no"},
            {"passed": True, "score": 1, "reason": "far off"},
            {"passed": True, "score": 4, "reason": "yes", "tags": ["a"]},
        )
        assert one.response == {"passed": True, "score": 4, "reason": "yes", "tags": ["a"]}

    def test_nested_fields_are_counted_too(self):
        one = said(*({"passed": True, "detail": {"safe": safe}} for safe in (True, False, False)))
        assert one.response["detail"] == {"safe": False}
        assert one.metadata["samples"]["agreement"] == {"passed": 1.0, "detail.safe": 0.6667}

    def test_what_most_leave_out_is_left_out(self):
        one = said({"passed": True, "score": 5, "tone": None}, {"passed": True, "tone": "kind"}, {"passed": True})
        assert "score" not in one.response
        assert one.response.get("tone") is None

    @pytest.mark.parametrize("tones", [TONES, ["rude", "rude", "plain", "plain", "kind"]])
    def test_a_tie_is_an_error_and_never_a_pass(self, tones):
        with pytest.raises(ModelError, match=r"samples give no majority for tone: . x .rude.") as raised:
            said(*({"passed": True, "tone": tone} for tone in tones))
        assert (raised.value.kind, raised.value.retryable) == ("undecided", False)

    def test_a_failed_sample_counts_against_agreement(self):
        one = said({"passed": True}, {"passed": True}, DOWN)
        assert one.response == {"passed": True}
        told = one.metadata["samples"]
        assert (told["failed"], told["agreement"]) == (1, {"passed": 0.6667})
        assert told["said"][2] == {"error": "the model is down"}

    def test_a_majority_is_of_all_samples(self):
        with pytest.raises(ModelError, match=r"passed: 1 x true, 1 x false, and 1 failed \(.* is down\)") as raised:
            said({"passed": True}, {"passed": False}, DOWN)
        assert raised.value.retryable
        with pytest.raises(ModelError, match=r"2 of 3 samples failed, and the others are no majority: .* is down"):
            said({"passed": True}, REFUSED, DOWN)

    def test_a_retryable_failure_stands_for_all_failures(self):
        timeout, spent = ModelTimeoutError("too slow"), RunLimitExceededError("the budget is spent")
        with pytest.raises(ModelTimeoutError, match="3 of 3") as raised:
            said(REFUSED, timeout, REFUSED)
        assert raised.value.recoverable
        assert str(timeout) == "too slow"
        with pytest.raises(RunLimitExceededError, match="the budget is spent"):
            said(timeout, spent, {"passed": True})

    def test_sums_are_unknown_where_a_part_is(self):
        known = samples({"passed": True}, {"passed": True}, cost_usd=0.1, attempts=1, seconds=0.5, cached=True)
        unknown = Sample({"passed": True}, {"cost_usd": None, "attempts": 2, "seconds": 0.25, "cached": False})
        metadata = combine([*known, unknown], SCHEMA).metadata
        del metadata["samples"]
        assert metadata == {"cost_usd": None, "attempts": 4, "seconds": 1.25, "cached": False}
        assert combine([*known, DOWN], SCHEMA).metadata["cost_usd"] is None

    @given(st.integers(0, 3).flatmap(lambda half: st.lists(answers, min_size=2 * half + 1, max_size=2 * half + 1)))
    def test_a_verdict_is_that_of_more_than_half_and_fits_the_schema(self, responses):
        passes = Counter(response["passed"] for response in responses)
        one: Sample | ModelError
        try:
            one = combine(samples(*responses), SCHEMA)
        except ModelError as undecided:
            one = undecided
        if isinstance(one, ModelError):
            assert one.kind == "undecided"
            assert "no majority for" in str(one)
            assert "for passed" not in str(one)
            return
        assert one.response["passed"] == max(passes, key=passes.__getitem__)
        assert schema_errors(SCHEMA, one.response) == []
        share = max(passes.values()) / len(responses)
        assert one.metadata["samples"]["agreement"]["passed"] == round(share, 4)

    @given(st.lists(answers, min_size=5, max_size=5), st.permutations(range(5)))
    def test_the_order_of_samples_decides_nothing(self, responses, order):
        def decided(some):
            try:
                response = combine(samples(*some), SCHEMA).response
            except ModelError:
                return None
            return {name: response.get(name) for name in ("passed", "score", "tone")}

        assert decided(responses) == decided([responses[number] for number in order])


class Verdict(BaseModel):
    passed: bool
    reason: str


def one_check(check, answer="Paris"):
    case = TestCase(id="a", input="?")
    return evaluate([case], [Output(value=answer)], [check]).results[0].check_results[0]


class TestAFunction:
    def test_is_called_once_a_sample_concurrently(self):
        together = asyncio.Barrier(5)
        verdicts = iter([True, False, True, True, False])

        async def judge(prompt, response_format):
            passed = next(verdicts)
            await asyncio.wait_for(together.wait(), 10)
            return response_format(passed=passed, reason=f"because {passed}"), {"cost_usd": 0.5, "who": "me"}

        check = LLMJudgeCheck(prompt="{{$.output.value}}", response_format=Verdict, llm_function=judge, samples=5)
        result = one_check(check)
        assert result.results["response"] == {"passed": True, "reason": "because True"}
        metadata = result.results["metadata"]
        assert (metadata["cost_usd"], metadata["who"]) == (2.5, "me")
        assert metadata["samples"]["agreement"] == {"passed": 0.6}

    def test_that_fails_sometimes_is_reported(self):
        asked = []

        def judge(prompt, response_format):
            asked.append(prompt)
            if len(asked) == 2:
                raise ConnectionError("no model")
            return {"passed": False, "reason": ""}, None

        check = LLMJudgeCheck(prompt="?", response_format=Verdict, llm_function=judge, samples=3)
        result = one_check(check)
        assert result.results["response"]["passed"] is False
        assert result.results["metadata"]["samples"]["failed"] == 1

    def test_members_that_do_not_go_together_are_an_error(self):
        either = {
            "type": "object",
            "properties": {"passed": {"type": "boolean"}, "safe": {"type": "boolean"}, "kind": {"type": "boolean"}},
            "not": {"properties": {name: {"const": True} for name in ("passed", "safe", "kind")}},
        }
        verdicts = iter([(True, True, False), (True, False, True), (False, True, True)])

        async def judge(prompt, response_format):
            return dict(zip(("passed", "safe", "kind"), next(verdicts), strict=True)), None

        result = one_check(LLMJudgeCheck(prompt="?", response_format=either, llm_function=judge, samples=3))
        assert "a majority for each member, but not for all together" in result.error.message


def test_invalid_numbers_of_samples_are_refused(refused):
    for samples, why in [
        (2, "odd number"),
        (0, "at least 1"),
        (17, "at most 15"),
        ("3", "whole number"),
        (True, "whole number"),
        ("$.test_case.input", "whole number"),
    ]:
        config = {"model": "openai/any"}
        assert why in refused("llm_judge", prompt="?", response_format=SCHEMA, model_config=config, samples=samples)


FORMAT = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "passed": {"type": "boolean"}},
    "required": ["reason", "passed"],
}


class TestAModel:
    @pytest.fixture(autouse=True)
    def _own_key(self, monkeypatch):
        monkeypatch.setenv("JUDGE_KEY", "sk-any")

    @pytest.fixture
    def check(self, model_server):
        def check(faults="", **config):
            arguments = {
                "prompt": "Is this right? {{$.output.value}}",
                "response_format": FORMAT,
                "samples": 3,
                "model_config": {"model": f"openai/stand-in?{faults}", **config},
                "provider_config": {
                    "api_base": f"{model_server.address}/v1", "api_key": "${JUDGE_KEY}", "max_retries": 0
                },
            }  # fmt: skip
            return Check(type="llm_judge", arguments=arguments)

        return check

    def saying(self, *verdicts):
        return "say=" + quote("||".join(json.dumps({"reason": str(v), "passed": v}) for v in verdicts))

    def test_is_called_once_a_sample_and_the_majority_decides(self, check, model_server):
        result = one_check(check(self.saying(True, False, False)))
        assert result.results["response"] == {"reason": "False", "passed": False}
        metadata = result.results["metadata"]
        assert len(model_server.bodies) == metadata["attempts"] == 3
        assert {body["temperature"] for body in model_server.bodies} == {1.0}
        assert metadata["samples"]["agreement"] == {"passed": 0.6667}
        assert metadata["completion_tokens"] == 3 * 4
        assert metadata["cost_usd"] is None

    def test_the_samples_of_a_seed_have_seeds_of_their_own(self, check, model_server):
        one_check(check(seed=7, temperature=0.3))
        assert sorted(body["seed"] for body in model_server.bodies) == [7, 8, 9]
        assert {body["temperature"] for body in model_server.bodies} == {0.3}

    def test_one_failure_of_three_leaves_a_majority(self, check):
        result = one_check(check(self.saying(True) + "&fault=error&times=1"))
        assert result.results["response"]["passed"] is True
        metadata = result.results["metadata"]
        assert (metadata["samples"]["failed"], metadata["attempts"]) == (1, None)

    def test_two_failures_of_three_are_a_retryable_error(self, check):
        result = one_check(check("fault=error&times=2"))
        assert result.error.recoverable
        assert result.error.message.startswith("2 of 3 samples failed, and the others are no majority:")

    def test_a_temperature_of_zero_is_warned_of(self, check):
        def warnings(check):
            document = Document({"checks": []}, "suite.yaml", "")
            return [str(problem) for problem in check_problems(document, [check]) if problem.severity == "warning"]

        (warning,) = warnings(check(temperature=0))
        assert "3 samples at a temperature of 0 give the same answer again and again" in warning
        assert warnings(check()) == warnings(check(temperature=0.7)) == []
