"""The labels of classifications: those that test cases expect, and how answers and expectations meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fepflow.checks.registry import CheckType
from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.jsonpath.path import compile_path, is_path
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase, evaluation_context
from fepflow.statistics.classification import (
    MEASURES,
    ClassMeasure,
    LabelledUnit,
    LabelPair,
    class_estimates,
    classification_estimate,
)
from fepflow.statistics.estimate import Counts, Estimate
from fepflow.statistics.proportions import IntervalKind
from fepflow.suite.models import Gate
from fepflow.verdict.verdict import ClassVerdict, ConfusionVerdict, FigureVerdict

MOST_CLASSES = 20
"""Classes that a confusion matrix shows, the most frequent ones."""

OTHER = "(other)"
"""An answer that is not one of the expected labels."""

NO_ANSWER = "(none)"
"""A result that is missing."""


def label_pair(results: Any) -> LabelPair | None:
    """Return the labels of a result of `classification`; None if it has none."""
    if not isinstance(results, dict):
        return None
    predicted, expected = results.get("predicted"), results.get("label")
    if not isinstance(predicted, str) or not isinstance(expected, str):
        return None
    return LabelPair(predicted, expected)


def expected_label(case: TestCase, check: Check) -> str | None:
    """Return the label that a `classification` check expects of a test case; None if it is not known beforehand."""
    if check.type != CheckType.CLASSIFICATION:
        return None
    from fepflow.checks.base import default_paths  # here, as reading the store needs no check
    from fepflow.checks.classification import MAX_LABEL, ClassificationCheck, label_of

    arguments = {**default_paths(ClassificationCheck), **check.arguments}
    expected, case_sensitive = arguments["expected"], arguments.get("case_sensitive", False)
    if is_path(expected):
        try:
            context = evaluation_context(case, Output(value=None))
            expected = compile_path(expected).resolve({"test_case": context["test_case"]})
        except (JSONPathError, CheckTimeoutError):
            return None
    if not isinstance(expected, str | int | float) or not isinstance(case_sensitive, bool):
        return None
    label = label_of(expected, case_sensitive=case_sensitive)
    return label if 0 < len(label) <= MAX_LABEL else None


@dataclass
class ExpectedLabels:
    """The expected labels of test cases, by index. A missing result counts against its class."""

    _by_case: dict[int, str] = field(default_factory=dict)
    _counted: Counter[str] = field(default_factory=Counter)

    def add(self, case_index: int, case: TestCase, check: Check) -> None:
        """Add a case that has the check."""
        label = expected_label(case, check)
        if label is not None:
            self._by_case[case_index] = label
            self._counted[label] += 1

    def of_case(self, case_index: int) -> str | None:
        """Return the expected label of a case; None if it is not known."""
        return self._by_case.get(case_index)

    def known_as(self, label: str | None) -> str | None:
        """Return a label as the cases have it: a metric may name it in other upper and lower case."""
        if label is None:
            return None
        from fepflow.checks.classification import label_of  # here, as reading the store needs no check

        exact = label_of(label, case_sensitive=True)
        folded = label_of(label, case_sensitive=False)
        return exact if exact in self._counted and folded not in self._counted else folded

    def followed_by(self, others: ExpectedLabels, offset: int) -> ExpectedLabels:
        """Return these and those of another run, whose cases begin at this index."""
        by_case = self._by_case | {offset + index: label for index, label in others._by_case.items()}
        return ExpectedLabels(by_case, self._counted + others._counted)

    @property
    def names(self) -> str:
        """The labels for a message, the most frequent first."""
        names = [label for label, _ in self._counted.most_common(MOST_CLASSES + 1)]
        return ", ".join(names[:MOST_CLASSES]) + (", …" if len(names) > MOST_CLASSES else "") or "none"

    @property
    def counted(self) -> Counter[str]:
        """Number of cases that expect each label."""
        return self._counted


def confusion_of(
    check_id: str, units: Sequence[LabelledUnit], counts: Counts, repeats: int, gate: Gate
) -> ConfusionVerdict | None:
    """Return the confusion matrix of a check, and the figures of its classes; None without any result or class."""
    cells = Counter(pair for unit in units for pair in unit.pairs)
    expected = Counter(expected for unit in units for expected in unit.missing if expected is not None)
    missing = Counter(expected)
    for pair, count in cells.items():
        expected[pair.expected] += count
    if not cells:
        return None
    labels = [label for label, _ in expected.most_common(MOST_CLASSES)]
    estimates: dict[ClassMeasure, dict[str | None, Estimate]] = {}
    confidence, kind = gate.pass_confidence, class_interval(gate)
    for measure in MEASURES:
        of_classes = class_estimates(units, counts, measure, labels, confidence, kind)
        estimates[measure] = {label: of_classes[label] for label in labels}
        estimates[measure][None] = classification_estimate(units, counts, measure, None, confidence, kind, repeats)
    columns = [*labels, OTHER, NO_ANSWER]
    rows = []
    for label in labels:
        row = [cells[LabelPair(predicted, label)] for predicted in labels]
        row += [expected[label] - missing[label] - sum(row), missing[label]]
        figures = {measure: FigureVerdict.of(estimates[measure][label]) for measure in MEASURES}
        rows.append(ClassVerdict(label=label, n=expected[label], predicted=row, **figures))
    used = [number for number in range(len(columns)) if number < len(labels) or any(r.predicted[number] for r in rows)]
    rows = [row.model_copy(update={"predicted": [row.predicted[number] for number in used]}) for row in rows]
    return ConfusionVerdict(
        check=check_id,
        columns=[columns[number] for number in used],
        classes=rows,
        left_out=len(expected) - len(labels),
        **{measure: FigureVerdict.of(estimates[measure][None]) for measure in MEASURES},
    )


def class_interval(gate: Gate) -> IntervalKind:
    """Return the kind of interval of a class: the exact one, as classes are small, unless the gate sets another."""
    return "wilson" if gate.interval == "wilson" else "clopper-pearson"
