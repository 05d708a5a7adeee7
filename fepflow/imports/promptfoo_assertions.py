"""promptfoo: assertions that have a counterpart among the checks, and templates (nunjucks) that only name variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from fepflow.imports.imported import OUTPUT, finite_number, fit_ids, literal, mapping, rubric, text_or_none
from fepflow.json.values import map_leaves, parse, texts_in
from fepflow.text import brief

CODE = {"javascript", "python", "ruby", "webhook"}
INSTEAD = {
    "is-refusal": "take a rubric",
    "perplexity": "an agent's output tells no probabilities",
    "perplexity-score": "an agent's output tells no probabilities",
    "select-best": "take fepflow compare --judge",
    "max-score": "take fepflow compare",
    "human": "label results on the pages",
    "contains-json": "take json_valid, with extract",
    "rouge-n": "take text_distance with metric: rouge_l, which counts another way",
    "levenshtein": "take text_distance with pass_at, which is a share of the longer text and not a number of edits",
    "context-relevance": "take context_precision, which asks something else",
    "similar:dot": "take semantic_similarity with similarity_metric: dot",
    "similar:euclidean": "take semantic_similarity with similarity_metric: euclidean, a score and not a distance",
    **dict.fromkeys(("bleu", "gleu", "meteor"), "take text_distance"),
    **dict.fromkeys(("tool-call-f1", "skill-used", "trajectory:tool-used"), "take tool_usage"),
    **dict.fromkeys(("trajectory:tool-args-match", "trajectory:tool-sequence"), "take tool_usage"),
}
"""Assertions without a counterpart, and what to take instead."""

OTHERS = {
    *("agent-rubric", "classifier", "contains-html", "contains-sql", "contains-xml", "conversation-relevance"),
    *("guardrails", "is-html", "is-sql", "is-valid-function-call", "is-valid-openai-function-call"),
    *("is-valid-openai-tools-call", "is-xml", "moderation", "pi", "search-rubric", "word-count"),
    *("trajectory:goal-success", "trajectory:step-count", "trace-error-spans", "trace-span-count"),
    "trace-span-duration",
}
"""Other assertions without a counterpart: a cell of `__expected` that begins with one is not an expected text."""

_RUBRICS = {
    "llm-rubric": "",
    "g-eval": "",
    "model-graded-closedqa": "The answer meets this criterion: ",
    **dict.fromkeys(
        ("factuality", "model-graded-factuality"),
        "The answer does not contradict this expert answer, and leaves out nothing that matters: ",
    ),
}
"""Assertions that become rubrics, with the words before their value."""

_NEGATABLE = {
    *("equals", "contains", "icontains", "contains-all", "contains-any", "icontains-all", "icontains-any"),
    *("regex", "starts-with", "ends-with", "similar", "similar:cosine", "finish-reason"),
}
_BY_CLAIMS = {
    "answer-relevance": "answer_relevancy",
    "context-faithfulness": "faithfulness",
    "context-recall": "context_recall",
}
_LIMITS = {"latency": "$.output.metadata.latency_ms", "cost": "$.output.metadata.usd"}
KNOWN = {*_NEGATABLE, *_RUBRICS, *_BY_CLAIMS, *_LIMITS, "is-json"}
_MEMBERS = {"type", "value", "threshold", "weight", "metric", "metricOnly", "provider", "config"}


class NoCounterpartError(ValueError):
    """An assertion that has no counterpart among the checks; `advice` says what to do."""

    def __init__(self, message: str, advice: str | None = None) -> None:
        self.advice = advice
        super().__init__(message)


def check_of(assertion: Mapping[str, Any]) -> dict[str, Any]:
    """Return the check of an assertion whose templates are filled in. Raises NoCounterpartError."""
    kind = assertion.get("type")
    if not isinstance(kind, str):
        raise NoCounterpartError("an assertion without a type")
    name, negate = kind.removeprefix("not-"), kind.startswith("not-")
    if name in CODE:
        raise NoCounterpartError(f"the assertion {name} is code, which is not executed", "write a check in Python")
    if name not in KNOWN or (negate and name not in _NEGATABLE):
        advice = INSTEAD.get(name, "write a check in Python")
        raise NoCounterpartError(f"the assertion {kind[:60]} has no counterpart", advice)
    if assertion.get("weight") == 0 or assertion.get("metricOnly") is True:
        raise NoCounterpartError(f"{name} with weight 0 never fails there, so it is left out", "add a metric")
    if others := [member for member, value in assertion.items() if member not in _MEMBERS and value is not None]:
        raise NoCounterpartError(f"{name} with {others[0][:60]} has no counterpart", "write the check by hand")
    value = assertion.get("value")
    if isinstance(value, str) and value.startswith("file://"):
        raise NoCounterpartError(f"the value of {kind} is a file that was not read", "put the value itself")
    try:
        check_type, arguments = _check(name, value, finite_number(assertion.get("threshold")), negate)
    except LogicError as error:
        raise NoCounterpartError(f"the value of {kind}: {error}") from None
    metric = text_or_none(assertion.get("metric"))
    return {"type": check_type, **({"id": fit_ids([metric])[0]} if metric else {}), "arguments": arguments}


def _check(name: str, value: Any, threshold: float | None, negate: bool) -> tuple[str, dict[str, Any]]:
    """Return type and arguments of a check."""
    negated = {"negate": True} if negate else {}
    pass_at = 0.5 if threshold is None else threshold  # of claims, as promptfoo has it
    match name:
        case "equals" if isinstance(value, dict | list) and not negate:
            return "schema_validation", {"data": OUTPUT, "schema": literal({"const": value})}
        case "equals":
            text = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
            text = text if text == "" else _text(text, name)
            return "exact_match", {"actual": OUTPUT, "expected": literal(text), **negated}
        case "contains" | "icontains" | "contains-all" | "icontains-all" | "contains-any" | "icontains-any":
            return "contains", {"text": OUTPUT, **_phrases(name, value, negate), **negated}
        case "regex":
            return "regex", {"text": OUTPUT, "pattern": literal(python_pattern(_text(value, name))), **negated}
        case "starts-with":
            return "regex", {"text": OUTPUT, "pattern": rf"\A{re.escape(_text(value, name))}", **negated}
        case "ends-with":
            return "regex", {"text": OUTPUT, "pattern": rf"{re.escape(_text(value, name))}\Z", **negated}
        case "is-json":
            return "json_valid", {"text": OUTPUT, **_json_schema(value)}
        case "similar" | "similar:cosine":
            return "semantic_similarity", {"text": OUTPUT, **_similar(value, threshold, negate)}
        case "finish-reason":
            reason = {"actual": "$.output.metadata.finish_reason", "expected": literal(_text(value, name))}
            return "exact_match", {**reason, "case_sensitive": False, **negated}
        case "answer-relevance":
            return _BY_CLAIMS[name], {"pass_at": pass_at}
        case "context-faithfulness" | "context-recall":  # promptfoo has the context in the variable `context`
            reference = {"reference": literal(_text(value, name))} if name == "context-recall" else {}
            return _BY_CLAIMS[name], {"context": "$.test_case.input.context", **reference, "pass_at": pass_at}
        case "latency" | "cost":
            if threshold is None:
                raise NoCounterpartError(f"{name} without a threshold has no counterpart")
            return "threshold", {"value": _LIMITS[name], "max_value": threshold}
    criteria = f"{_RUBRICS[name]}{_text(value, name)}"
    if "{{" in criteria:
        raise NoCounterpartError("a rubric with {{ in it reads like a template", "write it by hand")
    arguments: dict[str, Any] = rubric(criteria, pass_at=threshold)["arguments"]
    return "rubric", arguments


def _text(value: Any, kind: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise NoCounterpartError(f"the value of {kind} is not a text")
    return value if isinstance(value, str) else number_text(value)


def _phrases(name: str, value: Any, negate: bool) -> dict[str, Any]:
    is_every, is_some = name.endswith("-all"), name.endswith("-any")
    if not (is_every or is_some):
        value = [value]
    elif isinstance(value, str):
        if '"' in value:
            raise NoCounterpartError(f"the value of {name} has quotes", "write a list")
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value:
        raise NoCounterpartError(f"the value of {name} is not a list of texts")
    phrases = [_text(phrase, name) for phrase in value]
    if len(phrases) > 1 and any(phrase.startswith(("$.", "\\$.")) for phrase in phrases):
        raise NoCounterpartError(f"a text of {name} begins with $.", "write the check by hand")
    arguments: dict[str, Any] = {"phrases": literal(phrases[0]) if len(phrases) == 1 else phrases}
    if name.startswith("i"):
        arguments["case_sensitive"] = False
    # Negated, `match_all` says that none may be there; without it one missing is enough.
    if len(phrases) > 1 and is_every is negate:
        arguments["match_all"] = False
    return arguments


_ESCAPES = frozenset("dDwWsSbBnrtfv0123456789x")
"""Letters and digits that mean the same after a backslash in JavaScript and in Python."""

_OF_PYTHON = re.compile(r"\(\?(?!:|=|!|<)|\{,\d*\}|[*+?}]\+")
"""Groups, flags and quantifiers of Python that JavaScript reads another way."""


def python_pattern(pattern: str) -> str:
    """Return a pattern of JavaScript as Python has it: `$` is the very end there, and letters are those of ASCII.

    Raises NoCounterpartError.
    """
    parts, in_class, is_ascii = [], False, False
    for token in re.finditer(r"\\.|.", pattern, re.DOTALL):
        part, escaped = token[0], token[0][1:]
        if escaped.isalnum() and escaped not in _ESCAPES:
            raise NoCounterpartError("the pattern of regex has an escape that Python reads another way")
        is_ascii = is_ascii or escaped in tuple("dDwWbB")
        if not in_class and pattern.startswith(("[]", "[^]"), token.start()):
            raise NoCounterpartError("the pattern of regex has an empty class, which Python reads another way")
        if not in_class and _OF_PYTHON.match(pattern, token.start()):
            raise NoCounterpartError("the pattern of regex has flags or a group that JavaScript reads another way")
        if in_class and part in "[&~|":
            parts.append("\\")  # Python warns of what may be a set inside of a set
        parts.append("\\Z" if part == "$" and not in_class else part)
        in_class = part == "[" or (in_class and part != "]")
    converted = "".join(parts).replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
    try:
        re.compile(converted)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoCounterpartError(f"the pattern of regex is not valid in Python: {error}") from None
    return f"(?a){converted}" if is_ascii else converted


def _json_schema(value: Any) -> dict[str, Any]:
    if value in (None, ""):
        return {}
    if isinstance(value, str):  # from a cell
        try:
            value = parse(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise NoCounterpartError("the schema of is-json is not an object", "write it as one")
    if (keyword := _other_keyword(value)) is not None:
        message = f"the schema of is-json has {keyword}, which json_valid reads another way"
        raise NoCounterpartError(message, "write json_valid with a schema of JSON Schema 2020-12")
    return {"schema": literal(value)}


_FORMATS = {"date", "date-time", "ipv4", "ipv6", "uuid"}


def _other_keyword(schema: Any) -> str | None:
    """Return a keyword that means another thing, or nothing, in JSON Schema 2020-12: promptfoo reads draft 7."""
    if isinstance(schema, list):
        return next(filter(None, map(_other_keyword, schema)), None)
    schema = mapping(schema)
    if isinstance(format := schema.get("format"), str) and format not in _FORMATS:
        return f"the format {format[:40]}"
    if isinstance(schema.get("items"), list):
        return "a list of items"
    keyword = next((name for name in ("additionalItems", "dependencies", "nullable") if name in schema), None)
    return keyword or (_other_keyword(list(schema.values())) if schema else None)


def _similar(value: Any, threshold: float | None, negate: bool) -> dict[str, Any]:
    limits = {"max_value" if negate else "min_value": 0.75 if threshold is None else threshold}
    if not isinstance(value, list) or not value:
        return {"reference": literal(_text(value, "similar")), "threshold": limits}
    if negate:  # all have to be unlike
        raise NoCounterpartError("not-similar with a list has no counterpart", "write a check for each text")
    references = [literal(_text(item, "similar")) for item in value]
    return {"reference": references, "any": True, "threshold": limits}


_WITH_LIMIT = {
    *("answer-relevance", "classifier", "context-faithfulness", "context-recall", "context-relevance", "cost"),
    *("latency", "levenshtein", "perplexity-score", "perplexity", "rouge-n", "similar", "starts-with"),
}
_TYPES = sorted({*KNOWN, *INSTEAD, *OTHERS, *CODE}, key=len, reverse=True)
_OF_CELL = re.compile(rf"(not-)?({'|'.join(map(re.escape, _TYPES))})(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?")


def assertion_of_cell(cell: str) -> dict[str, Any]:
    """Return the assertion in a cell of `__expected`: `TYPE(THRESHOLD): VALUE`, or the expected text."""
    text = cell.strip()
    if match := re.match(r"(?:javascript|fn|eval):", text):
        return {"type": "javascript", "value": text[match.end() :]}
    if text.startswith("grade:"):
        return {"type": "llm-rubric", "value": text.removeprefix("grade:").strip()}
    if text.startswith("file://"):
        return {"type": "python" if ".py" in text else "javascript", "value": text}
    match = _OF_CELL.fullmatch(text)
    if match is None:
        return {"type": "equals", "value": text}
    kind, limit = match[2], match[3]
    assertion: dict[str, Any] = {"type": f"{match[1] or ''}{kind}"}
    if match[4] is not None:
        assertion["value"] = match[4].strip()
    if limit or kind in _WITH_LIMIT:
        assertion["threshold"] = float(limit) if limit else 0.8 if kind == "similar" else 0.75
    return assertion


_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*"
_PLACEHOLDER = re.compile(rf"\{{\{{-?\s*({_NAME})(\s*\|\s*(?:dump|safe|tojson))?\s*-?\}}\}}")
_OTHER = re.compile(r"\{\{|\{%|\{#")


class LogicError(ValueError):
    """A template with filters, conditions, loops or the environment, which only nunjucks can fill in."""


def has_template(value: Any) -> bool:
    """Return whether a text, or a text inside of a value, is a template."""
    return any(_OTHER.search(text) for _, text in texts_in(value))


def fill_in(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value whose texts are filled in, as promptfoo fills them in before a test. Raises LogicError."""
    return map_leaves(value, partial(_filled_in, variables=variables))


def _filled_in(value: Any, variables: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or not _OTHER.search(value):
        return value
    _require_plain(value)
    return _PLACEHOLDER.sub(lambda match: _printed(_look_up(match[1], variables), match[2] or ""), value)


def placeholders(text: str) -> str:
    """Return a template with fepflow's placeholders over the input of a test case. Raises LogicError."""
    _require_plain(text)
    return _PLACEHOLDER.sub(lambda match: f"{{{{$.test_case.input.{match[1]}}}}}", text)


def without_logic(text: str) -> str:
    """Return a template with its placeholders, and with [[ ]] around whatever else nunjucks reads."""
    plain, names = _PLACEHOLDER.split(text)[::3], _PLACEHOLDER.findall(text)
    parts = [part.replace("{{", "[[").replace("}}", "]]") for part in plain]
    return parts[0] + "".join(
        f"{{{{$.test_case.input.{name}}}}}{part}" for (name, _), part in zip(names, parts[1:], strict=True)
    )


def _require_plain(text: str) -> None:
    rest = _PLACEHOLDER.sub("", text)
    if _OTHER.search(rest) or any(match[1].startswith("env.") for match in _PLACEHOLDER.finditer(text)):
        raise LogicError("it is a template with logic, filters or the environment")


def _look_up(name: str, variables: Mapping[str, Any]) -> Any:
    value: Any = variables
    for step in re.findall(r"\w+", name):
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _printed(value: Any, filtered: str) -> str:
    """Return a value as nunjucks prints it: nothing for a missing value, JSON with a filter. Raises LogicError."""
    if "dump" in filtered or "tojson" in filtered:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if not isinstance(value, str):
        raise LogicError("a list or an object stands inside of a text")
    return value


def number_text(value: float) -> str:
    """Return a number as JavaScript prints it: 5.0 is 5. Raises LogicError for one that is too large or too small."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if abs(value) > 2**53 or not (text := str(value)).removeprefix("-").replace(".", "").isdecimal():
        raise LogicError(f"JavaScript prints the number {brief(str(value), 60)} in another way")
    return text
