"""The clusters of a run's test cases, for example documents, conversations or users.

Cases of one cluster share what makes them easy or hard, so the sample consists of clusters, not of cases.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

from fepflow.analysis.sampling import draw
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
    """The clusters of cases by the value at a path, for example `$.test_case.metadata.document`, or by content.

    `numbers` are by case index, in the order in which cases are added. A case without a value, or with null, is its own
    cluster. `largest` is the number of cases in the largest cluster from which a run drew, if it drew clusters. `word`
    is the word for one cluster without a path.
    """

    path: str | None
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    without: int = 0
    largest: int | None = None
    word: str = "different case"
    _known: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, cases: Iterable[TestCase]) -> ClusteredCases:
        """Return the clusters of these cases."""
        clusters = cls(path)
        for case in cases:
            clusters.add(case)
        return clusters

    def add(self, case: TestCase) -> None:
        """Add the next case."""
        value = None if self.path is None else cluster_value(case, self.path)
        if value is None:
            self.without += 1
            value = f"\0without {self.without}"  # no text of a case begins so
        self.numbers.append(self._known.setdefault(value, len(self._known)))

    @property
    def noun(self) -> str:
        """Return the word for one cluster, made from the field's name: `document` for `document_id`."""
        if self.path is None:
            return self.word
        name = str(next(reversed(leading_keys(self.path)), ""))
        word = re.sub(r"(_id|Id|_name|Name)$", "", name)
        return word if re.fullmatch(r"[a-z]*[a-rt-z]", word) else "cluster"

    @property
    def warning(self) -> str | None:
        """Return a sentence about cases without a value, if there are any."""
        if not self.without or self.path is None:
            return None
        have = "has" if self.without == 1 else "have"
        cases = f"{self.without} of {plural(len(self.numbers), 'test case')} {have} no {self.path}"
        return f"{cases}: each counts as a cluster of its own, as if it had nothing in common with any other case."

    def sizes(self, case_indices: Iterable[int]) -> Clusters:
        """Return the clusters of some of the cases."""
        return Clusters.of(Counter(self.numbers[index] for index in case_indices).values(), self.noun)


class Groups:
    """Things that belong together, directly or by way of others."""

    def __init__(self) -> None:
        self._joined_with: dict[Hashable, Hashable] = {}

    def join(self, one: Hashable, other: Hashable) -> None:
        """Put the groups of two things together."""
        self._joined_with[self.first(one)] = self.first(other)

    def first(self, thing: Hashable) -> Hashable:
        """Return the one thing that stands for the group of another."""
        while (other := self._joined_with.get(thing, thing)) != thing:
            thing = other
        return thing


def is_clustered(path: str | None) -> TypeGuard[str]:
    """Return whether a suite's `cluster` puts cases together."""
    return path is not None and path != INDEPENDENT


def clusters_by(path: str | None, cases: Iterable[TestCase] = ()) -> ClusteredCases | None:
    """Return the clusters of these cases by a suite's `cluster`; None if cases are independent."""
    return ClusteredCases.of(path, cases) if is_clustered(path) else None


def draw_clusters(
    numbered: Iterable[tuple[TestCase, int]], path: str | None, size: int, seed: int
) -> tuple[list[list[str]], int]:
    """Draw whole clusters of cases, `size` cases at most, but one cluster at least.

    `numbered` are the cases with the numbers of their clusters. Returns the ids of the cases by cluster, in random
    order, and the number of cases of the largest cluster that could have been drawn.
    """
    names: dict[int, str] = {}  # by which they are drawn: a number would be another one after a case was added
    by_cluster: dict[str, list[str]] = {}
    for case, number in numbered:
        if number not in names:
            value = None if path is None else cluster_value(case, path)
            names[number] = f"\0case {case.id}" if value is None else value
        by_cluster.setdefault(names[number], []).append(case.id)
    chosen: list[list[str]] = []
    count = 0
    for name in draw(by_cluster, len(by_cluster), seed):
        if chosen and count + len(by_cluster[name]) > size:
            break
        chosen.append(by_cluster[name])
        count += len(by_cluster[name])
    return chosen, max(map(len, by_cluster.values()), default=0)


def cluster_value(case: TestCase, path: str) -> str | None:
    """Return the value at a case's cluster path as JSON text, or None."""
    try:
        value = compile_path(path).resolve(evaluation_context(case, _NO_OUTPUT))
    except (JSONPathError, CheckTimeoutError):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # A number and its text, such as 7, 7.0 and "7" of a table, are one document.
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)
