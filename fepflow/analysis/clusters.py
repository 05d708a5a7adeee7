"""The clusters of a run's test cases: documents, conversations or users that several cases are about.

Cases of one cluster share what makes them easy or hard, so clusters are what was sampled, and not cases.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.jsonpath.path import compile_path, leading_keys
from fepflow.protocol.test_case import Output, TestCase, evaluation_context
from fepflow.statistics.estimate import Clusters
from fepflow.text import plural

INDEPENDENT = "$.test_case.id"
"""The path by which a suite says that each case stands alone."""

_NO_OUTPUT = Output(value=None)


@dataclass
class ClusteredCases:
    """The clusters of cases by the value at a path, such as `$.test_case.metadata.document`.

    `numbers` are by case index, in the order in which cases are added. A case without a value, or with null, is a
    cluster of its own.
    """

    path: str
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    without: int = 0
    _known: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, cases: Iterable[TestCase]) -> ClusteredCases:
        """Return the clusters of these cases."""
        clusters = cls(path)
        for case in cases:
            clusters.add(case)
        return clusters

    def add(self, case: TestCase) -> None:
        """Take in the next case."""
        value = cluster_value(case, self.path)
        if value is None:
            self.without += 1
            value = f"without {self.without}"  # no JSON text begins so
        self.numbers.append(self._known.setdefault(value, len(self._known)))

    @property
    def noun(self) -> str:
        """The word for one cluster: the field's name, as far as it is a word, such as `document` of `document_id`."""
        name = str(next(reversed(leading_keys(self.path)), ""))
        word = re.sub(r"(_id|Id|_name|Name)$", "", name)
        return word if re.fullmatch(r"[a-z]*[a-rt-z]", word) else "cluster"

    @property
    def warning(self) -> str | None:
        """A sentence about cases without a value, if there are any."""
        if not self.without:
            return None
        have = "has" if self.without == 1 else "have"
        cases = f"{self.without} of {plural(len(self.numbers), 'test case')} {have} no {self.path}"
        return f"{cases}: each counts as a cluster of its own, as if it had nothing in common with any other case."

    def sizes(self, case_indices: Iterable[int]) -> Clusters:
        """Return the clusters of some of the cases."""
        return Clusters.of(Counter(self.numbers[index] for index in case_indices).values(), self.noun)


def clusters_by(path: str | None, cases: Iterable[TestCase] = ()) -> ClusteredCases | None:
    """Return the clusters of these cases by a suite's `cluster`; None if cases are independent."""
    return None if path is None or path == INDEPENDENT else ClusteredCases.of(path, cases)


def cluster_value(case: TestCase, path: str) -> str | None:
    """Return the value that names a case's cluster, as JSON text; None if there is none."""
    try:
        value = compile_path(path).resolve(evaluation_context(case, _NO_OUTPUT))
    except (JSONPathError, CheckTimeoutError):
        return None
    return None if value is None else json.dumps(value, sort_keys=True)
