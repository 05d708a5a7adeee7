"""A run as a page shows it, and as one HTML file: the verdict and why, each metric, and its cases beside its checks."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, TextIO

from markupsafe import Markup

from fepflow.analysis.causes import MAX_RESULTS, CauseSummary, causes_of
from fepflow.analysis.judge_reliability import JudgeReliability, reliability_of_judges
from fepflow.checks.explanation import explain
from fepflow.pages.case_page import repeat_view
from fepflow.pages.charts import gate_bands, interval_chart
from fepflow.pages.rendering import read_asset, render, snippet
from fepflow.services.failed_results import Selection, worst_first
from fepflow.services.run_service import seconds_of, with_current_metrics
from fepflow.store.records import CheckMark, GridRow, Progress, RunRecord
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store
from fepflow.suite.models import IMPACTS

Show = Literal["all", "problems", "failed", "errors", "others"]
PAGE_SIZE = 50
_MANY_CALLS, _MANY_RESULTS = 20_000, 500
"""The page of a run with so many calls looks at so many results for causes: its counts and its grid take long, too."""


@dataclass(frozen=True, slots=True)
class GridFilter:
    """The wanted cases: their outcome, a check, a text that they contain, and the page, from 1."""

    show: Show = "all"
    check: str | None = None
    text: str | None = None
    page: int = 1


@dataclass(frozen=True, slots=True)
class MetricView:
    """A metric with its chart, None for one without a value.

    `check_outcome` is how its check fared, None if the gate has no rule about that check.
    """

    figures: Mapping[str, Any]
    chart: Markup | None
    check_outcome: str | None


@dataclass(frozen=True, slots=True)
class GridView:
    """A page of cases beside the checks, `shared` ones first. `total` is how many cases the filter leaves.

    `reasons` say of cases by index why their checks did not pass. `searched_beginnings` if large outputs are not
    searched for the text to their end.
    """

    wanted: GridFilter
    checks: list[str]
    shared: list[str]
    rows: list[GridRow]
    reasons: Mapping[int, list[str]]
    total: int
    searched_beginnings: bool

    @property
    def pages(self) -> int:
        """Return how many pages there are."""
        return pages_of(self.total, PAGE_SIZE)


def pages_of(total: int, size: int) -> int:
    """Return how many pages hold `total` rows; at least one."""
    return max(1, -(-total // size))


class RunView:
    """A run as its page shows it, without its cases. Each part is read when a template needs it."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        self._store = store
        self.run = run

    @cached_property
    def progress(self) -> Progress:
        """Counts of outputs and results so far."""
        return self._store.results.progress(self.run.id)

    @cached_property
    def metrics(self) -> list[MetricView]:
        """Metrics of its verdict."""
        return [_metric(metric, self.run) for metric in self.run.metrics or ()]

    @cached_property
    def causes(self) -> CauseSummary:
        """The most frequent causes of what did not pass."""
        return causes_of(
            self._store, self.run, max_results=_MANY_RESULTS if self.run.calls > _MANY_CALLS else MAX_RESULTS
        )

    @cached_property
    def judges(self) -> list[JudgeReliability]:
        """Agreement of its judges with people, and with themselves."""
        return reliability_of_judges(self._store, self.run)

    @property
    def seconds(self) -> float | None:
        """Duration so far; None before it began."""
        return seconds_of(self.run)

    @property
    def is_live(self) -> bool:
        """True while the run goes on."""
        return self.run.is_under_way


def run_view(store: Store, run_id: str) -> RunView:
    """Return a run by its id, the beginning of it, or `latest`. Raises NotFoundError."""
    return RunView(store, with_current_metrics(store, store.runs.get(run_id)))


def grid_view(store: Store, run: RunRecord, wanted: GridFilter, size: int = PAGE_SIZE) -> GridView:
    """Return the page of cases that is wanted."""
    indices = _case_indices(store, run, wanted)
    start = (wanted.page - 1) * size
    rows = store.results.grid_rows(run.id, indices[start : start + size], scores=True)
    shared = shared_check_ids(run.suite)
    own = (check_id for row in rows for _, check_id in row.marks if check_id not in shared)
    reasons = _reasons(store, run, rows, wanted.check)
    has_blobs = bool(wanted.text) and store.results.has_blobs(run.id)
    return GridView(wanted, [*dict.fromkeys(own), *shared], shared, rows, reasons, len(indices), has_blobs)


def _reasons(store: Store, run: RunRecord, rows: Sequence[GridRow], check_id: str | None) -> Mapping[int, list[str]]:
    """Return why there is no output and why checks did not pass, each once; of one check if `check_id` names it."""
    wanted = Selection(failed=True, check_id=check_id)
    failed = [
        row.case_index
        for row in rows
        if any(map(_is_problem, row.marks.values())) or any(output.failed for output in row.outputs.values())
    ]
    reasons: dict[int, dict[str, None]] = defaultdict(dict)
    for result in store.results.by_case(run.id, case_indices=failed, whole=False):
        if result.output is not None and result.output.failure is not None:
            what = "broken off" if result.output.is_partial else "no output"
            reasons[result.case_index][f"{what}: {snippet(result.output.failure['message'])}"] = None
        for check in wanted.checks(result):
            reasons[result.case_index][f"{check.check_id}: {explain(check)}"] = None
    return {case_index: list(sentences) for case_index, sentences in reasons.items()}


def _is_problem(mark: CheckMark) -> bool:
    return mark.status == "error" or mark.passed is False


def bands_of(run: RunRecord, metric: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the bands of a metric's thresholds, else those of the gate's minimum and maximum."""
    thresholds = run.suite.get("thresholds")
    declared = thresholds.get("thresholds") if isinstance(thresholds, dict) else None
    bands = declared.get(metric["id"]) if isinstance(declared, dict) else None
    if not isinstance(bands, list):
        return list(gate_bands(metric))
    return [band for band in bands if band.get("impact") in IMPACTS]


def _metric(metric: Mapping[str, Any], run: RunRecord) -> MetricView:
    rules = (run.verdict or {}).get("rules", ())
    check = metric.get("check")
    of_check = (rule["outcome"] for rule in rules if check is not None and rule.get("check") == check)
    return MetricView(metric, interval_chart(metric, bands_of(run, metric)), next(of_check, None))


def _case_indices(store: Store, run: RunRecord, wanted: GridFilter) -> list[int]:
    """Return the cases that are wanted, those that decided the verdict first."""
    problems = worst_first(store, run, Selection(failed=True, check_id=wanted.check))
    if wanted.show == "failed":
        indices = store.results.failed_case_indices(run.id, wanted.check, "failed")
    elif wanted.show == "errors":
        indices = store.results.failed_case_indices(run.id, wanted.check, "error")
    elif wanted.show == "problems":
        indices = problems
    else:
        among = set(problems)
        others = [index for index in range(run.n_cases) if index not in among]
        indices = others if wanted.show == "others" else [*problems, *others]
    if wanted.text:
        with_text = set(store.results.find_cases(run.id, wanted.text))
        indices = [index for index in indices if index in with_text]
    return indices


MAX_REPORT_CASES = 2_000
"""Cases in a file, problems first: a browser is slow with more."""
MAX_REPORT_TEXT = 3_000
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
    grid = grid_view(store, view.run, GridFilter(), size=MAX_REPORT_CASES)
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
            limit=MAX_REPORT_TEXT,
            flow_run_url=None,
            live=False,
            may_label=False,
            labels_of=lambda check, repeat: (),
        )
    )
