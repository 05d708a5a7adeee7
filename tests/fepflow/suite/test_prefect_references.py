"""References to blocks of Prefect in suites: values where they are, truthful words where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.models.model import CHAT, parse_model_config
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InfrastructureError, InputError
from fepflow.security.redaction import known_secrets
from fepflow.settings import SUITE_VARIABLES, SuiteVariables
from tests.fepflow.conftest import Cli

SUITE = """
name: refunds
target:
  http:
    url: "${prefect:variable/agent-url}"
    headers: {Authorization: "Bearer ${prefect:secret/agent-key}"}
    body: {q: $.test_case.input, team: "${prefect:variable/team:-none}"}
test_cases: [{id: a, input: one}]
checks: [{type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.input}}]
"""

BLOCKS = {
    ("secret", "agent-key"): "value-of-the-block",
    ("variable", "agent-url"): "https://agent.example.com/",
}


@pytest.fixture
def blocks(home: Path) -> Iterator[dict[tuple[str, str], str]]:
    known = dict(BLOCKS)
    SUITE_VARIABLES.read_blocks_with(lambda kind, name: known.get((kind, name)))
    Path("suite.yaml").write_text(SUITE, encoding="utf-8")
    yield known
    SUITE_VARIABLES.read_blocks_with(SuiteVariables()._read_block)


def told(*changes: tuple[str, str]) -> list[str]:
    text = SUITE
    for old, new in changes:
        text = text.replace(old, new)
    Path("suite.yaml").write_text(text, encoding="utf-8")
    return [str(problem) for problem in validate_suite(Path("suite.yaml")).problems]


def test_blocks_are_values_and_every_secret_block_is_a_secret(blocks: dict[tuple[str, str], str]) -> None:
    validation = validate_suite(Path("suite.yaml"))
    http = validation.require().target.http
    assert http is not None
    assert http.url == "https://agent.example.com/"
    assert http.headers == {"Authorization": "Bearer value-of-the-block"}
    assert http.body["team"] == "none"
    assert validation.loaded.secrets == {"value-of-the-block"}
    assert "value-of-the-block" in known_secrets()
    assert "value-of-the-block" not in json.dumps(validation.loaded.snapshot)


def test_a_block_is_read_once_a_process(blocks: Any) -> None:
    read: list[tuple[str, str]] = []

    def reader(kind: str, name: str) -> str | None:
        read.append((kind, name))
        return BLOCKS.get((kind, name))

    SUITE_VARIABLES.read_blocks_with(reader)
    for _ in range(2):
        assert validate_suite(Path("suite.yaml")).errors == []
    assert sorted(read) == [("secret", "agent-key"), ("variable", "agent-url"), ("variable", "team")]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "${prefect:secret/other}",
            "suite.yaml:6: target.http.headers.Authorization: Prefect has no Secret block other",
        ),
        ("${prefect:variable/other}", "Prefect has no variable other (set it: prefect variable set other VALUE)"),
        (
            "${prefect:secrets/agent-key}",
            "${prefect:secrets/agent-key} is not a reference to a block (write ${prefect:secret/NAME}",
        ),
        ("${prefect:secret/}", "is not a reference to a block"),
        ("${prefect.secret.agent-key}", "is not a reference to a block"),
        ("${ Prefect:secret/agent-key }", "is not a reference to a block"),
    ],
)
def test_a_block_that_is_not_there_or_not_meant_so_is_an_error_with_its_line(
    blocks: Any, written: str, words: str
) -> None:
    problems = told(("${prefect:secret/agent-key}", written))
    assert len(problems) == 1
    assert words in problems[0]
    assert problems[0].startswith("suite.yaml:6: ")


def test_what_cannot_be_looked_up_is_neither_a_default_nor_valid(blocks: Any, cli: Cli) -> None:
    def away(kind: str, name: str) -> str | None:
        raise InfrastructureError("Prefect's API does not answer")

    SUITE_VARIABLES.read_blocks_with(away)
    validation = validate_suite(Path("suite.yaml"))
    assert validation.errors == []
    assert len(validation.warnings) == 3
    assert "${prefect:variable/team} cannot be looked up: Prefect's API does not answer" in str(validation.warnings)
    with pytest.raises(InfrastructureError, match="cannot be looked up"):
        validation.require()


def test_validate_says_what_it_could_not_look_up_without_an_api(blocks: Any, cli: Cli) -> None:
    done = cli("validate", "suite.yaml")
    assert done.exit_code == 0
    assert "no error was found, but what could not be looked up was not validated" in done.stdout
    assert (
        "warning: suite.yaml:6: target.http.headers.Authorization: ${prefect:secret/agent-key} cannot be" in done.stderr
    )
    assert "no Prefect API is configured here, and the local server is not running" in done.stderr
    judge = "judge: {model_config: {model: openai/any}, provider_config: {api_key: '${prefect:secret/judge}'}}\n"
    Path("suite.yaml").write_text(judge + SUITE.replace("${prefect:variable/agent-url}", "http://127.0.0.1:1/"))
    assert cli("validate", "suite.yaml").exit_code == 0


def test_the_key_of_a_model_may_be_a_block(blocks: dict[tuple[str, str], str]) -> None:
    provider = {"api_key": "${prefect:secret/agent-key}", "api_base": "${prefect:variable/agent-url}"}
    model = parse_model_config({"model": "openai/any"}, provider, CHAT)
    assert (model.api_key, model.api_base) == ("value-of-the-block", "https://agent.example.com/")
    with pytest.raises(ValueError, match="named like a secret, and is not sent there"):
        parse_model_config({"model": "openai/any"}, {"api_base": "${prefect:secret/agent-key}"}, CHAT)
    with pytest.raises(ValueError, match="Prefect has no Secret block none"):
        parse_model_config({"model": "openai/any"}, {"api_key": "${prefect:secret/none}"}, CHAT)


def test_the_key_of_an_openai_target_may_be_a_block(blocks: dict[tuple[str, str], str]) -> None:
    text = (
        SUITE.partition("target:")[0] + "target: {openai: {model: openai/any, api_key: '${prefect:secret/agent-key}'}}"
    )
    Path("suite.yaml").write_text(f"{text}\n{SUITE[SUITE.index('test_cases') :]}", encoding="utf-8")
    validation = validate_suite(Path("suite.yaml"))
    openai = validation.require().target.openai
    assert openai is not None
    assert openai.api_key == "value-of-the-block"
    assert "value-of-the-block" in validation.loaded.secrets


def test_a_default_beside_a_secret_is_a_literal_secret(blocks: Any) -> None:
    assert "a secret must not stand in the suite" in "".join(
        told(("${prefect:secret/agent-key}", "${prefect:secret/agent-key:-abcdefghijkl}"))
    )


def test_a_request_over_the_network_reads_neither_blocks_nor_addresses(
    blocks: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fepflow.access.caller import Caller
    from fepflow.api.evaluations.fep import request_run
    from fepflow.diagnose import suite_validation
    from fepflow.protocol.test_case import TestCase
    from fepflow.store.records import RunRecord

    def forbidden(*_: object) -> None:
        raise AssertionError("a request must not make us look anything up")

    SUITE_VARIABLES.read_blocks_with(forbidden)
    monkeypatch.setattr(suite_validation, "fetch_cases", forbidden)
    check = {"type": "exact_match", "arguments": {"actual": "a", "expected": "a"}}

    def requested(**sections: Any) -> RunRecord:
        document = {"name": "asked", "checks": [check], **sections}
        caller, case = Caller("key:one", frozenset()), TestCase(id="a", input="one")
        return request_run(store, document, [case], kind="operation", caller=caller, idempotency_key=None, request={})

    http = {"url": "https://agent.example.com/", "headers": {"X": "${prefect:secret/agent-key}"}}
    with pytest.raises(InputError, match="Prefect has no Secret block"):
        requested(target={"http": http})
    record = requested(target={"http": {"url": http["url"]}}, test_cases="https://internal.example.com/cases.jsonl")
    assert record.suite["test_cases"] == []
