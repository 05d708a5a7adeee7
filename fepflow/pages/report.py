"""A run as one HTML file, which loads nothing and runs no script."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TextIO

from markupsafe import Markup

from fepflow.pages.case_page import repeat_view
from fepflow.pages.rendering import read_asset, render
from fepflow.pages.run_page import GridFilter, grid_view, run_view
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

MAX_CASES = 2_000
"""Cases in a file, problems first: a browser is slow with more."""
MAX_TEXT = 3_000
"""Characters of one value."""


class FileLinks:
    """Links of a one-file report, as far as its templates need them: to its own cases, but not to other pages."""

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


def write_html(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write it: the verdict, the metrics, the cases beside the checks, and each case."""
    view = run_view(store, run.id)
    grid = grid_view(store, view.run, GridFilter(), size=MAX_CASES)
    indices = [row.case_index for row in grid.rows]
    style = "\n".join(read_asset(name).decode() for name in ("pico.min.css", "style.css"))
    # The hash of this very style is what the browser is told to take.
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    file.write(
        render(
            "report.html",
            view=view,
            grid=grid,
            run=view.run,
            repeats=(repeat_view(result) for result in store.results.by_case(run.id, case_indices=indices)),
            links=FileLinks({row.case.id: row.case_index for row in grid.rows}),
            style=Markup(style),  # noqa: S704  # ours
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:",
            limit=MAX_TEXT,
            flow_run_url=None,
            live=False,
            may_label=False,
            labels_of=lambda check, repeat: (),
        )
    )
