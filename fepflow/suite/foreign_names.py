"""Other tools' names and forms of things, and what they are in a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fepflow.documents.messages import closest
from fepflow.errors import DocumentPath, ValidationMessage
from fepflow.jsonpath.path import descend
from fepflow.protocol.check import CHECK_KEYS
from fepflow.text import brief

_FIELDS = {"inputs": "input", "expected_output": "expected"}
"""Fields of test cases that have one other name in files of other tools, and can mean nothing else."""


def with_our_names(case: Any) -> Any:
    """Return a test case with other tools' fields under fepflow's names; one that has both does not change."""
    if not isinstance(case, dict) or not case.keys() & _FIELDS.keys():
        return case
    return {name if (ours := _FIELDS.get(name, name)) in case else ours: value for name, value in case.items()}


def _by_name(names_by_advice: Mapping[str, str]) -> dict[str, str]:
    """Return advice by name. Names are in lower case, without dashes and underscores."""
    return {name: advice for advice, names in names_by_advice.items() for name in names.split()}


SUITE = _by_name(
    {
        "fepflow calls them checks": "assert asserts assertions evaluators evals graders scorers rubrics defaulttest",
        "fepflow calls them test_cases": "tests test cases dataset datasets data examples goldens",
        "the inputs are those of test_cases": "inputs input questions vars",
        "what is evaluated is the target": "agent solver",
        "a model that is evaluated is target: {openai: {model: ...}}": "providers provider",
        "a model that is evaluated is target.openai.model, one that judges judge.model_config.model": "model llm",
        "it belongs into target": "recorded timeout attempts retries concurrency limits",
        "it belongs into target.http": "url endpoint http headers body",
        "it belongs into target.openai": "messages tools openai",
        "the prompt for a model is target.openai.prompt": "prompt prompts",
        "recorded outputs are the target: target.recorded": "outputs",
        "it is target.concurrency": "maxconcurrency parallel workers",
        "several targets are variants": "matrix models grid",
        "the model that plays users is user.model_config.model": "simulateduser simulator persona",
        "it belongs into test_cases": "turns conversations",
        "it is repeats": "epochs samples trials runs repeat",
        "it belongs into gate": "min threshold passthreshold maximpact",
        "the suite's name is name": "id title",
        "a schedule is not part of a suite; see docs/deployments.md": "schedule cron",
        "write ${NAME} where the value is used": "env",
    }
)
"""Advice for sections of a suite."""

TARGET = _by_name(
    {
        "it belongs into target.http": "app headers body method output metadata maxbytes session",
        "it belongs into target.http; the address of an A2A agent is target.a2a.card": "url",
        "it is target.a2a.card": "agentcard cardurl",
        "the address is target.http.url": "endpoint address uri host",
        "the address of a model is target.openai.base_url": "baseurl apibase",
        "it belongs into target.openai": "model apikey api system prompt parameters messages tools",
        "write target: {openai: {model: ...}}": "provider providers id llm",
        "it belongs into target.openai.parameters": "temperature maxtokens topp seed config responseformat",
        "an ASGI application is target.http.app": "asgi application fastapi starlette",
        "recorded outputs are target.recorded.path": "path file outputs",
        "the request is target.http.body": "request payload json data params",
        "the answer is at target.http.output": "response answer transformresponse",
        "it is target.concurrency": "maxconcurrency parallel workers",
        "see target.attempts and target.retries": "maxretries retry",
        "it belongs into target, beside http": "timeout attempts retries concurrency limits",
        "it belongs into command, after the program": "args",
        "an MCP server is target.mcp": "mcpserver mcpservers server stdio",
    }
)
"""Advice for keys of a target, and of its sections."""

CHECK = _by_name(
    {
        "arguments stand beside type, or in arguments": "args params parameters config with options kwargs",
        "it is type": "check kind evaluator assert assertion class",
        "a check's name is its id": "name metric key label",
        "the gate says what must hold": "weight severity",
        "the least score that passes is pass_at": "threshold minscore passthreshold",
    }
)
"""Advice for keys of a check."""

TEST_CASE = _by_name(
    {
        "it is input": "inputs question prompt query vars messages instruction",
        "it is turns": "conversation dialog dialogue multiturn",
        "it belongs into user": "persona goal maxturns scenario",
        "it is expected": "expectedoutput answer ideal reference target groundtruth goldanswer solution output",
        "a test case has an id; the rest is metadata": "name key description",
        "it is checks": "assert asserts evaluators assertions",
        "put it into metadata": "tags topic category context",
    }
)
"""Advice for keys of a test case."""

DATASET = _by_name(
    {
        "it is path": "url uri file address source repo dataset datafiles",
        "a folder or configuration stands in path: hf://datasets/ORG/NAME/CONFIG": "config configname subset name",
        "it is revision": "commit branch tag ref version sha",
        "the first sheet is read": "sheet sheetname",
        "see docs/test-cases.md for credentials": "token apikey auth headers storageoptions",
        "it is an option of `fepflow run`: --limit, --seed": "limit sample shuffle seed",
    }
)
"""Advice for keys of a file of test cases."""

CHECK_TYPES = _by_name(
    {
        "use contains, with case_sensitive: false": "icontains containsall icontainsall includes",
        "use contains; see match_all and negate": "containsany notcontains noticontains",
        "use exact_match": "equalsexpected exact stringcheck match",
        "use json_valid, or schema_validation": "isjson containsjson validjson",
        "use schema_validation": "isinstance jsonschema schema",
        "use rubric": "llmrubric geval gevalmetric modelgradedclosedqa modelgradedqa factuality judge summarization",
        "use text_distance, with metric": "rouge rougen rougel f1 levenshtein editdistance fuzzymatch bleu meteor",
        "use number": "numeric numericmatch closeness",
        "use json_diff": "jsonmatch jsonequals deepdiff",
        "use classification": "choice label confusionmatrix accuracy",
        "use llm_judge": "llm scoremodel labelmodel",
        "use faithfulness": "faithfulnessmetric hallucinationmetric hallucination contextfaithfulness",
        "use answer_relevancy": "answerrelevancymetric answerrelevance responserelevancy",
        "use context_precision": "contextrelevance contextualprecision contextualprecisionmetric",
        "use context_recall": "contextualrecall contextualrecallmetric",
        "use semantic_similarity": "similar similarity cosine embedding",
        "write your own: plugins": "javascript python function custom code",
        "use threshold, of $.output.metadata.latency_ms": "latency maxduration duration",
        "use regex": "startswith endswith pattern",
        "use tool_usage": "toolcalls toolcorrectness tools toolcall",
        "use tool_usage, with expected and match": "trajectory trajectorymatch toolcallaccuracy toolcallf1",
    }
)
"""Advice for check types."""


def with_types_named(value: Any, messages: Sequence[ValidationMessage], *, is_check: bool) -> list[ValidationMessage]:
    """Return the errors of a check, or of test cases with checks; one for each check like `contains: Paris`.

    Such a check has its type as a key: instead of two errors, one says how to write it.
    """
    told = []
    for item in messages:
        place = () if is_check else _place_of_check(item.path)
        name = None if place is None else _key_as_type(descend(value, place)[1])
        if place is None or name is None:
            told.append(item)
        elif item.path == (*place, "type"):
            advice = f"write {{type: {brief(name, 60)}, ...}}, with the arguments beside the type"
            told.append(replace(item, advice=advice))
        elif item.path != (*place, name):
            told.append(item)
    return told


def _place_of_check(path: DocumentPath) -> DocumentPath | None:
    at = path.index("checks") + 2 if "checks" in path else len(path) + 1
    return path[:at] if at <= len(path) and isinstance(path[at - 1], int) else None


def _key_as_type(check: Any) -> str | None:
    names = [str(name) for name in check if name not in CHECK_KEYS] if isinstance(check, dict) else []
    if len(names) != 1 or "type" in check or names[0] in CHECK or closest(names[0], [*CHECK_KEYS]):
        return None
    return names[0]
