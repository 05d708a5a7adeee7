"""A server that breaks the protocol in the way that its argument names; standard library only."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

NUL = {"name": "odd", "version": "1"}
TOOL = {"name": "act", "inputSchema": {"type": "object"}}


def say(message: object) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: object, **other: object) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "result": result, **other})


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def initialize(request: dict[str, Any]) -> None:
    version = request["params"]["protocolVersion"]
    answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": NUL})


def list_tools(request: dict[str, Any]) -> None:
    answer(request, {"tools": [TOOL]})


def list_once(request: dict[str, Any]) -> None:
    """List the tools, and be silent when asked again."""
    if request["id"] < 4:
        list_tools(request)


def list_anew(request: dict[str, Any]) -> None:
    """List the tools, and declare a schema when asked again."""
    schema = {} if request["id"] < 4 else {"outputSchema": {"type": "object"}}
    answer(request, {"tools": [{**TOOL, **schema}]})


def act(request: dict[str, Any]) -> None:
    answer(request, text("done"))


def garbage(request: dict[str, Any]) -> None:
    say("debug: looking things up")


def log_line(request: dict[str, Any]) -> None:
    say({"level": "info", "message": "looking things up"})


def half_line(request: dict[str, Any]) -> None:
    sys.stdout.write('{"jsonrpc": "2.0", "id": 3, "resu')
    sys.stdout.flush()
    os._exit(0)


def exits(request: dict[str, Any]) -> None:
    sys.stderr.write("database is gone\n")
    sys.stderr.flush()
    os._exit(4)


def exits_if_told_to(request: dict[str, Any]) -> None:
    (exits if request["params"]["arguments"] else act)(request)


def flood(request: dict[str, Any]) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 10_000}}
    while True:
        say(note)


def pages(request: dict[str, Any]) -> None:
    cursor = (request.get("params") or {}).get("cursor") or "0"
    answer(request, {"tools": [TOOL], "nextCursor": str(int(cursor) + 1)})


def changes_tools(request: dict[str, Any]) -> None:
    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    act(request)


def asks_back(request: dict[str, Any]) -> None:
    """Ask the client for input, and answer with what it said to that."""
    say({"jsonrpc": "2.0", "id": "e1", "method": "elicitation/create", "params": ASKED})
    told = json.loads(sys.stdin.readline())
    answer(request, text(json.dumps(told.get("error"))))


def twice(request: dict[str, Any]) -> None:
    act(request)
    act(request)


def unknown(request: dict[str, Any]) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


def discover(request: dict[str, Any]) -> None:
    meta = {"io.modelcontextprotocol/serverInfo": NUL}
    answer(
        request,
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "resultType": "complete",
            **CACHED,
            "_meta": meta,
        },
    )


def sleeps(request: dict[str, Any]) -> None:
    time.sleep(60)


def slow_start(request: dict[str, Any]) -> None:
    time.sleep(1.2)
    initialize(request)


def hangs(request: dict[str, Any]) -> None:
    """Hang if there are arguments, as a server does that works at one thing at a time."""
    if request["params"]["arguments"]:
        time.sleep(60)
    act(request)


CACHED = {"ttlMs": 0, "cacheScope": "private"}
ASKED = {"message": "How much?", "requestedSchema": {"type": "object", "properties": {}}}
ODD: dict[str, dict[str, Callable[[dict[str, Any]], None]]] = {
    "garbage": {"tools/call": garbage},
    "garbage at once": {"initialize": garbage},
    "log line": {"tools/call": log_line},
    "broken message": {"tools/call": lambda request: say('{"jsonrpc": "2.0", "id": 3, "result": 5}')},
    "wrong id": {"tools/call": lambda request: answer({"id": 99}, text("done"))},
    "id as text": {"tools/call": lambda request: answer({"id": str(request["id"])}, text("done"))},
    "no id": {
        "tools/call": lambda _: say('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')
    },
    "half line": {"tools/call": half_line},
    "exits": {"tools/call": exits},
    "exits if told to": {"tools/call": exits_if_told_to},
    "exits at once": {"initialize": exits},
    "large": {"tools/call": lambda request: answer(request, text("x" * 400_000))},
    "flood": {"tools/call": flood},
    "many values": {
        "tools/call": lambda request: answer(request, {"content": [], "structuredContent": {"a": [0] * 250_000}})
    },
    "nan": {"tools/call": lambda request: answer(request, {"content": [], "structuredContent": {"a": float("nan")}})},
    "null": {
        "tools/call": lambda request: answer(request, {**text("done"), "structuredContent": None, "isError": False})
    },
    "no content": {"tools/call": lambda request: answer(request, {"text": "done"})},
    "result is text": {"tools/call": lambda request: answer(request, "done")},
    "rpc error": {
        "tools/call": lambda request: say(
            {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "order_id must be a text"}}
        )
    },
    "overloaded": {
        "tools/call": lambda request: say(
            {"jsonrpc": "2.0", "id": request["id"], "error": {"code": 429, "message": "slow down"}}
        )
    },
    "old version": {
        "initialize": lambda request: answer(
            request, {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": NUL}
        )
    },
    "no answer to initialize": {"initialize": sleeps},
    "pages without end": {"tools/list": pages},
    "one page again": {"tools/list": lambda request: answer(request, {"tools": [TOOL], "nextCursor": "a"})},
    "no tools": {"tools/list": lambda request: answer(request, {"tools": []})},
    "odd tools": {"tools/list": lambda request: answer(request, {"tools": [{"name": 5}]})},
    "asks back": {"tools/call": asks_back},
    "modern": {
        "initialize": unknown,
        "server/discover": discover,
        "tools/list": lambda request: answer(request, {"tools": [TOOL], "resultType": "complete", **CACHED}),
        "tools/call": lambda request: answer(request, {**text("done"), "resultType": "complete"}),
    },
    "answers twice": {"tools/call": twice},
    "slow start": {"initialize": slow_start},
    "hangs": {"tools/call": hangs},
    "changes tools": {"tools/call": changes_tools, "tools/list": list_anew},
    "dies in a call": {"tools/call": exits, "tools/list": list_once},
}

if __name__ == "__main__":
    methods = {"initialize": initialize, "tools/list": list_tools, "tools/call": act, **ODD[sys.argv[1]]}
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            methods[asked["method"]](asked)
