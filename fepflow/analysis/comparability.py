"""Whether two runs measured the same: what of a suite decides that, and what is different if they did not."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from fepflow.protocol.content_hash import content_hash
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

PARTS = ("checks", "judge", "embedding", "metrics", "thresholds", "gate", "plugins")
"""Sections that say how outputs are judged."""

NEWER_PARTS = ("slices",)
"""The same, which suites of before could not have: without them a suite has the hash that it always had."""

OF_TARGET = ("method", "body", "output", "metadata", "id", "format")
"""How a target is asked. Where it is, and its retries and limits, may change: that is what is evaluated."""

MOST_CASES = 20_000
"""Cases that are looked through to say how many two runs have in common."""


def suite_hash(snapshot: dict[str, Any], repeats: int, folder: Path) -> str:
    """The content hash of what a suite measures, with the code of its plugins."""
    code = [sha256((folder / name).read_bytes()).hexdigest() for name in snapshot.get("plugins") or ()]
    return content_hash(_content(snapshot, repeats), code)


def why_not(store: Store, run: RunRecord, other: RunRecord) -> str | None:
    """Why values of two runs cannot be compared; None if they can."""
    if other.suite_hash is None or other.cases_hash is None:
        return "it is of an earlier version, which did not note what it measured"
    if run.suite_hash != other.suite_hash:
        return f"the suite has changed since ({', '.join(changed_parts(run, other))})"
    if run.cases_hash != other.cases_hash:
        return f"it has other test cases ({_in_common(store, run, other)})"
    return None


def changed_parts(run: RunRecord, other: RunRecord) -> list[str]:
    """What of two suites with different hashes is different."""
    now, then = _content(run.suite, run.repeats), _content(other.suite, other.repeats)
    parts = [name for name in {**then, **now} if now.get(name) != then.get(name)]
    return parts or ["the code of its plugins"]


def _in_common(store: Store, run: RunRecord, other: RunRecord) -> str:
    if max(run.n_cases, other.n_cases) > MOST_CASES:
        return f"{other.n_cases}, and this run {run.n_cases}"
    now, then = ({content_hash(case.model_dump()) for case in store.runs.cases(each.id)} for each in (run, other))
    return f"{len(now & then)} of its {other.n_cases} are among the {run.n_cases} of this run"


def _content(snapshot: dict[str, Any], repeats: int) -> dict[str, Any]:
    target = snapshot.get("target") or {}
    request = {kind: _only(section, OF_TARGET) for kind, section in target.items() if isinstance(section, dict)}
    parts = {name: snapshot.get(name) for name in PARTS} | _only(snapshot, NEWER_PARTS)
    return {**parts, "target": request, "repeats": repeats}


def _only(section: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: section[name] for name in names if name in section}
