"""Logs as JSON, an object on each line: `FEPFLOW_LOG=json`.

    python -m fepflow.observability.logs PROCESS    turns the lines of a process into objects

A process writes its records to stderr, each after a mark. Other output, for example an agent's prints, has no mark:
the program turns each such line into an object. It reads stdout and stderr of a process and of its children. Printed
texts cannot pose as records; code on this machine could, because it can read the mark.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from fepflow.output import outlive_reader
from fepflow.security.redaction import known_secrets, redact, redact_json, secrets_among

MARK = "FEPFLOW_LOG_MARK"
"""The variable with the mark of records. Children inherit it together with the captured stdout and stderr."""
SETTINGS_PATH = "PREFECT_LOGGING_SETTINGS_PATH"
MOST_CHARACTERS = 8_000
"""Most characters of one field. Longer texts are cut, so that a line is never cut in the middle of its JSON."""
MAX_LINE = 60_000
"""Most bytes of a line; `fepflow serve` reads lines of up to 65,536."""

fields_of_run: ContextVar[dict[str, Any]] = ContextVar("fepflow_log_fields", default={})  # noqa: B039  # never changed
"""Fields of all records of a run: `run_id` and `suite`; within a call of the target `case_id` and `attempt`, too."""

_NAMES = {"levelname": "level", "name": "logger"}
_LEFT_OUT = {*RESERVED_ATTRS, "api_url", "send_to_api"}
_process = "run"
_captured: list[tuple[subprocess.Popen[bytes], Sequence[int]]] = []


class Lines:
    """A splitter of output into lines. It drops the rest of a line after `limit` bytes.

    A line in several parts could have a secret at the cut, of which neither half would be redacted.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._too_long = False

    def take(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self._too_long and lines:
            del lines[0]
            self._too_long = False
        if self._too_long:
            self._rest = b""
        elif len(self._rest) > self._limit:
            lines.append(self._rest)
            self._rest, self._too_long = b"", True
        return lines

    def end(self) -> list[bytes]:
        """Return the last line if it has no line end."""
        return [self._rest] if self._rest else []


class Formatter(JsonFormatter):
    """A formatter of records as objects: `time`, `level`, `logger`, `process`, `message`, and fields of the run.

    An exception with its traceback is the field `exception`. No secret that the process knows is in any field.
    """

    def __init__(self) -> None:
        super().__init__(["levelname", "name", "message"], rename_fields=_NAMES, reserved_attrs=sorted(_LEFT_OUT))

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, in one line."""
        try:
            return super().format(record)
        except Exception as error:  # a message whose arguments do not fit, or an object whose __str__ fails
            return _line({"level": record.levelname, "logger": record.name, "message": f"not readable: {error!r}"})

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Put the fields into their order."""
        super().add_fields(log_data, record, message_dict)
        if (traceback := log_data.pop("exc_info", None)) is not None:
            log_data["exception"] = traceback
        moment = datetime.fromtimestamp(record.created, UTC)
        log_data.update({**fields_of_run.get(), **_fields_of_call(), **log_data})
        log_data["time"] = moment

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        """Return the line."""
        moment = log_data.pop("time")
        return _line(log_data, moment)


def _fields_of_call() -> dict[str, Any]:
    """Return the case and the attempt of the call around a record."""
    calls = sys.modules.get("fepflow.calls.base")  # loaded if there are calls
    attempt = calls.attempt_under_way.get(None) if calls is not None else None
    return {} if attempt is None else {"case_id": attempt.case.id, "attempt": attempt.number}


def _line(fields: dict[str, Any], moment: datetime | None = None) -> str:
    first = {"time": (moment or datetime.now(UTC)).isoformat(timespec="milliseconds"), "process": _process}
    shown = redact_json({**first, **{name: _shown(value) for name, value in fields.items()}}, known_secrets())
    for limit in (MOST_CHARACTERS, MAX_LINE // 100):
        cut = {name: value[:limit] if isinstance(value, str) else value for name, value in shown.items()}
        line = json.dumps(cut)  # in ASCII: lone surrogates and line separators are escapes
        if len(line) <= MAX_LINE:
            break
    return line[:MAX_LINE]


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else str(value)


class JsonHandler(logging.Handler):
    """A handler that writes each record to file descriptor 2 at once, even if `sys.stderr` was replaced."""

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self.setFormatter(Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        with contextlib.suppress(OSError):  # the reader is gone
            write(self.format(record))


def write(line: str) -> None:
    """Write an object to stderr, with the mark if the output is captured."""
    mark = os.environ.get(MARK)
    data = f"\n\x1e{mark}{line}\n" if mark else f"{line}\n"
    left = memoryview(data.encode("ascii", "backslashreplace"))
    while left:
        left = left[os.write(2, left) :]


def write_line(line: str, process: str, secrets: frozenset[str]) -> None:
    """Write a line of another process: a record unchanged, any other text as an object."""
    mark = f"\x1e{os.environ[MARK]}"
    if line.strip():
        write(line.removeprefix(mark) if line.startswith(mark) else line_of_text(line.strip(), process, secrets))


def line_of_text(text: str, process: str, secrets: frozenset[str]) -> str:
    """Return the object for a line that is not a record."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    shown = redact(text, secrets)[:MOST_CHARACTERS]
    fields = {"time": moment, "process": process, "level": "INFO", "logger": "output", "message": shown}
    return json.dumps(fields)


def set_up(process: str, *, stdout: bool = True) -> None:
    """Make this process, named `process` in the log, and its children log as JSON if `FEPFLOW_LOG=json`.

    Each fepflow process calls it first, and so outlives whoever reads its log. Without `stdout`, that is not captured:
    it has a command's results.
    """
    global _process
    outlive_reader()
    if not is_json():
        return
    _process = process
    # For processes that import Prefect later: its server, runs that are not forked.
    os.environ.setdefault(SETTINGS_PATH, str(Path(__file__).with_name("prefect_logging.yaml")))
    if MARK not in os.environ:
        os.environ[MARK] = secrets.token_hex(8)
        _capture(process, (1, 2) if stdout else (2,))
    use_handler()
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def is_json() -> bool:
    """Return whether `FEPFLOW_LOG` is `json`. Raises InputError for an unknown value."""
    if "FEPFLOW_LOG" not in os.environ:  # spares the program below loading the settings
        return False
    from fepflow.settings import settings

    return settings().log == "json"


def use_handler() -> None:
    """Replace all handlers that write to a stream, in all loggers."""
    for name in (None, *logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        streams = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
        for handler in streams:
            logger.removeHandler(handler)
        if (streams or logger is logging.root) and not any(isinstance(one, JsonHandler) for one in logger.handlers):
            logger.addHandler(JsonHandler(min((handler.level for handler in streams), default=logging.NOTSET)))


def _log_uncaught(kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None) -> None:
    if error is not None:
        logging.getLogger("fepflow").critical("uncaught", exc_info=(kind, error, traceback))


def _capture(process: str, streams: Sequence[int]) -> None:
    """Start a process that reads these streams from now on. It ends with the last process that writes to them."""
    command = [sys.executable, "-P", "-m", __name__, process]
    # It writes to the first of the streams. It has its own session, because it must outlive a Ctrl-C.
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=streams[0], start_new_session=True)  # noqa: S603  # a program of ours
    assert reader.stdin is not None
    _flush()
    for number in streams:
        os.dup2(reader.stdin.fileno(), number)
    reader.stdin.close()
    _captured.append((reader, streams))
    atexit.register(finish)


def finish() -> None:
    """Write all output before an exit without handlers (`os._exit`)."""
    for captured in _captured:
        _finish(*captured)


def _finish(reader: subprocess.Popen[bytes], streams: Sequence[int]) -> None:
    """Wait until all is written, because the first process of a container ends all others."""
    _flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in streams:
        os.dup2(nowhere, number)
    with contextlib.suppress(subprocess.TimeoutExpired):  # children that are still running write to it, too
        reader.wait(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _object_of(line: bytes, mark: bytes, process: str, secrets: frozenset[str]) -> bytes | None:
    """Return the object for a line, with its end; None for an empty line."""
    if line.startswith(mark):
        return line.removeprefix(mark) + b"\n"
    text = line.decode("utf-8", "backslashreplace").strip()
    return line_of_text(text, process, secrets).encode("ascii") + b"\n" if text else None


def main(process: str) -> None:
    """Turn the lines on stdin into objects, to its end. Marked lines are objects already; others may have any bytes."""
    mark, secrets = b"\x1e" + os.environ[MARK].encode("ascii"), secrets_among(os.environ)
    reader = Lines(MAX_LINE + len(mark))

    def write(lines: list[bytes]) -> None:
        left = memoryview(b"".join(filter(None, (_object_of(line, mark, process, secrets) for line in lines))))
        while left:
            left = left[os.write(1, left) :]

    while chunk := os.read(0, 1 << 16):
        write(reader.take(chunk))
    write(reader.end())


if __name__ == "__main__":
    main(sys.argv[1])
