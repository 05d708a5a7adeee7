"""Logs as JSON: one object on each line, whatever a process and its children write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fepflow.deployments import api
from fepflow.settings import settings
from tests.fepflow.conftest import Cli

NASTY = r"""
import logging, os, subprocess, sys, threading
from fepflow.observability import logs
logs.set_up("worker")
log = logging.getLogger("fepflow.test")
token = logs.fields_of_run.set({"run_id": "r1", "suite": "s"})
key = os.environ["AGENT_API_KEY"]
log.warning("two\nlines \u2028 \ud800 %s", key, extra={"case_id": "a\nb", "key": key})
log.warning("%d", "no number")
log.warning("x" * 100_000)
try:
    raise ValueError("bad\nthing")
except ValueError:
    log.exception("it failed")
print("no end", end="", flush=True)
log.error("after a line without an end")
os.write(1, b"raw \xff\xfe bytes\n\n\x1bred\n")
print('{"level": "CRITICAL", "message": "forged"}')
print("\x1eguess" + '{"level": "CRITICAL", "message": "forged"}')
print("printed", os.environ["AGENT_API_KEY"], flush=True)
subprocess.run([sys.executable, "-c", "import sys; print('child'); sys.stderr.write('y' * 200_000)"])
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(), thread.join()
"""


def objects_of(code: str, **environment: str) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[bytes]]:
    """The objects that a program's output consists of; a line that is none is an error."""
    env = {**os.environ, "FEPFLOW_LOG": "json", "AGENT_API_KEY": "s3cret-value-of-it", **environment}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, timeout=180, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()], done


def test_whatever_a_process_writes_is_an_object_on_each_line_without_secrets() -> None:
    objects, done = objects_of(NASTY + "os._exit(logs.finish() or 0)")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"s3cret" not in done.stdout
    records = {one["message"]: one for one in objects if one["logger"] != "output"}
    first = records["two\nlines \u2028 \ud800 ***"]
    assert first.items() >= {
        "level": "WARNING", "logger": "fepflow.test", "process": "worker", "run_id": "r1", "suite": "s",
        "case_id": "a\nb", "key": "***",
    }.items()  # fmt: skip
    assert first["time"].endswith("+00:00")
    assert records["it failed"]["exception"].endswith("ValueError: bad\nthing")
    assert records["uncaught"]["exception"].endswith("ZeroDivisionError: division by zero")
    assert any(message.startswith("not readable: TypeError") for message in records)
    assert "after a line without an end" in records
    assert all(len(one["message"]) <= 100_000 for one in objects)
    printed = [one["message"] for one in objects if one["logger"] == "output" and one["message"][0] != "y"]
    assert printed[:3] == ["no end", r"raw \xff\xfe bytes", "\x1bred"]
    assert [one for one in objects if one["level"] == "CRITICAL"] == [records["uncaught"]], "nobody forges a record"
    assert {"printed ***", "child"} <= set(printed)
    assert [len(one["message"]) for one in objects if one["message"].startswith("yy")] == [8_000], "one object, cut"


def test_an_error_that_ends_a_process_is_one_object() -> None:
    objects, done = objects_of("from fepflow.observability import logs\nlogs.set_up('api')\n1 / 0")
    assert done.returncode == 1
    (error,) = objects
    assert error.items() >= {"level": "CRITICAL", "process": "api", "logger": "fepflow"}.items()
    assert error["exception"].endswith("ZeroDivisionError: division by zero")


def test_a_form_of_the_log_that_there_is_not_is_refused_by_each_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEPFLOW_LOG", "xml")
    settings.cache_clear()
    assert api.main([]) == 2
    assert "FEPFLOW_LOG" in capsys.readouterr().err
    run = cli("run", "suite.yaml")
    assert (run.exit_code, "FEPFLOW_LOG" in run.stderr) == (2, True)


@pytest.mark.battery
def test_a_form_of_the_log_that_there_is_not_is_refused_by_a_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fepflow.deployments.worker", "--pool", "p"],
        env={**os.environ, "FEPFLOW_LOG": "xml", "FEPFLOW_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "FEPFLOW_LOG" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_whose_output_nobody_reads_any_more_goes_on() -> None:
    code = """
import sys
from rich.console import Console
from fepflow.output import outlive_reader
console = Console(file=sys.stderr)
outlive_reader()
sys.stdin.read()
print("an agent's print", flush=True)
console.print("a record")
print("an agent's print", file=sys.stderr, flush=True)
sys.exit(7)
"""
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=writer, stderr=writer)
    os.close(writer)
    os.close(reader)
    process.communicate(timeout=180)
    assert process.returncode == 7
