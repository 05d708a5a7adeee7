"""Pictures of a run, in a terminal and in Chromium: `python docs/screenshots.py` runs the example of README.md.

It needs chromium and chromedriver, and takes a minute. The run is a real one, with a server and a store of its own.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PICTURES = Path(__file__).parent / "pictures"
SECONDS = 60

AGENT = """
import time

def answer(question):
    number = int(question.split()[-1])
    if number % 10 == 7:
        time.sleep(5)  # ten of a hundred time out
    return "wrong" if number % 10 == 3 else "right"
"""
SUITE = {
    "name": "refunds",
    "target": {"python": {"function": "agent.py:answer"}, "timeout": "1s", "attempts": 1, "retries": 1},
    "test_cases": [
        {"id": f"refund-{n:03}", "input": f"May I have a refund for order {n}", "expected": "right"} for n in range(100)
    ],
    "checks": [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": "$.test_case.expected"}}],
    "gate": {"min": {"contains": 0.85}},
}
"""A hundred questions: ten time out, and 80 of the other 90 are answered rightly."""


COLUMNS = 104
TERMINAL = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
aria-label="The end of a run in a terminal">
<style>.{unique_id}-matrix{{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:{char_height}px;
line-height:{line_height}px}}{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{width}" height="{height}"/></clipPath>{lines}</defs>
<rect fill="#0c0c0c" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""Rich's own format has fonts of another host, and the frame of a window."""


def main() -> None:
    """Run the example, and write what Prefect and the pages show of it."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, "FEPFLOW_HOME": str(folder / "home"), "FEPFLOW_PORT": str(free_port())}
        (folder / "agent.py").write_text(AGENT, encoding="utf-8")
        (folder / "suite.json").write_text(json.dumps(SUITE), encoding="utf-8")
        command = [sys.executable, "-m", "fepflow.cli.main"]
        try:
            words = [*command, "run", "suite.json"]
            shown = {**env, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
            done = subprocess.run(words, cwd=folder, env=shown, capture_output=True, text=True, check=False)
            draw_terminal("fepflow run suite.yaml", done.stdout)
            done.stdout = Text.from_ansi(done.stdout).plain
            flow_run = re.findall(r"http://\S+/runs/flow-run/\S+", done.stdout)[0]
            run = re.findall(r"fepflow show (\w+)", done.stdout)[0]
            print(done.stdout)  # noqa: T201  # README quotes it
            with browser(folder / "profile") as driver:
                log_in(
                    driver,
                    flow_run.partition("/runs")[0],
                    (folder / "home" / "prefect-login").read_text(encoding="ascii").strip(),
                )
                older_ui = flow_run.replace("/v2/", "/")  # the newer one's graph stays empty without a window
                photograph(driver, older_ui, "Task Runs", "run-in-prefect.webp", 1280, 600)
                with pages(command, folder, env) as address:
                    photograph(driver, f"{address}/runs/{run}", "refunds", "run-page.webp", 1280, 660)
        finally:
            subprocess.run([*command, "down"], cwd=folder, env=env, check=False)


def draw_terminal(command: str, output: str) -> None:
    """Write what a command printed as a picture, without the addresses at its end."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), command))
    console.print(Text.from_ansi(re.split(r"(?m)^.{0,9}  run {8}", output)[0].rstrip()))
    svg = console.export_svg(code_format=TERMINAL, theme=MONOKAI, unique_id="terminal", font_aspect_ratio=0.61)
    (PICTURES / "terminal.svg").write_text(svg, encoding="utf-8")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start Chromium without a window."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for switch in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{switch}")
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def pages(command: list[str], folder: Path, env: dict[str, str]) -> Iterator[str]:
    """Serve the result pages, and yield their address."""
    port = str(free_port())
    words = [*command, "view", "--no-browser", "--port", port]
    process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        (address,) = re.findall(r"http://[^/\s]+", process.stdout.readline())
        yield address
    finally:
        process.terminate()
        process.wait()


def log_in(driver: webdriver.Chrome, url: str, login: str) -> None:
    """Give Prefect's UI what it asks for once."""
    driver.get(url)
    wait(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "input[type=password]"))
    driver.find_element(By.CSS_SELECTOR, "input[type=password]").send_keys(login + Keys.ENTER)
    wait(driver, lambda: "Deployments" in driver.find_element(By.TAG_NAME, "body").text)


def photograph(driver: webdriver.Chrome, url: str, words: str, name: str, width: int, height: int) -> None:
    """Write what a page shows, once it has these words, as a small file."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(url)
    wait(driver, lambda: words in driver.find_element(By.TAG_NAME, "body").text)
    time.sleep(5)  # what is drawn later: charts, bars
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 70})
    (PICTURES / name).write_bytes(base64.b64decode(taken["data"]))


def wait(driver: webdriver.Chrome, holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(driver.find_element(By.TAG_NAME, "body").text)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
