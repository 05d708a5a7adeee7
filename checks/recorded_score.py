"""The check `recorded_score`: the recorded result of another tool's scorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from fepflow.checks.base import BaseCheck
from fepflow.checks.explanation import ResolvedArguments
from fepflow.errors import CheckArgumentsError, EndpointError
from fepflow.json.values import finite


class RecordedScoreCheck(BaseCheck):
    """Take the recorded result of another tool's scorer. Results: `{passed: bool, score: number, reasoning: text}`, as
    far as they were recorded.

    `fepflow import` writes this check for the results of other tools. A recorded error is an error of the check, and so
    is a result that has neither a yes or no nor a number.
    """

    model_config = ConfigDict(extra="forbid")

    check_type: ClassVar[str] = "recorded_score"

    result: Any = Field(
        description="Recorded result, for example `$.output.metadata.scores.accuracy`: an object with `passed`, "
        "`score`, `reason` or `error`; or just true, false or a number."
    )

    def __call__(self) -> dict[str, Any]:
        """Take it over."""
        recorded = self.result
        if isinstance(recorded, bool):
            recorded = {"passed": recorded}
        elif isinstance(recorded, int | float):
            recorded = {"score": recorded}
        if not isinstance(recorded, dict):
            raise CheckArgumentsError("result: holds no recorded score: an object, true, false or a number")
        if recorded.get("error") is not None:
            raise EndpointError(str(recorded["error"]), kind="recorded", retryable=False)
        passed, score, reason = recorded.get("passed"), finite(recorded.get("score")), recorded.get("reason")
        results: dict[str, Any] = {}
        if isinstance(passed, bool):
            results["passed"] = passed
        if score is not None and not isinstance(recorded["score"], bool):
            results["score"] = score
        if not results:
            raise CheckArgumentsError("result: holds neither passed, true or false, nor score, a number")
        return {**results, "reasoning": reason} if isinstance(reason, str) else results

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        recorded = resolved["result"]
        passed = recorded.get("passed") if isinstance(recorded, Mapping) else recorded
        return "it was recorded as failed, without a reason" if passed is False else None
