"""Checks that ask models: real requests over real sockets, in the shapes of three families, to a stand-in."""

import asyncio
import json
import logging
import math
import time

import pytest
from pydantic import BaseModel

from checks.engine import evaluate, evaluate_async
from checks.llm_judge import LLMJudgeCheck
from checks.validation import check_problems
from fepflow.documents import Document
from fepflow.llm import door, structured
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

FORMAT = {
    "type": "object",
    "properties": {
        "passed": {"type": "boolean"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "reason": {"type": "string"},
    },
    "required": ["passed", "reason"],
}
# litellm makes classes at its first request to a provider, and pydantic warns of them: none of our doing.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier")

CANARY = "sk-canary-4f1c9a77e0"


@pytest.fixture(autouse=True)
def _key_and_memory(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", CANARY)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HOSTED_VLLM_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    for memory in (door._refused, door._lanes, structured._refused):
        monkeypatch.setattr(memory, "_", None, raising=False) if False else memory.clear()


def one(check, answer="The capital of France is Paris.", **case):
    return (
        evaluate([TestCase(id="a", input="Capital of France?", **case)], [Output(value=answer)], [check])
        .results[0]
        .check_results[0]
    )


@pytest.fixture
def judge(model_server):
    """Asks the judge about an answer, once."""

    def judge(model="openai/stand-in", knobs="", answer="The capital of France is Paris.", **more):
        return one(judge_check(model_server, model, knobs, **more), answer)

    return judge


def judge_check(
    server,
    model="openai/stand-in",
    knobs="",
    prompt="Is this right? {{$.output.value}}",
    config=None,
    provider=None,
    **more,
):
    base = server.address + ("/v1" if model.startswith(("openai", "hosted_vllm")) else "")
    arguments = {
        "prompt": prompt,
        "response_format": FORMAT,
        "model_config": {"model": model + (f"?{knobs}" if knobs else ""), **(config or {})},
        "provider_config": {"api_base": base, "api_key": "${JUDGE_KEY}", **(provider or {})},
        **more,
    }
    return Check(type="llm_judge", arguments=arguments)


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-4o-mini",
        "hosted_vllm/qwen",
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-3-5-haiku-latest",
        "ollama_chat/llama3",
    ],
)
def test_a_judge_of_each_family_answers(judge, model_server, model):
    result = judge(model)
    print(result)
    print(model_server.bodies)
    assert result.status == "completed", result.error


@pytest.mark.parametrize(
    "fault",
    [
        "rate_limited&times=1",
        "quota",
        "error&times=1",
        "overloaded&times=2",
        "unauthorized",
        "dropped&times=1",
        "truncated&times=1",
        "garbled&times=1",
        "refusal",
        "filtered",
        "cut_off",
        "empty",
        "prose",
        "misfit",
        "fenced",
        "no_usage",
    ],
)
@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"])
def test_f(judge, model_server, model, fault):
    result = judge(model, "fault=" + fault)
    print(result.results, result.error)
    print(len(model_server.bodies))
    assert 0
