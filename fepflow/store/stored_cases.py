"""Test cases that were given over the network, by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, Connection, Row, delete, func, insert, select

from fepflow.errors import ConflictError, NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.database import Repository
from fepflow.store.network_tables import TEST_CASE

_AT_ONCE = 500
"""Ids that one statement looks for."""


class StoredCases(Repository):
    """Test cases that are used by their ids. A run has copies of its own."""

    def add_test_cases(self, cases: Sequence[TestCase]) -> None:
        """Store them in their order; all of them or none. Raises ConflictError if an id is there already."""
        now = utc_now()
        rows = [
            # A microsecond apart, so that they are listed in their order.
            {"id": case.id, "data": case.model_dump(), "created_at": now + timedelta(microseconds=index)}
            for index, case in enumerate(cases)
        ]

        def add(connection: Connection) -> None:
            if taken := sorted(row.id for row in _rows(connection, [case.id for case in cases], TEST_CASE.c.id)):
                shown = ", ".join(taken[:10])
                raise ConflictError(f"There are test cases with these ids already: {shown}. Delete them first.")
            connection.execute(insert(TEST_CASE), rows)

        if rows:
            self._database.write(add)

    def test_case(self, case_id: str) -> TestCase:
        """The test case with this id. Raises NotFoundError."""
        if found := self.find_test_cases([case_id]):
            return found[case_id]
        raise NotFoundError("Test case not found")

    def find_test_cases(self, ids: Sequence[str]) -> dict[str, TestCase]:
        """Those of the test cases that are there, by id."""
        with self._database.reading() as connection:
            rows = _rows(connection, ids, TEST_CASE.c.id, TEST_CASE.c.data)
            return {row.id: TestCase.model_validate(row.data) for row in rows}

    def test_cases(self, limit: int, skip: int = 0) -> tuple[list[TestCase], int]:
        """So many test cases after the first `skip`, the oldest first; and how many there are."""
        page = select(TEST_CASE.c.data).order_by(TEST_CASE.c.created_at, TEST_CASE.c.id).limit(limit).offset(skip)
        with self._database.reading() as connection:
            cases = [TestCase.model_validate(data) for data in connection.scalars(page)]
            return cases, connection.scalar(select(func.count()).select_from(TEST_CASE)) or 0

    def delete_test_case(self, case_id: str) -> None:
        """Delete it; runs keep their copies. Raises NotFoundError."""
        gone = delete(TEST_CASE).where(TEST_CASE.c.id == case_id)
        if not self._database.write(lambda connection: connection.execute(gone).rowcount):
            raise NotFoundError("Test case not found")


def _rows(connection: Connection, ids: Sequence[str], *columns: Column[Any]) -> Iterator[Row[Any]]:
    """Columns of those that are there."""
    for start in range(0, len(ids), _AT_ONCE):
        some = TEST_CASE.c.id.in_(ids[start : start + _AT_ONCE])
        yield from connection.execute(select(*columns).where(some))
