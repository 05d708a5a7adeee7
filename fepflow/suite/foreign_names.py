"""Other tools' names for things, and their places in a suite.

Keys are in lower case, without dashes and underscores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = {"inputs": "input", "expected_output": "expected"}
"""Fields of test cases that have one other name in files of other tools, and can mean nothing else."""


def with_our_names(case: Any) -> Any:
    """Return a test case with other tools' fields under fepflow's names; one that has both does not change."""
    if not isinstance(case, dict) or not case.keys() & _FIELDS.keys():
        return case
    return {name if (ours := _FIELDS.get(name, name)) in case else ours: value for name, value in case.items()}


_CHECKS = "fepflow calls them checks"
_CASES = "fepflow calls them test_cases"
_HTTP = "it belongs into target.http"
_OPENAI = "it belongs into target.openai"
_CONTAINS = "use contains, with case_sensitive: false"
_JUDGE = "use llm_judge"
_RUBRIC = "use rubric"
_DISTANCE = "use text_distance, with metric"
_FAITHFULNESS = "use faithfulness"
_TRAJECTORY = "use tool_usage, with expected and match"

SUITE: Mapping[str, str] = {
    **dict.fromkeys(("assert", "asserts", "assertions", "evaluators", "evaluations", "evals", "graders"), _CHECKS),
    **dict.fromkeys(("scorers", "scores", "rubric", "rubrics", "checkers", "validators", "defaulttest"), _CHECKS),
    **dict.fromkeys(("tests", "test", "cases", "case", "dataset", "datasets", "data", "examples", "goldens"), _CASES),
    **dict.fromkeys(("inputs", "input", "questions", "vars", "items"), "the inputs are those of test_cases"),
    **dict.fromkeys(("agent", "solver"), "what is evaluated is the target"),
    **dict.fromkeys(("providers", "provider", "system"), "a model that is evaluated is target: {openai: {model: ...}}"),
    **dict.fromkeys(("url", "endpoint", "http", "headers", "body"), _HTTP),
    **dict.fromkeys(("matrix", "models", "grid", "sweep", "parameters"), "several targets are variants"),
    "recorded": "it belongs into target",
    **dict.fromkeys(("simulateduser", "simulator", "persona"), "the model that plays users is user.model_config.model"),
    **dict.fromkeys(("turns", "conversations", "maxturns"), "it belongs into test_cases"),
    "outputs": "recorded outputs are the target: target.recorded",
    **dict.fromkeys(("prompt", "prompts"), "the prompt for a model is target.openai.prompt"),
    **dict.fromkeys(("messages", "tools", "openai"), "it belongs into target.openai"),
    **dict.fromkeys(("timeout", "attempts", "retries", "concurrency", "limits"), "it belongs into target"),
    **dict.fromkeys(("maxconcurrency", "parallel", "workers"), "it is target.concurrency"),
    **dict.fromkeys(("epochs", "samples", "trials", "runs", "repeat", "repetitions"), "it is repeats"),
    **dict.fromkeys(("min", "threshold", "passthreshold", "successthreshold", "maximpact"), "it belongs into gate"),
    **dict.fromkeys(
        ("model", "llm"), "a model that is evaluated is target.openai.model, one that judges judge.model_config.model"
    ),
    "grader": "the model that judges is judge.model_config.model",
    **dict.fromkeys(("id", "title", "evalname"), "the suite's name is name"),
    **dict.fromkeys(("schedule", "cron"), "a schedule is no part of a suite; see docs/deployments.md"),
    "env": "write ${NAME} where the value is used",
    "version": "remove it",
}
"""Sections of a suite."""

TARGET: Mapping[str, str] = {
    **dict.fromkeys(("app", "headers", "body", "method", "output", "metadata", "maxbytes", "session"), _HTTP),
    "url": "it belongs into target.http; the address of an A2A agent is target.a2a.card",
    **dict.fromkeys(("agentcard", "agentcardurl", "cardurl", "a2aurl"), "it is target.a2a.card"),
    **dict.fromkeys(("endpoint", "address", "uri", "host"), "the address is target.http.url"),
    **dict.fromkeys(("baseurl", "apibase"), "the address of a model is target.openai.base_url"),
    **dict.fromkeys(("model", "apikey", "api", "system", "prompt", "parameters"), _OPENAI),
    **dict.fromkeys(("messages", "tools"), _OPENAI),
    **dict.fromkeys(("provider", "providers", "id", "llm", "chat"), "write target: {openai: {model: ...}}"),
    **dict.fromkeys(
        ("temperature", "maxtokens", "topp", "seed", "config", "options", "responseformat", "toolchoice"),
        "it belongs into target.openai.parameters",
    ),
    **dict.fromkeys(("asgi", "application", "fastapi", "starlette"), "an ASGI application is target.http.app"),
    **dict.fromkeys(("path", "file", "outputs"), "recorded outputs are target.recorded.path"),
    **dict.fromkeys(("request", "payload", "json", "data", "params"), "the request is target.http.body"),
    **dict.fromkeys(("response", "answer", "responsepath", "transformresponse"), "the answer is at target.http.output"),
    **dict.fromkeys(("maxconcurrency", "parallel", "workers"), "it is target.concurrency"),
    **dict.fromkeys(("maxretries", "retry"), "see target.attempts and target.retries"),
    **dict.fromkeys(("timeout", "attempts", "retries", "concurrency", "limits"), "it belongs into target, beside http"),
    "args": "it belongs into command, after the program",
    **dict.fromkeys(("mcpserver", "mcpservers", "server", "stdio"), "an MCP server is target.mcp"),
}
"""Keys of a target, and of what is inside of it."""

CHECK: Mapping[str, str] = {
    **dict.fromkeys(
        ("args", "params", "parameters", "config", "with", "options", "kwargs"),
        "arguments stand beside type, or in arguments",
    ),
    **dict.fromkeys(("check", "kind", "evaluator", "assert", "assertion", "class"), "it is type"),
    **dict.fromkeys(("name", "metric", "key", "label"), "a check's name is its id"),
    **dict.fromkeys(("weight", "severity"), "what must hold is said by gate"),
    **dict.fromkeys(("threshold", "minscore", "passthreshold"), "the least score that passes is pass_at"),
}
"""Keys of a check."""

TEST_CASE: Mapping[str, str] = {
    **dict.fromkeys(("inputs", "question", "prompt", "query", "vars", "messages", "instruction"), "it is input"),
    **dict.fromkeys(("conversation", "dialog", "dialogue", "steps", "script", "multiturn"), "it is turns"),
    **dict.fromkeys(("persona", "goal", "maxturns", "scenario", "simulateduser"), "it belongs into user"),
    **dict.fromkeys(("expectedoutput", "expectedresult", "answer", "ideal", "reference", "target"), "it is expected"),
    **dict.fromkeys(("groundtruth", "expectedvalue", "goldanswer", "solution", "output"), "it is expected"),
    **dict.fromkeys(("name", "key", "description", "case", "number"), "a test case has an id; the rest is metadata"),
    **dict.fromkeys(("assert", "asserts", "evaluators", "assertions"), "it is checks"),
    **dict.fromkeys(("tags", "topic", "category", "context", "tag"), "put it into metadata"),
}
"""Keys of a test case."""

DATASET: Mapping[str, str] = {
    **dict.fromkeys(
        ("url", "uri", "file", "address", "source", "repo", "repoid", "dataset", "datafiles"), "it is path"
    ),
    **dict.fromkeys(
        ("config", "configname", "subset", "name"),
        "a folder or configuration stands in path: hf://datasets/ORG/NAME/CONFIG",
    ),
    **dict.fromkeys(("commit", "branch", "tag", "ref", "version", "sha"), "it is revision"),
    **dict.fromkeys(("sheet", "sheetname"), "the first sheet is read"),
    **dict.fromkeys(("token", "apikey", "auth", "headers", "storageoptions"), "see docs/test-cases.md for credentials"),
    **dict.fromkeys(("limit", "sample", "shuffle", "seed"), "it is an option of `fepflow run`: --limit, --seed"),
}
"""Keys of a file of test cases."""

CHECK_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("icontains", "containsall", "icontainsall", "includes"), _CONTAINS),
    **dict.fromkeys(("containsany", "notcontains", "noticontains"), "use contains; see match_all and negate"),
    **dict.fromkeys(("equalsexpected", "exact", "stringcheck", "match"), "use exact_match"),
    **dict.fromkeys(("isjson", "containsjson", "validjson"), "use json_valid, or schema_validation"),
    **dict.fromkeys(("isinstance", "jsonschema", "schema"), "use schema_validation"),
    **dict.fromkeys(
        ("llmrubric", "geval", "gevalmetric", "modelgradedclosedqa", "modelgraded", "factuality", "judge"), _RUBRIC
    ),
    **dict.fromkeys(("modelgradedqa", "modelgradedfact", "closedqa", "summarization", "bias", "toxicity"), _RUBRIC),
    **dict.fromkeys(("rouge", "rougen", "rougel", "f1", "f1score", "tokenf1"), _DISTANCE),
    **dict.fromkeys(("levenshtein", "editdistance", "fuzzy", "fuzzymatch", "bleu", "meteor"), _DISTANCE),
    **dict.fromkeys(("numeric", "numericmatch", "numericdiff", "closeness"), "use number"),
    **dict.fromkeys(("jsonmatch", "jsonequal", "jsonequals", "deepdiff"), "use json_diff"),
    **dict.fromkeys(("choice", "label", "labels", "confusionmatrix", "accuracy"), "use classification"),
    **dict.fromkeys(("llm", "scoremodel", "labelmodel"), _JUDGE),
    **dict.fromkeys(
        ("faithfulnessmetric", "hallucinationmetric", "hallucination", "contextfaithfulness"), _FAITHFULNESS
    ),
    **dict.fromkeys(("answerrelevancymetric", "answerrelevance", "responserelevancy"), "use answer_relevancy"),
    **dict.fromkeys(("contextrelevance", "contextualprecision", "contextualprecisionmetric"), "use context_precision"),
    **dict.fromkeys(("contextualrecall", "contextualrecallmetric"), "use context_recall"),
    **dict.fromkeys(("similar", "similarity", "textsimilarity", "cosine", "embedding"), "use semantic_similarity"),
    **dict.fromkeys(("javascript", "python", "function", "custom", "code"), "write one of your own: plugins"),
    **dict.fromkeys(("latency", "maxduration", "duration"), "use threshold, of $.output.metadata.latency_ms"),
    **dict.fromkeys(("startswith", "endswith", "pattern"), "use regex"),
    **dict.fromkeys(("toolcalls", "toolcorrectness", "tools", "toolcall"), "use tool_usage"),
    **dict.fromkeys(("trajectory", "trajectorymatch", "tooltrajectory", "tooltrajectoryavgscore"), _TRAJECTORY),
    **dict.fromkeys(("toolcallaccuracy", "toolcallf1", "agenttrajectory", "executionorder"), _TRAJECTORY),
}
"""Check types."""
