"""Outputs that the store has had since the run was created: there is nothing to call."""

from __future__ import annotations

from typing import Any

from fepflow.calls.base import TargetResponse
from fepflow.errors import TargetError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase


class GivenOutputs:
    """Stands for a target whose outputs are in the store; one that is not there is missing for good."""

    fingerprint = content_hash("given")
    secrets: frozenset[str] = frozenset()

    def render(self, case: TestCase) -> Any:
        """No request is made."""
        return None

    async def call(self, request: Any) -> TargetResponse:
        """Raises TargetError `missing_output`."""
        raise TargetError("no output was given for this test case", kind="missing_output", retryable=False)

    async def aclose(self) -> None:
        """Nothing to give back."""
