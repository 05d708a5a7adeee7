"""What is found in a server's log: records as Prefect 3.8.8 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fepflow.deployments.server import LOCKED_TOLERATED, errors_in

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
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def sentences(log: Path) -> list[str]:
    return list(errors_in(log).values())


def write(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_log_without_errors_or_without_a_file_has_none(log: Path) -> None:
    assert sentences(log) == []
    write(log, "a banner\n" + WARNING)
    assert sentences(log) == []


def test_a_sentence_names_service_cause_and_log(log: Path) -> None:
    write(log, SCHEDULER + WARNING)
    (error,) = sentences(log)
    assert error == (
        "schedule_deployments of the Prefect server failed (at 13:34:32): InvalidRequestError: Can't evaluate bulk DML "
        "statement; please supply a bulk_dml decorated function. Scheduled runs may not come. "
        f"Its log is {log}"
    )


def test_the_same_error_is_counted_also_over_several_readings(log: Path) -> None:
    write(log, SCHEDULER)
    sentences(log)
    write(log, SCHEDULER.replace("13:34:32", "13:35:32"))
    (error,) = sentences(log)
    assert "(2 times, last at 13:35:32)" in error


def test_a_server_that_starts_anew_is_a_log_from_its_beginning(log: Path) -> None:
    write(log, SCHEDULER)
    assert sentences(log)
    log.write_text(WARNING, encoding="utf-8")
    assert sentences(log) == []


def test_a_write_that_prefect_does_again_matters_only_when_it_happens_often(log: Path) -> None:
    write(log, LOCKED * LOCKED_TOLERATED)
    assert sentences(log) == []
    write(log, LOCKED)
    (error,) = sentences(log)
    assert error.startswith("utilities.worker_channel of")


def test_an_error_without_a_traceback_says_what_it_says(log: Path) -> None:
    write(log, "10:00:00.000 | CRITICAL | prefect.server.api - The disk is full.\n")
    (error,) = sentences(log)
    assert error.startswith("api of the Prefect server failed (at 10:00:00): The disk is full.")
