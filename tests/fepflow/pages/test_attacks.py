"""A hostile page on another port of the host, in a real browser whose person is signed in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import stored
from tests.fepflow.pages.chromium import Watched, watching
from tests.fepflow.pages.conftest import served
from tests.fepflow.pages.test_sessions import key_of

pytestmark = pytest.mark.e2e

FORGED = """<!doctype html><title>forged</title>
<form id="f" method="post" action="{target}/runs/{run}/labels">
<input name="csrf" value="known"><input name="check" value="llm_judge"><input name="field" value="passed">
<input name="case" value="c0"><input name="repeat" value="1"><input name="label" value="no"></form>
<script>
{script}
</script>"""
SUBMITTED = "document.getElementById('f').submit();"
FETCHED = """
fetch(document.getElementById('f').action, {method: "POST", credentials: "include", mode: "no-cors",
  body: new URLSearchParams(new FormData(document.getElementById('f')))})
  .then(() => document.title = "sent", () => document.title = "sent");
"""


@contextmanager
def attacker(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the cookies that browsers have sent to it."""
    cookies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            body = pages.get(self.path, "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Set-Cookie", "fepflow_csrf=known; Path=/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", cookies
        finally:
            server.shutdown()


@pytest.fixture
def run(store: Store) -> RunRecord:
    return stored(store, [{"passed": True}] * 3)


@pytest.mark.parametrize("asks", [True, False], ids=["signed in", "no key"])
def test_a_page_of_another_port_stores_no_label_and_gets_no_key(
    store: Store, run: RunRecord, tmp_path: Path, asks: bool
) -> None:
    key = key_of(store) if asks else ""
    with served(store) as site, watching(site, tmp_path / "profile") as browser:
        page = f"/runs/{run.id}/labels?order=disagreement"
        if asks:
            sign_in(browser, key)
        browser.open(page)
        browser.shows("llm_judge")
        pages = {
            f"/{name}": FORGED.replace("{target}", site).replace("{run}", run.id).replace("{script}", script)
            for name, script in (("submitted", SUBMITTED), ("fetched", FETCHED))
        }
        with attacker(pages) as (elsewhere, cookies):
            browser.driver.get(f"{elsewhere}/submitted")
            browser.until(lambda _: browser.url.startswith(site), "an answer of ours")
            assert "does not come from a page" in browser.text or "Origin" in browser.text
            browser.driver.get(f"{elsewhere}/fetched")
            browser.until(lambda _: browser.driver.title == "sent", "that it was sent")
        assert store.labels.current(run.id) == []
        assert not any("fep_" in cookie for cookie in cookies), "what another port is sent is no key"
        if asks:
            assert any("fepflow_session=" in cookie for cookie in cookies), "cookies know no ports"

        browser.open(page)
        browser.driver.find_element(By.CSS_SELECTOR, "button[name=label]").click()
        browser.until(lambda _: len(store.labels.current(run.id)) == 1, "the label of the person")
        if asks:
            browser.driver.find_element(By.CSS_SELECTOR, "form[action='/sign-out'] button").click()
            browser.until(lambda _: browser.url.endswith("/sign-in"), "the page to sign in")
            browser.open("/runs")
            assert "/sign-in" in browser.url


def sign_in(browser: Watched, key: str) -> None:
    browser.open("/runs")
    browser.driver.find_element(By.NAME, "key").send_keys(key)
    browser.driver.find_element(By.CSS_SELECTOR, "form.stacked button").click()
    browser.shows("Sign out")
