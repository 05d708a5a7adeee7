"""Finding runs as people look for them: by suite, state, tag and time, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Text, func, select, type_coerce

from fepflow.json.codec import encode
from fepflow.store.database import Repository
from fepflow.store.records import Cause, Outcome, RunStatus
from fepflow.store.tables import RUN


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What runs are wanted; None: any. `since` is included, `until` is not; both are about the time of creation."""

    suite: str | None = None
    outcome: Outcome | None = None
    status: RunStatus | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run without its suite and its metrics."""

    id: str
    name: str
    status: RunStatus
    outcome: Outcome | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    n_cases: int
    repeats: int
    tags: list[str]
    suite_path: str | None
    cause: Cause | None
    error: str | None
    verdict: Any

    @property
    def reason(self) -> str | None:
        """What decided the verdict; of a run without one, what stopped it."""
        reasons = (self.verdict or {}).get("reasons") or ()
        return reasons[0] if reasons else self.error


_COLUMNS = [RUN.c[item.name] for item in fields(RunSummary)]


class RunSearch(Repository):
    """Finding runs."""

    def find_runs(self, wanted: RunFilter, limit: int, skip: int = 0) -> list[RunSummary]:
        """The newest of the runs that are wanted, after `skip` of them."""
        run_id = self._database.by_code_points(RUN.c.id)
        page = select(*_COLUMNS).where(*_conditions(wanted)).order_by(RUN.c.created_at.desc(), run_id.desc())
        with self._database.reading() as connection:
            return [RunSummary(*row) for row in connection.execute(page.limit(limit).offset(skip))]

    def count_runs(self, wanted: RunFilter) -> int:
        """How many runs are wanted."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(RUN).where(*_conditions(wanted))) or 0

    def suite_names(self) -> list[str]:
        """The names of all suites that have runs, in order."""
        with self._database.reading() as connection:
            return sorted(connection.scalars(select(RUN.c.name).distinct()))

    def newest_runs_of_suites(self) -> list[tuple[RunSummary, int]]:
        """The newest run of each suite, newest first, and how many runs it has."""
        newest = select(RUN.c.name, func.max(RUN.c.created_at).label("created_at"), func.count().label("runs"))
        of_suite = newest.group_by(RUN.c.name).subquery()
        rows = (
            select(*_COLUMNS, of_suite.c.runs)
            .join(of_suite, (RUN.c.name == of_suite.c.name) & (RUN.c.created_at == of_suite.c.created_at))
            .order_by(RUN.c.created_at.desc(), RUN.c.name)
        )
        with self._database.reading() as connection:
            found = [(RunSummary(*row[:-1]), row[-1]) for row in connection.execute(rows)]
        return list({summary.name: (summary, runs) for summary, runs in reversed(found)}.values())[::-1]


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    same = {RUN.c.name: wanted.suite, RUN.c.outcome: wanted.outcome, RUN.c.status: wanted.status}
    found = [column == text for column, text in same.items() if text is not None]
    if wanted.tag is not None:
        # A tag is a text in a JSON list: with its quotes it is found whole.
        found.append(type_coerce(RUN.c.tags, Text).contains(str(encode(wanted.tag)), autoescape=True))
    if wanted.since is not None:
        found.append(RUN.c.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(RUN.c.created_at < wanted.until)
    return found
