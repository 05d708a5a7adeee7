"""A real browser without a window: Prefect's pages as a person sees them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1400",
]
SECONDS = 60.0

_SCROLL = """
const lists = [...document.querySelectorAll("main *")].filter(
  (one) => one.scrollHeight > one.clientHeight + 20 && /auto|scroll/.test(getComputedStyle(one).overflowY));
const list = lists[lists.length - 1];
if (!list) return false;
const end = list.scrollTop + list.clientHeight >= list.scrollHeight - 2;
list.scrollTop = end ? 0 : list.scrollTop + list.clientHeight / 2;
return end;
"""
"""Scrolls the innermost list of the page by half of what it shows; from its end to its beginning, which gives true."""


class Browser:
    """One page at a time; what it shows is waited for."""

    def __init__(self, driver: webdriver.Chrome, root: str) -> None:
        self._driver = driver
        self._root = root

    @property
    def url(self) -> str:
        return str(self._driver.current_url)

    def open(self, path: str) -> None:
        self._driver.get(f"{self._root}{path}")

    def log_in(self, root: str, login: str) -> None:
        """What the UI asks for once, as a person types it."""
        self.open(root or "/")
        self.until(lambda _: self.all("input[type=password]"), "a login")
        (field,) = self.all("input[type=password]")
        field.send_keys(login + Keys.ENTER)
        self.until(lambda text: "Deployments" in text, "anything but the login")

    @property
    def text(self) -> str:
        """All that the page shows; what is there only for machines, as the options of a closed list, may be in it."""
        return str(self._driver.find_element(By.TAG_NAME, "body").text)

    def shows(self, *wanted: str) -> str:
        """The page's text, as soon as everything wanted is in it."""
        return self.until(lambda text: all(part in text for part in wanted), f"{wanted}")

    def until(self, condition: Callable[[str], object], what: str) -> str:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                text = self.text
            except WebDriverException:  # the page has just changed under us
                text = ""
            if condition(text):
                return text
            assert time.monotonic() < deadline, f"{self.url} does not show {what}, but:\n{text}"
            time.sleep(0.2)

    def scrolled(self, *wanted: str) -> str:
        """As `shows`, where a list is long: what its parts show while it is scrolled through again and again."""
        seen: list[str] = []

        def scroll(text: str) -> bool:
            seen.append(text)
            found = all(part in "\n".join(seen) for part in wanted)
            if not found and self._driver.execute_script(_SCROLL):
                seen.clear()
            return found

        self.until(scroll, f"{wanted}")
        return "\n".join(seen)

    def all(self, css: str) -> list[WebElement]:
        return self._driver.find_elements(By.CSS_SELECTOR, css)

    def follow(self, words: str) -> None:
        """Click the link that has these words; if it opens a new tab, that is the page from here on."""
        self.until(lambda _: self._driver.find_elements(By.PARTIAL_LINK_TEXT, words), f"a link {words}")
        self._driver.find_element(By.PARTIAL_LINK_TEXT, words).click()
        self._driver.switch_to.window(self._driver.window_handles[-1])


def chromium_and_driver() -> tuple[str, str]:
    """Their paths. The test is skipped, visibly, where they are not both there."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no Chromium with its driver here (apt-get install chromium chromium-driver)")
    return chromium, driver


@contextmanager
def browsing(root: str, profile: Path) -> Iterator[Browser]:
    """A browser on the site at `root`."""
    chromium, driver_path = chromium_and_driver()
    options = Options()
    options.binary_location = chromium
    for switch in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        yield Browser(driver, root)
    finally:
        driver.quit()
