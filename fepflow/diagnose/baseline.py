"""The suite's baselines: whether the store has those runs."""

from __future__ import annotations

from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import DocumentPath, FepflowError
from fepflow.extras import require
from fepflow.settings import settings
from fepflow.suite.baseline_names import PREVIOUS, is_name
from fepflow.suite.models import Gate


def validate_baseline(found: SuiteValidation) -> None:
    """A baseline that is not in the store is a warning: the run can do without."""
    gate: Gate | None = found.loaded.section("gate")
    named: list[tuple[DocumentPath, str | None]] = [(("baseline",), found.loaded.section("baseline"))]
    if gate is not None and gate.regression is not None:
        named.append((("gate", "regression"), gate.regression.baseline))
    for location, name in named:
        if name not in (None, PREVIOUS):
            _validate(found, location, str(name))


def _validate(found: SuiteValidation, location: DocumentPath, name: str) -> None:
    suite = found.loaded.section("name")
    try:
        require("run", f"looking for the baseline {name}")
        from fepflow.analysis.baseline import baseline_of, with_outcome
        from fepflow.store.store import Store  # a suite without a baseline needs no database

        with Store.open(settings().store_address) as store:
            run_id = baseline_of(store, suite, name) if is_name(name) else name
            if run_id is None:
                advice = f"`fepflow baseline set {name} RUN` makes a run of it the baseline, once there is one"
                found.warn(location, f"there is no baseline {name} of the suite {suite} yet", advice)
            else:
                with_outcome(store, run_id)
    except FepflowError as error:
        found.warn(location, str(error))
