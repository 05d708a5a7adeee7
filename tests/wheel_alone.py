"""Install the wheel alone with each of its extras, in an environment of its own, and use what the extra promises.

    python -P tests/wheel_alone.py dist/*.whl [EXTRA ...]

Needs nothing but Python and a package index, and leaves nothing behind. Exits 1 if an extra does not keep its promise.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

SCRIPTS, SUFFIX = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
SUITE = """name: s
target: {http: {url: "http://127.0.0.1:9/"}}
test_cases: [{id: a, input: "?", expected: a}]
checks: [{type: contains}]
"""


class Alone:
    """An environment with the wheel and one extra, and an empty folder to work in."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        """Create the environment and install the wheel, as a user would."""
        self.folder = folder / "work"
        self.folder.mkdir()
        venv.create(folder / "env", with_pip=True)
        self.programs = folder / "env" / SCRIPTS
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("FEPFLOW_", "PREFECT_", "PYTHON"))}
        self.env |= {"FEPFLOW_HOME": str(folder / "home"), "PREFECT_HOME": str(folder / "prefect")}
        self.env |= {"FEPFLOW_PORT": str(free_port()), "PYTHONIOENCODING": "utf-8"}
        name = f"{wheel}[{extra}]" if extra != "base" else str(wheel)
        self.python("-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", name)

    def run(self, program: str, *words: str, code: int = 0, **env: str) -> str:
        """Run a program of the environment and return what it printed; AssertionError if it exits otherwise."""
        command = [str(self.programs / f"{program}{SUFFIX}"), *words]
        whole = {**self.env, **env}
        done = subprocess.run(command, cwd=self.folder, env=whole, capture_output=True, text=True, check=False)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{program} {' '.join(words)} exited {done.returncode}: {printed[-2000:]}"
        assert "Traceback" not in printed, printed[-2000:]
        return printed

    def python(self, *words: str) -> str:
        """Run Python, without what stands in the working folder."""
        return self.run("python", "-P", *words)

    def fepflow(self, *words: str, code: int = 0, **env: str) -> str:
        """Run the command line."""
        return self.run("fepflow", *words, code=code, **env)

    def write(self, name: str, text: str) -> None:
        """Write a file into the working folder."""
        (self.folder / name).write_text(text, encoding="utf-8")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def base(alone: Alone) -> None:
    """Suites are written, validated and planned, and a command that needs an extra names it."""
    alone.fepflow("init", "first")
    alone.fepflow("validate", "first/suite.yaml")
    alone.fepflow("plan", "first/suite.yaml", "--min", "0.9", "--expect", "0.95")
    alone.fepflow("checks")
    assert 'pip install "fepflow[run]"' in alone.fepflow("run", "first/suite.yaml", code=2)
    version = alone.fepflow("--version").rpartition(" ")[2].strip()
    alone.python("-c", f"import importlib.metadata as m; assert m.version('fepflow') == '{version}'")


def run(alone: Alone) -> None:
    """The first suite runs to its verdict, with Prefect's server."""
    alone.fepflow("init", "first")
    try:
        assert "PASS" in alone.fepflow("run", "first/suite.yaml", "-o", "first.xml", "-o", "first.json")
        alone.fepflow("show", "--failed")
    finally:
        alone.fepflow("down")


def serve(alone: Alone) -> None:
    """A run is shown as one HTML file, and the API answers and has a document of the same version."""
    alone.fepflow("init", "first")
    try:
        alone.fepflow("run", "first/suite.yaml", "-o", "first.html")
        port = free_port()
        api = ["-m", "fepflow.deployments.api", "--host", "127.0.0.1"]
        ports = {"FEPFLOW_API_PORT": str(port), "FEPFLOW_GRPC_PORT": str(free_port())}
        command = [str(alone.programs / f"python{SUFFIX}"), "-P", *api]
        env, nowhere = {**alone.env, **ports}, subprocess.DEVNULL
        with subprocess.Popen(command, cwd=alone.folder, env=env, stdout=nowhere, stderr=nowhere) as process:
            try:
                answer = _get(f"http://127.0.0.1:{port}/openapi.json")
            finally:
                process.terminate()
        assert f"version {json.loads(answer)['info']['version']}\n" in alone.fepflow("--version")
    finally:
        alone.fepflow("down")


def _get(url: str) -> bytes:
    for _ in range(300):
        try:
            with urlopen(url, timeout=10) as response:  # our own address
                return bytes(response.read())
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{url} does not answer")


def postgres(alone: Alone) -> None:
    """The driver is there: what fails is the connection."""
    url = "postgresql://fepflow:x@127.0.0.1:9/fepflow"
    printed = alone.fepflow("list", code=3, FEPFLOW_STORE_URL=url)
    assert "pip install" not in printed, printed


def dataframe(alone: Alone) -> None:
    """Results become a table."""
    code = (
        "from fepflow import Check, evaluate; c = Check(type='contains', arguments={'phrases': 'b'});"
        "print(len(evaluate([{'id': 'a', 'input': 1}], ['b'], [c]).to_dataframe()))"
    )
    assert alone.python("-c", code).strip() == "1"


def a2a(alone: Alone) -> None:
    """A suite whose agent speaks A2A can be run: its target is opened."""
    alone.write("suite.yaml", SUITE.replace("http: {url", "a2a: {card"))
    assert "pip install" not in alone.fepflow("validate", "suite.yaml")
    alone.python("-c", "import fepflow.calls.a2a.target")


def mcp(alone: Alone) -> None:
    """A suite is written from the tools of a real MCP server."""
    server = (
        "from mcp.server.mcpserver import MCPServer\nserver = MCPServer('orders')\n\n\n@server.tool()\n"
        "def get_order(order: str) -> str:\n    return order\n\n\nserver.run('stdio')\n"
    )
    alone.write("server.py", server)
    python = alone.programs / f"python{SUFFIX}"
    alone.fepflow("init", "orders", "--mcp", f"{python} server.py")
    assert "get_order" in (alone.folder / "orders" / "suite.yaml").read_text(encoding="utf-8")


def otel(alone: Alone) -> None:
    """Recorded traces are test cases."""
    attributes = {"openinference.span.kind": "AGENT", "input.value": "?", "output.value": "Paris"}
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }
    alone.write("traces.jsonl", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    recorded = "{path: traces.jsonl, format: otlp}"
    checks = "checks: [{type: contains, phrases: Paris}]"
    alone.write("suite.yaml", f"name: s\ntarget: {{recorded: {recorded}}}\ntest_cases: {recorded}\n{checks}\n")
    assert "1 test case" in alone.fepflow("validate", "suite.yaml")
    alone.python("-c", "import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http")


def remote(alone: Alone) -> None:
    """Test cases are read from Parquet and Excel, and the file systems of buckets and the hub are there."""
    code = (
        "import pyarrow as pa, pyarrow.parquet as pq, openpyxl, s3fs, gcsfs, huggingface_hub;"
        "pq.write_table(pa.table({'input': ['?'], 'expected': ['a']}), 'cases.parquet');"
        "book = openpyxl.Workbook(); book.active.append(['input', 'expected']); book.active.append(['?', 'a']);"
        "book.save('cases.xlsx')"
    )
    alone.python("-c", code)
    for name in ("cases.parquet", "cases.xlsx"):
        alone.write("suite.yaml", SUITE.replace('[{id: a, input: "?", expected: a}]', name))
        assert "1 test case" in alone.fepflow("validate", "suite.yaml")


PROMISES: dict[str, Callable[[Alone], None]] = {
    promise.__name__: promise for promise in (base, run, serve, postgres, dataframe, a2a, mcp, otel, remote)
}


def main(wheel: str, *extras: str) -> int:
    """Try the extras, all of them unless some are named, and print a line for each."""
    failed = 0
    for extra in extras or PROMISES:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fepflow-alone-", ignore_cleanup_errors=True) as folder:
            try:
                alone = Alone(Path(folder), Path(wheel).resolve(), extra)
                installed = time.monotonic()
                PROMISES[extra](alone)
                outcome = f"ok, installed in {installed - begun:.0f} s, used in {time.monotonic() - installed:.0f} s"
            except AssertionError as error:
                failed += 1
                outcome = f"FAILED: {error}"
        print(f"Python {sys.version_info[0]}.{sys.version_info[1]}  {extra:<10} {outcome}", flush=True)  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
