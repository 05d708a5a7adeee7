"""People's labels in the store, as the doors call them: whose they are, and a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fepflow.access.caller import name_of_user
from fepflow.errors import UserError
from fepflow.services.run_service import open_store

if TYPE_CHECKING:
    from fepflow.access.caller import Caller
    from fepflow.store.records import RunRecord


def person_of(caller: Caller) -> str:
    """Whose a caller's labels are: who runs this process, of a caller on this machine who needs no key."""
    return caller.name or name_of_user()


def export_labels(run_id: str, check: str | None, path: Path) -> tuple[RunRecord, int]:
    """Write the labels of a run's outputs (of one check, or all) to a new file; the run, and how many rows.

    Raises NotFoundError, UserError if there is no label, or the file cannot be written.
    """
    from fepflow.analysis.calibration import exported_labels
    from fepflow.reports.tables import write_label_sheet

    if path.exists():
        raise UserError(f"{path} is there already: name another file, or move it (--output).")
    with open_store() as store:
        run = store.runs.get(run_id)
        rows = exported_labels(store, run, check)
    write_label_sheet(rows, path)
    return run, len(rows)
