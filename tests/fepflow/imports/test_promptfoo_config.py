"""Configs of promptfoo become suites: what has a counterpart comes over, and whatever else is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fepflow.cli.main import fepflow
from fepflow.documents.loader import read_document
from fepflow.errors import InputError
from fepflow.imports.imported import Imported
from fepflow.imports.promptfoo_assertions import NoCounterpartError, assertion_of_cell, check_of, python_pattern
from fepflow.services.imports import read_import

CONFIG = """\
description: Capitals
prompts:
  - "Answer briefly: {{question}}"
  - file://prompt.txt
providers:
  - id: openai:chat:gpt-5-mini
    config: {temperature: 0, apiKey: sk-123}
defaultTest:
  vars: {who: me}
  assert:
    - {type: icontains, value: capital}
    - {type: equals, value: "{{answer}}"}
tests:
  - description: France
    vars: {question: "Capital of France?", answer: Paris}
    assert:
      - {type: contains, value: "{{answer}}", metric: names it}
      - {type: javascript, value: output.length > 3}
  - description: France
    vars: {question: ["Spain?", "Italy?"], answer: x}
"""


def imported(tmp_path: Path, text: str, name: str = "promptfooconfig.yaml", **files: str) -> Imported:
    for other, content in files.items():
        path = tmp_path / other.replace("__", "/").replace("_txt", ".txt").replace("_csv", ".csv")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    path = tmp_path / name
    path.write_text(text, newline="")
    return read_import(path, name).imported


def of_tests(tmp_path: Path, tests: str) -> Imported:
    return imported(tmp_path, f"prompts: [hello]\nproviders: [openai:gpt-5]\ntests:\n{tests}")


def left(found: Imported) -> str:
    return "\n".join(str(problem) for problem in found.notes.problems())


def test_a_config_becomes_a_suite_with_its_cases(tmp_path: Path) -> None:
    found = imported(tmp_path, CONFIG, prompt_txt="Dear {{who}},\n{{question | upper}}\n")
    assert found.suite["target"] == {
        "openai": {"model": "openai/gpt-5-mini", "prompt": "${variant.prompt}", "parameters": {"temperature": 0}}
    }
    assert found.suite["variants"] == {"prompt": ["prompts/1.md", "prompts/2.md"]}
    assert found.files["prompts/1.md"] == "Answer briefly: {{$.test_case.input.question}}"
    assert "[[question | upper]]" in found.files["prompts/2.md"]
    assert [case["input"]["question"] for case in found.cases] == ["Capital of France?", "Spain?", "Italy?"]
    assert found.cases[0]["checks"] == [
        {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "Paris"}},
        {"type": "contains", "id": "names-it", "arguments": {"text": "$.output.value", "phrases": "Paris"}},
    ]
    assert found.suite["checks"] == [
        {"type": "contains", "arguments": {"text": "$.output.value", "phrases": "capital", "case_sensitive": False}}
    ]
    assert "promptfooconfig.yaml:18: tests[0].assert[1]: the assertion javascript is code" in left(found)
    assert "keys are not taken over" in left(found)
    assert "sk-123" not in str(found.suite) + left(found)


pytestmark = pytest.mark.usefixtures("home")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(fepflow, ["import", *map(str, arguments)])


def test_the_suite_is_valid_at_once_and_no_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    imported(tmp_path, CONFIG, prompt_txt="{{question}}")
    folder = tmp_path / "suite"
    first = run(tmp_path / "promptfooconfig.yaml", "-o", folder)
    assert first.exit_code == 0, first.output
    validated = CliRunner().invoke(fepflow, ["validate", str(folder / "suite.yaml")])
    assert validated.exit_code == 0, validated.output
    assert "is a text, and not a path" not in validated.output
    again = run(tmp_path / "promptfooconfig.yaml", "-o", folder)
    assert "already exists" in str(again.exception or again.output)
    assert run(tmp_path / "promptfooconfig.yaml", "-o", folder, "--overwrite", "--strict").exit_code == 1


def test_a_config_without_a_target_of_ours_gets_a_placeholder_that_is_named(tmp_path: Path) -> None:
    imported(tmp_path, "prompts: [hi]\nproviders: ['file://agent.js', 'exec:rm -rf /']\ntests: [{vars: {a: b}}]")
    result = run(tmp_path / "promptfooconfig.yaml", "-o", tmp_path / "suite")
    assert "is code, which is not executed" in result.output
    assert "no provider was imported, so the target in suite.yaml is a placeholder" in result.output
    target = read_document(tmp_path / "suite" / "suite.yaml").data["target"]
    assert target["http"]["body"] == {"prompt": "hi"}


COUNTERPARTS: list[tuple[dict[str, Any], tuple[str, dict[str, Any]]]] = [
    ({"type": "equals", "value": 5.0}, ("exact_match", {"expected": "5"})),
    ({"type": "equals", "value": {"a": "$.x"}}, ("schema_validation", {"schema": {"const": {"a": "\\$.x"}}})),
    ({"type": "not-contains", "value": 1000.0}, ("contains", {"phrases": "1000", "negate": True})),
    ({"type": "regex", "value": r"^\w+$"}, ("regex", {"pattern": r"(?a)^\w+\Z"})),
    ({"type": "is-json", "value": '{"type": "object"}'}, ("json_valid", {"schema": {"type": "object"}})),
    ({"type": "not-similar", "value": "a"}, ("semantic_similarity", {"threshold": {"max_value": 0.75}})),
    ({"type": "similar", "value": ["a", "b"]}, ("semantic_similarity", {"reference": ["a", "b"], "any": True})),
    ({"type": "finish-reason", "value": "STOP"}, ("exact_match", {"expected": "STOP", "case_sensitive": False})),
    ({"type": "not-equals", "value": "$.5"}, ("exact_match", {"expected": "\\$.5", "negate": True})),
    ({"type": "equals", "value": {"a": 1}}, ("schema_validation", {"schema": {"const": {"a": 1}}})),
    ({"type": "contains-all", "value": "a, b"}, ("contains", {"phrases": ["a", "b"]})),
    ({"type": "not-contains-all", "value": ["a", "b"]}, ("contains", {"match_all": False, "negate": True})),
    ({"type": "contains-any", "value": ["a", "b"]}, ("contains", {"match_all": False})),
    ({"type": "not-contains-any", "value": ["a", "b"]}, ("contains", {"negate": True})),
    ({"type": "not-icontains", "value": "A"}, ("contains", {"case_sensitive": False, "negate": True})),
    ({"type": "starts-with", "value": "a.b"}, ("regex", {"pattern": r"\Aa\.b"})),
    ({"type": "is-json"}, ("json_valid", {})),
    (
        {"type": "similar", "value": "a", "threshold": 0.9},
        ("semantic_similarity", {"threshold": {"min_value": 0.9}}),
    ),
    (
        {"type": "llm-rubric", "value": "polite", "threshold": 0.8},
        ("rubric", {"criteria": "polite", "pass_at": 0.8}),
    ),
    ({"type": "latency", "threshold": 200}, ("threshold", {"max_value": 200})),
    ({"type": "answer-relevance", "threshold": 0.8}, ("answer_relevancy", {"pass_at": 0.8})),
    ({"type": "context-faithfulness"}, ("faithfulness", {"context": "$.test_case.input.context", "pass_at": 0.5})),
    ({"type": "context-recall", "value": "It is Paris."}, ("context_recall", {"reference": "It is Paris."})),
]


def test_an_assertion_becomes_the_check_that_says_the_same() -> None:
    for assertion, (check_type, arguments) in COUNTERPARTS:
        check = check_of(assertion)
        assert check["type"] == check_type
        assert check["arguments"].items() >= arguments.items(), assertion
        for modifier in ("negate", "match_all"):
            assert check["arguments"].get(modifier) == arguments.get(modifier), assertion


NO_COUNTERPARTS: list[dict[str, Any]] = [
    {"type": "contains", "value": "a", "weight": 0},
    {"type": "contains", "value": "a", "transform": "output.x"},
    {"type": "contains", "value": ""},
    {"type": "not-is-json"},
    {"type": "not-llm-rubric", "value": "rude"},
    {"type": "python", "value": "True"},
    {"type": "levenshtein", "value": "a", "threshold": 3},
    *({"type": "regex", "value": value} for value in ("\\p{L}", "\\A", "(?i)paris", "a{,3}", "a++")),
    *({"type": "equals", "value": value} for value in (None, 1e-7, 2**60)),
    {"type": "is-json", "value": {"properties": {"a": {"type": "string", "format": "email"}}}},
    {"type": "is-json", "value": {"dependencies": {"card": ["bill"]}}},
    {"type": "of-the-future", "value": 1},
    {"type": "contains", "value": "a", "negate": True},
    {"type": "latency"},
]


def test_an_assertion_that_would_mean_something_else_does_not_come_over() -> None:
    for assertion in NO_COUNTERPARTS:
        with pytest.raises(NoCounterpartError):
            check_of(assertion)


def test_the_end_of_a_pattern_is_the_very_end() -> None:
    assert python_pattern(r"^a[$]b\$c$") == r"^a[$]b\$c\Z"
    assert python_pattern("(?<year>[0-9]+)(?<=0)") == "(?P<year>[0-9]+)(?<=0)"


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("Paris", {"type": "equals", "value": "Paris"}),
    ("contains: Paris", {"type": "contains", "value": "Paris"}),
    ("not-icontains:x", {"type": "not-icontains", "value": "x"}),
    ("similar(0.9): a", {"type": "similar", "value": "a", "threshold": 0.9}),
    ("similar: a", {"type": "similar", "value": "a", "threshold": 0.8}),
    ("grade: polite", {"type": "llm-rubric", "value": "polite"}),
    ("fn: output > 1", {"type": "javascript", "value": " output > 1"}),
    ("at: 5", {"type": "equals", "value": "at: 5"}),
    (" contains: Paris ", {"type": "contains", "value": "Paris"}),
    ("Paris ", {"type": "equals", "value": "Paris"}),
    ("word-count: 5", {"type": "word-count", "value": "5"}),
    ("not-is-xml", {"type": "not-is-xml"}),
    ("is-json", {"type": "is-json"}),
]


def test_a_cell_of_expected_is_an_assertion() -> None:
    for cell, expected in CELLS:
        assert assertion_of_cell(cell) == expected


def test_a_template_is_filled_in_as_nunjucks_does_it(tmp_path: Path) -> None:
    variables = f"{{n: 5.0, l: [{{a: 1}}], s: 'say \"x\"', huge: {10**400}}}"
    values = ["{{n}} apples", "{{l | dump}}", "{{s | dump}}", "{{l}}", "{{huge}}"]
    asserts = "".join(f"\n      - {{type: contains, value: '{value}'}}" for value in values)
    found = of_tests(tmp_path, f"  - vars: {variables}\n    assert:{asserts}\n")
    phrases = [check["arguments"]["phrases"] for check in found.cases[0]["checks"]]
    assert phrases == ["5 apples", '[{"a":1}]', r'"say \"x\""']
    assert "a list or an object stands inside of a text" in left(found)
    assert "JavaScript prints the number 10000" in left(found)


def test_tests_in_csv_are_read_with_a_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    table = (
        "\ufeffquestion,__expected,__expected2,__metric,__metadata:topic,__prefix\r\n"
        "France?,Paris,contains: Par,right,geo,\r\nSpain?,,,,,please \r\n"
    )
    found = imported(tmp_path, table, "tests.csv")
    assert [case["input"] for case in found.cases] == [{"question": "France?"}, {"question": "Spain?"}]
    assert [check["id"] for check in found.cases[0]["checks"]] == ["right", "right-2"]
    assert imported(tmp_path, "__description,language\nES,es\n", "other.csv").format == "promptfoo"
    assert found.cases[0]["metadata"] == {"topic": "geo"}
    assert "prefix of a test has no counterpart" in left(found)


def test_a_test_whose_output_is_transformed_keeps_its_input_and_loses_its_assertions(tmp_path: Path) -> None:
    found = of_tests(
        tmp_path, "  - {vars: {a: b}, options: {transform: output.x}, assert: [{type: contains, value: c}]}"
    )
    assert found.cases == [{"input": {"a": "b"}}]
    assert "the assertions of the test were not imported" in left(found)


def test_a_test_with_a_threshold_is_named(tmp_path: Path) -> None:
    found = of_tests(tmp_path, "  - {vars: {a: b}, threshold: 0.5, assert: [{type: contains, value: c}]}")
    assert "promptfooconfig.yaml:4: tests[0].threshold: a test with a threshold" in left(found)


def test_many_tests_make_one_note_of_what_they_have_in_common(tmp_path: Path) -> None:
    tests = "\n".join(f"  - {{vars: {{a: {n}}}, assert: [{{type: python, value: x}}]}}" for n in range(300))
    found = of_tests(tmp_path, tests)
    assert len(found.cases) == 300
    assert left(found).count("python") == 1
    assert "more places" in left(found)


def test_combinations_of_variables_are_bounded(tmp_path: Path) -> None:
    values = ", ".join(f"v{number}" for number in range(60))
    with pytest.raises(InputError, match="more than 100,000 test cases"):
        of_tests(tmp_path, f"  - {{vars: {{a: [{values}], b: [{values}], c: [{values}]}}}}")


def test_files_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    text = """\
prompts: [file://../secret.txt, file://link.txt]
providers: [openai:gpt-5]
tests:
  - vars: {a: file://../secret.txt, b: file://link.txt, c: file://x.js, d: file:///etc/passwd}
"""
    found = imported(inside, text)
    assert "the secret" not in str((found.cases, found.suite, found.files))
    assert left(found).count("names a file that was not read") == 4


def test_tags_of_yaml_and_keys_that_stand_twice_are_refused(tmp_path: Path) -> None:
    for text in ("prompts: !!python/object/apply:os.system [ls]", "prompts: [a]\nprompts: [b]\nproviders: [x]"):
        with pytest.raises(InputError):
            imported(tmp_path, text)


def test_an_endpoint_becomes_an_http_target(tmp_path: Path) -> None:
    text = """\
prompts: ["Hello {{name}}"]
targets:
  - id: https://agent.example/chat
    config:
      headers: {Authorization: Bearer abc, X-Team: blue}
      body: {message: "{{prompt}}", user: "{{name}}"}
      transformResponse: json.choices[0].message.content
tests: [{vars: {name: Ann}, assert: [{type: contains, value: Ann}]}]
"""
    found = imported(tmp_path, text)
    assert found.suite["target"] == {
        "http": {
            "url": "https://agent.example/chat",
            "headers": {"X-Team": "blue"},
            "body": {"message": "Hello {{$.test_case.input.name}}", "user": "{{$.test_case.input.name}}"},
            "output": "$.choices[0].message.content",
        }
    }
    assert "Bearer" not in left(found)


def test_scenarios_make_a_test_of_each_pair(tmp_path: Path) -> None:
    text = """\
prompts: ["{{language}} {{word}}"]
providers: [anthropic:messages:claude-sonnet-4-5]
scenarios:
  - config: [{vars: {language: French}}, {vars: {language: German}}]
    tests: [{vars: {word: yes}}, {vars: {word: no}}]
"""
    found = imported(tmp_path, text)
    assert [tuple(case["input"].values()) for case in found.cases] == [
        ("French", "yes"),
        ("French", "no"),
        ("German", "yes"),
        ("German", "no"),
    ]
    assert found.suite["target"]["openai"]["model"] == "anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "prompts: [hi]\nproviders: [echo]\ntests:\n- file://make.py:f", "a.yaml:4: tests[0]: tests from"),
        ("a.yaml", "targets: [{id: http}]\nredteam: {purpose: p}", "promptfoo redteam generate"),
        ("a.csv", 'q,[gpt] {{q}}\nhi,"[FAIL] (0.00) no\n---\nho"', "promptfoo export eval latest -o results.json"),
        ("a.csv", "q,a\nhi,ho", "name the file in test_cases"),
        ("a.json", '{"results": {"t": {"acc": 0.5}}, "versions": {"t": 0}}', "which lm_eval writes with --log_samples"),
        (".latest_test_run.json", '{"testRunLink": "https://confident.example/1"}', "a link to the test run"),
        ("a.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
    ],
)
def test_a_file_without_cases_of_its_own_is_refused_with_the_reason(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    refused = run(tmp_path / name, "-o", tmp_path / "suite")
    assert said in str(refused.exception), refused.output


def test_tests_in_jsonl_have_their_assertions_and_a_prompt_that_stands_twice_comes_once(tmp_path: Path) -> None:
    (tmp_path / "tests.jsonl").write_text('{"vars": {"q": "hi"}, "assert": [{"type": "equals", "value": "ho"}]}\n')
    tests = read_import(tmp_path / "tests.jsonl").imported
    assert tests.cases[0]["checks"][0]["type"] == "exact_match"
    twice = imported(
        tmp_path, "prompts: ['{{q}}', '{{q}}']\nproviders: [openai:gpt-5, 'google:live:gemini']\ntests: []"
    )
    assert "variants" not in twice.suite
    assert "a prompt that appears twice was imported once" in left(twice)
    bare = imported(tmp_path, "providers: ['https://a.example/x']\ntests: [{vars: {prompt: hi}}]")
    assert bare.suite["target"]["http"]["body"] == {"prompt": "{{$.test_case.input.prompt}}"}
    assert "the provider google:live:gemini has no counterpart" in left(twice)


def test_patterns_are_followed_below_the_folder_of_the_config_only(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    (folder / "tests").mkdir(parents=True)
    (tmp_path / "outside.yaml").write_text("- vars: {q: outside}")
    (folder / "p1.txt").write_text("One {{q}}")
    (folder / "p2.txt").write_text("Two {{q}}")
    (folder / "tests" / "a.yaml").write_text("- vars: {q: a}")
    (folder / "tests" / "b.yaml").write_text("- vars: {q: b}")
    tests = "['tests/*.yaml', '../*.yaml', 'tests/*.csv']"
    found = imported(folder, f"prompts: ['p*.txt']\nproviders: [openai:gpt-5]\ntests: {tests}")
    assert [case["input"]["q"] for case in found.cases] == ["a", "b"]
    assert len(found.suite["variants"]["prompt"]) == 2
    assert "../*.yaml is not a file below" in left(found)
    assert "tests/*.csv is not a file below" in left(found)
