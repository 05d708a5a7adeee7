"""Addresses of the result pages in the browser, below `FEPFLOW_PAGES_URL`; None where that is not set."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from fepflow.settings import settings


def run_page(run_id: str) -> str | None:
    """Return the page of a run."""
    return _below(run_path(run_id))


def case_page(run_id: str, case_id: str) -> str | None:
    """Return the page of a test case in a run."""
    return _below(case_path(run_id, case_id))


def cases_page(run_id: str, show: str, check: str) -> str | None:
    """Return the page of a run with only its failed cases, or those in error."""
    return _below(cases_path(run_id, show, check))


def compare_page(base_id: str, new_id: str) -> str | None:
    """Return the page of two runs beside each other."""
    return _below(compare_path(base_id, new_id))


def trends_page(suite: str) -> str | None:
    """Return the page of a suite's metrics over its runs."""
    return _below(trends_path(suite))


def variants_page(variants_id: str) -> str | None:
    """Return the page of a suite's variants beside each other."""
    return _below(variants_path(variants_id))


def run_path(run_id: str) -> str:
    """Return the path of a run's page on its server."""
    return f"/runs/{quote(run_id, safe='')}"


def case_path(run_id: str, case_id: str) -> str:
    """Return the path of a test case's page. The id is in the query, because `..` and `/` in a path would be lost."""
    return f"{run_path(run_id)}/case?{_query(id=case_id)}"


def cases_path(run_id: str, show: str, check: str = "") -> str:
    """Return the path of a run's cases; `show` is `failed` or `errors`, for one check or for any."""
    return f"{run_path(run_id)}?{_query(show=show, check=check)}#cases-title"


def compare_path(base_id: str, new_id: str) -> str:
    """Return the path of the comparison of two runs."""
    return f"/compare?{_query(base=base_id, new=new_id)}"


def suite_path(suite: str) -> str:
    """Return the path of a suite's page."""
    return f"/suite?{_query(suite=suite)}"


def trends_path(suite: str) -> str:
    """Return the path of the page of a suite's metrics over its runs."""
    return f"/trends?{_query(suite=suite)}"


def variants_path(variants_id: str) -> str:
    """Return the path of the page of a suite's variants."""
    return f"/variants/{quote(variants_id, safe='')}"


def link(text: str, address: str | None) -> str:
    """Return `text`, which is markdown already, as a link in markdown where there is an address."""
    return text if address is None else f"[{text}]({address})"


def _below(path: str) -> str | None:
    base = settings().pages_url
    return base and f"{base}{path}"


def _query(**names: str) -> str:
    return urlencode(names, errors="replace")
