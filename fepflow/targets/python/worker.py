"""What the worker of an isolated agent does: load the code, and answer one request after the other."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fepflow.errors import InputError
from fepflow.targets.python.calls import answer_text, awaited_text, failure_of, is_pending
from fepflow.targets.python.entry_point import Entry, open_entry
from fepflow.targets.python.source import locate


def serve(config: dict[str, Any]) -> None:
    """Say whether the code can be loaded, then answer requests until there are no more."""
    with socket.socket(fileno=config["socket"]) as connection, connection.makefile("rwb") as stream:
        entry = _opened(config, stream)
        if entry is None:
            return
        with asyncio.Runner() as runner:  # one loop for all calls: clients that they share belong to it
            for line in stream:
                _send(stream, _reply(entry, json.loads(line), config["limit"], runner))


def _opened(config: dict[str, Any], stream: Any) -> Entry | None:
    try:
        source = locate(config["function"], Path(config["folder"]), [Path(root) for root in config["roots"]])
        entry = open_entry(source, config["names"])
    except InputError as error:
        _send(stream, json.dumps({"problems": [asdict(problem) for problem in error.problems]}))
        return None
    _send(stream, json.dumps({"wants_case": entry.arguments.wants_case}))
    return entry


def _reply(entry: Entry, request: dict[str, Any], limit: int, runner: asyncio.Runner) -> str:
    try:
        returned = entry.begin(request)
        text = runner.run(awaited_text(returned, limit)) if is_pending(returned) else answer_text(returned, limit)
    except BaseException as error:
        return json.dumps({"failure": asdict(failure_of(error, entry.source.folder))})
    return f'{{"answer":{text}}}'


def _send(stream: Any, line: str) -> None:
    stream.write(line.encode("ascii") + b"\n")
    stream.flush()
