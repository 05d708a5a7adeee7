"""Metrics of ragas itself over a real socket: which texts they see, what their scores are, and what is an error."""

import json
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from fepflow.checks import ragas_metrics
from fepflow.checks.core.compiled import compile_checks
from fepflow.cli.main import fepflow
from fepflow.extras import is_installed
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase

from .judged import REFUND_ANSWER, REFUND_CASE, REFUND_CONTEXT

pytestmark = [pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier"), pytest.mark.usefixtures("judge_key")]
needs_ragas = pytest.mark.skipif(not is_installed("ragas"), reason="ragas is not installed here")

REFUND, SHIPPING = "A refund takes 5 days.", "Shipping is free."
STATEMENTS = {"statements": [REFUND, SHIPPING]}


def verdicts(*pairs):
    return {"statements": [{"statement": text, "reason": "so", "verdict": verdict} for text, verdict in pairs]}


def attributed(*verdicts):
    given = enumerate(verdicts)
    return {"classifications": [{"statement": f"s{n}", "reason": "so", "attributed": value} for n, value in given]}


def useful(verdict):
    return {"reason": "so", "verdict": verdict}


@pytest.fixture
def ask(ask_in_turn):
    return ask_in_turn


def of_user(body):
    system, user = (message["content"] for message in body["messages"])
    assert not any(text in system for text in (REFUND_ANSWER, REFUND_CASE.input, *REFUND_CONTEXT))
    return user


@needs_ragas
class TestScores:
    """The figures are those of ragas's definition, worked out by hand."""

    def test_faithfulness_is_the_share_of_statements_that_the_context_supports(self, ask, model_server):
        result = ask("ragas.faithfulness", STATEMENTS, verdicts((REFUND, 1), (SHIPPING, 0)))
        response = result.results["response"]
        assert (response["score"], response["passed"]) == (0.5, False)
        assert response["reason"] == "1 of 2 claims are supported by the context; not: Shipping is free. (so)"
        assert result.results["metadata"]["ragas"] == ragas_metrics.RAGAS
        assert (result.check_id, result.results["metadata"]["attempts"]) == ("ragas_faithfulness", 2)
        listing, judging = map(of_user, model_server.bodies)
        assert '"question": "How long does a refund take?"' in listing
        assert f'"answer": "{REFUND_ANSWER}"' in listing
        assert '"context": "Refunds take 5 days.\\nThe shop is in Bonn."' in judging
        assert SHIPPING in judging
        assert "analyze the complexity of each sentence" in model_server.bodies[0]["messages"][0]["content"]

    def test_context_precision_is_the_average_precision_of_the_contexts_in_their_order(self, ask, model_server):
        contexts = ["We open at nine.", "Refunds take 5 days.", "The shop is in Bonn.", "5 days at most."]
        says = [useful(verdict) for verdict in (0, 1, 0, 1)]
        result = ask("ragas.context_precision", *says, context=contexts)
        assert result.results["response"]["score"] == 0.5  # (1/2 + 2/4) / 2
        assert [item["verdict"] for item in result.results["response"]["claims"]] == [False, True, False, True]
        for body, context in zip(model_server.bodies, contexts, strict=True):
            user = body["messages"][1]["content"]
            assert f'"context": "{context}"' in user
            assert '"answer": "Refunds take 5 days."' in user, "it is the reference, and not what the agent said"

    def test_context_recall_is_the_share_of_the_reference_that_is_found(self, ask, model_server):
        result = ask("ragas.context_recall", attributed(1, 0, 1, 0), case=REFUND_CASE)
        assert result.results["response"]["score"] == 0.5
        assert '"answer": "Refunds take 5 days."' in of_user(model_server.bodies[0])
        assert REFUND_ANSWER not in str(model_server.bodies)

    def test_factual_correctness_is_the_f1_of_both_directions(self, ask, model_server):
        own = verdicts(("a", 1), ("b", 1), ("c", 0))
        others = verdicts(("d", 1), ("e", 0), ("f", 0))
        said = ["a", "b", "c"], ["d", "e", "f"]
        answers = {"claims": said[0]}, own, {"claims": said[1]}, others
        response = ask("ragas.factual_correctness", *answers).results["response"]
        assert response["score"] == 0.57  # precision 2/3, recall 2/(2 + 2)
        assert [item["verdict"] for item in response["claims"]] == [True, True, False, True, False, False]
        listing, judging, listing_reference, judging_reference = map(of_user_of_both, model_server.bodies)
        assert f'"response": "{REFUND_ANSWER}"' in listing
        assert '"context": "Refunds take 5 days."' in judging
        assert '"response": "Refunds take 5 days."' in listing_reference
        assert f'"context": "{REFUND_ANSWER}"' in judging_reference

    def test_a_precision_of_factual_correctness_asks_about_the_answer_only(self, ask, model_server):
        answers = {"claims": ["a", "b", "c", "d"]}, verdicts(("a", 1), ("b", 1), ("c", 1), ("d", 0))
        assert ask("ragas.factual_correctness", *answers, mode="precision").results["response"]["score"] == 0.75
        assert len(model_server.bodies) == 2

    def test_all_that_is_supported_is_one_and_passes_the_strictest_limit(self, ask):
        assert ask("ragas.context_precision", useful(1), useful(1), pass_at=1.0).passed is True

    def test_a_jury_of_models_decides(self, ask, model_server):
        where = {"api_base": model_server.address + "/v1", "api_key": "${JUDGE_KEY}"}
        judges = [f"openai/{n}?say={quote(json.dumps(attributed(verdict)))}" for n, verdict in enumerate((1, 0, 0))]
        result = ask("ragas.context_recall", judges=judges, model_config={}, provider_config=where)
        assert result.results["response"]["passed"] is False
        assert result.results["metadata"]["jury"]["agreement"]["passed"] == pytest.approx(2 / 3, abs=0.001)


def of_user_of_both(body):
    return body["messages"][1]["content"]


@needs_ragas
class TestErrors:
    @pytest.mark.parametrize(
        ("check_type", "says"),
        [
            ("ragas.faithfulness", [{"statements": []}]),
            ("ragas.context_recall", [{"classifications": []}]),
            ("ragas.factual_correctness", [{"claims": []}]),
            ("ragas.factual_correctness", [{"claims": ["a"]}, verdicts(("a", 1)), {"claims": []}]),
        ],
        ids=["faithfulness", "recall", "no claim in the answer", "no claim in the reference"],
    )
    def test_no_claims_are_an_error_and_not_a_zero(self, ask, check_type, says):
        result = ask(check_type, *says)
        assert (result.status, result.passed, result.results) == ("error", None, {})
        assert result.error.message == "no claims found, so there is nothing to judge"

    @pytest.mark.parametrize(
        ("check_type", "says"),
        [
            ("ragas.context_recall", attributed(5)),
            ("ragas.context_recall", attributed(True)),
            ("ragas.context_recall", attributed("1")),
            ("ragas.context_precision", {"reason": "so"}),
            ("ragas.context_precision", "all of them are useful"),
            ("ragas.context_precision", [useful(1)]),
        ],
        ids=["five", "a boolean", "a text", "no verdict", "no JSON", "a list"],
    )
    def test_an_answer_that_ragas_cannot_count_is_an_error(self, ask, model_server, check_type, says):
        result = ask(check_type, says, says, says)
        assert (result.status, result.metadata["model_error"], result.passed) == ("error", "invalid", None)
        assert len(model_server.bodies) == 3, "the model was asked to correct itself, twice"

    def test_a_verdict_on_one_of_two_statements_is_no_full_score(self, ask):
        one = verdicts((REFUND, 1))
        result = ask("ragas.faithfulness", STATEMENTS, one, one, one)
        assert (result.status, result.passed) == ("error", None)
        assert "one verdict on each of 2 statements, not 1" in result.error.message

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"context": None}, "no context found"),
            ({"context": []}, "no context found"),
            ({"answer": " ... "}, "the answer is empty"),
            ({"answer": None}, "the answer is empty"),
            ({"case": TestCase(id="a", input="")}, "the question is empty"),
        ],
        ids=["no context", "an empty context", "dots", "null", "no question"],
    )
    def test_nothing_to_judge_is_an_error_before_anything_is_asked(self, ask, model_server, options, words):
        result = ask("ragas.faithfulness", STATEMENTS, **options)
        assert (result.status, result.passed) == ("error", None)
        assert words in result.error.message
        assert not model_server.bodies

    def test_half_characters_are_sent_as_those_that_stand_for_them(self, ask):
        listed = r'{"statements": ["a \ud800"]}'
        half = "b \ud800"
        result = ask("ragas.faithfulness", listed, verdicts(("a", 1)), answer=half, context=[half])
        assert (result.status, result.results.get("response", {}).get("score")) == ("completed", 1.0), result.error

    def test_nothing_tells_the_makers_of_ragas_what_is_evaluated(self, ask):
        ask("ragas.context_recall", attributed(1))
        from ragas._analytics import do_not_track

        assert do_not_track()

    def test_another_version_of_ragas_is_refused_as_its_scores_are_others(self, monkeypatch):
        monkeypatch.setattr(ragas_metrics, "version", lambda name: "0.2.1")
        monkeypatch.setattr(ragas_metrics, "_load", ragas_metrics._load.__wrapped__)
        (compiled,) = compile_checks([Check(type="ragas.faithfulness", arguments={"model_config": {"model": "o/x"}})])
        message = f"ragas 0.2.1 is installed here, and these checks need {ragas_metrics.RAGAS}: pip install"
        assert compiled.config_error().startswith(message)


SUITE = """name: s
target: {http: {url: 'http://127.0.0.1:9/'}}
test_cases: [{id: a, input: q, expected: a}]
judge: {model_config: {model: openai/gpt-4o-mini}, provider_config: {api_key: '${JUDGE_KEY}'}}
checks:
  - {type: ragas.faithfulness}
  - {type: ragas.faithfulness, pass_at: 0.9}
gate: {min: {ragas_faithfulness: 0.5, ragas_faithfulness-2: 0.5}}
"""


def test_without_ragas_a_suite_is_refused_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fepflow.extras._is_there", lambda module: module != "ragas")
    monkeypatch.setattr(ragas_metrics, "_load", ragas_metrics._load.__wrapped__)
    (tmp_path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    done = CliRunner().invoke(fepflow, ["validate", str(tmp_path / "suite.yaml")])
    assert done.exit_code == 2
    assert "suite.yaml:6: checks[0]: a check of a type ragas.* needs ragas, which is not installed" in done.stderr
    assert 'pip install "fepflow[ragas]"' in done.stderr
    assert "gate.min.ragas_faithfulness-2: 1 test case cannot show" in done.stderr, "its id is one that a gate can name"
