"""The interface of a system under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fepflow.errors import InputError, Problem
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase

RESERVED_METADATA = ("error", "attempts", "attempt_log", "latency_ms")
"""Names in an output's metadata that describe the call; a response cannot set them."""


@dataclass(frozen=True, slots=True)
class TargetResponse:
    """The response of a target for one test case: any JSON value, and metadata."""

    value: Any
    metadata: dict[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """A system under test. One object serves a whole run, from one event loop, many calls at once."""

    @property
    def fingerprint(self) -> str:
        """Content hash of the request and of how the response is read. Neither secrets nor timeouts are in it."""

    def render(self, case: TestCase) -> Any:
        """The request for `case` as JSON without secrets, for its content hash; raises JSONPathError."""

    async def call(self, case: TestCase) -> TargetResponse:
        """Call once. Raises TargetError, or JSONPathError when the request cannot be rendered.

        It has no deadline of its own; its caller sets one (`fepflow.targets.client.ask` does).
        """

    async def aclose(self) -> None:
        """Close connections. The target cannot be called afterwards."""


def output_hash(target: Target, case: TestCase, repeat: int) -> str:
    """The content hash of an output, 64 hexadecimal digits; raises JSONPathError. `expected` is a part of it only
    if the request has it inside."""
    return content_hash(target.fingerprint, case.id, target.render(case), repeat)


def refuse_reserved_names(metadata: Mapping[str, str], where: str) -> None:
    """Raises InputError if `metadata` maps to a name that fepflow itself sets."""
    if taken := [name for name in metadata if name in RESERVED_METADATA]:
        message = f"{', '.join(taken)} in an output's metadata is what fepflow says about the call"
        raise InputError(Problem(message, path=where, advice="choose another name"))
