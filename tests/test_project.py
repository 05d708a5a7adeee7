"""What the project's files must and must not hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ["requirements.lock", "requirements-dev.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_versions_and_hashes_and_no_address(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line and not line.startswith("#")]
    pinned = [line for line in code if re.match(r"[a-z0-9._-]+(\[[a-z]+\])?==[^ ]+", line)]
    hashes = [line for line in code if re.match(r"    --hash=sha256:[0-9a-f]{64}", line)]
    assert len(pinned) + len(hashes) == len(code)
    assert len(hashes) >= len(pinned) > 100


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_fastapi_where_prefect_works(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    version = re.search(r"^fastapi==0\.(\d+)", text, re.MULTILINE)
    assert version
    assert 139 <= int(version[1]) < 151
    assert "fastapi is held below 0.151" in text
    assert "prefect==3.8.8" in text


def test_the_development_lock_holds_the_same_versions() -> None:
    pins = [set(re.findall(r"^(\S+==\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)) for lock in LOCKS]
    assert pins[0] <= pins[1]


def test_no_tracked_file_is_a_lock_with_addresses() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    names = {Path(name).name for name in done.stdout.split()}
    assert names.isdisjoint({"uv.lock", "pylock.toml", "poetry.lock", "Pipfile.lock"})
