"""What is asked of models, and how it is said where they are, for the tests of checks that ask one."""

from fepflow.checks.engine import evaluate
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


def arguments_of(server, model, faults="", config=None, provider=None):
    base = server.address + ("/v1" if model.startswith(("openai", "hosted_vllm")) else "")
    return {
        "model_config": {"model": model + (f"?{faults}" if faults else ""), **(config or {})},
        "provider_config": {"api_base": base, "api_key": "${JUDGE_KEY}", **(provider or {})},
    }


REFUND_CASE = TestCase(id="a", input="How long does a refund take?", expected="Refunds take 5 days.")
REFUND_CONTEXT = ["Refunds take 5 days.", "The shop is in Bonn."]
REFUND_ANSWER = "It takes 5 days. Shipping is free."
CASE = TestCase(id="a", input="Capital of France?", expected="Paris")


def one(check, answer=PARIS):
    return evaluate([CASE], [Output(value=answer)], [check]).results[0].check_results[0]
