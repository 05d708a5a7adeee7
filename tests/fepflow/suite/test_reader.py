"""Which suites a deployment may evaluate."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fepflow.errors import UserError
from fepflow.settings import settings
from fepflow.suite.reader import allow_below, require_allowed

SHIPPED = Path(__file__).parents[3] / "deployments" / "suites" / "demo" / "suite.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEPFLOW_SUITE_ROOTS", os.pathsep.join([str(tmp_path / "named"), ""]))
    settings.cache_clear()
    for name in ("named", "other", "other-too"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "suite.yaml").touch()
    yield tmp_path
    settings.cache_clear()


def test_roots_of_the_operator_and_of_fepflow_are_allowed(folder: Path) -> None:
    require_allowed(folder / "named" / "suite.yaml")
    require_allowed(folder / "named" / "deeper" / "suite.yaml")
    require_allowed(SHIPPED)


def test_paths_outside_of_the_roots_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "named" / "link.yaml").symlink_to(folder / "other" / "suite.yaml")
    monkeypatch.chdir(folder / "other")
    for name in ("other/suite.yaml", "named/../other/suite.yaml", "named/link.yaml", "named-too/suite.yaml"):
        with pytest.raises(UserError, match="FEPFLOW_SUITE_ROOTS"):
            require_allowed(folder / name)
    with pytest.raises(UserError, match="FEPFLOW_SUITE_ROOTS"):
        require_allowed(Path("suite.yaml"))


def test_roots_are_stored_for_their_owner_only(folder: Path) -> None:
    allow_below([folder / "other", folder / "other"])
    allow_below([folder / "other"])
    require_allowed(folder / "other" / "suite.yaml")
    with pytest.raises(UserError):
        require_allowed(folder / "other-too" / "suite.yaml")
    noted = folder / "home" / "suite-roots"
    assert noted.read_text(encoding="utf-8") == f"{folder / 'other'}\n"
    assert stat.S_IMODE(noted.stat().st_mode) == 0o600
