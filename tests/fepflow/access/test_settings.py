from __future__ import annotations

import pytest

from fepflow.errors import InputError
from fepflow.settings import settings

BAD = {
    "JWT_ALGORITHM": ["none", "HS512", "hs256", "HS256,RS256", ""],
    "STARTS_PER_MINUTE": ["0", "-1", "many", "1.5"],
    "REQUESTS_PER_MINUTE": ["0", ""],
    "MAX_BODY": ["lots", "", "-1"],
    "JWT_MAX_LIFETIME": ["0s", "-1d", "forever", "99999999d"],
    "BLOBS": ["blobs", "/srv/blobs", "file://srv", "file:///", "s3:///x", "s3://u:p@b", "gs://b?x=1", "az://b"],
    "AUDIT_RETENTION": ["0s", "-1d", "90", "forever", "99999999d"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_setting_that_cannot_be_used_is_named(name, value, monkeypatch, home):
    monkeypatch.setenv(f"FEPFLOW_{name}", value)
    with pytest.raises(InputError, match=f"FEPFLOW_{name}"):
        settings()


def test_what_holds_without_settings(home):
    found = settings()
    assert (found.starts_per_minute, found.requests_per_minute, found.max_body) == (60, 1200, 2_000_000)
    assert found.audit_retention == 90 * 86_400
    assert (found.jwt_key_file, found.jwt_algorithm, found.tls_cert, found.cors_origins) == (None, None, None, "")


def test_sizes_are_written_with_their_units(monkeypatch, home):
    monkeypatch.setenv("FEPFLOW_MAX_BODY", "10MiB")
    assert settings().max_body == 10 * 2**20
