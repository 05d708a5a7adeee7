from typing import Any

import pytest

from fepflow.documents.loader import parse_document
from fepflow.suite.env_vars import expand, holds_a_literal_secret


def expanded(value, path=("target",), **env):
    references: list[Any] = []
    return expand(value, path, env, references), references


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${HOST}", "example.com"),
        ("https://${HOST}:${PORT}/", "https://example.com:80/"),
        ("${NONE:-default}", "default"),
        ("${NONE:-}", ""),
        ("${HOST:-default}", "example.com"),
        ("${EMPTY:-default}", "default"),
        ("$HOST", "$HOST"),
        ("${host}", "${host}"),
        ("${1A}", "${1A}"),
        ("$${HOST}", "$example.com"),
        ("${NONE:-https://x/?a=b}", "https://x/?a=b"),
    ],
)
def test_references_are_expanded_everywhere(text, result):
    env = {"HOST": "example.com", "PORT": "80", "EMPTY": ""}
    assert expanded(text, **env)[0] == result
    assert expanded({"a": [text, 5, None]}, **env)[0] == {"a": [result, 5, None]}


def test_values_of_variables_are_not_expanded_again():
    assert expanded("${A}", A="${B}", B="secret")[0] == "${B}"


def test_a_missing_variable_stays_as_it_is_and_is_reported():
    value, (reference,) = expanded({"url": "x/${NONE}"})
    assert value == {"url": "x/${NONE}"}
    assert reference.missing
    assert reference.path == ("target", "url")


def test_keys_are_not_expanded():
    assert expanded({"${A}": 1}, A="x")[0] == {"${A}": 1}


@pytest.mark.parametrize(
    ("path", "name", "secret"),
    [
        (("target", "http", "headers", "X-Team"), "TEAM", True),
        (("target", "http", "url"), "BOT_URL", False),
        (("target", "http", "url"), "BOT_TOKEN", True),
        (("target", "http", "body", "key"), "OPENAI_API_KEY", True),
        (("target", "http", "body"), "DB_PASSWORD", True),
        (("target", "http", "body"), "KEYBOARD", False),
    ],
)
def test_a_value_is_a_secret_by_its_place_or_its_name(path, name, secret):
    _, (reference,) = expanded("${" + name + "}", path, **{name: "a value"})
    assert reference.secret is secret
    assert "a value" not in repr(reference)


def test_a_default_is_not_treated_as_a_secret():
    _, (reference,) = expanded("${API_KEY:-none}", ("target", "http", "headers", "Authorization"))
    assert not reference.secret


def problems_of(http):
    return [str(problem) for problem in holds_a_literal_secret(parse_document(f"target:\n  http: {http}\n", "s.yaml"))]


@pytest.mark.parametrize(
    "http",
    [
        "{headers: {Authorization: Bearer abc}}",
        "{headers: {X-API-Key: abc}}",
        "{headers: {cookie: abc}}",
        "{url: 'https://user:abc@host/'}",
        "{url: 'https://host/?api_key=abc'}",
        "{url: 'https://${HOST}/?token=abc'}",
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_shown(http):
    (problem,) = problems_of(http)
    assert "s.yaml:2: target.http." in problem
    assert "write it as ${NAME}" in problem
    assert "abc" not in problem


@pytest.mark.parametrize(
    "http",
    [
        "{headers: {Authorization: 'Bearer ${TOKEN}'}}",
        "{headers: {Content-Type: application/json}}",
        "{url: 'https://user:${PASSWORD}@host/?api_key=${KEY}'}",
        "{url: 'https://host/?question=abc'}",
        "{url: 'https://['}",
        "5",
        "{headers: 5, url: 5}",
    ],
)
def test_a_reference_or_something_harmless_is_not(http):
    assert problems_of(http) == []
