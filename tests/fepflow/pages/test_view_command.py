"""`fepflow view`, and reports of one file, as a person starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fepflow.store.store import Store
from tests.conftest import free_port
from tests.fepflow.conftest import Cli
from tests.fepflow.pages.conftest import fill, simple


@contextmanager
def viewing(folder: Path, *arguments: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `fepflow view` that is under way, and the address that it says."""
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "view", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = re.fullmatch(
                r"Pages at (http://127\.0\.0\.1:\d+/\S*); Ctrl-C ends this\n", process.stdout.readline()
            )
            assert said, process.stderr.read()
            yield process, said[1]
        finally:
            process.kill()


def test_view_serves_until_ctrl_c(cli: Cli, store: Store, tmp_path: Path) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    for command in (["view", "--no-browser"], ["rescore"]):
        unknown = cli(*command, "bbbb")
        assert unknown.exit_code == 2
        assert unknown.stderr == "error: There is no run 'bbbb': `fepflow list` shows all runs.\n"
    port = free_port()
    with viewing(tmp_path, "aaaa", "--port", str(port), "--no-browser") as (process, address):
        assert address == f"http://127.0.0.1:{port}/runs/aaaa"
        assert "aaaa1111" in httpx.get(address, timeout=60).raise_for_status().text
        taken = cli("view", "--no-browser", "--port", str(port))
        assert taken.exit_code not in (0, 1, 4), "these are verdicts"
        assert f"port {port} on 127.0.0.1 cannot be used" in taken.stderr
        assert "--port" in taken.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.battery
def test_view_opens_a_browser_on_the_run(store: Store, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part\nmv {opened}.part {opened}\n')
    browser.chmod(0o755)
    fill(store, [simple("a")], run_id="aaaa1111")
    with viewing(tmp_path, "latest", BROWSER=f"{browser} %s") as (process, address):
        for _ in range(600):
            if opened.exists():
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert opened.read_text() == f"{address}\n"
        assert address.endswith("/runs/latest")
        assert "aaaa1111" in httpx.get(address, timeout=60).raise_for_status().text


@pytest.mark.battery
def test_view_reads_the_file_of_variables(tmp_path: Path, store: Store) -> None:
    (tmp_path / "other.env").write_text(f"FEPFLOW_STORE_URL=sqlite:///{tmp_path / 'other.db'}\n", encoding="utf-8")
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other, [simple("a")], run_id="bbbb2222")
    with viewing(tmp_path, "--no-browser", "--env-file", "other.env") as (_, address):
        assert "bbbb2222" in httpx.get(address, timeout=60).raise_for_status().text


@pytest.mark.battery
def test_a_folder_that_is_named_like_ours_is_not_run(store: Store, tmp_path: Path) -> None:
    (tmp_path / "deployments").mkdir()
    (tmp_path / "deployments" / "view.py").write_text("raise SystemExit('not ours')")
    with viewing(tmp_path, "--no-browser") as (_, address):
        assert httpx.get(address, timeout=60).status_code == 200


@pytest.mark.battery
def test_show_writes_the_report_of_one_file_for_its_reader_only(store: Store, tmp_path: Path) -> None:
    fill(store, [simple("good"), simple("bad", False)], run_id="aaaa1111")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fepflow.cli.main", "show", "aaaa", "-o", "report.html"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = tmp_path / "report.html"
    html = report.read_text(encoding="utf-8")
    assert report.stat().st_mode & 0o777 == 0o600
    assert "<script" not in html
    assert not re.search(r"""(?:src|href|action)=["'](?!#)""", html), "nothing in it leads out of it"
    assert html.count('<details class="case"') == 2


def test_view_has_the_probes_too(address: str) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        answer = httpx.get(f"{address}{path}", headers={"Host": "evil.example"}, timeout=60)
        assert answer.json() == ({"status": "ok"} if path == "/livez" else {"status": "ok", "store": "ok"})
