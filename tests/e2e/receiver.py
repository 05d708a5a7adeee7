"""Where notifications arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """A server on the loopback that keeps what is posted to it, JSON, in order."""

    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver in a thread of its own, for the length of a `with` block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, name="receiver", daemon=True).start()
        yield receiver
        server.shutdown()
