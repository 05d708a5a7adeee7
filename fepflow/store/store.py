"""The store: the only memory of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from fepflow.errors import InfrastructureError
from fepflow.store.access import Access
from fepflow.store.blobs import Blobs, LargeOutputs
from fepflow.store.database import Database, now_of
from fepflow.store.labels import Labels, Preferences
from fepflow.store.leases import Leases
from fepflow.store.reports import Reports
from fepflow.store.requests import Requests
from fepflow.store.results import Results
from fepflow.store.retention import Retention
from fepflow.store.runs import Runs
from fepflow.store.totals import Totals


class Store:
    """Nine repositories and the leases of one database.

    Many processes may share it. Every method of a repository is one or more whole transactions, blocks while it works,
    and may be called from any thread. All raise InfrastructureError when the database is unavailable.
    """

    def __init__(self, database: Database, blobs: Blobs | None = None) -> None:
        self._database = database
        self._blobs = blobs
        large_outputs = LargeOutputs(database, blobs)
        self.runs = Runs(database, large_outputs)
        self.leases = Leases(database)
        self.results = Results(database, large_outputs)
        self.labels = Labels(database)
        self.preferences = Preferences(database)
        self.reports = Reports(database)
        self.access = Access(database)
        self.requests = Requests(database)
        self.retention = Retention(database, large_outputs)
        self.totals = Totals(database)

    @classmethod
    def open(cls, url: str, wait_seconds: float = 0.0, *, with_blobs: bool = True) -> Self:
        """Open the store at a SQLAlchemy URL (`sqlite:////path/to/file.db`, `postgresql://user:password@host/database`).

        Creates the SQLite file if need be, and the tables in an empty database. Raises UserError for a URL that cannot
        be a store. `wait_seconds` is how long to wait for a database that is away or locked. Large outputs are where
        FEPFLOW_BLOBS says, but in the rows of a store `with_blobs=False`, which does not last.
        """
        blobs = Blobs.of_settings(wait_seconds) if with_blobs else None
        return cls(Database.open(url, wait_seconds), blobs)

    def waiting(self, wait_seconds: float) -> Self:
        """Return the same open store, whose methods wait so many seconds for a database that is away or locked."""
        blobs = None if self._blobs is None else self._blobs.waiting(wait_seconds)
        return type(self)(self._database.waiting(wait_seconds), blobs)

    def now(self) -> datetime:
        """Return the time by the database's clock, which all machines that use the store have in common."""
        with self._database.reading() as connection:
            return now_of(connection)

    def check(self) -> None:
        """Raise InfrastructureError unless the database is there, with its tables."""
        file = self._database.file
        if file is not None and not file.is_file():  # an open connection would not notice
            raise InfrastructureError(f"{self._database.location} is not there (any more).")
        self.access.has_keys(active=False)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
