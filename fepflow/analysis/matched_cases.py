"""Which test cases two runs have in common."""

from __future__ import annotations

from dataclasses import dataclass

from fepflow.analysis.accumulation import cases_of
from fepflow.protocol.content_hash import content_hash
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import cut, listed

NAMED = 3
"""Cases that a sentence names."""


@dataclass(frozen=True, slots=True)
class MatchedCases:
    """Cases that are the same, contents included, as pairs of their indices in both runs; the ids of the others.

    `changed` have the same id but other contents. The counts are of all cases of each run.
    """

    pairs: list[tuple[int, int]]
    changed: list[str]
    only_base: list[str]
    only_new: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether all cases of both runs matched."""
        return not (self.changed or self.only_base or self.only_new)

    @property
    def sentence(self) -> str:
        """How many matched, and which did not."""
        n = len(self.pairs)
        whole = f"{n} test case{'' if n == 1 else 's'} matched"
        others = [
            f"{len(ids)} {what} ({_first(ids)})"
            for ids, what in (
                (self.changed, "changed"),
                (self.only_base, "only in the base"),
                (self.only_new, "only in the new run"),
            )
            if ids
        ]
        return f"{whole}; not compared: {listed(others)}" if others else f"all {whole}"


Contents = dict[str, tuple[int, str]]
"""The index of each case of a run, and the hash of its contents, by id, in the cases' order."""


def match_cases(then: Contents, now: Contents) -> MatchedCases:
    """Match the cases of two runs by their contents."""
    pairs, changed = [], []
    for case_id, (index, content) in now.items():
        if case_id in then:
            if then[case_id][1] == content:
                pairs.append((then[case_id][0], index))
            else:
                changed.append(case_id)
    only_base = [case_id for case_id in then if case_id not in now]
    return MatchedCases(pairs, changed, only_base, [case_id for case_id in now if case_id not in then])


def contents_of(store: Store, run: RunRecord) -> Contents:
    """What the cases of a run are matched by."""
    return {case.id: (index, content_hash(case.model_dump())) for index, case in enumerate(cases_of(store, run))}


def _first(ids: list[str]) -> str:
    named = [cut(case_id, 60) for case_id in ids[:NAMED]]
    return ", ".join([*named, *([f"and {len(ids) - NAMED} more"] if len(ids) > NAMED else [])])
