"""A run's results that did not pass: selected to be shown, or appended to a file of test cases to become tests.

Those that decided the verdict come first; they are read a hundred cases at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fepflow.documents.files import read_text, reason, replace_text
from fepflow.documents.messages import did_you_mean
from fepflow.errors import InputError, NotFoundError, Problem, UserError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import ERASED, TestCase
from fepflow.store.records import CaseResult, FailureKind, RunRecord
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store

MOST_COMPARED = 20_000
"""Ids among which a similar one is looked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of results to show.

    Without `failed`: everything, of one case or of all; `check_id` and `errors` are about failures. `errors` selects
    what is neither a pass nor a fail: calls without an answer, and checks that ended in error.
    """

    failed: bool = False
    case_id: str | None = None
    check_id: str | None = None
    errors: bool = False

    def checks(self, result: CaseResult) -> list[CheckResult]:
        """Return the selected checks of a result. If the call failed, errors of its checks add nothing."""
        if not self.failed:
            return [check for check in result.checks if self.check_id in (None, check.check_id)]
        no_answer = result.output is not None and result.output.failure is not None
        return [check for check in result.checks if self._is_wanted(check, no_answer)]

    def _is_wanted(self, check: CheckResult, no_answer: bool) -> bool:
        if self.check_id not in (None, check.check_id):
            return False
        return (check.error is not None and not no_answer) or (not self.errors and check.passed is False)

    def holds(self, result: CaseResult) -> bool:
        """Return whether a result is selected."""
        if self.case_id not in (None, result.case.id):
            return False
        if not self.failed:
            return True
        no_answer = result.output is not None and result.output.failure is not None
        return no_answer or bool(self.checks(result))


def selected(store: Store, run: RunRecord, selection: Selection) -> Iterator[CaseResult]:
    """Yield the selected results, those that decided the verdict first. Raises NotFoundError for an unknown id."""
    if selection.check_id is not None:
        _require_check(store, run, selection.check_id)
    if selection.case_id is not None:
        case_index = store.runs.index_of_case(run.id, selection.case_id)
        if case_index is None:
            raise _unknown("case", selection.case_id, list(islice(store.runs.ids_of_cases(run.id), MOST_COMPARED)))
        case_indices = [case_index]
    elif selection.failed:
        case_indices = worst_first(store, run, selection)
    else:
        case_indices = list(range(run.n_cases))
    return (result for result in store.results.by_case(run.id, case_indices=case_indices) if selection.holds(result))


def count_cases(store: Store, run: RunRecord, selection: Selection) -> int:
    """Return the number of failed cases in a selection."""
    return len(_failed(store, run, selection))


def _failed(store: Store, run: RunRecord, selection: Selection) -> list[int]:
    return store.results.failed_case_indices(run.id, selection.check_id, "error" if selection.errors else None)


def worst_first(store: Store, run: RunRecord, selection: Selection) -> list[int]:
    """Return the indices of the cases that did not pass, first those of the rule that decided."""
    verdict = run.verdict or {}
    groups: list[list[int]] = []
    for rule in verdict.get("rules", ()):
        if rule["outcome"] != "pass" and selection.check_id in (None, rule.get("check")):
            kind: FailureKind = "failed" if rule["outcome"] == "fail" else "error"
            groups.append(store.results.failed_case_indices(run.id, rule.get("check"), kind))
            groups.append(store.results.failed_case_indices(run.id, rule.get("check")))
    wanted = _failed(store, run, selection)
    among = set(wanted)
    return [case_index for case_index in dict.fromkeys(chain(*groups, wanted)) if case_index in among]


def _require_check(store: Store, run: RunRecord, check_id: str) -> None:
    known = dict.fromkeys([*shared_check_ids(run.suite), *(row.check_id for row in store.results.check_totals(run.id))])
    if check_id not in known:
        raise _unknown("check", check_id, list(known))


def _unknown(what: str, name: str, known: list[str]) -> NotFoundError:
    advice = did_you_mean(name, known) if known else "it has none"
    return NotFoundError(f"The run has no {what} {name} ({advice})")


ENDINGS = (".jsonl", ".ndjson")
MAX_FILE = 100_000_000

ORIGIN, TAGS = "origin", "tags"
"""Members of a case's metadata that say where it comes from; they do not make it another case."""


@dataclass(slots=True)
class Added:
    """The ids of the cases that were added to a file. `present` is the number that the file already had.

    `renamed` are ids of those whose own id another case of the file has. `unexpected` is the number without an expected
    value.
    """

    ids: list[str] = field(default_factory=list)
    present: int = 0
    renamed: list[str] = field(default_factory=list)
    unexpected: int = 0


def add_cases(store: Store, run: RunRecord, selections: Sequence[Selection], path: Path, tags: Sequence[str]) -> Added:
    """Append the selected cases of a run to a file, each once, with their origin in their metadata.

    Existing content does not change; the new file replaces the old one in one step. A case already exists if the file
    has one of the same content, of the same origin, or of the same id and input. Raises UserError for a file of another
    format, InputError for one that cannot be read or written.
    """
    from fepflow.suite.test_cases import read_records  # what shows results reads no files

    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: test cases are appended as JSON lines: name a file that ends in .jsonl")
    target = path.resolve()  # a symbolic link stays one
    text = read_text(target, str(path), MAX_FILE) if os.path.lexists(target) else ""
    known = _KnownCases(record for _, record in read_records(target, "jsonl", str(path))) if text else _KnownCases(())
    added, lines = Added(), []
    for case in _cases(store, run, selections):
        record = _record(case, run, tags)
        if known.has(record):
            added.present += 1
            continue
        record["id"] = known.free_id(case.id)
        known.add(record)
        added.ids.append(record["id"])
        added.renamed += [record["id"]] if record["id"] != case.id else []
        added.unexpected += "expected" not in record
        lines.append(_line(record))
    if lines:
        before = text if not text or text.endswith("\n") else f"{text}\n"
        try:
            replace_text(target, before + "".join(lines))
        except OSError as error:
            raise InputError(Problem(f"cannot be written: {reason(error)}", str(path))) from None
    return added


def _cases(store: Store, run: RunRecord, selections: Iterable[Selection]) -> Iterator[TestCase]:
    """Yield each case once, without its repeats. Of an erased one nothing is left to be asked."""
    seen = set()
    for selection in selections:
        for result in selected(store, run, selection):
            if result.case_index not in seen and ERASED not in (result.case.metadata or {}):
                seen.add(result.case_index)
                yield result.case


def _record(case: TestCase, run: RunRecord, tags: Sequence[str]) -> dict[str, Any]:
    record = case.model_dump(mode="json")
    if case.is_conversation:  # whose input is made of its turns, or of its user: people edit those
        del record["input"]
    metadata = dict(record.get("metadata") or {})
    if tags:
        own_tags: Any = metadata.get(TAGS)
        metadata[TAGS] = list(dict.fromkeys([*(own_tags if isinstance(own_tags, list) else []), *tags]))
    metadata.setdefault(ORIGIN, {"run": run.id, "case": case.id})
    return {**record, "metadata": metadata}


class _KnownCases:
    """The cases that a file has so far."""

    def __init__(self, records: Iterable[Any]) -> None:
        self._ids: dict[str, str] = {}
        self._contents: set[str] = set()
        self._origins: set[str] = set()
        for record in records:
            if isinstance(record, dict):
                self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a case in any form that a file may have."""
        if record.get("id") is not None:
            self._ids[str(record["id"])] = _asked(record)
        self._contents.add(_content(record))
        if (origin := _metadata(record).get(ORIGIN)) is not None:
            self._origins.add(content_hash(origin))

    def has(self, record: Mapping[str, Any]) -> bool:
        """Return whether it already exists, perhaps with corrections of its expected value or metadata."""
        same_origin = content_hash(_metadata(record)[ORIGIN]) in self._origins
        return same_origin or _content(record) in self._contents or self._ids.get(record["id"]) == _asked(record)

    def free_id(self, case_id: str) -> str:
        """Return the id, with a number at the end if another case has it."""
        number, free = 2, case_id
        while free in self._ids:
            number, free = number + 1, f"{case_id}-{number}"
        return free


def _metadata(record: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _asked(record: Mapping[str, Any]) -> str:
    """Return the content hash of the request: the input, that of each turn, or the simulated user."""
    turns, user = record.get("turns"), record.get("user")
    if isinstance(turns, list):
        return content_hash([turn.get("input") if isinstance(turn, dict) else turn for turn in turns])
    return content_hash(record.get("input") if user is None else user)


def _content(record: Mapping[str, Any]) -> str:
    metadata = {name: value for name, value in _metadata(record).items() if name not in (ORIGIN, TAGS)}
    return content_hash(_asked(record), metadata)


def _line(record: Mapping[str, Any]) -> str:
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:  # half of a pair, which an input may hold
        line = json.dumps(record, allow_nan=False)
    return f"{line}\n"
