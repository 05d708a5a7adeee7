"""Where steps log: to Prefect inside a run of its, so that the UI shows it; to `logging` elsewhere."""

from __future__ import annotations

import logging
from typing import Any

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger


def _is_news(record: logging.LogRecord) -> bool:
    if record.exc_info == (None, None, None):  # a task run that chose to end as failed: "NoneType: None" says nothing
        record.exc_info = None
    return record.levelno > logging.INFO or record.getMessage() != "Finished in state Completed()"


# Of every step that went well, and it goes well for most: beside that, nobody finds a retry in the log.
logging.getLogger("prefect.task_runs").addFilter(_is_news)

Log = logging.Logger | logging.LoggerAdapter[Any]


def run_log() -> Log:
    """The logger of the current task or flow run, or the module's."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("fepflow.run")


def one_line(text: str, limit: int) -> str:
    """Text of others as one line of at most `limit` characters, without anything that a log or a name cannot hold."""
    line = " ".join(text.split())
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line)
