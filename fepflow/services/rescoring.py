"""Service functions for rescoring, used by CLI and Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fepflow.env_file import SUITE_VARIABLES
from fepflow.services.run_service import Note, connect, note_untaken_variables
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.create_rescore import create_rescore, find_rescorable
from fepflow.tasks.local_run import STORE_WAIT, LocalRun


@contextmanager
def begin_rescore(
    run_id: str, suite: Path | None, note: Note, *, gate_only: bool = False, show_logs: bool = False
) -> Iterator[LocalRun]:
    """Create the run that judges the outputs of an earlier one. `note` is called with its suite, and with warnings.

    Raises NotFoundError, UserError for outputs that cannot be judged, InputError for a suite that is not valid.
    """
    with Store.open(settings().store_address, STORE_WAIT) as store:
        store.leases.reap()
        connect(note, show_logs=show_logs)
        from fepflow.tasks.prefect_blocks import read_block  # loads Prefect, whose API is known by now

        SUITE_VARIABLES.read_blocks_with(read_block)
        rescorable = find_rescorable(store, run_id, suite)
        for problem in rescorable.validation.notes:
            note(f"{problem.severity}: {problem}")
        note_untaken_variables(note)
        created = create_rescore(store, rescorable, gate_only=gate_only)
        note(f"run {rescorable.source.id[:8]} is judged {rescorable.told}; the agent is not asked")
        yield LocalRun(created.run, store, created.loaded)
