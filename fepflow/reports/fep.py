"""A stored run in the format of the Flexible Evaluation Protocol (FEP 4.2), as a stream, because a run may be large.

Also summaries as JSON data: of a run, of all variants of a suite, and of the cached answers of models.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from fepflow.analysis.judge_reliability import reliability_of_judges
from fepflow.json.values import with_named_floats
from fepflow.protocol.model import FepModel, utc_now
from fepflow.protocol.results import StatusText, status_of
from fepflow.statistics.estimate import FIGURES
from fepflow.store.records import PART_OPTIONS, CacheTotals, CaseResult, RunRecord, RunStatus
from fepflow.store.store import Store

if TYPE_CHECKING:
    from fepflow.analysis.variants import VariantDifference, VariantTable

_STATUS: dict[RunStatus, StatusText] = {"completed": "completed", "failed": "error", "interrupted": "error"}
"""FEP's status of a whole run, whatever the results of its cases; an unfinished run has none."""


def test_case_results(store: Store, run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield a TestCaseResult (FEP 4.1) for each repeat of each case that has an output, as JSON data."""
    for result in store.results.by_case(run.id):
        if result.output is not None:
            yield test_case_result(result)


def test_case_result(result: CaseResult) -> dict[str, Any]:
    """Return a TestCaseResult as JSON data; `metadata.repeat` counts from 1."""
    statuses: list[StatusText] = [check.status for check in result.checks]
    assert result.output is not None
    return {
        "status": status_of(statuses),
        "execution_context": {
            "test_case": _data(result.case),
            "output": _data(result.output),
        },
        "check_results": [_data(check) for check in result.checks],
        "summary": {
            "total_checks": len(statuses),
            "completed_checks": statuses.count("completed"),
            "error_checks": statuses.count("error"),
            "skipped_checks": statuses.count("skip"),
        },
        "metadata": {"repeat": result.repeat + 1},
    }


def _data(model: FepModel) -> Any:
    """Return JSON data, by way of the text: pydantic's own dump fails on a lone surrogate in a key."""
    return json.loads(model.model_dump_json())


def run_metadata(run: RunRecord) -> dict[str, Any]:
    """Return what fepflow adds to a run's result: its own status, the metrics and the verdict."""
    return {
        "status": run.status,
        "repeats": run.repeats,
        "tags": run.tags,
        "version": run.version,
        **({"rescored_from": run.rescored_from} if run.rescored_from else {}),
        **({"test_cases": run.origin} if run.origin else {}),
        "flow_run_id": run.flow_run_id,
        "error": run.error,
        "outcome": run.outcome,
        "metrics": run.metrics,
        "verdict": run.verdict,
    }


def run_summary(run: RunRecord) -> dict[str, Any]:
    """Return a run as JSON data, without its results."""
    times = {name: getattr(run, name) for name in ("created_at", "started_at", "completed_at")}
    return {
        "id": run.id,
        "name": run.name,
        "cases": run.n_cases,
        **{name: _time(moment) if moment else None for name, moment in times.items()},
        **run_metadata(run),
    }


def cache_summary(totals: Sequence[CacheTotals]) -> dict[str, Any]:
    """Return the cached answers of models as JSON data; `cost_usd` leaves out the `unpriced` ones, null if all are."""
    known = [row.cost_usd for row in totals if row.cost_usd is not None]
    models = [{**asdict(row), "oldest": _time(row.oldest), "newest": _time(row.newest)} for row in totals]
    return {
        "answers": sum(row.answers for row in totals),
        "characters": sum(row.characters for row in totals),
        "cost_usd": sum(known) if known else None,
        "unpriced": sum(row.unpriced for row in totals),
        "oldest": _time(min(row.oldest for row in totals)) if totals else None,
        "newest": _time(max(row.newest for row in totals)) if totals else None,
        "models": models,
    }


def write_run(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write one EvaluationRunResult (FEP 4.2) as JSON, with metrics and verdict under its `metadata`."""
    file.writelines(run_parts(store, run))


def run_parts(store: Store, run: RunRecord) -> Iterator[str]:
    """Yield the parts of that JSON, one after the other."""
    cases: Counter[StatusText] = Counter()
    checks: Counter[str] = Counter()
    yield '{"results":['
    for number, result in enumerate(test_case_results(store, run)):
        cases[result["status"]] += 1
        checks.update(result["summary"])
        yield ("," if number else "") + "\n" + dumps(result)
    ended = run.completed_at or (utc_now() if run.status == "running" else run.started_at or run.created_at)
    rest = {
        "evaluation_id": run.id,
        "started_at": _time(run.started_at or run.created_at),
        "completed_at": _time(ended),
        "status": _STATUS.get(run.status, "skip"),
        "summary": {
            "total_test_cases": cases.total(),
            "completed_test_cases": cases["completed"],
            "error_test_cases": cases["error"],
            "skipped_test_cases": cases["skip"],
            **{name: checks[name] for name in ("total_checks", "completed_checks", "error_checks", "skipped_checks")},
        },
        "experiment": {"name": run.name, "metadata": {"tags": run.tags}},
        "metadata": {
            **run_metadata(run),
            "judges": [judge.data() for judge in reliability_of_judges(store, run)],
            "suite": {name: section for name, section in run.suite.items() if name != "test_cases"},
            "suite_hash": run.suite_hash,
            "options": {name: run.options[name] for name in PART_OPTIONS if name in (run.options or {})},
        },
    }
    yield f"\n],{dumps(rest)[1:]}\n"


def write_lines(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write one TestCaseResult a line."""
    for result in test_case_results(store, run):
        file.write(dumps(result) + "\n")


def dumps(value: Any) -> str:
    """Return JSON in ASCII: any parser can read lone surrogates and control characters that an agent answered.

    NaN and infinities, which an agent may answer as well, become texts.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(with_named_floats(value), allow_nan=False)


def _time(moment: Any) -> str:
    return str(moment.isoformat()).replace("+00:00", "Z")


def variants_summary(table: VariantTable) -> dict[str, Any]:
    """Return the table as JSON data: each run with its variant and metrics, each difference from the first one."""
    return {
        "variants": table.id,
        "suite": table.suite,
        "outcome": table.outcome,
        "summary": table.summary,
        "sentences": table.sentences,
        "runs": [{"variant": run.variant, **run_summary(run), "error": run.error} for run in table.runs],
        "confidence": table.confidence,
        "compared": table.compared,
        "differences": [_difference(difference) for difference in table.differences],
    }


def _difference(difference: VariantDifference) -> dict[str, Any]:
    metric, estimate = difference.metric, difference.estimate
    names = {"run_id": difference.run.id, "variant": difference.run.variant, "metric": metric.id}
    if estimate is None:
        return {**names, "shown": None, "why_not_compared": metric.why_not}
    return {
        **names,
        "shown": difference.way,
        "sentence": difference.sentence,
        "first": metric.base,
        "value": metric.new,
        "difference": estimate.value,
        **estimate.figures(*FIGURES),
        "p": metric.p,
        "p_adjusted": difference.p_adjusted,
    }
