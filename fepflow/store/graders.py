"""Graders that were given over the network: named lists of checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from fepflow.errors import ConflictError, NotFoundError
from fepflow.store.database import Repository
from fepflow.store.network_tables import GRADER
from fepflow.store.records import Grader


class Graders(Repository):
    """Graders by their ids. A run has copies of their checks."""

    def add_grader(self, grader: Grader) -> None:
        """Store it. Raises ConflictError if its id is there already."""

        def add(connection: Connection) -> None:
            try:
                connection.execute(insert(GRADER).values(asdict(grader)))
            except IntegrityError:
                raise ConflictError(f"There is a grader {grader.id} already: delete it first.") from None

        self._database.write(add)

    def find_graders(self, ids: Sequence[str]) -> dict[str, Grader]:
        """Those of the graders that are there, by id."""
        with self._database.reading() as connection:
            rows = connection.execute(select(GRADER).where(GRADER.c.id.in_(ids))).mappings()
            return {row["id"]: Grader(**row) for row in rows}

    def graders(self) -> list[Grader]:
        """All graders, the oldest first."""
        rows = select(GRADER).order_by(GRADER.c.created_at, GRADER.c.id)
        with self._database.reading() as connection:
            return [Grader(**row) for row in connection.execute(rows).mappings()]

    def delete_grader(self, grader_id: str) -> None:
        """Delete it. Raises NotFoundError."""
        gone = delete(GRADER).where(GRADER.c.id == grader_id)
        if not self._database.write(lambda connection: connection.execute(gone).rowcount):
            raise NotFoundError("Grader not found")
