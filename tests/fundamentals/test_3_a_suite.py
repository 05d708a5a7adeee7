"""Lesson 3: a suite calls an agent, checks what it answers, and comes to a verdict.

A suite is a file; `fepflow run` executes it as a Prefect flow run. Here the agent is a small server in this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.e2e

SUITE = """
name: capitals
target:
  http:
    url: ${AGENT_URL}
    body: {country: $.test_case.input}
    output: $.capital
test_cases:
  - {id: france, input: France, expected: Paris}
  - {id: japan, input: Japan, expected: Tokyo}
checks:
  - {type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}
"""

CAPITALS = {"France": "Paris", "Japan": "Kyoto"}  # the agent is wrong about Japan


class Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"capital": CAPITALS[request["country"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def agent_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Agent) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_suite_runs_and_its_results_are_stored(stack, agent_url: str, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE, encoding="utf-8")

    # Every mistake is found before anything is called.
    checked = stack.fepflow("validate", suite, env={"AGENT_URL": agent_url})
    assert checked.returncode == 0, checked.stderr

    # The exit code is the verdict: 1, for a check failed.
    ran = stack.fepflow("run", suite, "--json", env={"AGENT_URL": agent_url})
    assert ran.returncode == 1, ran.stderr

    # The result is one document, in the form of the Flexible Evaluation Protocol.
    result = json.loads(ran.stdout)
    assert result["metadata"]["outcome"] == "fail"
    answers = {case["execution_context"]["test_case"]["id"]: case for case in result["results"]}
    assert answers["france"]["check_results"][0]["results"] == {"passed": True}
    assert answers["japan"]["execution_context"]["output"]["value"] == "Kyoto"

    # The store has it, too.
    shown = stack.fepflow("show", result["evaluation_id"], "--failed")
    assert "japan" in shown.stdout
    assert "Kyoto" in shown.stdout
