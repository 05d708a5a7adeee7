"""Comparing results from Python: `fepflow.compare`, and `results.compare(other)`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fepflow.errors import UserError
from fepflow.extras import require
from fepflow.protocol.results import EvaluationRunResult, ResultsView

if TYPE_CHECKING:
    from fepflow.services.comparisons import Source

    Results = ResultsView | str | Path


class Comparison:
    """A comparison of runs with a base: the metrics and cases that differ, and whether chance may explain it.

    `outcome` is `fail` if a regression is shown, `pass` if one beyond the margin is excluded, `inconclusive` if neither
    is, and None if there is no margin and nothing is shown. `str()` is a table in Markdown.
    """

    def __init__(self, data: dict[str, Any], markdown: str) -> None:
        self._data = data
        self._markdown = markdown

    @property
    def outcome(self) -> str | None:
        """The worst outcome of all compared runs."""
        outcome: str | None = self._data["outcome"]
        return outcome

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics of the first compared run by id: `base`, `new`, `difference`, `low`, `high`, `p`, and so on."""
        return {metric["id"]: metric for metric in self._data["compared"][0]["metrics"]}

    @property
    def worsened(self) -> list[dict[str, Any]]:
        """The cases of the first compared run that are worse now, with both outputs."""
        return list(self._data["compared"][0]["worsened"])

    @property
    def improved(self) -> list[dict[str, Any]]:
        """The cases of the first compared run that are better now, with both outputs."""
        return list(self._data["compared"][0]["improved"])

    @property
    def judge(self) -> dict[str, Any] | None:
        """Preferences of the judge, if one was asked."""
        return self._data.get("judge")

    @property
    def warnings(self) -> list[str]:
        """Limits of the comparison, and what could not be known of results that are not in the store."""
        warnings = (warning for run in self._data["compared"] for warning in run["warnings"])
        return [*self._data.get("notes", ()), *warnings]

    def to_dict(self) -> dict[str, Any]:
        """Return what `fepflow compare --format json` prints."""
        return self._data

    def __str__(self) -> str:
        return self._markdown

    def __repr__(self) -> str:
        differences = ", ".join(
            f"{name} {metric['difference']:+.4g}"
            for name, metric in self.metrics.items()
            if metric.get("difference") is not None
        )
        return f"Comparison({self.outcome or 'nothing is shown'}: {differences or 'nothing compared'})"


def compare(
    base: Results,
    *new: Results,
    margin: float | None = None,
    margins: dict[str, float] | None = None,
    judge: str | None = None,
    judge_model: str | None = None,
    max_usd: float | None = None,
) -> Comparison:
    """Compare results with `base`, over the test cases that both have, as `fepflow compare` does.

    Each argument is the result of `evaluate`, `run` or `load_run`, the id of a run, or a file of results. `margin` is
    how much worse shares may be, and `margins` sets it by metric. `judge` is a question that a model answers about each
    pair of outputs. Raises UserError if nothing can be compared, and InputError for a file without results.
    """
    require("run", "fepflow.compare")
    from fepflow.reports.comparison import as_json, as_markdown
    from fepflow.services import baselines
    from fepflow.services.comparisons import runs_to_compare
    from fepflow.services.preferences import JudgeQuestion, judge_runs

    if not new:
        raise TypeError("compare() takes the results of two runs or more")
    for value in (margin, *(margins or {}).values()):
        if value is not None and not 0 <= value < math.inf:
            raise UserError(f"{value!r} is not a margin: give a number such as 0.02.")
    with runs_to_compare([_source(results) for results in (base, *new)]) as runs:
        first, *others = runs.names
        judged = baselines.compare(runs.store, first, others, margin, margins or {}, metrics_needed=judge is None)
        preferred = None
        if judge is not None:
            records = [judged.comparisons[0].base, *(comparison.new for comparison in judged.comparisons)]
            question = JudgeQuestion(judge, judge_model, max_usd)
            preferred = judge_runs(runs.store, records, question, lambda _: None)  # no line about its cost is shown
        data = {**as_json(runs.store, judged, preferred), "notes": list(runs.notes)}
        return Comparison(data, "\n".join(as_markdown(runs.store, judged, _SHOWN, preferred)))


_SHOWN = 5


def _source(results: Results) -> Source:
    if isinstance(results, EvaluationRunResult):
        import json

        document: dict[str, Any] = json.loads(results.model_dump_json())
        return document
    if isinstance(results, str | Path):
        return str(results)
    run_id = getattr(results, "id", None)  # of a run in the store, whose classes know this module
    if not isinstance(run_id, str):
        raise TypeError(f"{type(results).__name__} cannot be compared: give results, the id of a run, or a file")
    return run_id
