"""Mistakes as people make them, one a line: what they write, where validate points, what it says, and its advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError

GOOD = {
    "name": "name: refunds",
    "target": 'target: {http: {url: "http://127.0.0.1:9/ask"}}',
    "test_cases": "test_cases: cases.jsonl",
    "checks": "checks: [{type: contains, arguments: {text: $.output.value, phrases: $.test_case.expected}}]",
}
"""A valid suite, a section a line."""

RECORDED = "target: {recorded: {path: outputs.jsonl}}"
JUDGE = "judge: {model_config: {model: ollama_chat/any}, provider_config: {api_base: 'http://127.0.0.1:9'}}"
FORMAT = "response_format: {type: object, properties: {score: {type: integer, minimum: 1, maximum: 5}}}"


def check(text: str) -> str:
    return f"checks: [{{{text}}}]"


def contains(arguments: str) -> str:
    return check(f"type: contains, arguments: {{{arguments}}}")


def judge(prompt: str) -> str:
    arguments = f"{{prompt: {json.dumps(prompt)}, {FORMAT}}}"
    return f"checks: [{{id: judge, type: llm_judge, arguments: {arguments}}}]\n{JUDGE}"


def model(more: str) -> str:
    where = "" if "base_url" in more else "base_url: 'http://127.0.0.1:9/v1', "
    return f"target: {{openai: {{model: mine, {where}{more}}}}}"


OK = "text: $.output.value, phrases: a"
SCORE = judge("Rate {{$.output.value}}") + "\nmetrics: [{id: score, check: judge, value: $.response.score}]\n"

MISTAKES: list[tuple[str, int, str, str]] = [
    # Sections, as other tools call them.
    ("prompts: [a]", 5, "prompts is not a section of a suite", "the prompt for a model is target.openai.prompt"),
    ("providers: [openai]", 5, "providers is not a section", "target: {openai: {model: ...}}"),
    ("tests: []", 5, "tests is not a section", "fepflow calls them test_cases"),
    ("test: []", 5, "test is not a section", "fepflow calls them test_cases"),
    ("asserts: []", 5, "asserts is not a section", "fepflow calls them checks"),
    ("assert: []", 5, "assert is not a section", "fepflow calls them checks"),
    ("evaluators: []", 5, "evaluators is not a section", "fepflow calls them checks"),
    ("defaultTest: {}", 5, "defaultTest is not a section", "fepflow calls them checks"),
    ("dataset: x.jsonl", 5, "dataset is not a section", "fepflow calls them test_cases"),
    ("cases: x.jsonl", 5, "cases is not a section", "fepflow calls them test_cases"),
    ("testCases: x.jsonl", 5, "testCases is not a section", "did you mean test_cases?"),
    ("timeout: 5s", 5, "timeout is not a section", "it belongs into target"),
    ("maxConcurrency: 4", 5, "maxConcurrency is not a section", "it is target.concurrency"),
    ("epochs: 4", 5, "epochs is not a section", "it is repeats"),
    ("metric: []", 5, "metric is not a section", "did you mean metrics?"),
    ("url: http://x", 5, "url is not a section", "it belongs into target.http"),
    ("model: gpt-4o", 5, "model is not a section", "judge.model_config.model"),
    ("outputs: x.jsonl", 5, "outputs is not a section", "target.recorded"),
    # Keys inside of sections.
    ("target: {url: http://x}", 2, "url is not known here", "it belongs into target.http"),
    ('target: {http: {url: "http://x", timeout: 5s}}', 2, "timeout is not known here", "beside http"),
    ('target: {http: {ulr: "http://x"}}', 2, "ulr is not known here", "did you mean url?"),
    ('target: {http: {url: "http://x", header: {}}}', 2, "header is not known here", "did you mean headers?"),
    ('target: {http: {url: "http://x"}, max_retries: 4}', 2, "max_retries is not known", "attempts and target.retries"),
    ("target: {a2a: {}}", 2, "is missing", "add it"),
    ("target: {a2a: https://a.example}", 2, "must be a mapping", "write target: {a2a: {card: ...}}"),
    (
        "target: https://a.example/.well-known/agent-card.json",
        2,
        "must be a mapping",
        "write target: {a2a: {card: ...}}",
    ),
    ("target: {a2a: {url: http://x}}", 2, "url is not known here", "the address of an A2A agent is target.a2a.card"),
    ("target: {a2a: {card: a.example}}", 2, "the address has no scheme", "write http:// or https:// before it"),
    ("target: {a2a: {card: http://x, agent_card: y}}", 2, "agent_card is not known here", "it is target.a2a.card"),
    ("target: {a2a: {card: http://x, streaming: true}}", 2, "streaming is not known here", "did you mean stream?"),
    ("target: {a2a: {card: http://x, timeout: 5s}}", 2, "timeout is not known here", "beside http"),
    ("target: {a2a: {card: http://x, hosts: [http://y]}}", 2, "an invalid host", "agent.example.com"),
    (
        "target: {a2a: {card: http://x, headers: {X-Key: k1k2k3k4k5}}}",
        2,
        "a secret must not stand",
        "write it as ${NAME}",
    ),
    ("target: {a2a: {card: http://u:password@x}}", 2, "a secret must not stand", "write it as ${NAME}"),
    ("target: {a2a: {card: http://x, message: $.output.value}}", 2, "a request has no output yet", "test_case.input"),
    ("target: {a2a: {card: http://x, message: $.test_case.inptu}}", 2, "test_case has no inptu", "test_case.input"),
    ("target: {recorded: {file: outputs.jsonl}}", 2, "file is not known here", "target.recorded.path"),
    ("test_cases: {path: cases.jsonl, expcted: $.a}", 3, "expcted is not known here", "did you mean expected?"),
    ("test_cases: [{vars: {a: b}, expected: b}]", 3, "vars is not known here", "it is input"),
    ("checks: [{type: contains, args: {}}]", 4, "no argument args", "arguments stand beside type"),
    ("checks: [{name: a, type: contains}]", 4, "contains has no argument name", "its id"),
    ("checks: [{type: contains, txt: $.output.value}]", 4, "contains has no argument txt", "did you mean text?"),
    ("checks: [{type: not-contains, phrases: a}]", 4, "no check type not-contains", "match_all and negate"),
    ("checks: [{type: json_diff, threshold: 0.9}]", 4, "json_diff has no argument threshold", "that passes is pass_at"),
    ("checks: [{type: exact_match, pass_at: 0.9}]", 4, "exact_match gives no score here", "leave pass_at out"),
    ("checks: [{type: contains, phrases: a, versoin: 1.0.0}]", 4, "no argument versoin", "did you mean version?"),
    ("checks: [{type: contains, phrases: a, passat: 1}]", 4, "no argument passat", "did you mean pass_at?"),
    ("checks: [{type: contains, phrases: a, arguments: {phrases: b}}]", 4, "beside type and in arguments", "keep one"),
    ("checks: [{type: exact_match, extract: {regx: a}}]", 4, "regx is not known here", "did you mean regex?"),
    ("checks: [{Type: contains}]", 4, "Type is not known here", "did you mean type?"),
    ("gate: {minimum: {contains: 0.5}}", 5, "minimum is not known here", "did you mean min?"),
    ("gate: {max-impact: low}", 5, "max-impact is not known here", "did you mean max_impact?"),
    ("judge: {model: gpt-4o}", 5, "model is not known here", "did you mean model_config?"),
    ("budget: {dollars: 5}", 5, "dollars is not known here", "known are tokens, usd"),
    ("metrics: [{id: a, check: contains, agregate: mean}]", 5, "agregate is not known", "did you mean aggregate?"),
    # Checks and their arguments.
    (check("type: containz"), 4, "there is no check type containz", "did you mean contains?"),
    (check("type: icontains"), 4, "there is no check type icontains", "case_sensitive: false"),
    (check("type: is-json"), 4, "there is no check type is-json", "use json_valid"),
    (check("type: llm-rubric"), 4, "there is no check type llm-rubric", "use rubric"),
    (check("type: LLMJudge"), 4, "there is no check type LLMJudge", "did you mean llm_judge?"),
    (check("type: EqualsExpected"), 4, "there is no check type EqualsExpected", "use exact_match"),
    (check("type: GEval"), 4, "there is no check type GEval", "use rubric"),
    (check("type: javascript"), 4, "there is no check type javascript", "write your own"),
    (check("type: similar"), 4, "there is no check type similar", "use semantic_similarity"),
    (check("type: latency"), 4, "there is no check type latency", "latency_ms"),
    (contains("text: $.output.value, phrase: a"), 4, "contains has no argument phrase", "did you mean phrases?"),
    (contains(f"{OK}, case_sensitve: true"), 4, "no argument case_sensitve", "did you mean case_sensitive?"),
    (contains(f"{OK}, negate: yes"), 4, "negate: must be true or false", "write true, without quotes"),
    (contains(f"{OK}, case_sensitive: off"), 4, "must be true or false", "write false, without quotes"),
    (contains("text: $.output.value, phrases: 42"), 4, "phrases: must be a text", "or a list"),
    (contains("text: {$.output.value}, phrases: a"), 4, "text: must be a text", "in YAML { } is a mapping"),
    (contains("text: [$.output.value], phrases: a"), 4, "text: must be a text, not a list", "write the path alone"),
    (
        contains("text: $.test_case.metadata, phrases: a"),
        4,
        "must be a text, but $.test_case.metadata is an object in 0",
        "$.test_case.metadata.answer",
    ),
    (
        f"test_cases: [{{input: a, expected: [b]}}]\n{contains('text: $.test_case.expected, phrases: a')}",
        4,
        "text: must be a text, but $.test_case.expected is a list",
        "$.test_case.expected[0]",
    ),
    (
        "test_cases: [{id: x, input: a, metadata: {a: b}, checks: [{type: regex, "
        "arguments: {text: $.output.value, pattern: $.test_case.metadata}}]}]",
        3,
        "pattern: must be a text, but $.test_case.metadata is an object in x",
        "",
    ),
    (
        check("type: threshold, arguments: {value: $.output.value, min_value: $.test_case.expected}"),
        4,
        "must be a number, but $.test_case.expected is a text in 0; 3 test cases do not fit",
        "",
    ),
    (
        f"{RECORDED}\n{contains('text: $.output.value, phrases: a')}",
        4,
        "text: must be a text, but $.output.value is an object in 0; 3 recorded outputs do not fit",
        "$.output.value.answer",
    ),
    (
        f"{RECORDED}\n{check('type: threshold, arguments: {value: $.output.value.answer, min_value: 1}')}",
        4,
        "value: must be a number, but $.output.value.answer is a text",
        "",
    ),
    (
        "checks: []\ngate: {min: {status: 0.9}}",
        5,
        "there is no metric status (the suite has no checks and no metrics)",
        "",
    ),
    (
        "checks: []\ngate: {regression: {margin: {status: 0.1}}}",
        5,
        "there is no metric status (the suite has no checks and no metrics)",
        "",
    ),
    (
        "checks: []\nslices: {by: topic, min: {status: 0.1}}",
        5,
        "there is no metric status (the suite has no checks and no metrics)",
        "",
    ),
    ("checks: [{contains: {text: $.output.value, phrases: a}}]", 4, "type: is missing", "write {type: contains,"),
    ("target: http://127.0.0.1:9/ask", 2, "must be a mapping", "write target: {http: {url: ...}}"),
    ("gate: 0.9", 5, "must be a mapping", "write gate: {min: {METRIC: 0.9}}"),
    (contains("text: output.value, phrases: a"), 4, "output.value is a text, and not a path", "mean $.output.value?"),
    (contains("text: $output.value, phrases: a"), 4, "is a text, and not a path", "did you mean $.output.value?"),
    (contains('text: "{{$.output.value}}", phrases: a'), 4, "are for prompts of judges", "write $.output.value"),
    (contains('text: "{{output.value}}", phrases: a'), 4, "is a text, and not a path", "did you mean $.output.value?"),
    (
        check("type: regex, arguments: {text: $.output.value, pattern: a, flags: {ignore_case: true}}"),
        4,
        "flags.ignore_case: ignore_case is not known here",
        "did you mean case_insensitive?",
    ),
    (check("type: regex, arguments: {text: $.output.value, pattern: '('}"), 4, "not a regular expression", ""),
    (check("type: threshold, arguments: {value: $.output.value}"), 4, "give min_value, max_value, or both", ""),
    (
        check("type: threshold, arguments: {value: $.output.value, min: 1}"),
        4,
        "no argument min",
        "did you mean min_value?",
    ),
    (check("type: threshold, arguments: {value: $.output.value, min_value: '5'}"), 4, "must be a number", ""),
    (check("type: exact_match, arguments: {actual: '$.output.[', expected: a}"), 4, "arguments.actual", ""),
    # Paths.
    (contains("text: $.outputs.value, phrases: a"), 4, "$.outputs is not there", "did you mean $.output?"),
    (contains("text: $.output.val, phrases: a"), 4, "$.output has no val", "did you mean $.output.value?"),
    (contains("text: $.output.answer, phrases: a"), 4, "$.output has no answer", "did you mean $.output.value?"),
    (contains("text: $.answer, phrases: a"), 4, "$.answer is not there", "did you mean $.output.value?"),
    (contains("text: $.output.value, phrases: $.test_case.expcted"), 4, "has no expcted", "$.test_case.expected?"),
    (
        contains("text: $.output.value, phrases: $.testcase.expected"),
        4,
        "$.testcase is not",
        "did you mean $.test_case?",
    ),
    (
        contains("text: $.output.value, phrases: $.expected"),
        4,
        "$.expected is not",
        "did you mean $.test_case.expected?",
    ),
    (contains("text: $.output.id, phrases: a"), 4, "$.output has no id", "known are value, metadata, trace"),
    (
        contains("text: $.output.value, phrases: $.test_case.metadata.topik"),
        4,
        "none of the 3 test cases has $.test_case.metadata.topik",
        "did you mean $.test_case.metadata.topic?",
    ),
    (
        contains("text: $.output.value, phrases: $.test_case.input.text"),
        4,
        "none of the 3 test cases has $.test_case.input.text",
        "",
    ),
    (contains("text: $.output.metadata.latency, phrases: a"), 4, "finds nothing", "did you mean latency_ms?"),
    (contains("text: $.output.metadata.tokens, phrases: a"), 4, "finds nothing", "map it: target.http.metadata"),
    (
        RECORDED + "\n" + contains("text: $.output.value.answr, phrases: a"),
        4,
        "$.output.value.answr finds nothing in any of the 3 recorded outputs",
        "did you mean $.output.value.answer?",
    ),
    ('target: {http: {url: "http://x", body: {q: $.output.value}}}', 2, "has no output yet", "$.test_case.input"),
    ('target: {http: {url: "http://x", body: {q: $.test_case.inptu}}}', 2, "has no inptu", "$.test_case.input?"),
    ('target: {http: {url: "http://x", body: {q: $.input}}}', 2, "$.input is not there", "$.test_case.input?"),
    (
        'target: {http: {url: "http://x", body: {q: "Say {$.test_case.input}"}}}',
        2,
        "has one brace",
        "{{$.test_case.input}}",
    ),
    (
        'target: {http: {url: "http://x", body: {q: "Hi {{$.test_case.metadata.naem}}"}}}',
        2,
        "none of the 3 test cases has",
        "",
    ),
    ('target: {http: {url: "http://x", body: {q: "Hi {{$.test_case.input"}}}', 2, "is not closed", ""),
    # Models as targets.
    ("target: {openai: gpt-5-mini}", 2, "must be a mapping", "write target: {openai: {model: ...}}"),
    ("target: openai/gpt-5-mini", 2, "must be a mapping", "write target: {openai: {model: ...}}"),
    ("target: {model: gpt-5-mini}", 2, "model is not known", "it belongs into target.openai"),
    (model("prompt: a, messages: [{role: user, content: b}]"), 2, "give prompt, the user message, or messages", ""),
    (model("prompt: prompts/v1.md"), 2, "prompts/v1.md cannot be read", "from the suite's folder"),
    (model("prompt: prompts/v1"), 2, "reads like a file", "ends in .md or .txt"),
    (model("prompt: ../secret.md"), 2, "leads out of the suite's folder", ""),
    (model("prompt: 'Hi {{question}}'"), 2, "is not a placeholder", "write {{$.test_case.input}}"),
    (model("prompt: 'Hi $.test_case.input'"), 2, "stands without braces", "write {{$.test_case.input}}"),
    (model("prompt: '{{$.output.value}}'"), 2, "a request has no output yet", "did you mean $.test_case.input?"),
    (model("parameters: {temprature: 1}"), 2, "temprature is not a parameter", "did you mean temperature?"),
    (model("parameters: {mock_response: ok}"), 2, "mock_response is not a parameter", ""),
    (model("api: responses, parameters: {max_tokens: 9}"), 2, "max_tokens is not a parameter", "max_output_tokens"),
    (model("temperature: 1"), 2, "temperature is not known", "it belongs into target.openai.parameters"),
    (model("messages: [{content: a}]"), 2, "[0] is not a message", ""),
    (model("api_key: sk-0123456789abcdef"), 2, "a secret must not stand in the suite", "write it as ${NAME}"),
    (model("base_url: 'http://{{$.test_case.id}}/v1'"), 2, "is the same for all test cases", ""),
    ("target: {openai: {model: 'gpt-{{$.test_case.id}}'}}", 2, "is the same for all test cases", ""),
    ("target: {openai: {model: no-such-model}}", 2, "no provider is known", "write it as provider/model"),
    (
        model("") + f"\n{check('type: threshold, arguments: {value: $.output.metadata.token, max_value: 9}')}",
        4,
        "an output's metadata has tool_calls",
        "did you mean tokens?",
    ),
    ('target: {http: {url: "http://x", output: answer}}', 2, "a JSONPath starts with $", "$.answer"),
    ("test_cases: {path: cases.jsonl, input: $.inptu}", 1, "none of the 3 records", "did you mean $.input?"),
    # Prompts of judges.
    (judge("Is {$.output.value} polite?"), 4, "{$.output.value} has one brace", "write {{$.output.value}}"),
    (judge("Is {{output.value}} polite?"), 4, "{{output.value}} is not a placeholder", "write {{$.output.value}}"),
    (judge("Is {{ output }} polite?"), 4, "{{ output }} is not a placeholder", "write {{$.output.value}}"),
    (judge("{{$.output.value}} or {{expected}}?"), 4, "{{expected}} is not a placeholder", "{{$.test_case.expected}}"),
    (judge("Is $.output.value polite?"), 4, "$.output.value stands without braces", "write {{$.output.value}}"),
    (judge("Is the answer polite?"), 4, "shown nothing of the output", "put {{$.output.value}}"),
    (judge("Is {{$.test_case.input}} polite?"), 4, "shown nothing of the output", "put {{$.output.value}}"),
    (judge("Is {{$.output.text}} polite?"), 4, "$.output has no text", "did you mean $.output.value?"),
    (judge("Is {{$.output.value polite?"), 4, "a placeholder is not closed", ""),
    # Metrics and gate.
    ("gate: {min: {contains: 90}}", 5, "contains lies between 0 and 1, never at 90", "did you mean 0.9?"),
    ("gate: {min: {contains: 1.5}}", 5, "contains lies between 0 and 1, never at 1.5", "mean 0.015?"),
    ("gate: {min: {contains: '0.9'}}", 5, "must be a number", "take the quotes off"),
    ("gate: {min: {contains: 90%}}", 5, "must be a number", "write it as a fraction"),
    ("gate: {min: 0.9}", 5, "gate.min: must be a mapping", ""),
    ("gate: {max: {contains: 5}}", 5, "contains lies between 0 and 1, never at 5", "did you mean 0.05?"),
    ("gate: {max: {latency: 5}}", 5, "there is no metric latency", "there is contains"),
    ("gate: {min: {contains: 0.9}, max: {contains: 0.8}}", 5, "the maximum is below the minimum", "no value can"),
    ("metrics: [{id: a, check: contains, aggregate: p95}]", 5, "p95 is of numbers", ""),
    ("metrics: [{id: a, value: $.output.metadata.latency}]", 5, "finds nothing", "did you mean latency_ms?"),
    ("metrics: [{id: a, value: $.output.metadat.x}]", 5, "$.output has no metadat", "did you mean $.output.metadata"),
    ("gate: {min: {contians: 0.9}}", 5, "there is no metric contians", "there is contains"),
    ("gate: {confidence: 95}", 5, "gate.confidence: must be less than 1", ""),
    ("metrics: [{id: a, check: contians}]", 5, "no check with the id contians", "its checks are contains"),
    ("metrics: [{id: a, check: contains, value: $.pased}]", 5, "nothing at $.pased", "did you mean $.passed?"),
    (SCORE + "gate: {min: {score: 7}}", 7, "score lies between 1 and 5, never at 7", "give a value in that range"),
    (SCORE.replace("$.response.score", "$.response.scre"), 6, "nothing at $.response.scre", "$.response.score?"),
    (SCORE.replace(", value: $.response.score", ""), 6, "judge gives no passed", "value: $.response.score"),
    ("thresholds: {contains: [{impact: low, min: 90}, {impact: high, max: 90}]}", 5, "are at 90 to 90", "percentages"),
    # Addresses.
    ('target: {http: {url: "http://"}}', 2, "the address has no host", "https://host/path"),
    ('target: {http: {url: "htp://localhost"}}', 2, "htp:// is not known", "http:// or https://"),
    ('target: {http: {url: "http:/localhost"}}', 2, "the address has no scheme", "write http://"),
    ('target: {http: {url: "localhost:8000"}}', 2, "the address has no scheme", "write http:// or https://"),
    ('target: {http: {url: "http://localhost:99999"}}', 2, "the host or the port is not valid", "1 to 65535"),
    ('target: {http: {url: "http://xn--0.example"}}', 2, "is not an address that can be called", "https://host/path"),
    ('target: {http: {url: "http://local host"}}', 2, "there is a space in the address", "take it out"),
    ('target: {http: {url: "http://{{$.test_case.id}}/x"}}', 2, "a test case cannot choose the host", "behind it"),
    (JUDGE.replace("http://127.0.0.1:9", "localhost:9"), 5, "api_base: the address has no scheme", "write http://"),
    # Times, sizes, numbers, booleans.
    ('target: {http: {url: "http://x"}, timeout: 30 seconds}', 2, "a duration reads like 500ms, 30s", ""),
    ('target: {http: {url: "http://x"}, timeout: "30"}', 2, "a duration reads like 500ms, 30s", "30s"),
    ('target: {http: {url: "http://x", max_bytes: 10 mb}}', 2, "a size reads like 500kB or 10MB", ""),
    ('target: {http: {url: "http://x"}, concurrency: "8"}', 2, "must be a whole number", "take the quotes off"),
    ("cache: yes", 5, "cache: must be true or false", "write true, without quotes"),
    ("repeats: many", 5, "repeats: must be a whole number", ""),
    ("tags: smoke", 5, "tags: must be a list", "write it in brackets"),
    ("checks:", 4, "checks: must be a list", "nothing stands there"),
    ("description: 2024", 5, "description: must be a text", "put it in quotes"),
    ("gate:\n  min:0.9", 5, "gate: must be a mapping", "write a space after the colon: `min: ...`"),
    # YAML.
    ("target:\n\thttp: {}", 3, "a tab stands where the line is indented", "indent with spaces"),
    ("description: @home", 5, "no value can begin with @", "put the text in quotes"),
    ("description: %x", 5, "no value can begin with %", "put the text in quotes"),
    ("description: `x`", 5, "no value can begin with `", "put the text in quotes"),
    ("description: *important*", 5, "what begins with * is an alias", "put the text in quotes"),
    ("description: !important", 5, "what begins with ! is a tag", "put the text in quotes"),
    ("description: {{$.output.value}}", 5, "{{ without quotes is a mapping", 'as in "{{$.output.value}}"'),
    ("description: one: two", 5, "a second ': ' in one line", "put the text in quotes"),
    ('description: "open', 5, "a quote is opened here and never closed", "close it"),
    ("description: 'it's'", 5, "goes on after a closing quote", "in quotes"),
    ('description: "\\d+"', 5, "\\d means nothing inside of double quotes", "single quotes"),
    ("repeats:5\ntags: [a]", 5, "there is no space after `repeats:`", "write `repeats: `"),
    ("tags: [a, b", 6, "the end of the [ ] that was opened in line 5 is missing", "close it"),
    ("tags:\n  - a\n   - b: c", 7, "indented further than the lines above", "align it"),
    ("name: a\nname: b", 5, 'found duplicate key "name"', ""),
    ("---\nname: b", 5, "a second document begins here", "a file holds one"),
    ("target: {http: {url: ${AGENT_URL}}}", 2, "${NAME} inside of { } or [ ] needs quotes", '"${AGENT_URL}"'),
    ('description: !!bool "abc"', 5, "'abc' is not true or false", "put it in quotes"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files of the good suite in it."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": str(n), "input": f"{n}?", "expected": "Paris", "metadata": {"topic": "a"}} for n in range(3)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "outputs.jsonl").write_text('{"value": {"answer": "Paris"}}\n' * 3)
    return tmp_path


def told(folder: Path, text: str) -> list[str]:
    """All that validate says of the good suite with other sections in it."""
    sections = dict(GOOD)
    extra = ""
    for section in text.split("\n"):
        name = section.partition(":")[0]
        if name in sections and sections[name] == GOOD[name] and not extra:
            sections[name] = section
        else:
            extra += section + "\n"
    if text.startswith(tuple(f"{name}:" for name in GOOD)) and "\n " in text.replace("\t", " "):
        sections[text.partition(":")[0]], extra = text, ""
    (folder / "suite.yaml").write_text("\n".join(sections.values()) + "\n" + extra)
    try:
        return [str(problem) for problem in validate_suite(Path("suite.yaml"), {}).errors]
    except InputError as error:
        return [str(problem) for problem in error.problems]


def test_the_good_suite_is_good(folder: Path) -> None:
    assert told(folder, "description: x") == []
    assert told(folder, RECORDED + "\n" + contains("text: $.output.value.answer, phrases: a")) == []
    assert told(folder, SCORE + "gate: {min: {score: 3}}") == []


@pytest.mark.parametrize("part", range(4))
def test_an_error_has_its_location_and_advice(folder: Path, part: int) -> None:
    for text, line, message, advice in MISTAKES[part::4]:  # one test each would take three times as long
        problems = told(folder, text)
        location = ("cases.jsonl" if "records" in message else "suite.yaml") + f":{line}:"
        found = [problem for problem in problems if message in problem and advice in problem]
        assert found, (text, problems)
        assert found[0].startswith(location), (text, problems)


def test_the_mistakes_are_many() -> None:
    assert len(MISTAKES) >= 80


def test_a_value_of_the_wrong_kind_in_some_cases_is_a_warning(folder: Path) -> None:
    cases = "test_cases: [{id: a, input: a, expected: b}, {id: b, input: b, expected: 4}]"
    (folder / "suite.yaml").write_text("\n".join([GOOD["name"], GOOD["target"], cases, GOOD["checks"]]) + "\n")
    found = validate_suite(Path("suite.yaml"), {})
    assert found.errors == []
    (warning,) = [str(problem) for problem in found.problems if "$.test_case.expected" in problem.message]
    assert "phrases: must be a text or a list, but $.test_case.expected is a number in b" in warning


@pytest.mark.parametrize(
    ("schema", "warnings"),
    [
        (
            "{name: string, age: integer}",
            ["every value fits the schema, as it has no keyword of JSON Schema: name, age"],
        ),
        ("{type: object, require: [a]}", ["require in the schema is no keyword of JSON Schema, and is ignored"]),
        ("{$ref: '#/$defs/X', $defs: {X: {anyOf: [{typ: string}]}}}", ["typ in the schema is no keyword"]),
        ("{properties: {typ: {type: string, description: a}}, required: [typ], enum: [{typ: 1}], x-of: us}", []),
    ],
)
def test_a_schema_that_lets_pass_what_its_author_did_not_mean_is_warned_of(
    folder: Path, schema: str, warnings: list[str]
) -> None:
    check = f"checks: [{{type: schema_validation, schema: {schema}}}]"
    (folder / "suite.yaml").write_text("\n".join([GOOD["name"], GOOD["target"], GOOD["test_cases"], check]) + "\n")
    found = [str(problem) for problem in validate_suite(Path("suite.yaml"), {}).problems if "schema" in problem.message]
    assert len(found) == len(warnings)
    assert all(warning in problem for warning, problem in zip(warnings, found, strict=True))


def test_no_credentials_of_a_target_are_quoted(folder: Path) -> None:
    assert not any("hunter2" in problem for problem in told(folder, "target: http://me:hunter2@127.0.0.1:9/ask"))
