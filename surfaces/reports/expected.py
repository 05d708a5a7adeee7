"""Which checks a run was to make."""

from __future__ import annotations

from pydantic import ValidationError

from fepflow.protocol.check import Check
from fepflow.store.records import RunRecord
from fepflow.suite.models import check_ids


def shared_check_ids(run: RunRecord) -> list[str]:
    """The ids of the checks that all cases of a run share, in the suite's order; of a suite that is unreadable none."""
    try:
        return check_ids([Check.model_validate(check) for check in run.suite.get("checks") or ()])
    except (ValidationError, TypeError):
        return []
