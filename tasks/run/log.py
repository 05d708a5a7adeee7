"""Where steps log: to Prefect inside a run of its, so that the UI shows it; to `logging` elsewhere."""

from __future__ import annotations

import logging
from typing import Any

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from fepflow.errors import FepflowError, TargetError


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a task run's message is worth a line: not of every step that went well, and nothing twice.

    A step that failed says so in its last message, "Finished in state Failed(...)".
    """
    message = record.getMessage()
    if message.startswith("Task run failed with") and " - Retry " not in message:
        # With a state it would show all that the step returned. Where a sentence of ours was raised says nothing.
        return record.exc_info is not None and not isinstance(record.exc_info[1], FepflowError | None)
    return record.levelno > logging.INFO or message != "Finished in state Completed()"


logging.getLogger("prefect.task_runs").addFilter(_is_news)

# A deployment's run says nothing of its preparation (see prefect.yaml). From here on it does.
logging.getLogger("prefect.flow_runs").setLevel(logging.NOTSET)

Log = logging.Logger | logging.LoggerAdapter[Any]


def run_log() -> Log:
    """The logger of the current task or flow run, or the module's."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("fepflow.run")


def log_limit_change(slots: int, cause: TargetError | None) -> None:
    """How many calls the target bears at once from now on, and what made them fewer."""
    if cause is None:
        run_log().info("the target bears %d calls at once again", slots)
    else:
        calls = "1 call" if slots == 1 else f"{slots} calls"
        run_log().warning("the target is overloaded, %s at once from now on: %s", calls, cause)
