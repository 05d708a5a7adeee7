"""A gate that corrects judges for their errors: are there judges, and are their errors known."""

from __future__ import annotations

from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import FepflowError
from fepflow.extras import require
from fepflow.settings import settings
from fepflow.suite.models import Gate


def validate_correction(found: SuiteValidation) -> None:
    """Find `gate: {judge: corrected}` without a judge; one that is not calibrated is warned of."""
    gate: Gate | None = found.loaded.section("gate")
    if gate is None or gate.judge == "raw" or found.errors:
        return
    from fepflow.checks.models.judge_spec import judges_of_suite  # a suite without it needs no judges and no database

    location, judges = ("gate", "judge"), judges_of_suite(found.loaded)
    if not judges:
        found.error(location, "the suite has no llm_judge to correct", "remove it")
        return
    try:
        require("run", "looking for calibrations of judges")
        from fepflow.analysis.judge_errors import FIELD
        from fepflow.store.store import Store

        with Store.open(settings().store_address) as store:
            for judge in judges:
                if not any(each.field == FIELD for each in store.labels.calibrations_of(judge.judge, judge.rubric)):
                    message = f"the errors of {judge.check_id} are not known, so what it passes shows nothing"
                    found.warn(location, message, "fepflow calibrate compares it with people's labels")
    except FepflowError as error:
        found.warn(location, str(error))
