"""How these tests ask one check one question; and every result that they get is what the specification says."""

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from fepflow.calls.models import client
from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.checks import engine, registry
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.engine import evaluate
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult, EvaluationRunResult
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

from .judged import CANARY, CASE, FORMAT, PARIS, REFUND_ANSWER, REFUND_CASE, REFUND_CONTEXT, arguments_of

SCHEMAS = Path(__file__).parents[1] / "conformance" / "fep_schemas.json"
FEP = Draft202012Validator(
    json.loads(SCHEMAS.read_text(encoding="utf-8")), format_checker=Draft202012Validator.FORMAT_CHECKER
)


@pytest.fixture
def ask():
    """The result of one declared check about the output `answer` of a case that expects `reference`.

    The other keyword arguments are the check's.
    """

    def ask(check_type, answer="", reference=None, **arguments):
        case = TestCase(id="case", input="question", expected=reference)
        check = Check(type=check_type, arguments=arguments)
        return evaluate([case], [Output(value=answer)], [check]).results[0].check_results[0]

    return ask


@pytest.fixture
def results(ask):
    """The results of a check, which must complete."""

    def results(check_type, **arguments):
        result = ask(check_type, **arguments)
        assert result.status == "completed", result.error
        return result.results

    return results


@pytest.fixture
def passed(results):
    """Whether the check passed; fails the test when the check did not complete."""

    def passed(check_type, **arguments):
        return results(check_type, **arguments)["passed"]

    return passed


@pytest.fixture
def refused(ask):
    """The message of the validation error that the check must end in."""

    def refused(check_type, **arguments):
        result = ask(check_type, **arguments)
        assert (result.status, result.results) == ("error", {})
        assert result.error.type == "validation_error", result.error
        assert result.error.recoverable is False
        return result.error.message

    return refused


@pytest.fixture(autouse=True)
def clean_catalogue(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """A model is asked again soon: no test here is about the pause, which is half a second at first."""
    monkeypatch.setattr(client, "BACKOFF", 0.02)


@pytest.fixture(autouse=True)
def conforming_results(monkeypatch):
    """Every result of an evaluation is as FEP's schemas have it, and survives being written and read."""
    seen = []
    finish = engine.run_result

    def finish_and_keep(*arguments, **options):
        seen.append(finish(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(engine, "run_result", finish_and_keep)
    yield
    for result in seen:
        if len(result.results) > 40:  # the cases of such a test are alike
            result = result.model_copy(update={"results": [*result.results[:20], *result.results[-20:]]})
        text = result.model_dump_json()
        data = json.loads(text)
        FEP.validate(data)
        assert EvaluationRunResult.model_validate(json.loads(text)).model_dump_json() == text


@pytest.fixture
def judge_key(monkeypatch):
    """The key that models are asked with is set, and nothing else that is gone by."""
    monkeypatch.setenv("JUDGE_KEY", CANARY)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HOSTED_VLLM_API_BASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def one_by_one():
    """Runs a check after the other by one client, as the checks of an evaluation."""
    with asyncio.Runner() as runner:

        async def open_client():
            return ModelClient()

        opened = runner.run(open_client())

        async def run(check, answer):
            (compiled,) = compile_checks([check])
            context = evaluation_context(CASE, Output(value=answer))
            result = compiled.run(context, ModelRequests(opened, RequestContext()))
            return result if isinstance(result, CheckResult) else await result

        yield lambda check, answer=PARIS: runner.run(run(check, answer))
        runner.run(opened.aclose())


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


@pytest.fixture
def ask_in_turn(model_server):
    """The result of a check whose model says these things, one after the other."""
    with asyncio.Runner() as runner:

        async def open_client():
            return ModelClient()

        opened = runner.run(open_client())

        async def run(check_type, says, answer, context, case, arguments):
            said = "||".join(text if isinstance(text, str) else json.dumps(text) for text in says)
            own = arguments_of(model_server, "openai/stand-in", f"say={quote(said)}", {}, {"max_retries": 0})
            metadata = {} if context is None else {"context": context}
            (compiled,) = compile_checks([Check(type=check_type, arguments={**own, **arguments})])
            output = Output(value=answer, metadata=metadata)
            result = compiled.run(evaluation_context(case, output), ModelRequests(opened, RequestContext()))
            return result if isinstance(result, CheckResult) else await result

        def ask(check_type, *says, answer=REFUND_ANSWER, context=REFUND_CONTEXT, case=REFUND_CASE, **arguments):
            return runner.run(run(check_type, says, answer, context, case, arguments))

        yield ask
        runner.run(opened.aclose())
