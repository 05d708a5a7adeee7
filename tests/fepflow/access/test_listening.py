"""Where it may listen, and what it refuses there."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from fepflow.access.credentials import create_key
from fepflow.access.listening import OPEN_NOTICE, allowed_origins, listening_on, refuse_pages_of_others
from fepflow.errors import PermissionDeniedError, UserError
from fepflow.store.store import Store
from tests.fepflow.access.conftest import MakeSettings

ELSEWHERE = ["0.0.0.0", "::", "", "192.0.2.1", "example.org", "localhost.example.org", "127.0.0.1.nip.io", "0x7f.1"]


@pytest.fixture
def with_key(store: Store) -> Store:
    create_key(store, "tests", ["read"], None)
    return store


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_this_machine_is_open_with_a_notice_as_long_as_there_is_no_key(
    host: str, store: Store, make_settings: MakeSettings
) -> None:
    listening = listening_on(host, store, make_settings(), behind_tls=False)
    assert (listening.may_be_open, listening.tls, listening.notice) == (True, None, OPEN_NOTICE)
    key, _ = create_key(store, "tests", ["read"], None)
    assert listening_on(host, store, make_settings(), behind_tls=False).notice is None
    store.access.revoke_key(key.id)
    assert listening_on(host, store, make_settings(), behind_tls=False).notice is None


def test_tokens_take_the_notice_away(store: Store, jwt_settings: MakeSettings) -> None:
    assert listening_on("127.0.0.1", store, jwt_settings(), behind_tls=False).notice is None


@pytest.mark.parametrize("host", ELSEWHERE)
def test_elsewhere_needs_a_key_and_tls(
    host: str, store: Store, make_settings: MakeSettings, tls: dict[str, Path]
) -> None:
    for behind_tls in (False, True):
        with pytest.raises(UserError, match=r"neither an active API key nor .*fepflow keys create"):
            listening_on(host, store, make_settings(**tls), behind_tls=behind_tls)
    key, _ = create_key(store, "tests", ["read"], None)
    with pytest.raises(UserError, match=r"FEPFLOW_TLS_CERT and FEPFLOW_TLS_KEY, or .* --behind-tls"):
        listening_on(host, store, make_settings(), behind_tls=False)
    for settings, behind_tls in ((make_settings(**tls), False), (make_settings(), True)):
        assert not listening_on(host, store, settings, behind_tls=behind_tls).may_be_open
    store.access.revoke_key(key.id)
    with pytest.raises(UserError, match="neither an active API key"):
        listening_on(host, store, make_settings(**tls), behind_tls=True)


def test_behind_a_proxy_this_machine_is_not_open(store: Store, make_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match="neither an active API key"):
        listening_on("127.0.0.1", store, make_settings(), behind_tls=True)
    create_key(store, "tests", ["read"], None)
    assert not listening_on("127.0.0.1", store, make_settings(), behind_tls=True).may_be_open


def test_tokens_will_do_in_the_place_of_keys(store: Store, jwt_settings: MakeSettings) -> None:
    assert not listening_on("0.0.0.0", store, jwt_settings(), behind_tls=True).may_be_open


def test_files_of_tls_are_looked_at(
    with_key: Store, make_settings: MakeSettings, tls: dict[str, Path], tmp_path: Path
) -> None:
    for missing in tls:
        with pytest.raises(UserError, match="TLS needs both"):
            listening_on("localhost", with_key, make_settings(**{**tls, missing: None}), behind_tls=False)
    with pytest.raises(UserError, match="No such file"):
        listening_on("::", with_key, make_settings(**{**tls, "tls_key": tmp_path / "none"}), behind_tls=False)
    with pytest.raises(UserError, match="cannot be used"):
        listening_on("::", with_key, make_settings(**{**tls, "tls_key": tls["tls_cert"]}), behind_tls=False)
    encrypted = load_pem_private_key(tls["tls_key"].read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password")
    )
    (tmp_path / "encrypted").write_bytes(encrypted)
    with pytest.raises(UserError, match="unencrypted"):
        listening_on("::", with_key, make_settings(**{**tls, "tls_key": tmp_path / "encrypted"}), behind_tls=False)
    assert listening_on("::", with_key, make_settings(**tls), behind_tls=False).tls == tuple(tls.values())


def test_origins_are_named_one_by_one(make_settings: MakeSettings) -> None:
    told = " https://App.example.org/ ,http://[::1]:3000,, http://localhost:5173"
    expected = {"https://app.example.org", "http://[::1]:3000", "http://localhost:5173"}
    assert allowed_origins(make_settings(cors_origins=told)) == expected
    assert allowed_origins(make_settings()) == frozenset()
    for wrong in ("*", "null", "app.example.org", "https://a/b", "https://*.example.org", "file://", "https://a\nb"):
        with pytest.raises(UserError, match="is not an origin"):
            allowed_origins(make_settings(cors_origins=wrong))


LOCAL = ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000")
REBOUND: tuple[str, ...] = (
    "evil.example.org",
    "localhost.evil.org",
    "localhost.",
    "127.0.0.1.nip.io",
    "127.0.0.2",
    "0.0.0.0",
    "",
    "::1",
)
REBOUND += ("localhost:80:80", "localhost:", "localhost@evil.org", "evil.org@localhost", "localhost\n", "2130706433")


@pytest.mark.parametrize("host", LOCAL)
def test_a_request_for_this_machine_is_taken(host: str) -> None:
    refuse_pages_of_others([("host", host)], frozenset())
    refuse_pages_of_others([("host", host), ("origin", f"http://{host}")], frozenset())


@pytest.mark.parametrize("host", REBOUND)
def test_a_request_for_another_host_is_refused(host: str) -> None:
    with pytest.raises(PermissionDeniedError, match="Host"):
        refuse_pages_of_others([("host", host)], frozenset())


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    for hosts in ([], [("host", "localhost"), ("host", "evil.org")]):
        with pytest.raises(PermissionDeniedError, match="Host"):
            refuse_pages_of_others(hosts, frozenset())


@pytest.mark.parametrize("origin", ["http://evil.org", "null", "", "http://localhost:3000", "http://localhost", "x"])
def test_a_page_from_elsewhere_is_refused(origin: str) -> None:
    with pytest.raises(PermissionDeniedError, match="Origin"):
        refuse_pages_of_others([("host", "localhost:8000"), ("origin", origin)], frozenset({"http://app.org"}))


def test_a_page_that_is_allowed_is_taken() -> None:
    refuse_pages_of_others([("host", "localhost"), ("origin", "http://app.org")], frozenset({"http://app.org"}))


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "via", "x-real-ip"])
def test_a_proxy_makes_nobody_a_caller_of_this_machine(header: str) -> None:
    with pytest.raises(PermissionDeniedError, match="proxies"):
        refuse_pages_of_others([("host", "localhost"), (header, "127.0.0.1")], frozenset())


PROXIES = """
Forwarded X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Prefix X-Forwarded X-Forward-For Forwarded-For
X_Forwarded_For Via CDN-Loop Proxy-Connection X-Real-IP X-Client-IP CF-Connecting-IP CF-Connecting-IPv6 CF-Ray
CF-Pseudo-IPv4 True-Client-IP Fastly-Client-IP Fly-Client-IP X-Cluster-Client-IP X-ProxyUser-Ip X-Original-URL
X-Original-Host X-Original-Forwarded-For X-Originating-IP X-Remote-IP X-Remote-Addr X-Azure-ClientIP X-Azure-SocketIP
X-Envoy-External-Address X-Envoy-Original-Path X-Amzn-Trace-Id X-Amz-Cf-Id X-AppEngine-User-IP X-ARR-SSL Client-IP
WL-Proxy-Client-IP Proxy-Client-IP X-Host X-HTTP-Host-Override X-Rewrite-URL X-Nf-Client-Connection-Ip
"""


@pytest.mark.parametrize("name", PROXIES.split())
def test_a_request_that_came_past_a_proxy_is_refused(name: str) -> None:
    with pytest.raises(PermissionDeniedError, match="proxies"):
        refuse_pages_of_others([("host", "localhost"), (name.lower(), "127.0.0.1")], frozenset())


OTHERS = """
Accept Accept-Encoding Accept-Language Cache-Control Connection Content-Encoding Content-Length Content-Type Cookie
DNT Expect HX-Current-URL HX-Request HX-Target HX-Trigger Idempotency-Key If-None-Match Pragma Priority
Range Referer Sec-Ch-Ua Sec-Fetch-Dest Sec-Fetch-Mode Sec-Fetch-Site Sec-Fetch-User Sec-GPC TE Traceparent
Tracestate User-Agent X-Request-Id X-Requested-With Grpc-Accept-Encoding Grpc-Timeout B3 Baggage
Upgrade-Insecure-Requests X-Api-Version Grpc-Trace-Bin X-Goog-Api-Client
"""


def test_headers_of_browsers_and_programs_tell_of_no_proxy() -> None:
    refuse_pages_of_others([("host", "localhost"), *((name.lower(), "x") for name in OTHERS.split())], frozenset())
