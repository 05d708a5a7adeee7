"""Logs as JSON, an object on each line: `FEPFLOW_LOG=json`.

A process writes its records to stderr, each with a mark before it. Whatever else comes out of it, such as what an
agent prints, has no mark: `fepflow.observability.lines` makes an object of each such line. It reads stdout and stderr
of a process and of all that it starts, so nothing gets past it. Texts that an agent prints do not become records. Code
that runs here could: it can read the mark, as it can read all else that the process has.
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

from fepflow.security.redaction import known_secrets, redact, redact_json

MARK = "FEPFLOW_LOG_MARK"
"""The variable with the word before records. Processes inherit it, and with it stdout and stderr that are read."""
LINES = "fepflow.observability.lines"
SETTINGS_PATH = "PREFECT_LOGGING_SETTINGS_PATH"
MOST_CHARACTERS = 8_000
"""Characters of one field: more is cut, as its end in the middle of a line of its own would be no JSON."""
MAX_LINE = 60_000
"""Bytes of a line of ours; `fepflow serve` reads lines of up to 65,536."""

fields_of_run: ContextVar[dict[str, Any]] = ContextVar("fepflow_log_fields", default={})  # noqa: B039  # never changed
"""Fields of all records of a run: `run_id` and `suite`; within a call of the target `case_id` and `attempt`, too."""

_NAMES = {"levelname": "level", "name": "logger"}
_LEFT_OUT = {*RESERVED_ATTRS, "api_url", "send_to_api"}
_process = "run"
_captured: list[tuple[subprocess.Popen[bytes], Sequence[int]]] = []


class Lines:
    """Splits what a process prints into lines. Of one that is longer than `limit` bytes it gives the beginning only:
    shown in parts, a secret could be cut in two, and neither half would be found.
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
        """Return the last line, if nothing ended it."""
        return [self._rest] if self._rest else []


class Formatter(JsonFormatter):
    """Makes an object of a record: `time`, `level`, `logger`, `process`, `message`, and the fields of its run.

    An exception with its traceback is the field `exception`. No secret that the process knows is in any field.
    """

    def __init__(self) -> None:
        super().__init__(["levelname", "name", "message"], rename_fields=_NAMES, reserved_attrs=sorted(_LEFT_OUT))

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, in one line."""
        try:
            return super().format(record)
        except Exception as error:  # a message whose arguments do not fit, or an object without a text
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
    """Return the case and the attempt of the call in which a record is made."""
    calls = sys.modules.get("fepflow.calls.base")  # where there are calls, it is loaded
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
    """Writes each record to the process's stderr at once, whatever has become of `sys.stderr`."""

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self.setFormatter(Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        with contextlib.suppress(OSError):  # whoever read it is gone
            write(self.format(record))


def write(line: str) -> None:
    """Write an object that was made here to stderr, marked where somebody looks for the mark."""
    mark = os.environ.get(MARK)
    data = f"\n\x1e{mark}{line}\n" if mark else f"{line}\n"
    left = memoryview(data.encode("ascii", "backslashreplace"))
    while left:
        left = left[os.write(2, left) :]


def write_line(line: str, process: str, secrets: frozenset[str]) -> None:
    """Write a line that another process has printed: a record as it is, and any other text as an object."""
    mark = f"\x1e{os.environ[MARK]}"
    if line.strip():
        write(line.removeprefix(mark) if line.startswith(mark) else line_of_text(line.strip(), process, secrets))


def line_of_text(text: str, process: str, secrets: frozenset[str]) -> str:
    """Return the object for a line that is no record."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    shown = redact(text, secrets)[:MOST_CHARACTERS]
    fields = {"time": moment, "process": process, "level": "INFO", "logger": "output", "message": shown}
    return json.dumps(fields)


def set_up(process: str, *, stdout: bool = True) -> None:
    """Have this process, which has this name in the log, and its children log as JSON, if `FEPFLOW_LOG` says so.

    Called first in each process of ours. Without `stdout`, that stays what it is: a command's results.
    """
    global _process
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
    """Return whether `FEPFLOW_LOG` asks for JSON. Raises InputError where it asks for what there is not."""
    if "FEPFLOW_LOG" not in os.environ:  # spares what only reads lines the settings
        return False
    from fepflow.settings import settings

    return settings().log == "json"


def use_handler() -> None:
    """Replace what writes records to stderr, in all loggers that there are."""
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
    """Have a process read these streams from here on. It ends with the last process that writes there."""
    command = [sys.executable, "-P", "-m", LINES, process]
    # It writes to the last of the streams. In a session of its own: Ctrl-C is not for it, which writes about the end.
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=streams[0], start_new_session=True)  # noqa: S603  # a program of ours
    assert reader.stdin is not None
    _flush()
    for number in streams:
        os.dup2(reader.stdin.fileno(), number)
    reader.stdin.close()
    _captured.append((reader, streams))
    atexit.register(finish)


def finish() -> None:
    """Write what there is, before an exit that calls nothing else (`os._exit`)."""
    for captured in _captured:
        _finish(*captured)


def _finish(reader: subprocess.Popen[bytes], streams: Sequence[int]) -> None:
    """Wait until all is written: the first process of a container takes all others along."""
    _flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in streams:
        os.dup2(nowhere, number)
    with contextlib.suppress(subprocess.TimeoutExpired):  # children that live on write to it, too
        reader.wait(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
