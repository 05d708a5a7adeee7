"""Dependent test cases: clusters, the same content under several ids, or a common text or document.

Cases of one cluster, such as a document, a conversation or a user, share what makes them easy or hard, so the sample
consists of clusters, not of cases. Duplicates are certain, and count as repeats of one case. Other similarities are
guesses: a warning names them, until `cluster:` says which cases belong together.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from fepflow.analysis.sampling import draw
from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.json.values import texts_in
from fepflow.jsonpath.path import compile_path, leading_keys
from fepflow.protocol.check import to_check
from fepflow.protocol.content_hash import canonical_json
from fepflow.protocol.test_case import Output, TestCase, evaluation_context
from fepflow.statistics.estimate import Clusters
from fepflow.suite.models import Gate, Slices, Suite
from fepflow.text import cut, listed_first, plural

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store


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


NAMED = 3
"""Ids that a sentence names."""

MOST_SURVEYED, MOST_TEXT = 10_000, 20_000
"""Cases that are searched for something in common, the first ones, and characters of each: a second or two."""

LONG_TEXT, SENTENCE = 200, 40
"""Characters from which on a text may be a document, and a part of it a sentence that no two documents have."""

SENTENCES = 8
"""Longest sentences of a case that are compared."""

_READS_METADATA = re.compile(
    r"""\$\.test_case(?!\w)(?:\.metadata(?!\w)(?:\.(?P<name>\w+)|\[\s*\\?["'](?P<key>[^"'\\]+))?|(?![.\[]))"""
)
_SENTENCE = re.compile(rf"[^\n.!?\u3002\uff01\uff1f]{{{SENTENCE},}}")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

_DOCUMENT = re.compile(
    "document|doc|article|passage|page|paper|book|chapter|file|url|website|repo|repository|conversation|chat|dialog|"
    "dialogue|thread|session|transcript|call|meeting|email|user|customer|client|account|patient|person|speaker|"
    "participant|author|ticket|contract|report"
)
_MAYBE_DOCUMENT = re.compile("source|context|reference|group|parent|family|template|scenario|story|episode")
_FEWEST_DOCUMENTS, _FEWEST_IF_IN_DOUBT = 5, 10


def metadata_read(snapshot: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the metadata fields that a suite's target and checks read, which distinguish cases; None means all."""
    names = set()
    for match in _READS_METADATA.finditer(json.dumps([snapshot.get("target"), snapshot.get("checks")], default=str)):
        name = match["name"] or match["key"]
        if name is None:
            return None
        names.add(name)
    return frozenset(names)


def content_of(case: TestCase, names: frozenset[str] | None) -> int | None:
    """Return what makes a case another one: input, expected, own checks, and the metadata of these names (None: all);
    None for a case with an empty input, which cannot be told apart by it."""
    if case.input in (None, "", [], {}):
        return None
    metadata = case.metadata or {}
    if names is not None:
        metadata = {name: metadata[name] for name in names if name in metadata}
    checks = [to_check(check).model_dump() for check in case.checks or ()]
    question = " ".join(case.input.split()) if isinstance(case.input, str) else case.input
    return hash(canonical_json([question, case.expected, checks, metadata]))


class Duplicates:
    """The cases of equal content (`content_of`), with the metadata that the suite's request or checks read. Ids and
    other metadata make no difference."""

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self._metadata_read = metadata_read(snapshot)
        self._first_of_content: dict[int, int] = {}
        self._ids: list[str] = []
        self.first = array("Q")
        """The index of the first case with the same content, for each case."""

    def add(self, case: TestCase) -> bool:
        """Add the next case; return whether its content is new."""
        index = len(self.first)
        content = content_of(case, self._metadata_read)
        first = index if content is None else self._first_of_content.setdefault(content, index)
        self.first.append(first)
        self._ids.append(case.id)
        return first == index

    @property
    def sentence(self) -> str | None:
        """Return the duplicates as an unfinished sentence, or None."""
        repeated = Counter(first for index, first in enumerate(self.first) if first != index)
        if not repeated:
            return None
        cases = repeated.total() + len(repeated)
        most = max(repeated, key=lambda first: repeated[first])
        first_ids = listed_first([self._ids[index] for index, first in enumerate(self.first) if first == most], NAMED)
        if len(repeated) == 1:
            return f"{cases:,} of {len(self.first):,} test cases have the same content under different ids: {first_ids}"
        return (
            f"{cases:,} of {len(self.first):,} test cases are only {len(repeated):,} different ones: "
            f"{first_ids}, for example, have the same content"
        )

    def joined(self, clusters: ClusteredCases | None) -> ClusteredCases | None:
        """Return the clusters with all duplicates in one; without clusters, each content is one.

        None if neither is there: then cases are independent.
        """
        if all(index == first for index, first in enumerate(self.first)):
            return clusters
        numbers = clusters.numbers if clusters else array("Q", range(len(self.first)))
        groups = Groups()
        for index, first in enumerate(self.first):
            if index != first:
                groups.join(numbers[index], numbers[first])
        numbered: dict[Hashable, int] = {}
        joined = (numbered.setdefault(groups.first(number), len(numbered)) for number in numbers)
        return replace(clusters or ClusteredCases(None), numbers=array("Q", joined))


class Remark(NamedTuple):
    """A sentence about cases that depend on one another; unfinished if there is advice."""

    message: str
    advice: str | None


@dataclass
class Survey:
    """A search for common texts or documents of different test cases, as they are read."""

    _cases: int = 0
    _sentences: Counter[int] = field(default_factory=Counter)
    _of_cases: list[list[tuple[int, int]]] = field(default_factory=list)
    _values: dict[str, Counter[int]] = field(default_factory=dict)
    _long_values: Counter[str] = field(default_factory=Counter)

    def add(self, case: TestCase) -> None:
        """Add a case that does not duplicate another one."""
        if self._cases >= MOST_SURVEYED:
            return
        self._cases += 1
        if sentences := _longest_sentences(case.input):
            self._of_cases.append(sentences)
            self._sentences.update(sentence for sentence, _ in sentences)
        for name, value in (case.metadata or {}).items():
            if isinstance(value, str | int) and not isinstance(value, bool):
                self._values.setdefault(name, Counter())[hash(value)] += 1
                self._long_values[name] += isinstance(value, str) and len(value) >= LONG_TEXT

    def resemblance(self) -> Remark | None:
        """Return the strongest sign that cases depend on one another, if there is one."""
        return self._shared_values() or self._shared_text()

    def _shared_values(self) -> Remark | None:
        """Find a field that looks like a document or a person, with few cases each: topics and levels do not."""
        candidates = []
        for name, counts in self._values.items():
            shared = [count for count in counts.values() if count > 1]
            needed = self._fewest(name)
            if needed is not None and len(shared) >= needed and 2 * sum(shared) >= self._cases:
                candidates.append((-sum(shared), len(shared), name))
        if not candidates:
            return None
        cases, values, name = min(candidates)
        noun = re.sub(r"[_-]?ids?$", "", name, flags=re.IGNORECASE) or name
        key = f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f"[{name!r}]"
        return Remark(
            f"{self._of(-cases)} share {values:,} values of metadata.{cut(name, 60)}: cases of one {cut(noun, 60)} are "
            "rarely independent, so the intervals may be too narrow",
            f"set cluster: $.test_case.metadata{key}; cluster: {INDEPENDENT} says that they are independent",
        )

    def _fewest(self, name: str) -> int | None:
        """Return how many values a field needs to count as a document's; None for any other field."""
        words = [word.lower().removesuffix("s") for word in _WORD.findall(name)]
        if any(map(_DOCUMENT.fullmatch, words)) or 2 * self._long_values[name] > self._values[name].total():
            return _FEWEST_DOCUMENTS
        return _FEWEST_IF_IN_DOUBT if any(map(_MAYBE_DOCUMENT.fullmatch, words)) else None

    def _shared_text(self) -> Remark | None:
        """Find texts that several cases have most of in common; what more than half of all cases have is how they
        are asked."""
        texts = Counter[int]()
        for sentences in self._of_cases:
            own = [(sentence, length) for sentence, length in sentences if 2 * self._sentences[sentence] <= self._cases]
            shared = [
                (self._sentences[sentence], length, sentence)
                for sentence, length in own
                if self._sentences[sentence] > 1
            ]
            if shared and 2 * sum(length for _, length, _ in shared) >= sum(length for _, length in own):
                texts[max(shared)[2]] += 1
        shared_texts = [count for count in texts.values() if count > 1]
        if len(shared_texts) < 2 or 5 * sum(shared_texts) < self._cases:
            return None
        return Remark(
            f"{self._of(sum(shared_texts))} share most of their text with others, {len(shared_texts):,} texts in all: "
            "cases of one text are rarely independent, so the intervals may be too narrow",
            "name the text in a field of metadata, and set cluster: $.test_case.metadata.FIELD",
        )

    def _of(self, cases: int) -> str:
        whole = plural(cases, "test case")
        return f"{whole} of the first {self._cases:,}" if self._cases == MOST_SURVEYED else whole


class Dependence:
    """The dependence of a suite's cases: its `cluster`, duplicates, and signs of further dependence."""

    def __init__(
        self,
        suite: Mapping[str, Any],
        cluster: str | None,
        gate: Gate,
        thresholds: object = None,
        slices: Slices | None = None,
    ) -> None:
        """Take the suite's document and its sections. Without `cluster`, look for signs of dependence if the gate
        judges by intervals."""
        # A verdict about these very cases, as of a run that adds repeats, does not depend on what they have in common.
        self._of_these_cases = gate.top_up is not None and gate.top_up.max_repeats is not None
        judged = gate.min or gate.max or gate.max_impact or gate.regression or thresholds or (slices and slices.min)
        warns = judged and gate.verdict == "interval" and not self._of_these_cases and cluster is None
        self._by_suite = clusters_by(cluster)
        self._duplicates = Duplicates(suite)
        self._survey = Survey() if warns else None

    def add(self, case: TestCase) -> None:
        """Add the next case."""
        if self._by_suite is not None:
            self._by_suite.add(case)
        if self._duplicates.add(case) and self._survey is not None:
            self._survey.add(case)

    @cached_property
    def clusters(self) -> ClusteredCases | None:
        """Return the clusters of all cases, or None if each counts by itself."""
        return None if self._of_these_cases else self._duplicates.joined(self._by_suite)

    def remarks(self) -> Iterator[Remark]:
        """Yield remarks that the user of a verdict has to know."""
        if self.clusters is not None and self.clusters.warning is not None:
            yield Remark(self.clusters.warning, None)
        if (sentence := self._duplicates.sentence) is not None:
            once = "they count as repeats of one case"
            yield Remark(sentence, "they weigh more than other cases" if self._of_these_cases else once)
        if self._survey is not None and (resemblance := self._survey.resemblance()) is not None:
            yield resemblance

    @property
    def warnings(self) -> list[str]:
        """Return the remarks as sentences."""
        return [f"{remark.message}; {remark.advice}." if remark.advice else remark.message for remark in self.remarks()]


def end_of_cluster(store: Store, run: RunRecord, suite: Suite, cases: int) -> int:
    """Return with how many cases, of all that a run may yet take in, the cluster of the last of `cases` is complete.

    They are in the order of their clusters. Without clusters, and without duplicates, nothing was noted when they were
    drawn, and they need not be read.
    """
    if "largest_cluster" not in run.options["sample"]:
        return cases
    dependence = Dependence(run.suite, suite.cluster, suite.gate or Gate())
    for case in store.runs.cases(run.id, 0, run.options["sample"]["cases"], waiting=True):
        dependence.add(case)
    if dependence.clusters is None:
        return cases
    numbers = dependence.clusters.numbers
    while 0 < cases < len(numbers) and numbers[cases] == numbers[cases - 1]:
        cases += 1
    return min(cases, len(numbers))


def _longest_sentences(value: Any) -> list[tuple[int, int]]:
    """Return the hashes and lengths of the longest sentences of an input, if it is long enough."""
    text = value if isinstance(value, str) else "\n".join(text for _, text in texts_in(value))
    if len(text) < LONG_TEXT:
        return []
    sentences = set(_SENTENCE.findall(text[:MOST_TEXT]))
    longest = sorted(sentences, key=lambda sentence: (len(sentence), sentence))[-SENTENCES:]
    return [(hash(sentence), len(sentence)) for sentence in longest]
