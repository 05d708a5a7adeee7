"""A check in a data file names no model, address or key that the suite or the operator has not named."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.checks.core.declarations import CaseChecks, CheckDefaults
from fepflow.diagnose.checks import CaseInFile, case_check_problems
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import JudgeDefaults

JUDGE = JudgeDefaults.model_validate(
    {
        "model_config": {"model": "openai/suite"},
        "provider_config": {"api_base": "http://127.0.0.1:1/v1", "api_key": "${SUITE_KEY}"},
    }
)
SHARED = Check(type="llm_judge", id="shared", arguments={"model_config": {"model": "openai/of-a-check"}})
ASKED = {"prompt": "Right? {{$.output.value}}", "response_format": {"type": "object"}}


def check(**arguments: Any) -> Check:
    return Check(type="llm_judge", arguments={**ASKED, **arguments})


def rules(*allowed: str, from_data: bool = True) -> CaseChecks:
    return CaseChecks(CheckDefaults(JUDGE), [SHARED], allowed, from_data=from_data)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"provider_config": {"api_base": "http://evil.test"}}, "provider_config.api_base"),
        ({"provider_config": {"base_url": "http://evil.test"}}, "provider_config.base_url"),
        ({"provider_config": {"api_key": "${AWS_SECRET_ACCESS_KEY}"}}, "provider_config.api_key"),
        ({"provider_config": {"api_version": "1"}}, "provider_config.api_version"),
        ({"provider_config": {"provider_name": "hosted_vllm"}}, "provider_config.provider_name"),
        ({"provider_config": {"headers": {"X": "y"}}}, "provider_config.headers"),
        ({"model_config": {"api_base": "http://evil.test"}}, "model_config.api_base"),
        ({"model_config": {"model": "openai/evil"}}, "model_config.model"),
        ({"model_config": {"model": ["openai/suite"]}}, "model_config.model"),
        ({"model_config": {"model": "${MODEL}"}}, "model_config.model"),
        ({"model_config": {"stop": ["${HOME}"]}}, "model_config.stop"),
        ({"provider_config": {"timeout": "${HOME}"}}, "provider_config.timeout"),
    ],
)
def test_forbidden_settings_in_data_are_an_error_of_that_check(
    arguments: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUITE_KEY", "sk-of-the-suite")
    bad, good = rules().compiled([check(**arguments), check()])
    assert bad.error is not None
    assert str(bad.error).startswith(said)
    assert bad.model_kind is None, "it is never sent anywhere"
    assert good.error is None


def test_settings_of_how_to_judge_are_allowed_in_data() -> None:
    arguments: Any
    for arguments in [
        {},
        {"model_config": {"temperature": 0.5}},
        {"model_config": {"model": "openai/suite"}},
        {"model_config": {"model": "openai/of-a-check"}},
        {"provider_config": {"timeout": 5, "max_retries": 0}},
    ]:
        assert rules().refusal(check(**arguments)) is None


def test_the_suites_part_of_a_check_is_not_taken_for_the_datas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_KEY", "sk-of-the-suite")
    case = TestCase(id="one", input="x", checks=[check()])
    assert list(case_check_problems([CaseInFile(case, lambda _: 1)], "cases.jsonl", [SHARED], rules())) == []
    case = TestCase(id="one", input="x", checks=[check(provider_config={"api_key": "k"})])
    (problem,) = case_check_problems([CaseInFile(case, lambda _: 1)], "cases.jsonl", [SHARED], rules())
    assert problem.message.startswith("provider_config.api_key")


def test_the_operator_allows_more_models() -> None:
    other = check(model_config={"model": "openai/other-1"})
    assert rules().refusal(other) is not None
    assert rules("openai/other-*").refusal(other) is None
    assert rules("other-*").refusal(other) is not None


def test_cases_in_the_suite_itself_are_its_author_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-other-0815")
    own = {"provider_config": {"api_base": "http://127.0.0.1:2/v1", "api_key": "${OTHER_KEY}"}}
    (compiled,) = rules(from_data=False).compiled([check(**own)])
    assert compiled.error is None


def test_checks_without_a_model_are_not_restricted() -> None:
    assert rules().refusal(Check(type="contains", arguments={"phrases": "${HOME}"})) is None
