"""Prefect's API over HTTP, as the tests ask it."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import httpx
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed


class PrefectAPI:
    """An API at `url`, with the login in it. A request is sent again while the server says that it is busy: with SQLite
    below, it answers 503 when another request holds the database for too long, and Prefect's client does the same."""

    def __init__(self, url: str) -> None:
        self.url = url

    @retry(
        retry=retry_if_result(lambda response: response.status_code == 503),
        wait=wait_fixed(0.5),
        stop=stop_after_delay(60),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, whatever comes of it but 503."""
        # Nothing here is https: certificates need not be loaded, which takes longer than the request.
        return httpx.request(method, f"{self.url}{path}", timeout=30, verify=False, **options)

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")

    def set_state(self, flow_run_id: str, **state: Any) -> Any:
        """Ask for a state of a flow run, as the buttons of the UI do."""
        answer = self.post(f"/flow_runs/{flow_run_id}/set_state", json={"state": state})
        return answer.raise_for_status().json()

    @retry(retry=retry_if_result(lambda runs: not _all_ended(runs)), wait=wait_fixed(0.2), stop=stop_after_delay(60))
    def task_runs(self, flow_run_id: str | None) -> dict[str, dict[str, Any]]:
        """The task runs of an evaluation that has ended, by name, once the server knows how each ended: it learns that
        by events, which may come after the flow run's end, and has a task run for a moment before it has its state."""
        body = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "limit": 200}
        found = self.post("/task_runs/filter", json=body).raise_for_status().json()
        return {run["name"]: run for run in found}

    def state_of(self, flow_run_id: str | None) -> tuple[str, str]:
        """Type and name of a flow run's state."""
        state = self.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()["state"]
        return state["type"], state["name"]


def _all_ended(task_runs: dict[str, dict[str, Any]]) -> bool:
    """Whether the last task run of an evaluation, of which the server hears at the end, and all others have ended."""
    ended = {
        name for name, run in task_runs.items() if run["state"] and run["state"]["type"] in ("COMPLETED", "FAILED")
    }
    return "publish" in task_runs and ended == set(task_runs)
