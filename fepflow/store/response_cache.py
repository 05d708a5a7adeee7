"""Cached responses of models, by the content hash of the request; shared by all runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from fepflow.protocol.model_response import CachedResponse
from fepflow.store.database import Repository, upserting
from fepflow.store.records import CacheTotals
from fepflow.store.tables import CACHED_RESPONSE

_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 50
_PICOUSD = 10**12


class ResponseCacheTable(Repository):
    """Storing, finding and deleting responses of models."""

    def cached_responses(self, keys: Collection[str], since: datetime) -> dict[str, CachedResponse]:
        """The responses that are there, by their keys; none that came before `since`."""
        wanted, found = list(keys), {}
        with self._database.reading() as connection:
            for start in range(0, len(wanted), _KEYS_AT_ONCE):
                some = CACHED_RESPONSE.c.key.in_(wanted[start : start + _KEYS_AT_ONCE])
                for row in connection.execute(
                    select(CACHED_RESPONSE).where(some, CACHED_RESPONSE.c.responded_at >= since)
                ):
                    found[row.key] = _response(row)
        return found

    def cache_responses(self, responses: Mapping[str, CachedResponse]) -> None:
        """Store responses by their keys, in the place of older ones, in one transaction."""
        rows = [_row(key, responses[key]) for key in sorted(responses)]

        def insert(connection: Connection) -> None:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                new = upserting(connection, CACHED_RESPONSE).values(rows[start : start + _ROWS_AT_ONCE])
                columns = {
                    column.name: new.excluded[column.name]
                    for column in CACHED_RESPONSE.columns
                    if not column.primary_key
                }
                connection.execute(new.on_conflict_do_update(index_elements=[CACHED_RESPONSE.c.key], set_=columns))

        if rows:
            self._database.write(insert)

    def delete_cached_responses(self, model: str | None = None, before: datetime | None = None) -> int:
        """Delete the responses of a model, or of all, that came before a time, or ever; the number of rows deleted."""
        statement = delete(CACHED_RESPONSE)
        if model is not None:
            statement = statement.where(CACHED_RESPONSE.c.model == model)
        if before is not None:
            statement = statement.where(CACHED_RESPONSE.c.responded_at < before)
        return self._database.write(lambda connection: connection.execute(statement).rowcount)

    def cache_totals(self) -> list[CacheTotals]:
        """The responses by kind and model, counted."""
        columns = CACHED_RESPONSE.c
        totals = select(
            columns.kind,
            columns.model,
            func.count(),
            func.sum(func.length(columns.text)),
            func.sum(columns.cost_picousd),
            func.count() - func.count(columns.cost_picousd),
            func.min(columns.responded_at),
            func.max(columns.responded_at),
        ).group_by(columns.kind, columns.model)
        with self._database.reading() as connection:
            rows = [
                CacheTotals(kind, model, count, int(size), _usd(cost), unknown, oldest, newest)
                for kind, model, count, size, cost, unknown, oldest, newest in connection.execute(totals)
            ]
        return sorted(rows, key=lambda row: (row.kind, row.model))  # each PostgreSQL orders text in its own way


def _usd(picousd: Any) -> float | None:
    return None if picousd is None else int(picousd) / _PICOUSD


def _response(row: Row[Any]) -> CachedResponse:
    fields = dict(row._mapping)
    del fields["key"]
    cost, dropped = _usd(fields.pop("cost_picousd")), tuple(fields.pop("dropped_params"))
    return CachedResponse(**fields, cost_usd=cost, dropped_params=dropped)


def _row(key: str, response: CachedResponse) -> dict[str, Any]:
    row = asdict(response)
    cost = row.pop("cost_usd")
    return {**row, "key": key, "cost_picousd": None if cost is None else round(cost * _PICOUSD)}
