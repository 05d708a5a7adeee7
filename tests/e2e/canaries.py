"""Secrets in all places where one can stand, an agent and models that echo what they are sent, and usual encodings."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

PLACES = (
    "url-password",
    "url-query",
    "url-signature",
    "header-authorization",
    "header-key",
    "header-cookie",
    "body",
    "body-deep",
    "judge-key",
    "judge-address",
    "embedding-key",
    "provider-environment",
    "store-password",
    "prefect-key",
    "prefect-auth",
    "prefect-address",
    "dotenv",
    "env-file",
    "plugin-exception",
    "plugin-address",
    "plugin-result",
    "embedder-exception",
    "proxy",
    "database",
)
CANARIES: Mapping[str, str] = {name: f"Cnry/{name.title()}+7QxK2mVb93=?{name[::-1]}" for name in PLACES}

SENT = [name for name in PLACES if name not in ("judge-address", "plugin-address", "proxy", "database", "prefect-auth")]
"""What the agent is sent, in one way or another: it can echo nothing else. (In a run, Prefect's login is the local
server's, and no longer that of another server.)"""

ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: quote(text, safe="").replace("%2F", "%2f").replace("%3F", "%3f"),
    "JSON, escaped slashes": lambda text: text.replace("/", "\\/"),
    "JSON, all escaped": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


def forms(secret: str) -> list[bytes]:
    """What must not be found anywhere: in each encoding, also as a part of a longer base64 text."""
    whole = {encode(secret).encode() for encode in ENCODINGS.values()}
    inner = {base64.b64encode(b"x" * before + secret.encode())[4:-4] for before in (1, 2)}
    return sorted({form.lower() for form in whole | inner})


def leaks(data: bytes) -> list[str]:
    """The places whose secrets stand in it, in whatever form."""
    lower = data.lower()
    return [name for name, secret in CANARIES.items() if any(form in lower for form in forms(secret))]


@contextmanager
def echoing() -> Iterator[str]:
    """A server that is agent, judge and embedder, and that tells each caller what it was sent; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        """Answer as the question, or the model's name, says."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/agent"):
            self._agent(str(body["question"]))
        else:
            self._model(str(body["model"]), body)

    def _agent(self, question: str) -> None:
        how, _, encoding = question.partition(" ")
        encoded = [ENCODINGS[name] for name in ([encoding] if encoding else ENCODINGS)]
        every = [encode(CANARIES[name]) for name in SENT for encode in encoded]
        said = " ".join(every)
        if how == "answer":
            self._send(200, json.dumps({"answer": f"I was sent {said}", "tokens": 3}))
        elif how == "text":
            self._send(200, said, type="text/plain")
        elif how == "error":
            self._send(403, said)
        elif how == "keys":
            self._send(200, json.dumps({"answers": {secret: secret for secret in every}, **dict.fromkeys(every, 1)}))
        elif how == "html":
            self._send(200, f"<html>{said}</html>", type="text/html")
        elif how == "redirect":
            self._send(302, "", Location=f"http://elsewhere.test/{every[0]}?{every[1]}")
        elif how == "charset":
            self._send(200, "{}", type=f"application/json; charset={every[3]}")
        elif how == "encoding":
            self._send(200, "{}", **{"Content-Encoding": every[4]})
        elif how == "close":
            self.close_connection = True
        else:
            self._send(200, json.dumps({"answer": question}))

    def _model(self, model: str, body: dict[str, object]) -> None:
        every = " ".join(secret for name, secret in CANARIES.items() if name != "plugin-address")
        if "refuses" in model:
            self._send(401, json.dumps({"error": {"message": f"{self.headers['Authorization']} {every}"}}))
        elif "redirects" in model:
            self._send(307, "", Location=f"http://elsewhere.test/{quote(CANARIES['judge-key'], safe='')}")
        elif "page" in model:
            self._send(200, f"<html>{every}</html>", type="text/html")
        elif "input" in body:
            self._send(400, json.dumps({"error": {"message": f"{self.headers['Authorization']} {every}"}}))
        else:
            said = json.dumps({"passed": True, "reason": f"{self.headers['Authorization']} {every}"})
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
            usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
            chat = {"id": "x", "object": "chat.completion", "created": 1, "model": every, "choices": [choice]}
            self._send(200, json.dumps({**chat, "usage": usage}))

    def _send(self, status: int, body: str, type: str = "application/json", **headers: str) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": type, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def command_lines() -> set[bytes]:
    """What `ps` would show of every process now, with arguments."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes())
    return found
