"""Retention of runs: which are old, their archive, and their deletion."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import plural


@dataclass(frozen=True)
class Pruned:
    """A summary of a deletion: the number of runs and of models' answers, and the bytes freed in the store's file."""

    runs: int
    cached: int
    freed: int

    def __str__(self) -> str:
        cached = f" and {plural(self.cached, 'answer')} of models" if self.cached else ""
        freed = f"; the store's file is {self.freed / 1e6:,.1f} MB smaller" if self.freed > 50_000 else ""
        return f"Deleted {plural(self.runs, 'run')}{cached}{freed}"


def expired(
    store: Store, keep: float | None, keep_last: int, suite: str | None = None, *, labelled: bool = False
) -> list[RunRecord]:
    """Return the runs that `prune` would delete, the oldest first. `keep` is an age in seconds."""
    before = None if keep is None else utc_now() - timedelta(seconds=keep)
    return store.retention.expired(before, keep_last, suite, labelled=labelled)


def prune(
    store: Store,
    keep: float | None,
    keep_last: int = 0,
    suite: str | None = None,
    *,
    flow_runs: list[str],
    labelled: bool = False,
    archive: Path | None = None,
) -> Pruned:
    """Delete runs that are older than `keep` seconds and not among the newest `keep_last` of their suite.

    Each is first written to a Parquet file in `archive`. Answers of models that are too old to be reused are deleted,
    too. Ids of Prefect's flow runs that executed deleted runs are added to `flow_runs`. Raises UserError,
    InfrastructureError; what was deleted before stays deleted.
    """
    if archive is not None:
        from fepflow.reports.tables import require_pyarrow

        require_pyarrow(str(archive))
        try:
            archive.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{archive} cannot be made ({error.strerror}): name another folder.") from None
    runs = expired(store, keep, keep_last, suite, labelled=labelled)
    for run in runs:
        if archive is not None:
            _archive(store, store.runs.get(run.id), archive)
        _delete(store, run, flow_runs)
    reusable_since = utc_now() - timedelta(seconds=settings().cache_ttl)
    cached = store.results.delete_cached_responses(before=reusable_since) if suite is None else 0
    store.retention.delete_unused_blobs()
    return Pruned(len(runs), cached, store.retention.give_back_space())


def delete_runs(store: Store, runs: Sequence[RunRecord], flow_runs: list[str]) -> Pruned:
    """Delete runs that may be deleted (`Retention.require_deletable`). For `flow_runs` and errors see `prune`."""
    for run in runs:
        _delete(store, run, flow_runs)
    store.retention.delete_unused_blobs()
    return Pruned(len(runs), 0, store.retention.give_back_space())


def _delete(store: Store, run: RunRecord, flow_runs: list[str]) -> None:
    store.retention.delete_run(run.id)
    if run.flow_run_id is not None:
        flow_runs.append(run.flow_run_id)


def _archive(store: Store, run: RunRecord, folder: Path) -> None:
    """Write a run to a Parquet file in the folder, completely or not at all, readable by its owner only."""
    from fepflow.reports.tables import write_parquet

    suite = re.sub(r"[^\w.-]+", "-", run.name)[:40].strip("-.")  # 40 characters can be 160 of the 255 bytes of a name
    path = folder / f"{suite}-{run.created_at:%Y%m%d}-{run.id}.parquet"
    part = path.with_suffix(".part")
    try:
        with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            write_parquet(store, run, file)
        part.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be written ({error.strerror}), and run {run.id[:8]} was not deleted: name a folder "
            "of yours with space."
        ) from error
    finally:
        part.unlink(missing_ok=True)
