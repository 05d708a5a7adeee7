"""Preferences of people and judges between outputs, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from fepflow.protocol.content_hash import content_hash
from fepflow.store.database import Repository, upserting
from fepflow.store.records import PREFERENCE, PreferenceRow

_AT_ONCE = 200

_KEY = ("pair", "question_hash", "is_judge", "given_by")


class Preferences(Repository):
    """Preferences by the contents of a pair. They apply to all runs with the same outputs, and outlive them.

    Each person and each judge has one preference about a pair and a question, the newest.
    """

    def put(self, preferences: Sequence[PreferenceRow]) -> None:
        """Store preferences, in place of earlier ones of the same people or judges."""
        rows = [preference.values() for preference in preferences]

        def upsert(connection: Connection) -> None:
            for start in range(0, len(rows), _AT_ONCE):
                new = upserting(connection, PREFERENCE).values(rows[start : start + _AT_ONCE])
                columns = {name: new.excluded[name] for name in PREFERENCE.c.keys() if name not in _KEY}  # noqa: SIM118  # not a dict
                keys = [PREFERENCE.c[name] for name in _KEY]
                connection.execute(new.on_conflict_do_update(index_elements=keys, set_=columns))

        if rows:
            self._database.write(upsert)

    def withdraw(self, pair: str, question: str, person: str) -> None:
        """Delete a person's preference about a pair."""
        table = PREFERENCE.c
        mine = table.pair == pair, table.question_hash == content_hash(question), table.given_by == person
        self._database.write(lambda connection: connection.execute(PREFERENCE.delete().where(*mine, ~table.is_judge)))

    def of_pairs(self, pairs: Sequence[str], question: str | None = None) -> list[PreferenceRow]:
        """Return all preferences about these pairs, for one question or all."""
        found: list[PreferenceRow] = []
        for start in range(0, len(pairs), _AT_ONCE):
            rows = select(PreferenceRow).where(PREFERENCE.c.pair.in_(pairs[start : start + _AT_ONCE]))
            if question is not None:
                rows = rows.where(PREFERENCE.c.question_hash == content_hash(question))
            found += self._records(rows)
        return found

    def count(self) -> int:
        """Count all preferences."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(PREFERENCE)) or 0
