"""Addresses of the result pages in the browser, below `FEPFLOW_PAGES_URL`; None where that is not set."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from fepflow.settings import settings


def run_page(run_id: str) -> str | None:
    """The page of a run."""
    return _below(f"/runs/{_part(run_id)}")


def case_page(run_id: str, case_id: str) -> str | None:
    """The page of a test case in a run."""
    return _below(f"/runs/{_part(run_id)}/cases/{_part(case_id)}")


def compare_page(base_id: str, new_id: str) -> str | None:
    """The page of two runs beside each other."""
    return _below(f"/compare?{urlencode({'base': base_id, 'new': new_id})}")


def trends_page(suite: str) -> str | None:
    """The page of a suite's metrics over its runs."""
    return _below(f"/trends/{_part(suite)}")


def link(text: str, address: str | None) -> str:
    """`text`, which is markdown already, as a link in markdown where there is an address."""
    return text if address is None else f"[{text}]({address})"


def _below(path: str) -> str | None:
    base = settings().pages_url
    return base and f"{base}{path}"


def _part(name: str) -> str:
    """A name as one part of a path: its slashes, too, are encoded."""
    return quote(name, safe="", errors="replace")
