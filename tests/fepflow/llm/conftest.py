"""Runs that keep answers, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pytest

from fepflow.answer import Answer
from fepflow.llm import answers


class InMemory:
    """`answers.Answers` in a dict; knows how often it was asked."""

    def __init__(self) -> None:
        self.kept: dict[str, Answer] = {}
        self.lookups = 0

    async def get(self, keys: Collection[str]) -> Mapping[str, Answer]:
        self.lookups += 1
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def put(self, key: str, answer: Answer) -> None:
        self.kept[key] = answer


@pytest.fixture
def memory() -> InMemory:
    return InMemory()


@pytest.fixture
def keeping(memory: InMemory) -> Iterator[InMemory]:
    """As inside of a run: what is asked is kept."""
    before = answers.kept.set(answers.Kept(memory))
    yield memory
    answers.kept.reset(before)
