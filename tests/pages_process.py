"""The result pages in a process of their own, as `fepflow view` starts them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.warm_commands import WarmCommands


@contextmanager
def pages_process(home: Path, warm: WarmCommands, **env: str) -> Iterator[str]:
    """Its address, without a path; ended with SIGTERM, which it has to take as the end, and no fault is in its log."""
    kept = {name: value for name, value in os.environ.items() if name != "FEPFLOW_STORE_URL"}
    everything = {**kept, **env, "FEPFLOW_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    log = home / "view.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            warm.command(["view", "--no-browser", "--port", "0"], everything),
            env=everything,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line + log.read_text()
        yield found[0]
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert log.read_text() == ""
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
