"""A secret leaves a target, a model or a check in no form in which it may be echoed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.errors import TargetError
from fepflow.security.redaction import (
    excerpt,
    holds_secret,
    known_secrets,
    redact,
    redact_json,
    remember,
    without_secrets,
    words_of,
)

SECRET = 'sk-"4+5/6" <ü>\\Qz😀'
PLAIN = "Canary/7QxK+2mVb93="


def unicode_escapes(text: str) -> str:
    return "".join(f"\\u{unit:04X}" for char in text for unit in units(char))


def units(char: str) -> list[int]:
    raw = char.encode("utf-16-be")
    return [int.from_bytes(raw[start : start + 2], "big") for start in range(0, len(raw), 2)]


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with escaped slashes": lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    "JSON, all escaped": unicode_escapes,
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: quote(text, safe="").replace("%2F", "%2f").lower(),
    "percent, path": quote,
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("secret", [SECRET, PLAIN, "a1b2"])
def test_every_form_of_a_secret_is_masked(form, secret: str) -> None:
    redacted = redact(f"before {form(secret)} after", frozenset({secret, "another"}))
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert "***" in redacted
    assert len(redacted) <= len("before %22***%22 after"), "quotes around it at most"
    assert holds_secret(f"before {form(secret)} after", frozenset({secret}))


@pytest.mark.parametrize("before", ["", "x", "xy", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_in_base64_it_is_found_at_whatever_offset(before: str, encode) -> None:
    echoed = encode(f"{before}{PLAIN}, and more".encode()).decode()
    left = redact(echoed, frozenset({PLAIN}))
    own = encode(PLAIN.encode()).decode()
    assert "***" in left
    assert own[4:12] not in left
    assert not any(
        PLAIN[start : start + 4].encode() in base64.b64decode(part + "==", b"-_")
        for part in left.split("***")
        if len(part) % 4 != 1
        for start in range(len(PLAIN) - 4)
    )


def test_a_secret_that_looks_escaped_itself_is_found() -> None:
    for secret in ("abc%41def", "pass\\nword", "a&amp;bcdef", "C:\\u0041bcd"):
        for form in FORMS.values():
            assert secret not in redact(f"x {form(secret)} y", frozenset({secret}))
            assert "***" in redact(f"x {form(secret)} y", frozenset({secret}))


def test_a_long_secret_is_found_in_other_letter_cases() -> None:
    assert redact("http://canary-7qxk2mvb93.example", frozenset({"Canary-7QxK2mVb93"})) == "http://***.example"
    assert redact("the word pass", frozenset({"PASS"})) == "the word pass", "a short one would be found in words"


def test_a_secret_within_a_longer_one_leaves_no_rest() -> None:
    assert redact("abcd-efgh", frozenset({"abcd", "abcd-efgh"})) == "***"


def test_json_is_masked_in_values_and_keys_at_any_depth() -> None:
    value = {"abcd": [1, None, {"x": "an abcd"}], "n": 1.5}
    assert redact_json(value, frozenset({"abcd"})) == {"***": [1, None, {"x": "an ***"}], "n": 1.5}


def test_without_secrets_nothing_is_touched() -> None:
    value = {"a": ["b"]}
    assert redact_json(value, frozenset()) is value
    assert redact("", frozenset()) == ""
    assert not holds_secret("anything", frozenset())


@given(st.text(alphabet="ab*", max_size=30), st.frozensets(st.text(alphabet="ab", min_size=4, max_size=6), max_size=3))
def test_no_secret_survives(text: str, secrets: frozenset[str]) -> None:
    redacted = redact(text, secrets)
    assert not any(secret in redacted for secret in secrets)


@given(st.text(alphabet='a1%2\\u0041&#x;"/+\ud800é', max_size=40))
def test_whatever_has_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text, frozenset({"Canary-7QxK2mVb93"})) == text


printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")


@given(st.text(max_size=20), st.text(max_size=20), st.text(printable, min_size=4, max_size=12))
def test_what_stands_around_a_secret_stays(before: str, after: str, secret: str) -> None:
    redacted = redact(f"{before}\n{secret}\n{after}", frozenset({secret}))
    assert secret not in redacted
    assert "***" in redacted


@pytest.mark.parametrize("unit", ["%41", "\\", "&", "\\u0041", "%25", "&#6", "&amp", "\\u", "%2", "ab%"])
def test_a_hostile_text_of_a_megabyte_takes_no_minutes(unit: str) -> None:
    """Linear: twenty times the work of a quadratic search would not end within the suite's time limit."""
    text = unit * (1_000_000 // len(unit))
    assert redact(text, frozenset({"Canary-7QxK2mVb93"})) == text


def test_an_excerpt_cuts_no_secret_in_half() -> None:
    text = "x" * 195 + "abcdefgh" + "y" * 100
    shown = excerpt(text, frozenset({"abcdefgh"}))
    assert shown == "x" * 195 + "***yy..."


def test_a_secret_at_the_end_of_what_is_searched_is_not_shown_in_part() -> None:
    secret = "".join(f"{number:04}" for number in range(100))
    text = f"{secret} " * 400
    assert "0001" not in excerpt(text, frozenset({secret}), limit=10_000)


def test_an_excerpt_is_one_printable_line() -> None:
    assert excerpt("a\r\nb\t\x1b[1m \ud800 é", frozenset()) == "a b \\x1b[1m \\ud800 é"


def test_what_was_remembered_and_what_the_environment_calls_a_secret_is_known() -> None:
    remember({"remembered-1", "abc"})
    env = {
        "DB_PASS": "db-pass-1234",
        "AUTH_MODE": "none",
        "HOME": "/home/somebody",
        "PWD": "/home/somebody/work",
        "STORE": "postgresql://me:p@ss-word@db/x?sig=abcdef",
    }
    found = known_secrets(env)
    assert {"remembered-1", "db-pass-1234", "p@ss-word", "abcdef"} <= found
    assert found.isdisjoint({"abc", "none", "/home/somebody", "/home/somebody/work"})


def test_the_errors_of_others_show_no_query_no_password_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-12345678")
    error = ValueError("401 for url 'http://me:pw@host:1/path?key=1&x=2#f' with tok%2D12345678\nand more")
    assert words_of(error) == "401 for url 'http://host:1/path?***' with *** and more"
    monkeypatch.setenv("OTHER_TOKEN", "what?is-this")
    assert words_of(ValueError("is it what?is-this, or what?")) == "is it ***, or what?"
    assert len(words_of(ValueError("x" * 1_000_000))) < 600

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert words_of(MuteError()) == "it has no message"


def test_an_error_of_a_target_keeps_all_but_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-12345678")
    error = without_secrets(TargetError("no tok-12345678 here", kind="connect", retryable=True))
    assert (str(error), error.kind, error.retryable) == ("no *** here", "connect", True)
