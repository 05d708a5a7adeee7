"""Test cases of a run, appended to a file of test cases, so that failures become tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.documents.files import read_text, reason, replace_text
from fepflow.errors import InputError, Problem, UserError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import ERASED, TestCase
from fepflow.services.failed_results import Selection, selected
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.test_cases import read_records

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
