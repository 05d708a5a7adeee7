"""Rules for the project's files, and the parts that a release is built of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
LOCKS = ["requirements.lock", "requirements-dev.lock"]
ALL_LOCKS = [*LOCKS, "requirements-release.lock"]


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_a_lock_names_versions_and_hashes_and_no_address(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line and not line.startswith("#")]
    pinned = [line for line in code if re.match(r"[a-z0-9._-]+(\[[a-z]+\])?==[^ ]+", line)]
    hashes = [line for line in code if re.match(r"    --hash=sha256:[0-9a-f]{64}", line)]
    assert len(pinned) + len(hashes) == len(code)
    assert len(hashes) >= len(pinned) > 50


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


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid_and_pins_the_actions_of_others_by_commit(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    document = YAML(typ="safe").load(text)
    assert document["jobs"]
    for line in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line) or line.startswith("./"), line
        assert not line.startswith("./") or (ROOT / line).is_file()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"run: make ([a-z]+)", text)
    for job in document["jobs"].values():
        commands += job.get("strategy", {}).get("matrix", {}).get("command", [])
    assert set(commands) <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert versions.count("[Unreleased]") == 1
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    for section in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.*)", section, re.MULTILINE)
        order = [
            name for name in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security") if name in headings
        ]
        assert headings == order, "each heading once, in this order"
        entries = re.findall(r"^- .*(?:\n  .*)*", section, re.MULTILINE)
        assert len(entries) == len(set(entries)), "an entry appears twice"


def test_every_surface_shows_the_version_of_the_installed_package() -> None:
    from importlib.metadata import version

    from fepflow.api.rest.http import Errors, create_app

    app = create_app([], Errors({}))
    assert app.openapi()["info"]["version"] == version("fepflow")


@pytest.mark.battery
def test_git_and_the_sdist_build_the_same_wheel_whose_version_is_the_tag(tmp_path: Path) -> None:
    clone, build = tmp_path / "clone", [sys.executable, "-c"]
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    name = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", *name, "tag", "-a", "v7.8.9", "-m", "7.8.9"], cwd=clone, check=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    backend = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
    subprocess.run([*build, backend, "build_sdist", str(tmp_path)], cwd=clone, env=env, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert sdist.name == "fepflow-7.8.9.tar.gz"
    subprocess.run(["tar", "-xzf", sdist.name], cwd=tmp_path, check=True)
    wheels = []
    for source in (clone, tmp_path / "fepflow-7.8.9"):
        subprocess.run([*build, backend, "build_wheel", str(source / "dist")], cwd=source, env=env, check=True)
        (wheel,) = (source / "dist").glob("*.whl")
        wheels.append((wheel.name, wheel.read_bytes()))
    assert wheels[0] == wheels[1]
    assert wheels[0][0] == "fepflow-7.8.9-py3-none-any.whl"
    changed = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True, check=True)
    assert changed.stdout == ""
