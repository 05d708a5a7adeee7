"""The order of a case's checks: its own as declared, then those that all cases of its run share (FEP 2.3.3).

Ids alone do not tell it: `contains-11` comes after `contains-2`, and a check `a` may be declared after `z`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import OWN_CHECKS, check_ids


def shared_check_ids(suite: Mapping[str, Any]) -> list[str]:
    """Return the ids of the checks that all cases of a run share, by its suite's snapshot; none if it is unreadable."""
    try:
        checks = [Check.model_validate(check) for check in suite.get("checks") or ()]
    except (ValidationError, TypeError):
        return []
    target = suite.get("target")
    kinds = target if isinstance(target, Mapping) else {}
    return check_ids([*checks, *(own for kind, own in OWN_CHECKS.items() if kinds.get(kind) is not None)])


def declared_check_ids(case: TestCase, shared: Sequence[str]) -> list[str]:
    """Return the ids of all checks of a case, in order; `shared` are those that it has in common with the others."""
    return [*check_ids([to_check(check) for check in case.checks], shared), *shared] if case.checks else list(shared)


def ranks(check_ids: Iterable[str]) -> dict[str, int]:
    """Return the place of each check id, from 0."""
    return {check_id: place for place, check_id in enumerate(dict.fromkeys(check_ids))}


def rank_of(places: Mapping[str, int], check_id: str) -> tuple[int, str]:
    """Return what check ids are sorted by; an id that nothing declares comes last, by its code points."""
    return places.get(check_id, len(places)), check_id
