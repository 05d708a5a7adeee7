"""Why a check failed is a sentence: what was wanted and what was got, never a list of arguments."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.engine import evaluate
from fepflow.checks.explanation import MAX_SENTENCE, arguments_of, explain, findings
from fepflow.checks.registry import CHECKS, SCORED_JUDGES
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.large_arguments import leave_out_large

OUTPUT, EXPECTED = "$.output.value", "$.test_case.expected"
ORDER = "The order 4711 is shipped."
CALLS = [{"name": "search"}, {"name": "refund", "arguments": {"id": 4712}}]


async def judge(prompt: str, response_format: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"reason": "It names\nanother city.", "score": 0.123456, "passed": False}, {"model": "m"}


async def silent_judge(prompt: str, response_format: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"passed": False}, {}


async def embed(text: str) -> list[float]:
    return [1.0, 0.0] if text == "Lyon" else [0.62, 0.7846018]


def bare(text: str) -> dict[str, Any]:
    return {"passed": False}


def with_key(text: str, api_key: str) -> dict[str, Any]:
    return {"passed": False}


def with_reason(text: str) -> dict[str, Any]:
    return {"passed": False, "reason": f"{text} is in France, too"}


def with_numbers(text: str) -> dict[str, Any]:
    return {"passed": False, "words": 3, "share": 0.123456}


def compared(expected: Any, **more: Any) -> dict[str, Any]:
    return {"actual": OUTPUT, "expected": expected, **more}


def judged(function: Any) -> dict[str, Any]:
    return {
        "prompt": "Is {{$.output.value}} right?",
        "response_format": {"type": "object"},
        "llm_function": function,
        "provider_config": {"api_key": "${JUDGE_KEY}", "api_base": "http://127.0.0.1:9"},
        "model_config": {"model": "openai/m", "temperature": 0},
    }


def similar(**threshold: Any) -> dict[str, Any]:
    return {"text": OUTPUT, "reference": "Paris", "embedding_function": embed, "threshold": threshold}


def called(function: Any) -> dict[str, Any]:
    return {"validation_function": function, "function_args": {"text": OUTPUT}}


LONG = "x" * 500

SENTENCES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("contains", {"text": OUTPUT, "phrases": "processing"}, ORDER, f'"processing" is not in: "{ORDER}"'),
    ("contains", {"text": OUTPUT, "phrases": ["a", "order", "Z"]}, "order", '"a", "Z" are not in: "order"'),
    ("contains", {"text": OUTPUT, "phrases": ["a", "b"], "match_all": False}, "c", 'none of "a", "b" is in: "c"'),
    ("contains", {"text": OUTPUT, "phrases": ["a", "c"], "negate": True}, "ab", '"a" is in: "ab"'),
    (
        "contains",
        {"text": OUTPUT, "phrases": ["a", "b"], "negate": True, "match_all": False},
        "ab",
        'all of "a", "b" are in: "ab"',
    ),
    (
        "contains",
        {"text": OUTPUT, "phrases": "Shipped"},
        ORDER,
        f'"Shipped" is not in: "{ORDER}" (there in other upper and lower case)',
    ),
    (
        "contains",
        {"text": OUTPUT, "phrases": "refund", "negate": True, "case_sensitive": False},
        f"{LONG} a Refund {LONG}",
        f'"refund" is in: "…{"x" * 27} a Refund {"x" * 63}…"',
    ),
    ("exact_match", compared(EXPECTED), "Lyon", 'got "Lyon", wanted "Paris"'),
    ("exact_match", compared(EXPECTED, negate=True), "Paris", 'got "Paris", wanted anything else'),
    (
        "exact_match",
        compared(EXPECTED),
        "Paris\n",
        'got "Paris\\n", wanted "Paris" (they differ in white space only)',
    ),
    (
        "exact_match",
        compared(EXPECTED),
        "paris",
        'got "paris", wanted "Paris" (they differ in upper and lower case only)',
    ),
    (
        "exact_match",
        compared(f"{LONG} is one"),
        f"{LONG} is two",
        f'got "…{"x" * 93} is two", wanted "…{"x" * 93} is one" (they differ from character 505 on)',
    ),
    (
        "exact_match",
        compared({"total": 13, "items": [{"name": "a"}], "id": 1}),
        {"total": 12, "items": [{"name": "b"}, 2]},
        'total: got 12, wanted 13; items[0].name: got "b", wanted "a"; items[1] is not wanted, got 2; and more',
    ),
    ("equals", compared(12), "12", 'got "12", wanted 12'),
    ("equals", compared([1, 2]), [1], "[1] is missing, wanted 2"),
    ("equals", compared(True, negate=True), True, "got true, wanted anything else"),
    ("regex", {"text": OUTPUT, "pattern": r"\bKB-\d+"}, "See it.", r'/\bKB-\d+/ is not found in: "See it."'),
    (
        "regex",
        {"text": OUTPUT, "pattern": "A+B", "negate": True, "flags": {"case_insensitive": True}},
        f"{LONG} aab {LONG}",
        f'/A+B/ is found in: "…{"x" * 29} aab {"x" * 66}…"',
    ),
    ("threshold", {"value": "$.output.value.score", "min_value": 0.7}, {"score": 0.6199999}, "score 0.62 is under 0.7"),
    ("threshold", {"value": OUTPUT, "max_value": 500}, 812, "812 is over 500"),
    ("threshold", {"value": OUTPUT, "max_value": 1000}, 1234.5678, "1235 is over 1000"),
    ("threshold", {"value": OUTPUT, "min_value": 0.7, "min_inclusive": False}, 0.7, "0.7 is not over 0.7"),
    ("threshold", {"value": OUTPUT, "min_value": 0.7}, 0.69999, "0.69999 is under 0.7"),
    ("threshold", {"value": OUTPUT, "min_value": 0.9995}, 0.99, "0.99 is under 0.9995"),
    (
        "threshold",
        {"value": OUTPUT, "min_value": 0.7, "max_value": 0.8, "negate": True},
        0.75,
        "0.75 is between 0.7 and 0.8, which is not wanted",
    ),
    ("is_empty", {"value": OUTPUT}, "text", 'got "text", wanted nothing'),
    ("is_empty", {"value": OUTPUT, "negate": True}, [], "got [], wanted something"),
    ("attribute_exists", {"path": "$.output.value.answer"}, {}, "$.output.value.answer is not there"),
    (
        "attribute_exists",
        {"path": "$.output.value.error", "negate": True},
        {"error": "boom"},
        '$.output.value.error is there: "boom"',
    ),
    (
        "json_valid",
        {"text": OUTPUT},
        '{"a": 1 b}',
        """is not valid JSON: Expecting ',' delimiter at column 9: "{"a": 1 b}\"""",
    ),
    (
        "json_valid",
        {"text": OUTPUT},
        f'{{\n"a": "{LONG}"\n"b": 1}}',
        f"""is not valid JSON: Expecting ',' delimiter at line 3, column 1: "…{"x" * 91}"\\n"b": 1}}\"""",
    ),
    (
        "json_valid",
        {"text": OUTPUT, "schema": {"required": ["id"]}},
        "{}",
        "'id' is a required property",
    ),
    (
        "schema_validation",
        {"data": OUTPUT, "schema": {"required": ["id"], "properties": {"total": {"type": "number"}}}},
        {"total": "12 EUR"},
        "'id' is a required property; and 1 more",
    ),
    (
        "schema_validation",
        {"data": OUTPUT, "schema": {"properties": {"total": {"type": "number"}}}},
        {"total": "12 EUR"},
        "total: '12 EUR' is not of type 'number'",
    ),
    (
        "declared",
        {"schema": "$.output.value.schema", "data": "$.output.value.data"},
        {"schema": {"required": ["id"]}, "data": {"total": 9}},
        "'id' is a required property",
    ),
    (
        "subset",
        {"collection": OUTPUT, "required": ["food", "art"]},
        ["Travel", "art"],
        '"food" is missing from: ["Travel", "art"]',
    ),
    ("subset", {"collection": OUTPUT, "required": ["a"], "negate": True}, ["a"], 'all of "a" are in: ["a"]'),
    (
        "superset",
        {"collection": OUTPUT, "allowed": ["a", "b"]},
        ["a", "x"],
        '"x" is not among what is allowed: "a", "b"',
    ),
    (
        "superset",
        {"collection": OUTPUT, "allowed": ["a"], "negate": True},
        ["a"],
        'all of ["a"] are allowed, which is not wanted',
    ),
    (
        "set_equal",
        compared(["a", "b", "c"]),
        ["a", "x"],
        '"b", "c" are missing; "x" is unexpected; got ["a", "x"]',
    ),
    ("set_equal", compared(["a"], negate=True), ["a"], 'got ["a"], wanted anything else'),
    ("disjoint", {"collection": OUTPUT, "forbidden": ["x"]}, ["a", "x"], '"x" is forbidden, and in: ["a", "x"]'),
    ("disjoint", {"collection": OUTPUT, "forbidden": ["x"], "negate": True}, ["a"], 'none of "x" is in: ["a"]'),
    ("text_match", {"text": OUTPUT, "condition": "contains", "value": "z"}, "abc", '"z" is not in: "abc"'),
    ("text_match", {"text": OUTPUT, "condition": "equals", "value": "z"}, "abc", 'got "abc", wanted "z"'),
    ("text_match", {"text": OUTPUT, "condition": "does_not_contain", "value": "b"}, "abc", '"b" is in: "abc"'),
    ("text_match", {"text": OUTPUT, "condition": "regex", "pattern": "z+"}, "abc", '/z+/ is not found in: "abc"'),
    (
        "text_match",
        {"text": OUTPUT, "condition": "contains", "value": "b"},
        "",
        "got an empty text, wanted one that can be compared",
    ),
    (
        "tool_usage",
        {"calls": OUTPUT, "order": ["search", "check_policy", "refund"]},
        CALLS,
        "called search, refund; wanted search, check_policy, refund",
    ),
    (
        "tool_usage",
        {"calls": OUTPUT, "order": ["refund", "search"]},
        CALLS,
        "called search, refund; wanted refund, search, in this order",
    ),
    ("tool_usage", {"calls": OUTPUT, "order": ["search"]}, None, "called nothing; wanted search"),
    ("tool_usage", {"calls": OUTPUT, "name": "pay"}, CALLS, "called search, refund; wanted pay"),
    (
        "tool_usage",
        {"calls": OUTPUT, "name": "refund", "arguments": {"id": 4711}},
        CALLS,
        'called refund with {"id": 4712}; wanted refund with {"id": 4711}',
    ),
    (
        "tool_usage",
        {"calls": OUTPUT, "name": "search", "max_count": 2},
        CALLS * 3,
        "called search 3 times; wanted at most 2 times",
    ),
    ("tool_usage", {"calls": OUTPUT, "name": "search", "max_count": 0}, CALLS, "called search once; wanted never"),
    (
        "tool_usage",
        {"calls": OUTPUT, "name": "search", "min_count": 2},
        CALLS,
        "called search once; wanted at least 2 times",
    ),
    (
        "tool_usage",
        {"calls": OUTPUT, "name": "search", "negate": True},
        CALLS,
        "called search, refund, which is not wanted",
    ),
    ("number", {"text": OUTPUT, "expected": 3}, "It is 4.", "got 4, wanted 3"),
    ("number", {"text": OUTPUT, "expected": 3}, "Many.", 'there is no number in: "Many."'),
    ("text_distance", {"text": OUTPUT, "expected": "Paris"}, "abc", 'ratio 0.25: got "abc", wanted "Paris"'),
    ("json_diff", {"actual": OUTPUT, "expected": {"a": 1}}, {"a": 2}, "$.a: got 2, wanted 1"),
    (
        "classification",
        {"actual": OUTPUT, "expected": "yes", "labels": ["yes", "no"]},
        "maybe",
        '"maybe" is not one of the labels "yes", "no"',
    ),
    ("classification", {"actual": OUTPUT, "expected": "yes"}, "no", 'got "no", wanted "yes"'),
    ("recorded_score", {"result": OUTPUT}, {"passed": False}, "it was recorded as failed, without a reason"),
    ("recorded_score", {"result": OUTPUT, "pass_at": 0.7}, 0.62, "score 0.62 is under 0.7"),
    (
        "tool_usage",
        {"calls": OUTPUT, "expected": ["search", "pay"], "pass_at": 0.7},
        CALLS,
        "score 0.5 is under 0.7: called search, refund; wanted search, then pay, and nothing else",
    ),
    ("llm_judge", judged(judge), "Lyon", "It names another city. (score 0.1235)"),
    ("llm_judge", judged(silent_judge), "Lyon", "the judge says no and gives no reason"),
    ("semantic_similarity", similar(min_value=0.7), "Lyon", "score 0.62 is under 0.7"),
    ("semantic_similarity", similar(max_value=0.5), "Lyon", "score 0.62 is over 0.5"),
    ("custom_function", called(with_reason), "Lyon", "Lyon is in France, too"),
    ("custom_function", called(with_numbers), "Lyon", "words: 3, share: 0.1235"),
    ("custom_function", called(bare), "Lyon", 'bare did not pass and gives no reason; it got text "Lyon"'),
]


def result_of(check: AnyCheck, value: Any, expected: Any = "Paris") -> CheckResult:
    case = TestCase(id="a", input="q", expected=expected)
    return evaluate([case], [Output(value=value)], [check]).results[0].check_results[0]


def test_a_failed_check_says_what_it_wanted_and_what_it_got() -> None:
    for check_type, arguments, value, sentence in SENTENCES:
        result = result_of(Check(type=check_type, arguments=arguments), value)
        assert result.passed is False, result
        assert explain(result) == sentence
        again = CheckResult.model_validate_json(result.model_dump_json())
        assert explain(again) == sentence, "as it was stored"


def test_every_check_type_has_its_sentence() -> None:
    assert {check_type for check_type, *_ in SENTENCES} == set(CHECKS) - set(SCORED_JUDGES)


class WordCount(BaseCheck):
    check_type = "word_count"
    text: str | JSONPath
    at_most: int = 10

    def __call__(self) -> dict[str, Any]:
        return {"passed": False, "words": 3, "too_long": ["first", "second"], "hint": "", "rest": []}


class Polite(BaseCheck):
    check_type = "polite"
    text: str | JSONPath
    api_key: str = ""
    lookup_config: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        return {"passed": False, "reason": f"no greeting in\n\x1b[31m{self.text!r}"} if self.text else {"passed": False}


def test_a_check_of_ones_own_brings_its_sentence_as_a_reason() -> None:
    assert explain(result_of(Polite(text=OUTPUT), "Hm.")) == "no greeting in \\u001b[31m'Hm.'"
    response = {"response": {"passed": False, "reason": "Rude."}}
    judged = result_of(WordCount(text=OUTPUT), "x").model_copy(update={"results": response})
    assert explain(judged) == "Rude."


def test_a_check_without_a_reason_tells_its_results_else_what_it_got_and_no_configuration() -> None:
    assert explain(result_of(WordCount(text=OUTPUT), "a b c")) == "words: 3, too_long: first; second"
    check = Polite(text=OUTPUT, api_key="${POLITE_KEY}", lookup_config={"at": "http://127.0.0.1"})
    assert explain(result_of(check, "")) == 'polite did not pass and gives no reason; it got text ""'
    secret = called(with_key)
    secret["function_args"] = {"text": OUTPUT, "api_key": "hidden"}
    said = explain(result_of(Check(type="custom_function", arguments=secret), "Lyon"))
    assert "hidden" not in said
    assert 'text "Lyon"' in said


def test_an_error_is_its_cause_in_one_line_without_placeholders() -> None:
    missing = result_of(Check(type="contains", arguments={"text": "$.output.value.no", "phrases": "x"}), {})
    assert explain(missing) == "'$.output.value.no' found nothing: 'value' has no 'no'; it is empty"
    assert missing.error is not None
    message = "openai/m:\n${JUDGE_KEY} is not set in the environment (export JUDGE_KEY)"
    no_key = missing.model_copy(update={"error": missing.error.model_copy(update={"message": message})})
    assert explain(no_key) == "openai/m: JUDGE_KEY is not set in the environment (export JUDGE_KEY)"
    assert findings(no_key, 100) == ["openai/m:", "JUDGE_KEY is not set in the environment (export JUDGE_KEY)"]


def test_a_check_that_was_skipped_says_so() -> None:
    result = result_of(Check(type="equals", arguments={"actual": 1, "expected": 1}), "x")
    assert explain(result.model_copy(update={"status": "skip", "results": {}})) == "the check was skipped"


def test_a_check_that_passed_tells_what_it_found() -> None:
    assert explain(result_of(Check(type="tool_usage", arguments={"calls": OUTPUT}), CALLS)) == "count: 2"
    assert explain(result_of(Check(type="contains", arguments={"text": OUTPUT, "phrases": "a"}), "a")) == ""


def test_findings_are_whole_and_do_not_repeat_the_sentence() -> None:
    schema = {"required": ["id", "a"]}
    result = result_of(Check(type="schema_validation", arguments={"schema": schema, "data": OUTPUT}), {})
    assert findings(result, 100) == ["validation_errors: 'a' is a required property"]
    assert findings(result_of(Check(type="llm_judge", arguments=judged(judge)), "Lyon"), 100) == []


def test_arguments_are_without_the_output_configuration_and_keys() -> None:
    found = arguments_of(result_of(Check(type="llm_judge", arguments=judged(judge)), "Lyon"), 100)
    assert found == ["samples: 1", 'response_format: {"type": "object"}', "prompt: Is Lyon right?"]


HUGE = {"items": ["long"] * 100_000}


def test_a_large_value_is_cut_and_one_that_was_left_out_is_named() -> None:
    arguments: Any
    for check_type, arguments, filled_in, left_out in [
        (
            "contains",
            {"text": OUTPUT, "phrases": "q"},
            '"q" is not in: "xxxx',
            f'"q" is not in: (a large value at {OUTPUT})',
        ),
        (
            "contains",
            {"text": OUTPUT, "phrases": ["q", "z"]},
            '"q", "z" are not in: "xxxx',
            f'not all of "q", "z" are in: (a large value at {OUTPUT})',
        ),
        ("exact_match", compared("Paris"), 'got "xxxx', f'got (a large value at {OUTPUT}), wanted "Paris"'),
        ("regex", {"text": OUTPUT, "pattern": "q"}, '/q/ is not found in: "xxxx', f"in: (a large value at {OUTPUT})"),
        ("json_valid", {"text": OUTPUT}, "is not valid JSON: ", "is not valid JSON: "),
        ("is_empty", {"value": OUTPUT}, 'got "xxxx', f"got (a large value at {OUTPUT}), wanted nothing"),
    ]:
        case, output = TestCase(id="a", input="q"), Output(value="x" * 1_000_000)
        (result,) = evaluate([case], [output], [Check(type=check_type, arguments=arguments)]).results[0].check_results
        assert explain(result).startswith(filled_in)
        assert len(explain(result)) <= MAX_SENTENCE
        (stored,) = leave_out_large([result])
        assert explain(stored).endswith(left_out) or left_out in explain(stored)


def test_a_sentence_about_huge_values_is_short() -> None:
    result = result_of(Check(type="equals", arguments=compared(EXPECTED)), HUGE, {**HUGE, "total": 1})
    sentence = explain(result)
    assert sentence.startswith('got {"items": ["long", ')
    assert len(sentence) <= MAX_SENTENCE


def test_a_result_that_others_wrote_is_explained_as_far_as_it_goes() -> None:
    result = result_of(Check(type="contains", arguments={"text": OUTPUT, "phrases": "a"}), "b")
    incomplete: list[dict[str, Any]] = [
        {},
        {"text": {}},
        {"text": 1, "phrases": None},
        {"phrases": {"value": "a"}},
    ]
    for resolved in incomplete:
        sentence = explain(result.model_copy(update={"resolved_arguments": resolved}))
        assert sentence.startswith(("contains did not pass and gives no reason", '"a" is not in: ', "null is not in: "))
    for results in ({"passed": False, "missing": 3}, {"passed": False, "response": []}):
        other = result.model_copy(update={"check_type": "tool_usage", "results": results})
        assert explain(other)
    newer = result.model_copy(update={"metadata": {"check_version": "9.0.0"}})
    assert explain(newer).startswith("contains did not pass and gives no reason")


HOSTILE = {
    "lines": "one\r\ntwo\tthree",
    "escape codes": "\x1b[2J\x1b[31mred\x07\x9b1m",
    "direction": "\u202eabc\u200b\ufeff",
    "half a pair": "\ud83d",
    "markup": "<script>alert(1)</script> [link](http://example.com) `code`",
    "nul": "\x00",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_sentence_is_one_line_that_a_terminal_shows_as_it_is(text: str) -> None:
    async def say(prompt: str, response_format: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"passed": False, "reason": text, text: text}, {}

    checks = [
        Check(type="contains", arguments={"text": OUTPUT, "phrases": "Paris"}),
        Check(type="exact_match", arguments=compared({text: 1})),
        Check(type="exact_match", arguments=compared(EXPECTED)),
        Check(type="regex", arguments={"text": OUTPUT, "pattern": r"Paris\d"}),
        Check(type="subset", arguments={"collection": ["$.output.value"], "required": ["a"]}),
        Check(type="tool_usage", arguments={"calls": [{"name": text}], "name": "search"}),
        Check(type="json_valid", arguments={"text": OUTPUT}),
        Check(type="schema_validation", arguments={"data": {text: text}, "schema": {"additionalProperties": False}}),
        Check(type="llm_judge", arguments=judged(say)),
        Check(type="custom_function", arguments=called(lambda text: {"passed": False, text: [text]})),
    ]
    for check in checks:
        result = result_of(check, text)
        sentence = explain(result)
        assert sentence, check
        assert sentence.isprintable(), check
        assert all(line.isprintable() for line in [*findings(result, 100), *arguments_of(result, 100)]), check
