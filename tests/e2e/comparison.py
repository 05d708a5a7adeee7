"""What two runs of the same suite have in common."""

from __future__ import annotations

import json
from typing import Any


def comparable(printed: str) -> dict[str, Any]:
    """What a result that was printed as JSON says, without when, how long and under which number."""
    result = json.loads(printed)
    answers = [
        (
            row["execution_context"]["test_case"]["id"],
            row["execution_context"]["output"]["value"],
            [(check["metadata"]["check_id"], check["status"], check["results"]) for check in row["check_results"]],
        )
        for row in result["results"]
    ]
    said = {key: result["metadata"][key] for key in ("status", "outcome", "metrics", "verdict")}
    return {"summary": result["summary"], "answers": answers, **said}
