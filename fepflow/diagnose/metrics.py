"""Static validation of the suite's metrics, thresholds and gate: can the gate be decided, and by how many cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fepflow.analysis.ranges import range_of, scale_of_aggregate
from fepflow.diagnose.regression import validate_regression
from fepflow.diagnose.sample_size import warn_of_confidence, warn_of_sample_size
from fepflow.diagnose.slices import validate_slices
from fepflow.diagnose.suite_validation import SuiteValidation, file_of
from fepflow.diagnose.top_up import validate_top_up
from fepflow.errors import InputError
from fepflow.evalguard.loader import Definitions, definitions_near, load_thresholds, read_definition
from fepflow.evalguard.models import Thresholds
from fepflow.protocol.check import Check
from fepflow.suite.models import Gate, Metric
from fepflow.text import known_names
from fepflow.verdict.gate import DEFAULT_MAX_IMPACT


def validate_thresholds(found: SuiteValidation) -> None:
    """Read the EvalGuard thresholds, and find what is wrong with them."""
    loaded, source = found.loaded, found.loaded.section("thresholds")
    if source is None:
        return
    task = loaded.section("task")
    definitions = Definitions()
    try:
        if isinstance(source, str):
            path = file_of(loaded, source, ("thresholds",), found.problems, or_folder=True)
            if path is not None:
                found.thresholds = load_thresholds(path, task)
                definitions = definitions_near(path)
        else:
            whole, location = (source, ("thresholds",)) if "thresholds" in source else ({"thresholds": source}, ())
            data = {"task": task or "inline", **whole}
            found.thresholds = read_definition(Thresholds, data, loaded.document, location)
    except InputError as error:
        found.problems += error.problems
    if found.thresholds is not None:
        found.problems += definitions.remarks(found.thresholds)


def validate_metrics(found: SuiteValidation, checks: Mapping[str, Sequence[Check]]) -> None:
    """Find metrics of checks that are not there, and a gate that nothing can pass.

    `checks` are all of the suite and its cases, by id.
    """
    loaded, known = found.loaded, list(checks)
    metrics: list[Metric | None] | None = loaded.section("metrics")
    if loaded.snapshot.get("metrics") is not None:
        for index, metric in enumerate(metrics or ()):
            if metric is not None and metric.check is not None and metric.check not in known:
                message = f"the suite has no check with the id {metric.check}"
                found.error(("metrics", index, "check"), message, f"its checks are {known_names(known)}")
    names = [metric.id for metric in metrics if metric] if metrics else known
    for name in {name for name in names if names.count(name) > 1}:
        found.error(("metrics",), f"the metric {name} stands twice", "ids are unique")
    gate: Gate | None = loaded.section("gate")
    if gate is not None:
        _validate_gate(found, gate, names)
        warn_of_confidence(found, gate)
    given = [metric for metric in metrics or () if metric] or [Metric(id=name, check=name) for name in known]
    _warn_of_repeats(found, metrics or ())
    max_impact = (gate.max_impact if gate else None) or (DEFAULT_MAX_IMPACT if found.thresholds else None)
    # The ranges of metrics, as they are aggregated, by id; None where they are not known.
    scales = {
        metric.id: scale_of_aggregate(metric, range_of(metric, checks.get(metric.check or "", ()))) for metric in given
    }
    if gate is not None and gate.top_up is not None:
        validate_top_up(found, gate, given, scales)
    else:
        warn_of_sample_size(found, gate or Gate(), max_impact, given, scales)
    validate_slices(found, given, scales)
    validate_regression(found, gate or Gate(), given)


def _warn_of_repeats(found: SuiteValidation, metrics: Sequence[Metric | None]) -> None:
    repeats = found.loaded.section("repeats") or 1
    for index, metric in enumerate(metrics):
        if metric is not None and metric.aggregated.k > repeats:
            message = f"{metric.aggregate} takes at least {metric.aggregated.k} repeats of each case, not {repeats}"
            found.warn(
                ("metrics", index, "aggregate"), message, f"set repeats: {metric.aggregated.k}, or run with --repeats"
            )


def _validate_gate(found: SuiteValidation, gate: Gate, metrics: Sequence[str]) -> None:
    for bound, limits in (("min", gate.min), ("max", gate.max)):
        for name in limits:
            if name not in metrics:
                found.error(("gate", bound, name), f"there is no metric {name}", f"there is {known_names(metrics)}")
    for name in gate.min.keys() & gate.max.keys():
        if gate.min[name] > gate.max[name]:
            found.error(("gate", "max", name), "the maximum is below the minimum", "no value can meet both")
    if gate.max_impact is not None and found.thresholds is None and "thresholds" not in found.loaded.snapshot:
        advice = "add thresholds:, an EvalGuard file or folder"
        found.error(("gate", "max_impact"), "there are no thresholds that give an impact", advice)
