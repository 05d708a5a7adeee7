from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewRun
from fepflow.store.store import Store

MakeRun = Callable[..., str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'fepflow.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as store:
        yield store


@pytest.fixture
def make_run(store: Store) -> MakeRun:
    """Creates a run of `cases` test cases named case-0, case-1, … and gives its id."""

    def make(run_id: str = "run-1", cases: int = 3, repeats: int = 1, **fields: object) -> str:
        run = NewRun(**{"id": run_id, "name": "refunds", "suite": {}, "suite_path": None, "repeats": repeats, **fields})
        store.create_run(run, (TestCase(id=f"case-{number}", input=number) for number in range(cases)))
        return run_id

    return make
