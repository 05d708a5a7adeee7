"""What models answered, by the content address of the question, for all runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from fepflow.protocol.model_response import CachedResponse
from fepflow.store.database import Repository, upserting
from fepflow.store.records import AnswerTotals
from fepflow.store.tables import ANSWER

_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 50
_PARTS_OF_A_DOLLAR = 10**12


class ResponseCacheTable(Repository):
    """Keeping, finding and forgetting the answers of models."""

    def answers(self, keys: Collection[str], since: datetime) -> dict[str, CachedResponse]:
        """Those of the answers that are there, by their keys; none that was given before `since`."""
        wanted, found = list(keys), {}
        with self._database.reading() as connection:
            for start in range(0, len(wanted), _KEYS_AT_ONCE):
                some = ANSWER.c.key.in_(wanted[start : start + _KEYS_AT_ONCE])
                for row in connection.execute(select(ANSWER).where(some, ANSWER.c.answered_at >= since)):
                    found[row.key] = _answer(row)
        return found

    def keep_answers(self, answers: Mapping[str, CachedResponse]) -> None:
        """Keep answers by their keys, in the place of older ones, in one transaction."""
        rows = [_row(key, answers[key]) for key in sorted(answers)]

        def insert(connection: Connection) -> None:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                new = upserting(connection, ANSWER).values(rows[start : start + _ROWS_AT_ONCE])
                columns = {
                    column.name: new.excluded[column.name] for column in ANSWER.columns if not column.primary_key
                }
                connection.execute(new.on_conflict_do_update(index_elements=[ANSWER.c.key], set_=columns))

        if rows:
            self._database.write(insert)

    def forget_answers(self, model: str | None = None, before: datetime | None = None) -> int:
        """Delete the answers of a model, or of all, that were given before a time, or ever; how many there were."""
        gone = delete(ANSWER)
        if model is not None:
            gone = gone.where(ANSWER.c.model == model)
        if before is not None:
            gone = gone.where(ANSWER.c.answered_at < before)
        return self._database.write(lambda connection: connection.execute(gone).rowcount)

    def answer_totals(self) -> list[AnswerTotals]:
        """The answers by kind and model, counted."""
        answers = ANSWER.c
        totals = select(
            answers.kind,
            answers.model,
            func.count(),
            func.sum(func.length(answers.text)),
            func.sum(answers.cost),
            func.count() - func.count(answers.cost),
            func.min(answers.answered_at),
            func.max(answers.answered_at),
        ).group_by(answers.kind, answers.model)
        with self._database.reading() as connection:
            rows = [
                AnswerTotals(kind, model, count, int(size), _dollars(cost), unknown, oldest, newest)
                for kind, model, count, size, cost, unknown, oldest, newest in connection.execute(totals)
            ]
        return sorted(rows, key=lambda row: (row.kind, row.model))  # each PostgreSQL orders text in its own way


def _dollars(parts: Any) -> float | None:
    return None if parts is None else int(parts) / _PARTS_OF_A_DOLLAR


def _answer(row: Row[Any]) -> CachedResponse:
    return CachedResponse(
        row.kind,
        row.model,
        row.model_answered,
        row.mode,
        row.text,
        row.prompt_tokens,
        row.completion_tokens,
        _dollars(row.cost),
        tuple(row.not_honoured),
        row.answered_at,
    )


def _row(key: str, answer: CachedResponse) -> dict[str, Any]:
    cost = None if answer.cost_usd is None else round(answer.cost_usd * _PARTS_OF_A_DOLLAR)
    return {
        "key": key,
        "kind": answer.kind,
        "model": answer.model,
        "model_answered": answer.model_answered,
        "mode": answer.mode,
        "text": answer.text,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "cost": cost,
        "not_honoured": list(answer.not_honoured),
        "answered_at": answer.answered_at,
    }
