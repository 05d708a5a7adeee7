"""What a person sees of recurring evaluations in the browser: a schedule fires, and its run is on the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from .browser import Browser, browsing, chromium_and_driver
from .conftest import Stack, wait_for
from .endpoint import serving
from .served import place, serve

pytestmark = pytest.mark.e2e


def test_a_scheduled_run_is_on_the_pages_and_they_ask_for_a_key(stack: Stack, tmp_path: Path) -> None:
    chromium_and_driver()
    with serving() as endpoint:
        workplace = place(stack, tmp_path, AGENT_URL=endpoint.url)
        cases = [
            {"id": "right", "input": "a", "expected": "a"},
            {"id": "wrong <b>1</b>", "input": "b", "expected": "c"},
        ]
        workplace.write_suite(cases, name="nightly pages")
        with serve(workplace) as served, browsing(served.rest, tmp_path / "profile") as browser:
            browser.open("/suites")
            browser.shows("There are no runs yet")
            assert workplace.fepflow("schedule", workplace.suite, "--every", "10s").returncode == 0
            wait_for(lambda: _runs(browser, "/runs?outcome=fail"), "a scheduled run with a verdict")
            browser.all("table.runs tbody a")[0].click()
            page = browser.shows("Fail", "exact_match", "begun by schedule", "wrong <b>1</b>")
            assert "1 of 2" in page or "2 of 2" in page, page
            browser.follow("wrong <b>1</b>")
            browser.shows("failed", "Expected", "Output")
            browser.open("/suites")
            browser.shows("nightly pages", "Fail", "UTC")
            assert "not scheduled" not in browser.text
            assert "not known" not in browser.text

            made = workplace.fepflow("keys", "create", "ann", "--scope", "read")
            key = next(word for word in made.stdout.split() if word.startswith("fep_"))
            workplace.fepflow("schedule", "nightly pages", "--remove")
            browser.open("/runs/latest")
            browser.shows("Sign in", "API key")
            (field,) = browser.all("input[type=password]")
            field.send_keys(key + "\n")
            browser.shows("nightly pages", "Sign out")
            assert "/runs/latest" in browser.url
            browser.all("header form button")[0].click()
            browser.shows("Sign in")
            assert "Traceback" not in served.log


def _runs(browser: Browser, path: str) -> int:
    """How many runs are on that page."""
    browser.open(path)
    return len(browser.all("table.runs tbody tr"))
