"""The suite's baseline: whether the store has that run."""

from __future__ import annotations

from fepflow.errors import FepflowError
from fepflow.settings import settings
from fepflow.suite.models import PREVIOUS
from tasks.validation.suite_validation import SuiteValidation


def validate_baseline(found: SuiteValidation) -> None:
    """A baseline that is not in the store is a warning: the run can do without."""
    named = found.loaded.section("baseline")
    if named in (None, PREVIOUS):
        return
    from fepflow.store.store import Store  # a suite without a baseline needs no database
    from tasks.analysis.baseline import with_outcome

    try:
        with Store.open(settings().store_address) as store:
            with_outcome(store, named)
    except FepflowError as error:
        found.warn(("baseline",), str(error))
