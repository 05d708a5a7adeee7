"""The answers of models that runs share: the store's, found and kept for many at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.store.writer import StoredResponseCache
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_model_checks
from tests.tasks.conftest import Plan

ANSWER = CachedResponse("judge", "a/b", "b", "prompt", "{}")
JUDGE = {
    "type": "llm_judge",
    "arguments": {
        "prompt": "Is it right? {{$.output.value}}",
        "response_format": {
            "type": "object",
            "properties": {"passed": {"type": "boolean"}},
            "required": ["passed"],
        },
        "model_config": {"model": "openai/stand-in"},
        "provider_config": {"api_base": "${JUDGE_BASE}", "api_key": "${JUDGE_KEY}"},
    },
}


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def statements(store: Store) -> list[str]:
    """What the database is told."""
    told: list[str] = []
    event.listen(store._database.engine, "before_cursor_execute", lambda _c, _cursor, words, *_: told.append(words))
    return told


async def test_many_that_come_at_once_are_few_statements(store: Store, statements: list[str]) -> None:
    kept = StoredResponseCache(store)
    await asyncio.gather(*(kept.put(key(number), ANSWER) for number in range(40)))
    assert sum("INSERT" in words for words in statements) == 1

    statements.clear()
    found = await asyncio.gather(*(kept.get([key(number), key(number + 1)]) for number in range(40)))
    assert sum("SELECT" in words for words in statements) == 1
    assert [set(some) for some in found[-2:]] == [{key(38), key(39)}, {key(39)}]


async def test_a_later_lookup_finds_responses_cached_meanwhile(store: Store) -> None:
    kept = StoredResponseCache(store)
    assert await kept.get([key(1)]) == {}
    await kept.put(key(1), ANSWER)
    assert await kept.get([key(1)]) == {key(1): ANSWER}


async def test_cancelling_one_lookup_does_not_affect_others(store: Store) -> None:
    kept = StoredResponseCache(store)
    store.results.cache_responses({key(1): ANSWER})
    first, second = (asyncio.create_task(kept.get([key(1)])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == {key(1): ANSWER}


async def test_a_response_that_cannot_be_cached_is_still_used(store: Store, caplog: Any) -> None:
    kept = StoredResponseCache(store)
    store._database.write(lambda connection: connection.exec_driver_sql("DROP TABLE cached_response"))
    await kept.put(key(1), ANSWER)
    assert "1 responses of models could not be cached" in caplog.text


async def test_expired_responses_are_deleted_when_a_run_begins(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEPFLOW_CACHE_TTL", "12h")
    settings.cache_clear()
    old = CachedResponse("judge", "a/b", "b", "prompt", "{}", responded_at=utc_now() - timedelta(hours=13))
    store.results.cache_responses({key(1): old, key(2): ANSWER})
    async with open_run(plan(["a"])):
        assert set(store.results.cached_responses([key(1), key(2)], utc_now() - timedelta(days=9))) == {key(2)}


async def judged(run_id: str, calls: int) -> None:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        await run_model_checks(context, work)


async def test_another_run_requests_only_what_has_changed_and_repeats_are_separate(
    plan: Plan, store: Store, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_BASE", f"{model_server.address}/v1")
    monkeypatch.setenv("JUDGE_KEY", "sk-1")
    await judged(plan(["a", "b"], checks=[JUDGE], repeats=2), 4)
    assert len(model_server.seen) == 4, "two answers for each of two cases, equal as they are"

    await judged(plan(["a", "b"], checks=[JUDGE], repeats=2), 4)
    assert len(model_server.seen) == 4
    await judged(plan(["a", "c"], checks=[JUDGE], repeats=2), 4)
    assert len(model_server.seen) == 6

    (result, *_) = store.results.by_case(store.runs.get("latest").id)
    assert result.checks[0].results["metadata"]["cached"] is True
    await judged(plan(["a", "c"], checks=[JUDGE], repeats=2, cache=False), 4)
    assert len(model_server.seen) == 10
