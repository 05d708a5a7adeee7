"""An agent as the evaluations contract has it, on a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Agent(BaseHTTPRequestHandler):
    """Answers with its input; some inputs are what it does instead."""

    may_answer = threading.Event()
    posts = 0

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        type(self).posts += 1
        if given == "wait":
            self.may_answer.wait(25)
        if given == "never":
            self.may_answer.wait(120)
        if given == "hang up":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = json.dumps({"output": given}).encode()
        self.send_response({"refuse": 403, "moved": 307}.get(given, 200))
        self.send_header("Location", "http://127.0.0.1:9/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # whoever asked may not wait for it
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@contextmanager
def agent_served() -> Iterator[str]:
    """The address of one."""
    Agent.may_answer.clear()
    Agent.posts = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Agent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        Agent.may_answer.set()
        server.shutdown()
        thread.join()
