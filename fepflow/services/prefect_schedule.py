"""When suites are run next, as Prefect's API says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fepflow.store.records import RunSummary

SECONDS = 3.0
"""How long Prefect's API is waited for: the page has more to show."""
MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class ScheduledRuns:
    """The runs that are scheduled, the next one first. `known` is false where Prefect could not be asked."""

    known: bool
    runs: list[dict[str, Any]]

    def next_of(self, run: RunSummary) -> datetime | None:
        """When the suite of a run is run next; None if that is not scheduled."""
        moments = [scheduled["expected_start_time"] for scheduled in self.runs if _is_of(scheduled, run)]
        return datetime.fromisoformat(moments[0]) if moments else None


def suite_tag(suite: str) -> str:
    """The tag of a scheduled suite's deployment, and so of its runs before they have begun."""
    return f"suite:{suite}"


def scheduled_runs() -> ScheduledRuns:
    """Ask the API that is configured, or the local server; nothing is started."""
    import httpx

    from fepflow.services.prefect_api import known_api

    api = known_api()
    if api is None:
        return ScheduledRuns(False, [])
    login = api.login or os.environ.get("PREFECT_API_AUTH_STRING")
    key = os.environ.get("PREFECT_API_KEY")
    wanted = {
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        "sort": "EXPECTED_START_TIME_ASC",
        "limit": MAX_RUNS,
    }
    try:
        with httpx.Client(
            auth=tuple(login.split(":", 1)) if login and ":" in login else None,  # type: ignore[arg-type]  # two texts
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=SECONDS,
            trust_env=not api.local,
        ) as client:
            response = client.post(f"{api.url.rstrip('/')}/flow_runs/filter", json=wanted)
            found = response.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return ScheduledRuns(False, [])
    runs = [run for run in found if isinstance(run, dict) and run.get("expected_start_time")]
    return ScheduledRuns(True, runs)


def _is_of(scheduled: dict[str, Any], run: RunSummary) -> bool:
    if suite_tag(run.name) in (scheduled.get("tags") or ()):
        return True
    path = (scheduled.get("parameters") or {}).get("suite")
    return isinstance(path, str) and path != "" and run.suite_path is not None and run.suite_path.endswith(f"/{path}")
