"""`--limit`: which cases a run has, and what it remembers of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.analysis.sampling import draw, sample_size
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.store.store import Store
from fepflow.tasks.create_run import RunOptions, create_run

SUITE = {
    "name": "sorted",
    "target": {"http": {"url": "http://127.0.0.1:9/"}},
    "test_cases": "cases.jsonl",
    "checks": [{"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": 1}}],
}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of 500 cases, the good ones first."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": f"case {n}", "input": n, "metadata": {"good": n < 250, "odd": n % 2 == 1}} for n in range(500)]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    return tmp_path / "suite.json"


def planned(store: Store, suite: Path, **options: Any) -> tuple[list[int], Any]:
    """The inputs of the cases, and the run's options."""
    run = create_run(store, validate_suite(suite), RunOptions(**options)).run
    return [case.input for case in store.runs.cases(run.id)], run.options


def test_a_limit_is_a_random_sample_in_the_order_of_the_file(store: Store, suite: Path) -> None:
    inputs, options = planned(store, suite, limit=100)
    assert len(inputs) == 100
    assert inputs == sorted(inputs)
    assert 30 <= sum(number < 250 for number in inputs) <= 70, "a sorted file is sampled from all over"
    assert options == {"sample": {"limit": 100, "seed": 0, "cases": 100, "of": 500}}


def test_the_same_seed_draws_the_same_cases_and_another_one_others(store: Store, suite: Path) -> None:
    first, again, other = (planned(store, suite, limit=50, seed=seed)[0] for seed in (7, 7, 8))
    assert first == again
    assert len(set(first) & set(other)) < 20


def test_a_fraction_is_of_the_cases_that_the_filters_leave(store: Store, suite: Path) -> None:
    inputs, options = planned(store, suite, limit=0.1, metadata={"odd": "true"})
    assert len(inputs) == 25
    assert all(number % 2 for number in inputs)
    assert options["sample"] == {"limit": 0.1, "seed": 0, "cases": 25, "of": 250}
    assert options["filters"] == ["--filter-metadata odd=true"]


def test_a_filtered_run_is_described_unless_the_filter_leaves_all(store: Store, suite: Path) -> None:
    options = RunOptions(limit=20, metadata={"odd": "true"})
    run = create_run(store, validate_suite(suite), options).run
    assert run.filtered == "20 of 500 test cases (--filter-metadata odd=true)"
    assert run.part == f"{run.filtered}; a random sample of 20 of 250 test cases (seed 0)"
    labelled = create_run(store, validate_suite(suite), RunOptions(cases=frozenset(["case 1", "case 2"]))).run
    assert labelled.part == "2 of 500 test cases (those with labels)"
    whole = RunOptions(cases=frozenset(f"case {n}" for n in range(500)))
    assert create_run(store, validate_suite(suite), whole).run.part is None


@pytest.mark.parametrize("limit", [None, 500, 1000])
def test_without_a_limit_or_with_a_large_one_all_cases_are_there(
    store: Store, suite: Path, limit: float | None
) -> None:
    inputs, options = planned(store, suite, limit=limit)
    assert (inputs, options) == (list(range(500)), None)


def test_a_sampled_run_is_described(store: Store, suite: Path) -> None:
    run = create_run(store, validate_suite(suite), RunOptions(limit=20, seed=3)).run
    assert run.sample == "a random sample of 20 of 500 test cases (seed 3)"
    assert create_run(store, validate_suite(suite)).run.sample is None


@given(st.sets(st.text(max_size=4), min_size=2, max_size=60), st.integers(1, 60), st.integers(0, 9))
def test_a_case_that_is_added_displaces_at_most_one(ids: set[str], size: int, seed: int) -> None:
    *before, added = sorted(ids)
    assert len(set(draw(before, size, seed)) - set(draw([*before, added], size, seed))) <= 1
    assert draw(reversed(before), size, seed) == draw(before, size, seed)


@pytest.mark.parametrize(
    ("count", "limit", "size"), [(10, None, 10), (10, 3, 3), (10, 30, 10), (10, 0.25, 2), (10, 0.01, 1), (0, 5, 0)]
)
def test_the_size_of_a_sample(count: int, limit: float | None, size: int) -> None:
    assert sample_size(count, limit) == size
