"""Juries: several models, one judgement. The rules in memory, the rest over a real socket."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from fepflow.checks.core.declarations import CaseChecks, CheckDefaults
from fepflow.checks.engine import evaluate
from fepflow.checks.models.judge_spec import judges_of
from fepflow.checks.models.voting import JuryRule, Sample, decide
from fepflow.errors import ModelError, ModelTimeoutError
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.models import JudgeDefaults

# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = [pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier"), pytest.mark.usefixtures("judge_key")]

SCORED = {"type": "object", "properties": {"score": {"type": "number"}, "passed": {"type": "boolean"}}}
FAILED = ModelTimeoutError("late")


def sample(score):
    return Sample({"score": score, "passed": score >= 0.7, "reason": f"{score}"}, {"cost_usd": 0.5, "attempts": 1})


def jury(kind, *scores):
    answers = [score if isinstance(score, Exception) else sample(score) for score in scores]
    rule = JuryRule(kind, SCORED, lambda score: score >= 0.7, (0.0, 1.0), ("score",))
    return decide(answers, [f"m{number}" for number in range(len(scores))], rule)


class TestTheMajority:
    def test_decides_and_each_vote_is_named(self):
        decided = jury("majority", 1.0, 0.5, 0.75)
        assert (decided.response["passed"], decided.response["score"]) == (True, 0.75)
        assert decided.metadata["jury"] == {
            "decides": "majority",
            "asked": 3,
            "failed": 0,
            "agreement": {"passed": 0.6667},
            "spread": {"score": [0.5, 1.0]},
            "said": [
                {"judge": "m0", "score": 1.0, "passed": True},
                {"judge": "m1", "score": 0.5, "passed": False},
                {"judge": "m2", "score": 0.75, "passed": True},
            ],
        }
        assert (decided.metadata["cost_usd"], decided.metadata["model"]) == (1.5, "m0, m1, m2")

    @pytest.mark.parametrize(("scores", "passed"), [((1.0, FAILED, 0.8), True), ((0.1, 0.2, FAILED), False)])
    def test_stands_without_a_judge_whose_vote_could_not_change_it_but_the_score_is_unknown(self, scores, passed):
        decided = jury("majority", *scores)
        assert decided.response["passed"] is passed
        assert "score" not in decided.response

    @pytest.mark.parametrize("scores", [(1.0, 0.1, FAILED), (1.0, FAILED, FAILED), (FAILED, FAILED, FAILED)])
    def test_that_a_missing_judge_could_change_is_an_error(self, scores):
        with pytest.raises((ModelError, ModelTimeoutError)) as raised:
            jury("majority", *scores)
        assert raised.value.recoverable


class TestTheMean:
    def test_is_no_verdict_where_neither_the_score_nor_all_judges_decide(self):
        answers = [Sample({"score": 0.9, "passed": True}, {}), Sample({"score": 0.2}, {})]
        answers.append(Sample({"score": 0.7, "passed": True}, {}))
        decided = decide(answers, ["m0", "m1", "m2"], JuryRule("mean", SCORED, lambda _: None, None))
        assert decided.response == {"score": 0.6}

    def test_decides_by_the_score(self):
        decided = jury("mean", 1.0, 0.5, 0.6)
        assert (decided.response["score"], decided.response["passed"]) == (0.7, True)
        assert decided.response["reason"] == "1.0", "the reason is that of a judge who agrees"
        assert decided.metadata["jury"]["agreement"] == {"passed": 0.3333}

    @pytest.mark.parametrize(("scores", "passed"), [((1.0, 1.0, 1.0, FAILED), True), ((0.2, 0.2, 0.2, FAILED), False)])
    def test_stands_where_no_score_of_the_missing_could_move_it_across(self, scores, passed):
        decided = jury("mean", *scores)
        assert decided.response["passed"] is passed
        assert "score" not in decided.response

    @pytest.mark.parametrize("scores", [(0.9, 0.8, FAILED), (1.0, FAILED, FAILED), (0.5, 0.6, FAILED)])
    def test_that_a_missing_judge_could_move_across_is_an_error(self, scores):
        with pytest.raises(ModelError, match="with it the mean would be"):
            jury("mean", *scores)


class TestOverASocket:
    @pytest.fixture
    def judged(self, model_server):
        """The result of a rubric whose judges say these points; None is a judge that is down."""

        def judged(*points, **arguments):
            models = []
            for number, given in enumerate(points):
                said = quote(json.dumps({"reason": f"r{number}", "points": given}))
                knobs = "fault=error" if given is None else f"say={said}"
                models.append(f"openai/judge-{number}?{knobs}")
            check = Check(
                type="rubric",
                arguments={
                    "criteria": "Polite",
                    "judges": models,
                    "provider_config": {
                        "api_base": f"{model_server.address}/v1",
                        "api_key": "${JUDGE_KEY}",
                        "max_retries": 0,
                    },
                    **arguments,
                },
            )
            case = TestCase(id="a", input="q")
            return evaluate([case], [Output(value="Hello")], [check]).results[0].check_results[0]

        return judged

    def test_each_model_is_asked_once(self, judged, model_server):
        result = judged(5, 2, 4)
        assert (result.passed, result.results["response"]["score"]) == (True, 0.75)
        assert len(model_server.bodies) == 3
        assert result.results["metadata"]["attempts"] == 3

    def test_with_one_of_three_down_two_that_agree_decide(self, judged):
        result = judged(5, None, 4)
        assert result.passed is True
        assert "error" in result.results["metadata"]["jury"]["said"][1]

    def test_with_two_of_three_down_there_is_an_error(self, judged):
        result = judged(5, None, None)
        assert (result.status, result.passed) == ("error", None)
        assert "2 of 3 judges failed" in result.error.message

    def test_its_key_is_in_no_result(self, judged):
        keyed = [
            {"model": f"openai/k{number}?say=x", "provider_config": {"api_key": "${JUDGE_KEY}"}} for number in "abc"
        ]
        assert "sk-canary" not in judged(5, judges=keyed).model_dump_json()


RUBRIC = {"criteria": "Polite", "model_config": {"model": "openai/a"}}


def test_a_jury_that_is_none_is_refused(refused):
    changes: Any
    for changes, why in [
        ({"judges": ["openai/a", "openai/b"]}, "must be an odd number"),
        ({"judges": ["openai/a", "openai/b", "openai/a"]}, "openai/a appears twice"),
        ({"judges": ["openai/a"]}, "one model is not a jury"),
        ({"judges": ["openai/a", 5, "openai/b"]}, "must be the name of a model"),
        ({"judges": ["openai/a", {"temperature": 1}, "openai/b"]}, "must name a model"),
        ({"judges": ["openai/a", "local:b", "openai/c"]}, "is an embedder"),
        ({"judges": "$.output.metadata.judges"}, "a path must not choose the model"),
        ({"judges": ["openai/a", "$.output.value", "openai/b"]}, "a path must not choose the model"),
        ({"judges": ["openai/a", {"model": "openai/b", "provider_config": {"api_key": "sk"}}, "openai/c"]}, "a secret"),
        (
            {
                "judges": ["openai/a", "anthropic/b"],
                "jury": "mean",
                "model_config": {},
                "provider_config": {"api_key": "${K}"},
            },
            "anthropic, openai cannot share provider_config.api_key",
        ),
        ({"jury": "unanimous"}, "majority"),
    ]:
        assert why in refused("rubric", answer="x", **{**RUBRIC, **changes})


def test_an_even_jury_may_decide_by_the_mean(ask):
    judges = {"judges": ["openai/a", "openai/b"], "jury": "mean", "provider_config": {"api_key": "${NOT_THERE}"}}
    assert "NOT_THERE" in ask("rubric", "x", **{**RUBRIC, **judges}).error.message


class TestItsIdentity:
    def spec(self, **changes):
        arguments = {**RUBRIC, "judges": ["openai/a", "anthropic/b", "openai/c"], **changes}
        return judges_of([Check(type="rubric", arguments=arguments)])[0]

    def test_it_is_one_judge_of_several_models(self):
        spec = self.spec()
        assert (spec.model, spec.is_jury) == ("openai/a, anthropic/b, openai/c", True)
        assert spec.fields == {"score": ("number", ()), "passed": ("boolean", ())}
        assert "one of its judges is the agent's own model" in spec.favours("b")

    @pytest.mark.parametrize("changes", [{"judges": ["openai/a", "anthropic/b", "openai/d"]}, {"jury": "mean"}])
    def test_another_member_or_rule_is_another_judge(self, changes):
        assert self.spec(**changes).judge != self.spec().judge
        assert self.spec(**changes).rubric == self.spec().rubric

    @pytest.mark.parametrize("changes", [{"criteria": "Kind"}, {"pass_at": 0.9}, {"steps": True}])
    def test_other_criteria_are_another_rubric(self, changes):
        assert self.spec(**changes).judge == self.spec().judge
        assert self.spec(**changes).rubric != self.spec().rubric


def test_the_suites_jury_judges_checks_that_name_no_model():
    section = JudgeDefaults.model_validate({"judges": ["openai/a", "openai/b", "openai/c"], "jury": "mean"})
    own = [
        Check(type="rubric", arguments={"criteria": "x", **more}) for more in ({}, {"model_config": {"model": "d/e"}})
    ]
    completed = [check.to_check().arguments.get("judges") for check in CheckDefaults(section).complete(own)]
    assert completed == [["openai/a", "openai/b", "openai/c"], None]


class TestOfTestCasesFromAFile:
    def refusal(self, judges):
        shared = [Check(type="rubric", arguments={"criteria": "x", "judges": ["openai/a", "openai/b", "openai/c"]})]
        checks = CaseChecks(CheckDefaults(), shared, from_data=True)
        return checks.refusal(Check(type="rubric", arguments={"criteria": "y", "judges": judges}))

    def test_models_that_the_suite_names_may_be_asked(self):
        assert self.refusal(["openai/a", {"model": "openai/b"}]) is None

    @pytest.mark.parametrize(
        "judges",
        [
            ["openai/a", "openai/evil"],
            [{"model": "openai/evil"}],
            [{"model": "openai/a", "api_base": "http://evil"}],
            [{"model": "openai/a", "provider_config": {"api_base": "http://evil"}}],
            [{"model": "openai/a", "provider_config": {"api_key": "${AWS_SECRET}"}}],
            [{"model": "${HOME}"}],
            "openai/evil",
            {"model": "openai/evil"},
        ],
    )
    def test_others_may_not(self, judges):
        assert self.refusal(judges) is not None
