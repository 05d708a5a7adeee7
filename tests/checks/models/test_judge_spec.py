import json
from typing import Any

from fepflow.checks.core.declarations import with_default_paths
from fepflow.checks.models.judge_spec import judges_of
from fepflow.checks.registry import SCORED_JUDGES
from fepflow.protocol.check import Check

SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "passed": {"type": "boolean"},
        "score": {"type": ["integer", "null"]},
        "tone": {"$ref": "#/$defs/tone"},
        "tags": {"type": "array"},
    },
    "$defs": {"tone": {"enum": ["rude", "kind"]}},
}
BASE = {"api_base": "${BASE}"}
ARGUMENTS = {
    "prompt": "Is {{$.output.value}} right?",
    "response_format": SCHEMA,
    "model_config": {"model": "openai/gpt-4o-mini"},
    "provider_config": {"api_key": "${KEY}", **BASE},
}


def judge(**changes):
    return judges_of([Check(type="llm_judge", arguments={**ARGUMENTS, **changes})])[0]


def identity(**changes):
    one = judge(**changes)
    return one.judge, one.rubric


def test_it_is_identified_without_the_environment():
    one = judge()
    assert (one.check_id, one.model, one.samples) == ("llm_judge", "openai/gpt-4o-mini", 1)
    assert one.parameters == {"temperature": 0.0, "max_tokens": 1024}
    assert one.fields == {"passed": ("boolean", ()), "score": ("number", ()), "tone": ("word", ("rude", "kind"))}


def test_what_changes_no_verdict_is_the_same_judge():
    changes: Any
    for changes in [
        {"model_config": {"model": "openai/gpt-4o-mini", "temperature": 0.0}},
        {"model_config": {"model": "gpt-4o-mini"}, "provider_config": {"provider_name": "openai", **BASE}},
        {"response_format": json.dumps(SCHEMA)},
        {"samples": 1},
        {"provider_config": {"api_key": "${OTHER_KEY}", **BASE, "timeout": 5, "max_retries": 0}},
    ]:
        assert identity(**changes) == identity()


def test_another_model_is_another_judge_and_another_question_another_rubric():
    changes: Any
    for changes, other_judge in [
        ({"model_config": {"model": "openai/gpt-4o"}}, True),
        ({"model_config": {"model": "openai/gpt-4o-mini", "temperature": 0.5}}, True),
        ({"provider_config": {"api_base": "https://elsewhere.test"}}, True),
        ({"prompt": "Is {{$.output.value}} kind?"}, False),
        ({"response_format": {**SCHEMA, "required": ["passed"]}}, False),
    ]:
        (judge_before, rubric_before), (judge_after, rubric_after) = identity(), identity(**changes)
        assert (judge_before != judge_after) is other_judge
        assert (rubric_before != rubric_after) is not other_judge


def test_a_judge_is_the_same_with_its_default_paths_filled_in_as_in_the_snapshot_of_a_run():
    for check_type in SCORED_JUDGES:
        declared = Check(
            type=check_type, arguments={"criteria": "Polite", "model_config": {"model": "openai/gpt-4o-mini"}}
        )
        ((suites, runs),) = zip(judges_of([declared]), judges_of([with_default_paths(declared)]), strict=True)
        assert (suites.judge, suites.rubric) == (runs.judge, runs.rubric)


def test_samples_change_the_rubric_and_the_temperature():
    once, thrice = judge(), judge(samples=3)
    assert thrice.parameters["temperature"] == 1.0
    assert (once.judge != thrice.judge) is (once.rubric != thrice.rubric) is True


def test_only_judges_are_judges_and_have_the_ids_of_their_suite():
    other = Check(type="contains", arguments={"text": "a", "phrases": ["a"]})
    named = Check(type="llm_judge", id="tone", arguments=ARGUMENTS)
    declared = Check(type="llm_judge", arguments={"prompt": "?", "response_format": "Verdict", "llm_function": "ask"})
    found = judges_of([other, named, declared, declared])
    assert [one.check_id for one in found] == ["tone", "llm_judge", "llm_judge-2"]
    assert (found[1].model, found[1].fields) == ("the function ask", {})
