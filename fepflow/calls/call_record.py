"""The record of a target's calls for one test case."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from fepflow.calls.base import UNSENT, Progress, TargetResponse
from fepflow.errors import CircuitOpenError, JSONPathError, TargetError, TargetTimeoutError
from fepflow.protocol.test_case import Output

BEFORE = "; before that: "
"""Between the end of a case's time and what had gone wrong until then."""


class Attempt(NamedTuple):
    """One call: when it began, how long it took in milliseconds, and its error, if it failed."""

    started_at: datetime
    latency_ms: float
    error: TargetError | JSONPathError | None

    def entry(self, number: int) -> dict[str, Any]:
        """As `attempt_log` has it."""
        return {
            "attempt": number,
            "started_at": self.started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "latency_ms": self.latency_ms,
            "error": None if self.error is None else _describe(self.error),
        }


@dataclass(slots=True, eq=False)
class CallRecord:
    """The calls for one case so far: a response, or an error; and every attempt."""

    attempts: list[Attempt] = field(default_factory=list)
    response: TargetResponse | None = None
    error: TargetError | JSONPathError | None = None
    request: Any = UNSENT
    """The request as it was rendered, once, for all attempts."""
    progress: Progress = field(default_factory=Progress)
    """How far the last attempt came."""
    ends_at: float | None = None
    """When the time for the case is over, by the event loop's clock."""

    def time_left(self) -> float:
        """Seconds that the case still has; infinity where it has no deadline."""
        return math.inf if self.ends_at is None else self.ends_at - asyncio.get_running_loop().time()

    def last_refusal(self) -> TargetError | None:
        """The last error of an attempt that is no timeout: what the target said, or why there was no connection."""
        errors = [attempt.error for attempt in reversed(self.attempts) if isinstance(attempt.error, TargetError)]
        return next((error for error in errors if not isinstance(error, TargetTimeoutError)), None)

    @property
    def may_recover(self) -> bool:
        """Whether there is no response yet, for a reason that a retry may mend."""
        return self.response is None and isinstance(self.error, TargetError) and self.error.retryable

    def output(self) -> Output:
        """As FEP has it (3.3): an error is an output without a value, or with what the call had before it failed.

        Its metadata has what was mapped of the answer, `latency_ms` (of the attempt that answered) and `attempts`;
        after a failure `error` instead of `latency_ms`: `{type, kind, message, recoverable}`, `status` where there
        was one, and `partial`, which is true, where there is a value all the same. If more than one attempt was made or
        the only one failed, `attempt_log` lists them: `{attempt, started_at, latency_ms, error}`, error null for the
        one that answered.
        """
        if self.response is None:
            assert self.error is not None  # one of them is there after the first attempt
            partial = self.progress.response
            error = {**_describe(self.error), **({} if partial.value is None else {"partial": True})}
            failure = {"error": error, "attempts": len(self.attempts), "attempt_log": self._log()}
            return Output(value=partial.value, metadata={**partial.metadata, **failure})
        latency_ms = self.attempts[-1].latency_ms
        metadata = {**self.response.metadata, "latency_ms": latency_ms, "attempts": len(self.attempts)}
        if len(self.attempts) > 1:
            metadata["attempt_log"] = self._log()
        return Output(value=self.response.value, metadata=metadata)

    def _log(self) -> list[dict[str, Any]]:
        return [attempt.entry(number) for number, attempt in enumerate(self.attempts, 1)]


def _describe(error: TargetError | JSONPathError) -> dict[str, Any]:
    if isinstance(error, JSONPathError):
        return {"type": error.fep_type, "kind": "request", "message": str(error), "recoverable": False}
    # What is not retried in this run, another run may get: an open circuit, a case that had too little time.
    recoverable = error.retryable or isinstance(error, CircuitOpenError | TargetTimeoutError)
    described = {"type": error.fep_type, "kind": error.kind, "message": str(error), "recoverable": recoverable}
    return described if error.status is None else {**described, "status": error.status}
