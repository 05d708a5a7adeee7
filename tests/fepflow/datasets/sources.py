"""Places where data files are, on real sockets of this machine: the web with TLS or without, and the hub's API."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import trustme

COMMIT = "6f1b8e7c1d2a4f5b9c0d1e2f3a4b5c6d7e8f9a0b"


@dataclass
class Source:
    """A server whose answer at a path is what `answers` has for it: bytes, or a function of the request's handler."""

    address: str
    authority: Path
    answers: dict[str, bytes | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def serve_dataset(self, repo: str, files: Mapping[str, bytes], configs: object = None, **digests: str) -> None:
        """Speak the parts of the hub's API that huggingface_hub needs to list a dataset and to find its files."""
        siblings = [
            {"rfilename": name, "size": len(data), "blobId": "0" * 40}
            | {
                "lfs": {
                    "sha256": digests.get("sha256") or hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 1,
                }
            }
            for name, data in files.items()
        ]
        listing = {"id": repo, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
        if configs is not None:
            listing["cardData"] = {"license": "mit", "configs": configs}
        for revision in ("", "/revision/v1"):
            self.answers[f"/api/datasets/{repo}{revision}"] = json.dumps(listing).encode()
        for name, data in files.items():
            self.answers[f"/datasets/{repo}/resolve/{COMMIT}/{name}"] = redirect(f"{self.address}/cdn/{name}")
            self.answers[f"/cdn/{name}"] = data


def redirect(location: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def status(code: int) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@contextmanager
def web(folder: Path, *, tls: bool = True) -> Iterator[Source]:
    """A server on a free port of this machine."""
    authority = folder / "authority.pem"
    made = trustme.CA()
    made.cert_pem.write_to_path(authority)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            source.requests.append((self.path, dict(self.headers)))
            answer = source.answers.get(urlsplit(self.path).path, status(404))
            if callable(answer):
                answer(self)
                return
            etag = f'"{hashlib.sha256(answer).hexdigest()}"'
            if self.headers.get("If-None-Match") == etag:
                status(304)(self)
                return
            self.send_response(200)
            self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(OSError):  # whoever has read enough has left
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            made.issue_cert("localhost", "127.0.0.1").configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        source = Source(f"{'https' if tls else 'http'}://localhost:{server.server_address[1]}", authority)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield source
        finally:
            server.shutdown()
            thread.join(10)
