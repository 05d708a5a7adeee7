"""What the local Prefect server's log says of services that fail: the server goes on, and reports it nowhere else.

A scheduler that fails leaves every deployment Active and Ready in the UI, while no scheduled run ever comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_RECORD = re.compile(r"(?P<time>\d\d:\d\d:\d\d)\.\d+ \| (?P<level>[A-Z]+) *\| (?P<logger>\S+) - (?P<message>.*)")
_SERVICE = re.compile(r"\b(?P<name>\w+)\([^)]{0,200}\)\{")
"""How docket, which runs the server's services, names one in its log: `↩ [98ms] schedule_deployments(){…}`."""
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*[a-z]): (?P<message>.+)")
"""The last line of a traceback; not one that uvicorn writes, which begins with a level in capitals."""

SERIOUS = ("ERROR", "CRITICAL")
LOCKED = "database is locked"
LOCKED_TOLERATED = 10
"""With SQLite under it, Prefect's server loses a write to another one now and then, and does it again."""
MAX_MESSAGE = 200
MAX_READ = 4_000_000
"""Bytes of the log that are read at a time: a service that fails every five seconds fills it."""


@dataclass
class ServerError:
    """One kind of error in the log: which service, what it said, when last, and how often."""

    service: str
    message: str
    last: str = ""
    count: int = 0

    @property
    def matters(self) -> bool:
        """Not so for what Prefect does again by itself."""
        return LOCKED not in self.message or self.count > LOCKED_TOLERATED

    def sentence(self, log: Path) -> str:
        """For a person: which service, what, how often, and where the log is."""
        often = f"{self.count} times, last at {self.last}" if self.count > 1 else f"at {self.last}"
        follows = " Scheduled runs may not come." if "schedule" in self.service else ""
        return f"{self.service} of the Prefect server failed ({often}): {self.message}.{follows} Its log is {log}"


class ServerLog:
    """A server's log, which is read on from where it was read to. A server begins it anew when it starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._found: dict[tuple[str, str], ServerError] = {}

    def errors(self) -> list[ServerError]:
        """The errors that matter, one of a kind, in the order in which they came first."""
        for time, logger, lines in _records(self._new_text().splitlines()):
            kind = _service(logger, lines[0]), _message(lines)
            error = self._found.setdefault(kind, ServerError(*kind))
            error.last = time
            error.count += 1
        return [error for error in self._found.values() if error.matters]

    def _new_text(self) -> str:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._position:
                    self._position = 0
                    self._found.clear()
                self._position = file.seek(max(self._position, size - MAX_READ))
                data = file.read(size - self._position)
        except OSError:
            return ""
        whole = data[: data.rfind(b"\n") + 1]  # the rest comes the next time
        self._position += len(whole)
        return whole.decode("utf-8", errors="replace")


def _records(lines: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Time, logger and lines of each serious record, its traceback included."""
    record: tuple[str, str, list[str]] | None = None
    for line in lines:
        begins = _RECORD.match(line)
        if begins is None:
            if record is not None:
                record[2].append(line)
            continue
        if record is not None:
            yield record
        record = (begins["time"], begins["logger"], [begins["message"]]) if begins["level"] in SERIOUS else None
    if record is not None:
        yield record


def _service(logger: str, message: str) -> str:
    named = _SERVICE.search(message)
    return named["name"] if named else logger.removeprefix("prefect.server.")


def _message(lines: list[str]) -> str:
    """What the record's traceback ends with, else what it says."""
    raised = [match for line in lines[1:] if (match := _EXCEPTION.fullmatch(line))]
    words = f"{raised[-1]['type'].rpartition('.')[2]}: {raised[-1]['message']}" if raised else lines[0]
    words = words.rstrip(". ")
    return words if len(words) <= MAX_MESSAGE else words[: MAX_MESSAGE - 1] + "…"
