"""Preferences of people and judges between outputs, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, select

from fepflow.protocol.content_hash import content_hash
from fepflow.store.database import KEYS_AT_ONCE, Repository, chunks, upsert
from fepflow.store.records import PREFERENCE, PreferenceRow


class Preferences(Repository):
    """Preferences by the contents of a pair. They apply to all runs with the same outputs, and outlive them.

    Each person and each judge has one preference about a pair and a question, the newest.
    """

    def put(self, preferences: Sequence[PreferenceRow]) -> None:
        """Store preferences, in place of earlier ones of the same people or judges."""
        rows = [preference.values() for preference in preferences]
        self._database.write(lambda connection: upsert(connection, PREFERENCE, rows))

    def withdraw(self, pair: str, question: str, person: str) -> None:
        """Delete a person's preference about a pair."""
        table = PREFERENCE.c
        mine = table.pair == pair, table.question_hash == content_hash(question), table.given_by == person
        self._execute(delete(PREFERENCE).where(*mine, ~table.is_judge))

    def of_pairs(self, pairs: Sequence[str], question: str | None = None) -> list[PreferenceRow]:
        """Return all preferences about these pairs, for one question or all."""
        wanted = select(PreferenceRow)
        if question is not None:
            wanted = wanted.where(PREFERENCE.c.question_hash == content_hash(question))
        return [
            preference
            for chunk in chunks(pairs, KEYS_AT_ONCE)
            for preference in self._records(wanted.where(PREFERENCE.c.pair.in_(chunk)))
        ]

    def count(self) -> int:
        """Count all preferences."""
        return self._scalar(select(func.count()).select_from(PREFERENCE)) or 0
