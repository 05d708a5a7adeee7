"""What is found in a server's log: records as Prefect 3.8.8 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fepflow.deployments.server_log import LOCKED_TOLERATED, ServerLog

SCHEDULER = """\
13:34:32.916 | ERROR   | docket.dependencies - ↩ [    98ms] schedule_deployments(){schedule_deployments}
Traceback (most recent call last):
  File "docket/worker.py", line 1134, in _execute
    result = await execution.function(
sqlalchemy.exc.InvalidRequestError: Can't evaluate bulk DML statement; please supply a bulk_dml decorated function
"""
WARNING = "13:34:33.000 | WARNING | prefect.server.events - Something is slow\n"
LOCKED = """\
13:33:58.054 | ERROR   | prefect.server.utilities.worker_channel - Worker channel heartbeat persistence failed: pool
Traceback (most recent call last):
sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) database is locked
"""


@pytest.fixture
def log(tmp_path: Path) -> ServerLog:
    return ServerLog(tmp_path / "server.log")


def write(log: ServerLog, text: str) -> None:
    with log.path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_log_without_errors_or_without_a_file_has_none(log: ServerLog) -> None:
    assert log.errors() == []
    write(log, "a banner\n" + WARNING)
    assert log.errors() == []


def test_a_sentence_names_service_cause_and_log(log: ServerLog) -> None:
    write(log, SCHEDULER + WARNING)
    (error,) = log.errors()
    assert error.sentence(log.path) == (
        "schedule_deployments of the Prefect server failed (at 13:34:32): InvalidRequestError: Can't evaluate bulk DML "
        "statement; please supply a bulk_dml decorated function. Scheduled runs may not come. "
        f"Its log is {log.path}"
    )


def test_the_same_error_is_counted_also_over_several_readings(log: ServerLog) -> None:
    write(log, SCHEDULER)
    log.errors()
    write(log, SCHEDULER.replace("13:34:32", "13:35:32"))
    (error,) = log.errors()
    assert "(2 times, last at 13:35:32)" in error.sentence(log.path)


def test_a_server_that_starts_anew_is_a_log_from_its_beginning(log: ServerLog) -> None:
    write(log, SCHEDULER)
    assert log.errors()
    log.path.write_text(WARNING, encoding="utf-8")
    assert log.errors() == []


def test_a_write_that_prefect_does_again_matters_only_when_it_happens_often(log: ServerLog) -> None:
    write(log, LOCKED * LOCKED_TOLERATED)
    assert log.errors() == []
    write(log, LOCKED)
    (error,) = log.errors()
    assert error.service == "utilities.worker_channel"


def test_an_error_without_a_traceback_says_what_it_says(log: ServerLog) -> None:
    write(log, "10:00:00.000 | CRITICAL | prefect.server.api - The disk is full.\n")
    assert [(error.service, error.message) for error in log.errors()] == [("api", "The disk is full")]
