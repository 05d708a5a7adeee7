"""The guides do what they say: a reader who writes their files and types their commands sees what they show."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Stack, run_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^ *```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"alert", "schedule", "serve", "view"}
"""Commands that are tested elsewhere: they change the server that all tests share, or run until they are stopped."""
A_RUN = "5f2c81d0"
"""A run that the pages speak of, and that no store has."""


class RefundDesk(BaseHTTPRequestHandler):
    """An agent over HTTP that knows two answers."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        days = 5 if "refund" in asked else 3
        body = f'{{"answer": "It takes {days} business days.", "usage": {{"total_tokens": 7}}}}'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def agent_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), RefundDesk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/ask"
    server.shutdown()
    server.server_close()


def seen(text: str) -> str:
    """A text without ids, times and the ends of lines, which differ from run to run and from screen to screen."""
    text = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b", "ID", text)
    return " ".join(re.sub(r"─+", "─", text).split())


def typed(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console's block, with the lines that follow it."""
    for part in re.split(r"^ *\$ ", block, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        while command.endswith("\\"):
            command = command[:-1] + lines.pop(0)
        yield command, lines


def walk(page: Path, folder: Path, stack: Stack, env: dict[str, str]) -> None:
    """Write the files of a page, validate its suites, and run its commands in their order."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for _, title, text in blocks:
        if title:
            (folder / title).write_text(text, encoding="utf-8")
    for _, title, text in blocks:
        if title and "target:" in text:
            command_line(f"fepflow validate {title}", folder, {**stack.env, **env}, stack)
    for command, lines in (shown for language, _, text in blocks if language == "console" for shown in typed(text)):
        printed = command_line(command, folder, {**stack.env, **env}, stack)
        for shown in re.split(r"^ *\.\.\.$", "\n".join(lines), flags=re.MULTILINE) if printed else ():
            assert seen(shown) in seen(printed), f"{command}\n{printed}"
        label_the_sheet(folder / "sheet.csv")


def command_line(command: str, folder: Path, env: dict[str, str], stack: Stack) -> str:
    """Return what a command prints; nothing, if it is not one of those that are run here."""
    words = shlex.split(command, comments=True)
    if words[0] == "sed":
        subprocess.run(words, cwd=folder, check=True, timeout=60)
    if words[0] != "fepflow" or words[1] in ELSEWHERE or A_RUN in words:
        return ""
    done = run_command(stack.warm.command(words[1:], env), cwd=folder, env=env, timeout=240)
    printed = done.stdout + done.stderr
    code = re.search(r"# exit code (\d+)", command)
    made_up = words[1] == "run" and "MODEL_URL" in env  # answers of a stand-in
    allowed = {0, 1, 4} if made_up else {int(code[1]) if code else 0}
    assert done.returncode in allowed, f"{command}\n{printed}"
    return printed


def label_the_sheet(sheet: Path) -> None:
    """Do what a reader does between two commands: label a sheet, if there is one."""
    if sheet.exists():
        rows = list(csv.DictReader(sheet.read_text(encoding="utf-8").splitlines()))
        with sheet.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, "label": "no" if index % 2 else "yes"} for index, row in enumerate(rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder, with what the pages take for granted: an agent, questions, and the project of the start."""
    folder = tmp_path / "suites"
    folder.mkdir()
    shutil.copy(ROOT / "deployments" / "suites" / "support" / "agent.py", folder / "support_agent.py")
    (folder / "agent.py").write_text("def answer(question):\n    return 'right'\n", encoding="utf-8")
    cases = [{"id": f"q{number}", "input": f"Question {number}?", "expected": "right"} for number in range(20)]
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    return folder


@pytest.fixture
def env(tmp_path: Path, new_store: Callable[[str], str], agent_url: str) -> dict[str, str]:
    return {
        "FEPFLOW_STORE_URL": new_store(f"sqlite:///{tmp_path / 'store.db'}"),
        "AGENT_URL": agent_url,
        "AGENT_TOKEN": "token-of-a-reader",
        "OPENAI_API_KEY": "key-of-a-reader",
    }


@pytest.mark.parametrize("name", ["start", "guides/pull-request", "guides/from-another-tool", "guides/many-machines"])
def test_a_page_shows_what_happens(name, folder, stack, env):
    walk(DOCS / f"{name}.md", folder, stack, env)


@pytest.mark.parametrize("name", ["guides/nightly", "concepts/verdict"])
def test_a_page_goes_on_where_the_start_ended(name, folder, stack, env):
    for command in ("fepflow init my-agent", "fepflow run my-agent/suite.yaml"):
        command_line(command, folder, {**stack.env, **env}, stack)
    walk(DOCS / f"{name}.md", folder, stack, env)


@pytest.mark.parametrize("name", ["guides/agent", "guides/judge", "guides/rag"])
def test_a_page_works_with_any_model(name, folder, stack, env, model_server):
    base = f"{model_server.address}/v1"
    walk(DOCS / f"{name}.md", folder, stack, {**env, "MODEL_URL": base, "OPENAI_BASE_URL": base})
    assert model_server.seen
