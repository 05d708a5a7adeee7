"""Pages in a real browser, which says what was run, loaded and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.e2e.browser import QUIET, Browser, chromium_and_driver


class Watched(Browser):
    """As `Browser`, and knows what its pages did."""

    def __init__(self, driver: webdriver.Chrome, root: str) -> None:
        super().__init__(driver, root)
        self.driver = driver

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript or what its promise comes to, once the page is there."""
        return self.driver.execute_script(f"return ({expression})")

    def set_media(self, scheme: str, media: str = "screen") -> None:
        """`light` or `dark`, on a screen or in `print`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def set_width(self, pixels: int) -> None:
        size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Let no page run a script meanwhile; `evaluate` still does."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    def complaints(self) -> list[str]:
        """What the console was told: violations of the policy, errors. Empties the log."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str | None]:
        """The hosts of all that was asked for, from the log of the network; it is emptied."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        own = ("chrome:", "chrome-untrusted:", "data:", "file:")  # the browser's new tab, and what is no request
        return {urlsplit(url).hostname for url in sent if not url.startswith(own)}


@contextmanager
def watching(root: str, profile: Path) -> Iterator[Watched]:
    """A browser on the site at `root`."""
    chromium, driver_path = chromium_and_driver()
    options = Options()
    options.binary_location = chromium
    for switch in (*QUIET, f"--user-data-dir={profile}", "--host-resolver-rules=MAP evil.example 127.0.0.1:9"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    driver.set_script_timeout(120)  # an audit of a large page takes 10 s, and more than 30 on a busy machine
    try:
        yield Watched(driver, root)
    finally:
        driver.quit()
