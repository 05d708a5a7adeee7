"""The store: the only memory of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from fepflow.errors import InfrastructureError
from fepflow.store.api_keys import ApiKeys
from fepflow.store.audit_log import AuditLog
from fepflow.store.baselines import Baselines
from fepflow.store.calibrations import Calibrations
from fepflow.store.cancel_requests import CancelRequests
from fepflow.store.case_grid import CaseGrid
from fepflow.store.complete_results import CompleteResults
from fepflow.store.completed_runs import CompletedRuns
from fepflow.store.database import Database, now_of
from fepflow.store.evalguard_reports import EvalguardReports
from fepflow.store.graders import Graders
from fepflow.store.labels import Labels
from fepflow.store.leases import Leases
from fepflow.store.operations import OperationRecords
from fepflow.store.page_sessions import PageSessions
from fepflow.store.response_cache import ResponseCacheTable
from fepflow.store.results import Results
from fepflow.store.run_requests import RunRequests
from fepflow.store.run_search import RunSearch
from fepflow.store.runs import Runs
from fepflow.store.shards import Shards
from fepflow.store.stored_cases import StoredCases


class Store(
    Runs,
    RunSearch,
    Leases,
    Shards,
    CancelRequests,
    Results,
    CaseGrid,
    ResponseCacheTable,
    Calibrations,
    Labels,
    EvalguardReports,
    Baselines,
    OperationRecords,
    CompletedRuns,
    ApiKeys,
    PageSessions,
    AuditLog,
    StoredCases,
    Graders,
    RunRequests,
    CompleteResults,
):
    """Runs with their cases, outputs and check results, cached responses, calibrations, labels, reports, baselines, and
    what the network's interfaces need: API keys, sessions of browsers, the audit log, test cases, graders and requests
    of runs.

    Many processes may share it. Every method is one or more whole transactions, blocks while it works, and may be
    called from any thread. All raise InfrastructureError when the database is unavailable.
    """

    @classmethod
    def open(cls, url: str, wait_seconds: float = 0.0) -> Self:
        """The store at a SQLAlchemy URL (`sqlite:////path/to/file.db`, `postgresql://user:password@host/database`).

        Creates the SQLite file if need be, and brings an older database to the present schema. Raises UserError for
        a URL that cannot be a store. `wait_seconds` is how long a database that is away or locked is waited for.
        """
        return cls(Database.open(url, wait_seconds))

    def waiting(self, wait_seconds: float) -> Self:
        """The same open store, for callers that wait so many seconds for a database that is away or locked."""
        return type(self)(self._database.waiting(wait_seconds))

    def now(self) -> datetime:
        """The time by the database's clock, which all machines that use the store have in common."""
        with self._database.reading() as connection:
            return now_of(connection)

    def check(self) -> None:
        """Raise InfrastructureError unless the database is there, with its tables."""
        file = self._database.file
        if file is not None and not file.is_file():  # a connection that is open would not notice
            raise InfrastructureError(f"{self._database.location} is not there (any more).")
        self.has_api_keys(active=False)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
