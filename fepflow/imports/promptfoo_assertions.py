"""promptfoo: assertions that have a counterpart among the checks, and why the others have none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fepflow.imports.imported import finite_number
from fepflow.imports.judge_checks import rubric
from fepflow.imports.prepared import fit_ids
from fepflow.imports.promptfoo_templates import LogicError, number_text
from fepflow.imports.pydantic_evals import literal
from fepflow.json.values import parse

OUTPUT = "$.output.value"

CODE = {"javascript", "python", "ruby", "webhook"}
NOT_YET = {
    "is-refusal": "take a rubric",
    "guardrails": "take a check in Python",
    "moderation": "take a check in Python",
    "classifier": "take a check in Python",
    "perplexity": "an agent's output tells no probabilities",
    "perplexity-score": "an agent's output tells no probabilities",
    "select-best": "take fepflow compare --judge",
    "max-score": "take fepflow compare",
    "human": "label results on the pages",
    "contains-json": "take json_valid, with extract",
    "rouge-n": "take text_distance with metric: rouge_l, which counts another way",
    "bleu": "take text_distance",
    "gleu": "take text_distance",
    "levenshtein": "take text_distance with pass_at, which is a share of the longer text and no number of edits",
    "meteor": "take text_distance",
    "context-relevance": "take context_precision, which asks something else",
    "word-count": "take a check in Python",
    "tool-call-f1": "take tool_usage",
    "skill-used": "take tool_usage",
    "similar:dot": "take semantic_similarity with similarity_metric: dot",
    "similar:euclidean": "take semantic_similarity with similarity_metric: euclidean, a score and no distance",
}
"""Assertions without a counterpart, and what to take instead."""
OTHERS = {
    *("agent-rubric", "contains-html", "contains-sql", "contains-xml", "conversation-relevance", "is-html", "is-sql"),
    *("is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "is-xml", "pi"),
    *("trajectory:goal-success", "trajectory:tool-args-match", "trajectory:step-count", "trajectory:tool-sequence"),
    *("trajectory:tool-used", "trace-error-spans", "trace-span-count", "trace-span-duration", "search-rubric"),
}
"""Assertions without a counterpart: a cell of `__expected` that begins with one is no text to be equal to."""

KNOWN = {"type", "value", "threshold", "weight", "metric", "provider", "rubricPrompt", "config", "transform"}
KNOWN |= {"contextTransform", "metricOnly"}


class NoCounterpartError(ValueError):
    """An assertion that no check is a counterpart of; the message says why, `advice` what to do."""

    def __init__(self, message: str, advice: str | None = None) -> None:
        self.advice = advice
        super().__init__(message)


def check_of(assertion: Mapping[str, Any]) -> dict[str, Any]:
    """Return the check of an assertion whose templates are filled in. Raises NoCounterpartError."""
    kind = assertion.get("type")
    if not isinstance(kind, str):
        raise NoCounterpartError("an assertion without a type")
    negate = kind.startswith("not-")
    name = kind.removeprefix("not-")
    _refuse(name, assertion)
    made = _MAKERS.get(name)
    if made is None:
        advice = NOT_YET.get(name, "write a check in Python")
        raise NoCounterpartError(f"the assertion {kind[:60]} has no counterpart", advice)
    value = assertion.get("value")
    if isinstance(value, str) and value.startswith("file://"):
        raise NoCounterpartError(f"the value of {kind} is a file that was not read", "put the value itself")
    try:
        check_type, arguments = made(value, finite_number(assertion.get("threshold")), negate)
    except LogicError as error:
        raise NoCounterpartError(f"the value of {kind}: {error}") from None
    check: dict[str, Any] = {"type": check_type}
    if isinstance(metric := assertion.get("metric"), str) and metric.strip():
        check["id"] = fit_ids([metric])[0]
    return {**check, "arguments": arguments}


def _refuse(name: str, assertion: Mapping[str, Any]) -> None:
    if name in CODE:
        raise NoCounterpartError(f"the assertion {name} is code, which is not executed", "write a check in Python")
    if assertion.get("weight") == 0 or assertion.get("metricOnly") is True:
        raise NoCounterpartError(f"{name} with weight 0 never fails there, so it is left out", "add a metric")
    for member in ("transform", "contextTransform", "rubricPrompt"):
        if assertion.get(member) is not None:
            raise NoCounterpartError(f"{name} with {member} has no counterpart", "write the check by hand")
    unknown = [member for member in assertion if member not in KNOWN]
    if unknown:
        raise NoCounterpartError(f"{name} with {unknown[0][:60]}, which is not known", "write the check by hand")


Made = tuple[str, dict[str, Any]]
Maker = Callable[[Any, float | None, bool], Made]
"""A function of an assertion's value and threshold, and whether it is negated, to a check's type and arguments."""


def _text(value: Any, kind: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise NoCounterpartError(f"the value of {kind} is no text")
    return value if isinstance(value, str) else number_text(value)


def _negated(negate: bool) -> dict[str, Any]:
    return {"negate": True} if negate else {}


def _equals(value: Any, threshold: float | None, negate: bool) -> Made:
    if value is None:
        raise NoCounterpartError("equals without a value", "write the text that is expected")
    if isinstance(value, dict | list):
        if negate:
            raise NoCounterpartError("not-equals with an object has no counterpart", "write a check in Python")
        return "schema_validation", {"data": OUTPUT, "schema": literal({"const": value})}
    text = "true" if value is True else "false" if value is False else _text(value, "equals") if value != "" else ""
    return "exact_match", {"actual": OUTPUT, "expected": literal(text), **_negated(negate)}


def _contains(*, ignore_case: bool) -> Maker:
    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        return _phrases([_text(value, "contains")], negate, ignore_case)

    return make


def _phrases(phrases: list[str], negate: bool, ignore_case: bool, match_all: bool = True) -> Made:
    arguments: dict[str, Any] = {"text": OUTPUT, "phrases": literal(phrases[0]) if len(phrases) == 1 else phrases}
    if ignore_case:
        arguments["case_sensitive"] = False
    if not match_all and len(phrases) > 1:
        arguments["match_all"] = False
    return "contains", {**arguments, **_negated(negate)}


def _several(kind: str, *, every: bool, ignore_case: bool) -> Maker:
    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        if isinstance(value, str):
            if '"' in value:
                raise NoCounterpartError(f"the value of {kind} has quotes", "write a list")
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list) or not value:
            raise NoCounterpartError(f"the value of {kind} is no list of texts")
        phrases = [_text(item, kind) for item in value]
        if any(phrase.startswith(("$.", "\\$.")) for phrase in phrases):
            raise NoCounterpartError(f"a text of {kind} begins with $.", "write the check by hand")
        # Negated, `match_all` says that none may be there; without it one missing is enough.
        return _phrases(phrases, negate, ignore_case, every is not negate)

    return make


def _regex(value: Any, threshold: float | None, negate: bool) -> Made:
    pattern = python_pattern(_text(value, "regex"))
    return "regex", {"text": OUTPUT, "pattern": literal(pattern), **_negated(negate)}


_ESCAPES = frozenset("dDwWsSbBnrtfv0123456789x")
"""Letters and digits that mean the same after a backslash in JavaScript and in Python."""
_OF_PYTHON = re.compile(r"\(\?(?!:|=|!|<)|\{,\d*\}|[*+?}]\+")
"""Groups, flags and quantifiers of Python that JavaScript reads another way."""


def python_pattern(pattern: str) -> str:
    """Return a pattern of JavaScript as Python has it: `$` is the very end there, and letters are those of ASCII.

    Raises NoCounterpartError.
    """
    parts, in_class, is_ascii, at = [], False, False, 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped.isalnum() and escaped not in _ESCAPES:
                raise NoCounterpartError("the pattern of regex has an escape that Python reads another way")
            is_ascii = is_ascii or escaped in tuple("dDwWbB")
            parts.append(pattern[at : at + 2])
            at += 2
            continue
        if in_class and letter in "[&~|":
            parts.append("\\")  # Python warns of what may be a set inside of a set
        if letter == "[":
            if not in_class and pattern.startswith(("[]", "[^]"), at):
                raise NoCounterpartError("the pattern of regex has an empty class, which Python reads another way")
            in_class = True
        elif letter == "]":
            in_class = False
        elif not in_class and _OF_PYTHON.match(pattern, at):
            raise NoCounterpartError("the pattern of regex has flags or a group that JavaScript reads another way")
        parts.append("\\Z" if letter == "$" and not in_class else letter)
        at += 1
    converted = "".join(parts).replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
    try:
        re.compile(converted)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoCounterpartError(f"the pattern of regex is not valid in Python: {error}") from None
    return f"(?a){converted}" if is_ascii else converted


def _edge(kind: str, before: str, after: str) -> Maker:
    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        pattern = f"{before}{re.escape(_text(value, kind))}{after}"
        return "regex", {"text": OUTPUT, "pattern": pattern, **_negated(negate)}

    return make


def _is_json(value: Any, threshold: float | None, negate: bool) -> Made:
    if negate:
        raise NoCounterpartError("not-is-json has no counterpart", "write a check in Python")
    if value in (None, ""):
        return "json_valid", {"text": OUTPUT}
    if isinstance(value, str):  # from a cell
        try:
            value = parse(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise NoCounterpartError("the schema of is-json is no object", "write it as one")
    if (keyword := _other_keyword(value)) is not None:
        message = f"the schema of is-json has {keyword}, which is not what json_valid holds answers against"
        raise NoCounterpartError(message, "write json_valid with a schema of JSON Schema 2020-12")
    return "json_valid", {"text": OUTPUT, "schema": literal(value)}


_FORMATS = {"date", "date-time", "ipv4", "ipv6", "uuid"}


def _other_keyword(schema: Any) -> str | None:
    """Return a keyword that means another thing, or nothing, in JSON Schema 2020-12: promptfoo reads draft 7."""
    if isinstance(schema, list):
        return next((found for item in schema if (found := _other_keyword(item)) is not None), None)
    if not isinstance(schema, dict):
        return None
    if isinstance(named := schema.get("format"), str) and named not in _FORMATS:
        return f"the format {named[:40]}"
    if isinstance(schema.get("items"), list):
        return "a list of items"
    known = next((name for name in ("additionalItems", "dependencies", "nullable") if name in schema), None)
    return known or _other_keyword(list(schema.values()))


def _similar(value: Any, threshold: float | None, negate: bool) -> Made:
    limits = {"max_value" if negate else "min_value": 0.75 if threshold is None else threshold}
    if isinstance(value, list) and value:  # one is enough; negated, all have to be unlike
        if negate:
            raise NoCounterpartError("not-similar with a list has no counterpart", "write a check for each text")
        references = [literal(_text(item, "similar")) for item in value]
        return "semantic_similarity", {"text": OUTPUT, "reference": references, "any": True, "threshold": limits}
    return "semantic_similarity", {"text": OUTPUT, "reference": literal(_text(value, "similar")), "threshold": limits}


def _judged(kind: str, before: str = "") -> Maker:
    """Return the maker of a rubric: the value, behind these words."""

    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        criteria = f"{before}{_text(value, kind)}"
        if negate:
            raise NoCounterpartError("a negated rubric has no counterpart", "say the opposite in the rubric")
        if "{{" in criteria:
            raise NoCounterpartError("a rubric with {{ in it reads like a template", "write it by hand")
        check = rubric(criteria, pass_at=threshold)
        return check["type"], check["arguments"]

    return make


def _by_claims(check_type: str, *, has_context: bool, has_reference: bool = False) -> Maker:
    """Return the maker of a check that judges claim by claim; promptfoo has the context in the variable `context`.

    Its threshold is 0.5 by default.
    """

    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        if negate:
            raise NoCounterpartError(f"a negated {check_type} has no counterpart")
        arguments: dict[str, Any] = {"context": "$.test_case.input.context"} if has_context else {}
        if has_reference:
            arguments["reference"] = literal(_text(value, check_type))
        return check_type, {**arguments, "pass_at": 0.5 if threshold is None else threshold}

    return make


def _limit(kind: str, path: str) -> Maker:
    def make(value: Any, threshold: float | None, negate: bool) -> Made:
        if threshold is None or negate:
            raise NoCounterpartError(f"{kind} without a threshold, or negated, has no counterpart")
        return "threshold", {"value": path, "max_value": threshold}

    return make


def _finish_reason(value: Any, threshold: float | None, negate: bool) -> Made:
    reason = {"actual": "$.output.metadata.finish_reason", "expected": literal(_text(value, "finish-reason"))}
    return "exact_match", {**reason, "case_sensitive": False, **_negated(negate)}


_FACTUALITY = "The answer does not contradict this expert answer, and leaves out nothing that matters: "

_MAKERS: dict[str, Maker] = {
    "equals": _equals,
    "contains": _contains(ignore_case=False),
    "icontains": _contains(ignore_case=True),
    "contains-all": _several("contains-all", every=True, ignore_case=False),
    "contains-any": _several("contains-any", every=False, ignore_case=False),
    "icontains-all": _several("icontains-all", every=True, ignore_case=True),
    "icontains-any": _several("icontains-any", every=False, ignore_case=True),
    "regex": _regex,
    "starts-with": _edge("starts-with", r"\A", ""),
    "ends-with": _edge("ends-with", "", r"\Z"),
    "is-json": _is_json,
    "similar": _similar,
    "similar:cosine": _similar,
    "llm-rubric": _judged("llm-rubric"),
    "g-eval": _judged("llm-rubric"),
    "model-graded-closedqa": _judged("model-graded-closedqa", "The answer meets this criterion: "),
    "factuality": _judged("factuality", _FACTUALITY),
    "model-graded-factuality": _judged("factuality", _FACTUALITY),
    "answer-relevance": _by_claims("answer_relevancy", has_context=False),
    "context-faithfulness": _by_claims("faithfulness", has_context=True),
    "context-recall": _by_claims("context_recall", has_context=True, has_reference=True),
    "latency": _limit("latency", "$.output.metadata.latency_ms"),
    "cost": _limit("cost", "$.output.metadata.usd"),
    "finish-reason": _finish_reason,
}

_WITH_LIMIT = {
    *("answer-relevance", "classifier", "context-faithfulness", "context-recall", "context-relevance", "cost"),
    *("latency", "levenshtein", "perplexity-score", "perplexity", "rouge-n", "similar", "starts-with"),
}
_TYPES = sorted({*_MAKERS, *NOT_YET, *CODE, *OTHERS}, key=len, reverse=True)
_OF_CELL = re.compile(rf"(not-)?({'|'.join(map(re.escape, _TYPES))})(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?")


def assertion_of_cell(cell: str) -> dict[str, Any]:
    """Return the assertion that a cell of `__expected` is: `TYPE(THRESHOLD): VALUE`, or a text that is to be equal."""
    text = cell.strip()
    for prefix, kind in (("javascript:", "javascript"), ("fn:", "javascript"), ("eval:", "javascript")):
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix)}
    if text.startswith("grade:"):
        return {"type": "llm-rubric", "value": text.removeprefix("grade:").strip()}
    if text.startswith("file://"):
        return {"type": "python" if ".py" in text else "javascript", "value": text}
    match = _OF_CELL.fullmatch(text)
    if match is None:
        return {"type": "equals", "value": text}
    kind, limit = match[2], match[3]
    value = match[4].strip() if match[4] is not None else None
    assertion: dict[str, Any] = {"type": f"{match[1] or ''}{kind}"}
    if value is not None:
        assertion["value"] = value
    if kind in _WITH_LIMIT:
        assertion["threshold"] = float(limit) if limit else (0.8 if kind == "similar" else 0.75)
    elif limit:
        assertion["threshold"] = float(limit)
    return assertion
