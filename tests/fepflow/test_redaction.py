"""A secret leaves a target in no form in which an agent may echo it."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.redaction import excerpt, redact, redact_json

SECRET = 'sk-"4+5/6" <ü>\\'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET),
        quote_plus(SECRET),
        quote(SECRET, safe=""),
        html.escape(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_every_form_of_a_secret_is_masked(form: str) -> None:
    redacted = redact(f"before {form} after", frozenset({SECRET}))
    assert redacted.startswith("before ***")
    assert redacted.endswith(" after")
    assert form not in redacted


def test_a_secret_within_a_longer_one_leaves_no_rest() -> None:
    assert redact("abcd-efgh", frozenset({"abcd", "abcd-efgh"})) == "***"


def test_json_is_masked_in_values_and_keys_at_any_depth() -> None:
    value = {"abcd": [1, None, {"x": "an abcd"}], "n": 1.5}
    assert redact_json(value, frozenset({"abcd"})) == {"***": [1, None, {"x": "an ***"}], "n": 1.5}


def test_without_secrets_nothing_is_touched() -> None:
    value = {"a": ["b"]}
    assert redact_json(value, frozenset()) is value
    assert redact("", frozenset()) == ""


@given(st.text(alphabet="ab*", max_size=30), st.frozensets(st.text(alphabet="ab", min_size=4, max_size=6), max_size=3))
def test_no_secret_survives(text: str, secrets: frozenset[str]) -> None:
    redacted = redact(text, secrets)
    assert not any(secret in redacted for secret in secrets)


def test_an_excerpt_cuts_no_secret_in_half() -> None:
    text = "x" * 195 + "abcdefgh" + "y" * 100
    shown = excerpt(text, frozenset({"abcdefgh"}))
    assert shown == "x" * 195 + "***yy..."


def test_an_excerpt_is_one_printable_line() -> None:
    assert excerpt("a\r\nb\t\x1b[1m \ud800 é", frozenset()) == "a b \\x1b[1m \\ud800 é"
