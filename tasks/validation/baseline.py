"""The suite's baseline: whether the store has that run."""

from __future__ import annotations

from fepflow.errors import FepflowError
from fepflow.settings import settings
from fepflow.suite import PREVIOUS
from tasks.validation.inspection import Inspection


def inspect_baseline(found: Inspection) -> None:
    """A baseline that is not in the store is a warning: the run can do without."""
    named = found.loaded.section("baseline")
    if named in (None, PREVIOUS):
        return
    from fepflow.store.store import Store  # a suite without a baseline needs no database
    from tasks.baseline import with_outcome

    try:
        with Store.open(settings().store_address) as store:
            with_outcome(store, named)
    except FepflowError as error:
        found.warn(("baseline",), str(error))
