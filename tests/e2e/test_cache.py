"""What models have answered once is not asked again: whole runs, each a process of its own, counting what is asked."""

import json
from collections import Counter

import pytest

pytestmark = pytest.mark.e2e

SUITE = """
name: judged twice
target: {{recorded: {{path: outputs.jsonl, id: $.id}}}}
test_cases:
  - {{id: a, input: "Capital of France?", expected: Paris}}
  - {{id: b, input: "Capital of Italy?", expected: Rome}}
  - {{id: c, input: "Capital of Spain?", expected: Madrid}}
repeats: 2
checks:
  - type: llm_judge
    arguments:
      prompt: "Is {{{{$.output.value}}}} right? Expected is {{{{$.test_case.expected}}}}."
      response_format: {{type: object, properties: {{passed: {{type: boolean}}}}, required: [passed]}}
      model_config: {{model: "openai/stand-in?refuse=json_schema"}}
      provider_config: &there {{api_base: "{base}", api_key: "${{JUDGE_KEY}}"}}
  - type: semantic_similarity
    arguments:
      text: $.output.value
      reference: $.test_case.expected
      model_config: {{model: openai/embedding}}
      provider_config: *there
gate: {{min: {{llm_judge: 0.0}}}}
"""


def test_an_unchanged_suite_makes_no_requests_unless_the_cache_is_off(workplace, model_server):
    outputs = {"a": "Paris", "b": "Rome", "c": "Madrid"}
    workplace.suite.write_text(SUITE.format(base=f"{model_server.address}/v1"), encoding="utf-8")

    def run(*arguments):
        lines = [json.dumps({"id": name, "value": value}) for name, value in outputs.items()]
        (workplace.folder / "outputs.jsonl").write_text("\n".join(lines), encoding="utf-8")
        model_server.seen.clear()
        done = workplace.run("--json", *arguments, JUDGE_KEY="sk-1")
        assert done.returncode == 0, done.stderr
        results = [check for case in json.loads(done.stdout)["results"] for check in case["check_results"]]
        assert {check["status"] for check in results} == {"completed"}, results
        return [(check["results"]["response"], check["results"]["metadata"]["cached"]) for check in results]

    first = run()
    asked = Counter(path for path, _, _ in model_server.seen)
    refused = sum("json_schema" in str(body.get("response_format")) for body in model_server.bodies)
    assert asked["/v1/chat/completions"] - refused == 6, "two answers to each of three cases"
    embedded = [text for body in model_server.bodies for text in body.get("input", ())]
    assert sorted(embedded) == ["Madrid", "Paris", "Rome"]

    second = run()
    assert model_server.seen == []
    assert [response for response, _ in second] == [response for response, _ in first]
    assert {cached for _, cached in second} == {True}

    outputs.update(dict.fromkeys(outputs, "Milan"))
    run("--no-cache", "--limit", "1", "--repeats", "1")
    chats = [body for body in model_server.bodies if "messages" in body]
    assert {body["response_format"]["type"] for body in chats} == {"json_schema", "json_object"}, "one was refused"
    embedded = [text for body in model_server.bodies for text in body.get("input", ())]
    assert len(embedded) == 2, "the output of one case, and what was expected of it"
    assert "Milan" in embedded

    stats = json.loads(workplace.fepflow("cache", "stats", "--json").stdout)
    assert [(row["model"], row["answers"]) for row in stats["models"]] == [
        ("openai/embedding", 4),
        ("openai/stand-in?refuse=json_schema", 7),
    ]
