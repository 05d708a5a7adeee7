"""Where pages lead: to other pages, or, in a report of one file, to places in it."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlencode

from fepflow.page_links import case_path, compare_path, run_path, trends_path


class Links(Protocol):
    """Addresses for templates; None where there is no such page."""

    def runs(self, **wanted: str) -> str | None:
        """The list of runs, with filters."""

    def run(self, run_id: str) -> str | None:
        """A run."""

    def case(self, run_id: str, case_id: str) -> str | None:
        """A test case of a run."""

    def compare(self, base: str, new: str) -> str | None:
        """Two runs beside each other."""

    def trends(self, suite: str) -> str | None:
        """A suite's metrics over its runs."""

    def labels(self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0") -> str | None:
        """The queue of outputs of a judge that a person is to label."""


class PageLinks:
    """Addresses of pages that are served."""

    def runs(self, **wanted: str) -> str:
        """See `Links`."""
        return f"/runs?{urlencode(wanted, errors='replace')}" if wanted else "/runs"

    def run(self, run_id: str) -> str:
        """See `Links`."""
        return run_path(run_id)

    def case(self, run_id: str, case_id: str) -> str:
        """See `Links`."""
        return case_path(run_id, case_id)

    def compare(self, base: str, new: str) -> str:
        """See `Links`."""
        return compare_path(base, new)

    def trends(self, suite: str) -> str:
        """See `Links`."""
        return trends_path(suite)

    def labels(self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0") -> str:
        """See `Links`."""
        wanted = {"check": check_id, "field": field, "order": order, "after": after}
        return f"{run_path(run_id)}/labels?{urlencode(wanted, errors='replace')}"


LINKS = PageLinks()


class FileLinks:
    """A report of one file: its cases are in it, other pages are not."""

    def __init__(self, case_ids: dict[str, int]) -> None:
        self._case_ids = case_ids

    def runs(self, **wanted: str) -> None:
        """See `Links`."""

    def run(self, run_id: str) -> None:
        """See `Links`."""

    def case(self, run_id: str, case_id: str) -> str | None:
        """See `Links`."""
        index = self._case_ids.get(case_id)
        return None if index is None else f"#case-{index}"

    def compare(self, base: str, new: str) -> None:
        """See `Links`."""

    def trends(self, suite: str) -> None:
        """See `Links`."""

    def labels(self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0") -> None:
        """See `Links`."""
