import pytest

from fepflow.access.credentials import hash_of, is_secret_of, new_api_key, parse_api_key, without_credentials


def test_a_new_key_is_id_and_secret_and_is_known_by_its_hash():
    key_id, text, secret_hash = new_api_key()

    parsed = parse_api_key(text)

    assert parsed is not None
    assert parsed[0] == key_id
    assert hash_of(parsed[1]) == secret_hash
    assert is_secret_of(parsed[1], secret_hash)
    assert parsed[1] not in secret_hash
    assert new_api_key()[:2] != (key_id, text)


def test_no_other_secret_and_no_absent_hash_will_do():
    _, _, secret_hash = new_api_key()
    for secret in ("", "x" * 43, secret_hash, "é", "\ud83d", "\x00"):
        assert not is_secret_of(secret, secret_hash)
        assert not is_secret_of(secret, None)
        assert not is_secret_of(secret, "é")


HOSTILE = ["", "fep_", "fep__", "é", "\ud83d", "\x00", "x" * 1_000_000, "fep_" + "a" * 1_000_000, "' OR 1=1 --"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_cannot_be_a_key_is_none(text):
    assert parse_api_key(text) is None


@pytest.mark.parametrize("change", ["{}\n", " {}", "{} ", "{}\x00", "{}=", "x{}", "{}é"])
def test_a_key_with_anything_around_it_is_none(change):
    assert parse_api_key(change.format(new_api_key()[1])) is None


def test_a_key_in_a_text_for_a_log_is_cut_to_its_id_and_a_token_to_nothing():
    key_id, text, _ = new_api_key()
    shown = without_credentials(f"GET /a/{text}/b?k={text[:40]} eyJhbGciOiJI.eyJzdWIi.c2ln-_\n\x1b[2J")
    assert shown == f"GET /a/fep_{key_id}_***/b?k=fep_{key_id}_*** ***\\u000a\\u001b[2J"
