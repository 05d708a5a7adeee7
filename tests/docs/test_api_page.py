"""The page about the network's interfaces: its calls do what it says, against the process that is served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_process import ApiProcess, api_process

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:4280"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with api_process(tmp_path_factory.mktemp("home")) as process:
        yield process


def consoles() -> list[str]:
    """The shell's lines of each block."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [re.sub(r"^\$ ", "", block, flags=re.MULTILINE) for block in blocks]


def shell(script: str, api: ApiProcess, folder: Path) -> str:
    done = subprocess.run(
        ["sh", "-ec", script.replace(ADDRESS, api.rest)],
        cwd=folder,
        env=api.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_calls_with_curl_work(api: ApiProcess, tmp_path: Path) -> None:
    checked, streamed = consoles()

    result = json.loads(shell(checked, api, tmp_path))
    assert result["metadata"]["outcome"] == "pass"

    events = shell(streamed, api, tmp_path).strip().split("\n\n")
    assert [event.split("\n")[0] for event in events] == ["event: running", "event: running", "event: completed"]


def test_the_python_example_works_with_a_key(api: ApiProcess) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    key = api.new_key()

    exec(example.replace(ADDRESS, api.rest), {"API_KEY": key})

    with pytest.raises(Exception, match="401"):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": "fep_no_key"})
