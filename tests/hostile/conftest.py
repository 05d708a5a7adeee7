from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fepflow.settings import settings
from fepflow.store.store import Store

from .attack import JUDGE_KEY


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Callable[[str], str]) -> Iterator[Store]:
    """The store that `open_run` opens too."""
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEPFLOW_STORE_URL", raising=False)
    monkeypatch.setenv("JUDGE_KEY", JUDGE_KEY)
    settings.cache_clear()
    with Store.open(new_store(settings().store_address)) as opened:
        yield opened
    settings.cache_clear()
