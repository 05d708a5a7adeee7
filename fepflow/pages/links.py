"""Where pages lead: to other pages, or, in a report of one file, to places in it."""

from __future__ import annotations

from urllib.parse import urlencode

from fepflow.page_links import case_path, cases_path, compare_path, run_path, trends_path


class PageLinks:
    """Addresses of pages that are served, for templates."""

    run = staticmethod(run_path)
    case = staticmethod(case_path)
    cases = staticmethod(cases_path)
    compare = staticmethod(compare_path)
    trends = staticmethod(trends_path)

    def runs(self, **wanted: str) -> str:
        """The list of runs, with filters."""
        return f"/runs?{urlencode(wanted, errors='replace')}" if wanted else "/runs"

    def labels(self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0") -> str:
        """The queue of outputs of a judge that a person is to label."""
        wanted = {"check": check_id, "field": field, "order": order, "after": after}
        return f"{run_path(run_id)}/labels?{urlencode(wanted, errors='replace')}"


LINKS = PageLinks()


class FileLinks:
    """The same of a report of one file, as far as its templates ask: its cases are in it, other pages are not."""

    def __init__(self, case_ids: dict[str, int]) -> None:
        self._case_ids = case_ids

    def case(self, run_id: str, case_id: str) -> str | None:
        """See `PageLinks`."""
        index = self._case_ids.get(case_id)
        return None if index is None else f"#case-{index}"

    def cases(self, run_id: str, show: str, check: str) -> None:
        """See `PageLinks`."""

    def compare(self, base: str, new: str) -> None:
        """See `PageLinks`."""

    def labels(self, run_id: str, check_id: str, field: str) -> None:
        """See `PageLinks`."""
