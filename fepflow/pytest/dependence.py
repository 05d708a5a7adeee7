"""The dependence of a test's cases on one another: clusters that its author names, and cases of the same content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fepflow.analysis.dependence import ClusteredCases, Duplicates, clusters_by
from fepflow.errors import InputError, JSONPathError, Problem
from fepflow.jsonpath.path import compile_path
from fepflow.protocol.test_case import TestCase
from fepflow.verdict.pass_rule import CaseClusters

Cluster = str | Callable[[TestCase], Any]
"""A path like `$.test_case.metadata.document`, or a function of the case. Cases of the same value belong together."""

_BY_FUNCTION = "$.test_case.metadata.cluster"


def dependence_of(cases: Sequence[TestCase], cluster: Cluster | None) -> tuple[CaseClusters | None, list[str]]:
    """Return the clusters of the cases, None where no `cluster` is asked for, and what to warn of.

    Duplicates are in one cluster. Raises InputError for a `cluster` that tells nothing of these cases.
    """
    # The test function may read all of a case, so cases of different metadata are different ones.
    duplicates = Duplicates({"target": "$.test_case"})
    for case in cases:
        duplicates.add(case)
    remarks = [f"{duplicates.sentence}; the rate counts each of them."] if duplicates.sentence else []
    if cluster is None:
        return None, remarks
    clusters = _clusters(cases, cluster)
    if clusters is not None and clusters.warning is not None:
        remarks.append(clusters.warning.replace(_BY_FUNCTION, "cluster"))
    joined = duplicates.joined(clusters)
    if joined is None:
        return CaseClusters(range(len(cases)), None), remarks
    return CaseClusters(joined.numbers, joined.noun), remarks


def _clusters(cases: Sequence[TestCase], cluster: Cluster) -> ClusteredCases | None:
    """Return the clusters; None if each case stands alone."""
    if isinstance(cluster, str):
        _require_path_of_case(cluster)
        clusters = clusters_by(cluster, cases)
    elif callable(cluster):
        values = [TestCase(id=case.id, input=None, metadata={"cluster": _value(cluster, case)}) for case in cases]
        clusters = clusters_by(_BY_FUNCTION, values)
    else:
        raise _invalid(f"{cluster!r} is neither a path nor a function", _ADVICE)
    if clusters is not None and clusters.without == len(cases):
        of = f"has a {cluster}" if isinstance(cluster, str) else "gets a value from the function, each gets None"
        raise _invalid(f"no test case {of}", "name what several cases have in common, or leave it out")
    return clusters


def _require_path_of_case(path: str) -> None:
    if not path.startswith("$.test_case."):
        raise _invalid(f"{path!r} is not a path of a test case", _ADVICE)
    try:
        compile_path(path)
    except JSONPathError as error:
        raise _invalid(str(error), _ADVICE) from None


def _value(cluster: Callable[[TestCase], Any], case: TestCase) -> Any:
    try:
        value = cluster(case)
    except Exception as error:
        message = f"the function raised {type(error).__name__} for the case {case.id!r}: {error}"
        raise _invalid(message, "return None for a case that stands alone") from error
    try:
        json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        message = f"the function returned {type(value).__name__}, which names no cluster, for the case {case.id!r}"
        raise _invalid(message, "return a text or a number that cases of one cluster share") from None
    return value


_ADVICE = "give a path such as $.test_case.metadata.document, or a function of the test case"


def _invalid(message: str, advice: str) -> InputError:
    return InputError(Problem(message, path="evaluate: cluster", advice=advice))
