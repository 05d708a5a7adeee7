from __future__ import annotations

import json
import os
import time
from datetime import timedelta

import pytest

from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

NOW = utc_now()
JUDGE = CachedResponse("judge", "openai/judge", "judge-1", "json_schema", "{}", 12, 5, 0.25, (), NOW)
VECTOR = CachedResponse("embedding", "local:mine", "local:mine", None, "A" * 2000, responded_at=NOW - timedelta(days=8))


@pytest.fixture
def filled(store: Store) -> Store:
    store.results.cache_responses({f"{number:064x}": JUDGE for number in range(3)} | {"a" * 64: VECTOR})
    return store


def left(store: Store) -> dict[str, int]:
    return {row.model: row.answers for row in store.results.cache_totals()}


def test_stats_count_responses_and_cost_by_model(cli: Cli, filled: Store) -> None:
    done = cli("cache", "stats")

    assert (done.exit_code, done.stderr) == (0, "")
    vectors, verdicts = (line.split() for line in done.stdout.splitlines()[-2:])
    assert vectors[:7] == ["local:mine", "vectors", "1", "2.0", "kB", "not", "known"]
    assert verdicts[:6] == ["openai/judge", "verdicts", "3", "0.0", "kB", "$0.75"]


def test_stats_are_json_for_programs(cli: Cli, filled: Store) -> None:
    told = json.loads(cli("cache", "stats", "--json").stdout)

    models = told.pop("models")
    oldest, newest = (moment.isoformat().replace("+00:00", "Z") for moment in (VECTOR.responded_at, NOW))
    counts = {"answers": 4, "characters": 2006, "cost_usd": 0.75, "unpriced": 1}
    assert told == {**counts, "oldest": oldest, "newest": newest}
    assert [(row["kind"], row["model"], row["answers"], row["cost_usd"]) for row in models] == [
        ("embedding", "local:mine", 1, None),
        ("judge", "openai/judge", 3, 0.75),
    ]


def test_stats_of_an_empty_cache(cli: Cli, store: Store) -> None:
    assert cli("cache", "stats").stdout == "No answers of models are stored.\n"
    assert json.loads(cli("cache", "stats", "--json").stdout)["answers"] == 0


def test_clearing_deletes_all_or_those_of_a_model_or_old_ones(cli: Cli, filled: Store) -> None:
    assert cli("cache", "clear", "--older-than", "9d").stdout == "Deleted 0 answers.\n"
    assert cli("cache", "clear", "--older-than", "7d").stdout == "Deleted 1 answer.\n"
    assert left(filled) == {"openai/judge": 3}
    filled.results.cache_responses({"a" * 64: VECTOR})
    assert cli("cache", "clear", "--model", "openai/judge").stdout == "Deleted 3 answers.\n"
    assert left(filled) == {"local:mine": 1}
    assert cli("cache", "clear").stdout == "Deleted 1 answer.\n"
    assert left(filled) == {}


def test_clearing_deletes_files_of_test_cases_too(cli: Cli, store: Store) -> None:
    folder = settings().home / "downloads"
    (folder / "index").mkdir(parents=True)
    names = [f"{'a' * 64}.jsonl", "b" * 64, "part-young", "part-old"]
    for age, name in zip((90_000, 0, 0, 90_000), names, strict=True):
        (folder / name).write_bytes(b"{}")
        os.utime(folder / name, (time.time() - age,) * 2)
    assert cli("cache", "clear", "--model", "openai/judge").stdout == "Deleted 0 answers.\n"
    assert len(list(folder.glob("*"))) == 5
    assert cli("cache", "clear", "--older-than", "1d").stdout == "Deleted 0 answers and 1 file of test cases.\n"
    assert cli("cache", "clear").stdout == "Deleted 0 answers and 1 file of test cases.\n"
    assert sorted(path.name for path in folder.glob("*")) == ["index", "part-young"]


def test_an_invalid_age_is_refused(cli: Cli, filled: Store) -> None:
    done = cli("cache", "clear", "--older-than", "a week")
    assert done.exit_code == 2
    assert "a duration reads like 500ms, 30s, 2m, 1h or 7d" in done.stderr
    assert sum(left(filled).values()) == 4
