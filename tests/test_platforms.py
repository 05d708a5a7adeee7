"""Systems that the base runs on: what only some have is used in one room, which has another way for the others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML

from fepflow.extras import EXTRAS
from tests.test_floors import FILES, ROOT, tree_of

ROOMS = (ROOT / "fepflow" / "host.py", ROOT / "fepflow" / "calls" / "keeper.py")
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt"}
FUNCTIONS = {"fork", "forkpty", "setsid"}
OF_OS = {f"os.{name}" for name in FUNCTIONS}
MAY_USE = re.compile("|".join((*MODULES, *FUNCTIONS, "prctl", "/proc")))


def peculiarities(path: Path) -> Iterator[str]:
    """Yield what a file uses that only some systems have."""
    if not MAY_USE.search(path.read_text(encoding="utf-8")):  # to parse all files takes a second
        return
    for node in ast.walk(tree_of(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = [node.module]
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = [alias.name for alias in node.names if alias.name in FUNCTIONS]
        elif isinstance(node, ast.Attribute) and (node.attr == "prctl" or ast.unparse(node) in OF_OS):
            names = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc"):
            names = [node.value]
        yield from (f"{path.relative_to(ROOT)}:{node.lineno}: {name}" for name in names)  # type: ignore[attr-defined]  # these have lines


def test_what_only_some_systems_have_is_used_in_one_room() -> None:
    assert [use for path in FILES if path not in ROOMS for use in peculiarities(path)] == []
    used = " ".join(use for path in ROOMS for use in peculiarities(path))
    assert all(name in used for name in ("fcntl", "fork", "prctl", "/proc")), "the search finds nothing"


LIKE_WINDOWS = f"""
import asyncio, importlib.metadata, os, signal, socket, sqlite3, ssl, subprocess, sys, tempfile
import click, dotenv, httpx, iregexp_check, jsonpath_ng, jsonpath_rfc9535, jsonschema, orjson
import pydantic, referencing, regex, rich.console, rich.table, ruamel.yaml, sysconfig, zoneinfo
from pydantic import *

sysconfig.get_config_vars()

class Missing:
    names = {sorted({*MODULES - {"msvcrt"}, *(module for modules in EXTRAS.values() for module in modules)})}
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
for name in Missing.names:
    sys.modules.pop(name, None)
for name in ("fork", "forkpty", "setsid", "setpgid", "killpg", "getuid", "geteuid", "getpgid", "pread", "fchmod"):
    delattr(os, name)
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    delattr(os, name)
for name in ("SIGKILL", "SIGCHLD", "SIGHUP", "SIGSTOP"):
    delattr(signal, name)
for name in ("send_fds", "recv_fds"):
    delattr(socket, name)
sys.platform = "win32"

from fepflow import *
from fepflow.cli.main import fepflow as command
from fepflow.pytest import evaluate as decorated

found = evaluate(
    [TestCase(id="a", input="?", expected="Paris", metadata={{"a": 1}})],
    ["Paris"],
    [
        ContainsCheck(text="$.output.value", phrases="$.test_case.expected"),
        RegexCheck(text="$.output.value", pattern="(P|p)aris"),
        SchemaValidationCheck(data="$.test_case.metadata", schema={{"type": "object"}}),
    ],
)
assert found.pass_rate == 1, found.results
for words in (
    ["init", "first"],
    ["validate", "first/suite.yaml"],
    ["plan", "first/suite.yaml", "--min", "0.9", "--expect", "0.95"],
    ["checks"],
    ["schema"],
    ["evalguard", "validate", "first"],
):
    assert not command.main(words, standalone_mode=False), words
for words in (["run", "first/suite.yaml"], ["serve"]):
    try:
        command.main(words, standalone_mode=False)
    except FepflowError as error:
        assert "pip install" in str(error), error
    else:
        raise AssertionError(words)
text = open("first/suite.yaml", encoding="utf-8").read()
with open("first/isolated.yaml", "w", encoding="utf-8") as file:
    file.write(text.replace("python: agent.py:answer", "python: {{function: agent.py:answer, isolate: process}}"))
try:
    command.main(["validate", "first/isolated.yaml"], standalone_mode=False)
except click.exceptions.Exit as error:
    assert error.exit_code == 2
"""


def test_the_base_runs_where_nothing_of_unix_is(tmp_path: Path) -> None:
    code = LIKE_WINDOWS.replace("from fepflow import *", f"sys.path.append({str(ROOT)!r})\nfrom fepflow import *")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "first/suite.yaml is valid" in done.stdout
    assert "isolate: needs a system with fork, such as Linux or macOS (leave it out" in done.stderr


def test_the_hosted_workflow_tries_the_base_on_three_systems_and_runs_on_two() -> None:
    workflow = YAML(typ="safe").load((ROOT / ".github" / "workflows" / "dist.yml").read_text(encoding="utf-8"))
    base, extras = (workflow["jobs"][name]["strategy"]["matrix"] for name in ("base", "extras"))
    assert set(base["os"]) == {"ubuntu-latest", "macos-latest", "windows-latest"}
    assert {*extras["os"], *(more["os"] for more in extras["include"])} == {"ubuntu-latest", "macos-latest"}
