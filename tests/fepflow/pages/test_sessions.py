"""Who may open the pages: nobody's key, a key in a cookie, tokens of forms; and what a browser is told."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from fepflow.access.access import FAILURES_PER_MINUTE, Access
from fepflow.access.caller import Scope
from fepflow.access.credentials import create_key
from fepflow.api.rest.http import Errors
from fepflow.api.rest.middleware import AccessMiddleware
from fepflow.pages.routes import Pages, html_error
from fepflow.pages.session import PagesMiddleware
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import stored
from tests.fepflow.pages.conftest import OF_A_PAGE, Row, fill, served, simple
from tests.http_server import serving


def key_of(store: Store, *scopes: Scope, lifetime: float | None = None) -> str:
    return create_key(store, "tests", scopes or ("read", "evaluate"), lifetime)[1]


@pytest.fixture
def key(store: Store, client: httpx.Client) -> str:
    """A key that opens the pages, which were open to all on this machine until there was one."""
    fill(store, [simple("a")], run_id="aaaa1111")
    return key_of(store)


def csrf(client: httpx.Client) -> str:
    """The token of the forms of this session."""
    html = client.get("/runs").raise_for_status().text
    return html.partition('name="csrf" value="')[2].partition('"')[0]


def sign_in(client: httpx.Client, key: str, **fields: str) -> httpx.Response:
    return client.post("/sign-in", data={"key": key, **fields})


PATHS = ["/runs", "/runs/aaaa1111", "/runs/nothing", "/nothing", "/sign-in", "/static/none"]


def test_every_answer_says_what_a_page_may_load_and_is_kept_by_nobody(
    client: httpx.Client, store: Store, subtests: pytest.Subtests
) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for path in PATHS:
        with subtests.test(path=path):
            headers = client.get(path).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy == {
                "default-src": "'none'",
                "script-src": "'self'",
                "style-src": "'self'",
                "img-src": "'self' data:",
                "connect-src": "'self'",
                "form-action": "'self'",
                "base-uri": "'none'",
                "frame-ancestors": "'none'",
            }
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"


def test_our_files_are_kept_by_browsers_for_their_addresses_change(client: httpx.Client) -> None:
    html = client.get("/runs").text
    addresses = re.findall(r'(?<=/static/)[^"\s]+', html)
    assert len(addresses) == 7, "sheets, icon, htmx, page.js, and Vega, which page.js loads where there is a chart"
    for address in addresses:
        response = client.get(f"/static/{address}").raise_for_status()
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["content-type"].startswith(("text/", "image/svg+xml"))


def test_who_has_not_signed_in_is_sent_to_do_so_and_comes_back(client: httpx.Client, key: str) -> None:
    sent = client.get("/runs/aaaa1111?show=failed")
    assert sent.status_code == 303
    assert sent.headers["location"] == "/sign-in?next=%2Fruns%2Faaaa1111%3Fshow%3Dfailed"
    assert 'name="next" value="/runs/aaaa1111?show=failed"' in client.get(sent.headers["location"]).text

    signed_in = sign_in(client, f" {key}\n", next="/runs/aaaa1111?show=failed")

    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/runs/aaaa1111?show=failed")
    (cookie,) = signed_in.headers.get_list("set-cookie")
    assert re.fullmatch(r"fepflow_session=[\w-]{43}; HttpOnly; Path=/; SameSite=strict", cookie), "and no key"
    shown = client.get("/runs/aaaa1111")
    assert shown.status_code == 200
    assert f"key:{key[4:16]}" in shown.text, "who is signed in"
    assert key not in shown.text


def test_head_says_of_a_page_what_get_does(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    assert (client.head("/runs/aaaa1111").status_code, client.head("/runs/nothing").status_code) == (200, 404)
    key_of(store)
    asked, told = client.get("/runs/aaaa1111"), client.head("/runs/aaaa1111")
    assert (told.status_code, told.headers["location"]) == (303, asked.headers["location"])


def test_a_part_of_a_page_is_not_replaced_by_the_sign_in_page(client: httpx.Client, key: str) -> None:
    part = client.get("/runs/aaaa1111", headers={"HX-Request": "true", "HX-Target": "verdict"})
    assert part.status_code == 401
    assert part.headers["hx-redirect"] == "/sign-in?next=%2Fruns%2Faaaa1111%3F"
    assert part.text == ""


def test_signing_out_takes_the_key_away(client: httpx.Client, key: str) -> None:
    sign_in(client, key)
    session = client.cookies["fepflow_session"]
    assert client.get("/runs").status_code == 200
    assert client.post("/sign-out", data={"csrf": "wrong"}).status_code == 403
    assert client.get("/runs").status_code == 200

    gone = client.post("/sign-out", data={"csrf": csrf(client)})

    assert (gone.status_code, gone.headers["location"]) == (303, "/sign-in")
    assert "fepflow_session" not in client.cookies
    assert client.get("/runs").status_code == 303
    client.cookies.set("fepflow_session", session, domain="127.0.0.1")
    assert client.get("/runs").status_code == 303, "the session is over, also for whoever has kept it"


def test_a_wrong_key_is_refused_and_not_repeated(client: httpx.Client, key: str, subtests: pytest.Subtests) -> None:
    for wrong in ["", "x", "fep_", "fep_000000000000_" + "x" * 43, "é", "fep_\x00", "' OR 1=1 --", "x" * 10_000]:
        with subtests.test(wrong=wrong):
            refused = sign_in(client, wrong)
            assert refused.status_code == 401
            assert "Refused" in refused.text
            assert "fepflow_session" not in client.cookies
            assert len(wrong) < 10 or wrong not in refused.text


def test_expired_and_revoked_keys_are_refused_also_those_that_are_signed_in(
    client: httpx.Client, store: Store, key: str
) -> None:
    assert sign_in(client, key_of(store, lifetime=1e-6)).status_code == 401
    other = key_of(store)
    assert sign_in(client, other).status_code == 303
    assert client.get("/runs").status_code == 200
    store.access.revoke_key(other[4:16])
    assert client.get("/runs").status_code == 303
    assert sign_in(client, other).status_code == 401


def test_a_key_that_may_only_read_is_shown_no_form_of_labels(client: httpx.Client, store: Store) -> None:
    run = stored(store, [{"passed": True}] * 3)
    pages = [f"/runs/{run.id}/labels?order={order}" for order in ("random", "disagreement")]
    links = [f"/runs/{run.id}", f"/runs/{run.id}/case?id=c1"]
    assert all(f'action="/runs/{run.id}/labels' in client.get(page).text for page in pages)
    assert all(f'href="/runs/{run.id}/labels' in client.get(page).text for page in links)

    sign_in(client, key_of(store, "read"))
    for page in pages:
        html = client.get(page).text
        assert "labelling needs the scope evaluate" in html
        assert "/labels" not in "".join(re.findall("<form.*?>", html))
    assert not any("/labels" in client.get(page).text for page in links)


def test_guessing_keys_is_slowed_down(client: httpx.Client, key: str) -> None:
    for _ in range(200):
        refused = sign_in(client, "fep_000000000000_" + "x" * 43)
        if refused.status_code == 429:
            break
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0


ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "/\t/evil.example/",
    "/\n/evil.example/",
    "\t//evil.example/",
    " //evil.example/",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example",
    "@evil.example",
    "/\r\nSet-Cookie: x=y",
    "/\u2028/evil.example",
    "/\x00/evil.example",
    "/v1/reports",
    "/api/evaluations",
    "",
]


def test_signing_in_never_leads_elsewhere(client: httpx.Client, key: str, subtests: pytest.Subtests) -> None:
    for place in ELSEWHERE:
        with subtests.test(place=place):
            signed_in = sign_in(client, key, next=place)
            assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/runs")
            assert "x=y" not in str(signed_in.headers)
            html = client.get("/sign-in", params={"next": place}).text
            assert 'name="next" value="/runs"' in html


def test_what_stays_here_may_read_strangely(client: httpx.Client, key: str, subtests: pytest.Subtests) -> None:
    for place in ["/.//evil.example", "/..//evil.example", "/runs//evil.example", "/%2F%2Fevil.example"]:
        with subtests.test(place=place):
            location = sign_in(client, key, next=place).headers["location"]
            assert httpx.URL("http://127.0.0.1/sign-in").join(location).host == "127.0.0.1"
            assert not location.startswith("//")


def test_forms_without_the_token_of_this_session_are_refused(client: httpx.Client, key: str, address: str) -> None:
    with httpx.Client(base_url=address, headers=OF_A_PAGE) as other:
        assert sign_in(other, key).status_code == 303
        others = csrf(other)
    sign_in(client, key)
    mine = csrf(client)
    for token in ("", "x", others, mine[:-1], mine + "x", "é", "\ud800"):
        data = f"csrf={token}".encode("utf-8", "surrogatepass")
        for path in ("/sign-out", "/runs/aaaa1111/labels", "/runs/aaaa1111/labels/draw"):
            sent = client.post(path, content=data, headers={"Content-Type": "application/x-www-form-urlencoded"})
            assert sent.status_code in (400, 403), token
    client.cookies.set("fepflow_csrf", "x", domain="127.0.0.1")
    assert client.post("/sign-out", data={"csrf": "x"}).status_code == 403, "no cookie makes a token"
    assert client.post("/sign-out", data={"csrf": mine}).status_code == 303


ORIGINS: list[tuple[dict[str, str], bool]] = [
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Origin": "OWN"}, True),
    ({"Origin": "OWN", "Sec-Fetch-Site": "same-origin"}, True),
    ({"Origin": "https://fepflow.example.org", "Sec-Fetch-Site": "same-origin"}, True),  # a proxy has changed the Host
    ({}, False),
    ({"Sec-Fetch-Site": "same-site"}, False),  # another port
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "none"}, False),
    ({"Origin": "http://127.0.0.1:9"}, False),
    ({"Origin": "http://localhost"}, False),
    ({"Origin": "https://evil.example"}, False),
    ({"Origin": "null"}, False),
    ({"Origin": ""}, False),
    ({"Origin": "OWN", "Sec-Fetch-Site": "same-site"}, False),
    ({"Referer": "OWN/runs"}, False),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody be slowed down by what is refused."""
    monkeypatch.setattr("fepflow.access.access.FAILURES_PER_MINUTE", 1_000)


@pytest.mark.usefixtures("patient")
def test_what_changes_something_comes_from_a_page_of_ours(
    client: httpx.Client, store: Store, key: str, address: str, subtests: pytest.Subtests
) -> None:
    run = stored(store, [{"passed": True}] * 3)
    for headers, is_taken in ORIGINS:
        with subtests.test(headers=headers, is_taken=is_taken):
            sign_in(client, key)
            token = csrf(client)
            own = {name: value.replace("OWN", address) for name, value in headers.items()}
            with httpx.Client(base_url=address, cookies=client.cookies, headers=own) as other:
                for method in ("PUT", "DELETE", "PATCH"):
                    assert other.request(method, "/runs").status_code == (405 if is_taken else 403)
                drawn = other.post(
                    f"/runs/{run.id}/labels/draw", data={"csrf": token, "size": "2", "check": "llm_judge"}
                )
                assert drawn.status_code == (303 if is_taken else 403)
                signed_in = other.post("/sign-in", data={"key": key})
                assert signed_in.status_code == (303 if is_taken else 403)
                assert ("set-cookie" in signed_in.headers) is is_taken
                if is_taken:
                    assert other.post("/sign-out", data={"csrf": token}).status_code == 403, "that session is over"
                    token = csrf(other)
                assert other.post("/sign-out", data={"csrf": token}).status_code == (303 if is_taken else 403)


def test_where_no_key_is_asked_for_forms_carry_a_token_too(client: httpx.Client, store: Store, address: str) -> None:
    run = stored(store, [{"passed": True}] * 3)
    page = client.get(f"/runs/{run.id}/labels?order=random").text
    token = page.partition('name="csrf" value="')[2].partition('"')[0]
    fields = {"size": "2", "check": "llm_judge"}
    assert client.post(f"/runs/{run.id}/labels/draw", data={**fields, "csrf": "x"}).status_code == 403
    client.cookies.set("fepflow_session", "x", domain="127.0.0.1")
    assert client.post(f"/runs/{run.id}/labels/draw", data={**fields, "csrf": token}).status_code in (401, 403)
    client.cookies.clear()
    assert client.post(f"/runs/{run.id}/labels/draw", data={**fields, "csrf": token}).status_code == 303


def test_a_session_is_over_after_its_time_or_with_its_key(
    client: httpx.Client, store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(client, key)
    assert client.get("/runs").status_code == 200
    with monkeypatch.context() as short_sessions:
        short_sessions.setattr("fepflow.access.access.SESSION_SECONDS", 1.0)
        sign_in(client, key)
    time.sleep(1.1)
    assert client.get("/runs").status_code == 303
    short = key_of(store, lifetime=2)
    assert sign_in(client, short).status_code == 303
    time.sleep(2.1)
    assert client.get("/runs").status_code == 303


def test_a_session_is_for_pages_only(client: httpx.Client, key: str) -> None:
    sign_in(client, key)
    session = client.cookies["fepflow_session"]
    for headers in ({}, {"X-API-Key": session}, {"Authorization": f"Bearer {session}"}):
        assert client.get("/runs/aaaa1111", headers=headers).status_code == (200 if not headers else 303)
        assert client.get("/runs/aaaa1111", headers={"X-API-Key": "", **headers}).status_code == 303


def test_a_session_is_taken_by_every_process_and_its_id_is_nowhere(
    client: httpx.Client, store: Store, key: str, tmp_path: Path
) -> None:
    sign_in(client, key)
    session, token = client.cookies["fepflow_session"], csrf(client)
    with (
        served(store) as another,
        httpx.Client(base_url=another, cookies=client.cookies, headers=OF_A_PAGE) as other,
    ):
        assert csrf(other) == token
        assert other.post("/sign-out", data={"csrf": token}).status_code == 303
    assert client.get("/runs").status_code == 303
    for path in (tmp_path / "home").rglob("*"):
        assert path.is_dir() or session.encode() not in path.read_bytes(), path


def test_signing_in_and_out_is_recorded_so_often_and_no_more(client: httpx.Client, store: Store, key: str) -> None:
    sign_in(client, key)
    client.post("/sign-out", data={"csrf": csrf(client)})
    found = [(entry.caller, entry.outcome) for entry in store.access.audit_entries(99) if "/sign-" in entry.action]
    assert found == [(f"key:{key[4:16]}", "303")] * 2
    before = len(store.access.audit_entries(9_999))
    for number in range(FAILURES_PER_MINUTE + 8):
        refused = client.post("/sign-in", data={"key": key}, headers={"Sec-Fetch-Site": "cross-site"})
        assert refused.status_code == (403 if number < FAILURES_PER_MINUTE else 429)
    assert len(store.access.audit_entries(9_999)) == before + FAILURES_PER_MINUTE + 1


def test_over_tls_the_cookie_is_of_this_host_alone(store: Store, key: str) -> None:
    @asynccontextmanager
    async def pages() -> AsyncIterator[ASGIApp]:
        async with Access(store, settings(), may_be_open=False) as access:
            app = FastAPI(openapi_url=None)
            app.include_router(Pages(store).router())
            guarded = AccessMiddleware(app, access, Errors({"": html_error}).render, max_body=99_999)
            yield PagesMiddleware(guarded, access, secure=True)

    with serving(pages) as address, httpx.Client(base_url=address, headers=OF_A_PAGE) as client:
        cookie = sign_in(client, key).headers["set-cookie"]
        assert re.fullmatch(r"__Host-fepflow_session=[\w-]{43}; HttpOnly; Path=/; SameSite=strict; Secure", cookie)
        session = cookie.partition(";")[0]
        assert client.get("/runs", headers={"Cookie": session}).status_code == 200
        assert client.get("/runs", headers={"Cookie": session.removeprefix("__Host-")}).status_code == 303


def test_what_is_no_form_is_refused(client: httpx.Client, key: str, subtests: pytest.Subtests) -> None:
    for kind, body in [
        ("application/json", b'{"key": "x"}'),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("text/plain", b"key=x"),
        ("", b"key=x"),
        ("application/x-www-form-urlencoded", b"key=%FF%FE"),
        ("application/x-www-form-urlencoded", "key=ä".encode()),
        ("application/x-www-form-urlencoded", b"a=1&" * 200),
        ("application/x-www-form-urlencoded", b"key=" + b"x" * 300_000),
    ]:
        with subtests.test(kind=kind, body=body):
            response = client.post("/sign-in", content=body, headers={"Content-Type": kind})
            assert response.status_code in (400, 413)
            assert "Refused" in response.text


REBOUND = [
    "evil.example",
    "127.0.0.1.evil.example",
    "evil.example:80",
    "localhost.evil.example",
    "[::1]evil",
    "0.0.0.0",
    "",
]


def test_without_keys_only_names_of_this_machine_are_answered(
    client: httpx.Client, store: Store, subtests: pytest.Subtests
) -> None:
    fill(store, [simple("secret case")], run_id="aaaa1111")
    for host in REBOUND:
        with subtests.test(host=host):
            response = client.get("/runs/aaaa1111", headers={"Host": host})
            assert response.status_code == 403 or (host == "" and response.status_code == 400)
            assert "secret case" not in response.text


def test_without_keys_pages_of_others_and_proxies_are_refused(
    client: httpx.Client, store: Store, subtests: pytest.Subtests
) -> None:
    fill(store, [simple("secret case")], run_id="aaaa1111")
    for headers in [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"X-Forwarded-For": "1.2.3.4"}]:
        with subtests.test(headers=headers):
            response = client.get("/runs/aaaa1111", headers=headers)
            assert response.status_code == 403
            assert "secret case" not in response.text


def test_odd_cookies_are_no_key(client: httpx.Client, key: str, subtests: pytest.Subtests) -> None:
    for cookie in [
        "fepflow_session=\x7f",
        "fepflow_session",
        ";;;=;",
        "fepflow_session=" + "x" * 5000,
        'fepflow_session="x',
        "a=b; a",
    ]:
        with subtests.test(cookie=cookie):
            assert client.get("/runs", headers={"Cookie": cookie}).status_code == 303


def test_a_key_for_programs_is_no_different(client: httpx.Client, key: str) -> None:
    assert client.get("/runs", headers={"X-API-Key": key}).status_code == 200
    assert client.get("/runs", headers={"X-API-Key": "fep_wrong"}).status_code == 303


def test_a_key_that_may_not_read_is_told_so(client: httpx.Client, store: Store, key: str) -> None:
    assert sign_in(client, key_of(store, "evaluate")).status_code == 303
    refused = client.get("/runs")
    assert refused.status_code == 403
    assert "read" in refused.text


def test_a_key_that_is_taken_no_more_is_forgotten_by_the_browser(client: httpx.Client) -> None:
    client.cookies.set("fepflow_session", "b" * 43, domain="127.0.0.1")
    response = client.get("/runs")
    assert (response.status_code, response.headers["location"]) == (303, "/sign-in?next=%2Fruns%3F")
    assert "fepflow_session" not in client.cookies
    assert client.get("/runs").status_code == 200, "there is no key yet, so none is asked for"


def test_with_a_key_that_may_not_look_another_one_can_be_shown(client: httpx.Client, store: Store, key: str) -> None:
    sign_in(client, key_of(store, "evaluate"))
    refused = client.get("/runs")
    assert refused.status_code == 403
    assert "does not have the scope" in refused.text
    assert '<a href="/sign-in">Sign in with another key</a>' in refused.text
    sign_in(client, key)
    assert client.get("/runs").status_code == 200
    assert "/sign-in" not in client.get("/runs/nothing").text


def test_a_page_that_asks_again_by_itself_has_one_entry_in_the_audit_log(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("there"), Row(TestCase(id="to come", input=1), [None])], run_id="aaaa1111", ended=False)
    fill(store, [simple("there")], run_id="bbbb2222")

    def entries() -> list[str]:
        return [entry.action for entry in store.access.audit_entries(99)]

    for _ in range(5):
        client.get("/runs/aaaa1111", headers={"HX-Request": "true", "HX-Target": "verdict"}).raise_for_status()
    assert entries() == ["GET /runs/aaaa1111"]
    client.get("/runs/bbbb2222", headers={"HX-Request": "true"}).raise_for_status()
    assert sorted(entries()) == ["GET /runs/aaaa1111", "GET /runs/bbbb2222"], (
        "another run is another entry, whoever asks"
    )
    for _ in range(2):
        assert client.get("/runs/cccc", headers={"HX-Request": "true"}).status_code == 404
        client.get("/runs/aaaa1111").raise_for_status()
    assert len(entries()) == 6, "what was refused, and pages that people open, are recorded each time"
