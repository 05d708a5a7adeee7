"""Recorded outputs from a file in place of a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.calls.base import TargetResponse, attempt_under_way, refuse_reserved_names
from fepflow.calls.responses import describe, metadata_in
from fepflow.datasets.records import TRACES
from fepflow.errors import InputError, JSONPathError, Problem, TargetError
from fepflow.jsonpath.path import compile_path, descend, leading_keys
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import Output, TestCase, output_context
from fepflow.security.redaction import excerpt
from fepflow.suite import target
from fepflow.suite.test_cases import id_text, read_records
from fepflow.text import text_of

VALUE = "$.value"
LATENCY = "latency_ms"
"""Member of a record that a suite may map in place of the time that reading it took."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A record: its answer, or what it is instead (`what`), and the error of the call if it names one."""

    line: int
    answer: TargetResponse | None
    what: str = ""
    error: str | None = None


class RecordedTarget:
    """A target that answers each test case with its record; all repeats get the same unless records have a `repeat`.

    Its fingerprint depends on the records' content, not on their place in the file.
    """

    def __init__(self, config: target.RecordedTarget, records: dict[str, dict[int, _Record]]) -> None:
        self._config = config
        self._records = records
        self._hashes: dict[str, str] = {}
        self.fingerprint = content_hash("recorded", config.output, config.metadata)
        self.secrets: frozenset[str] = frozenset()

    def render(self, case: TestCase) -> Any:
        """Return the record of a case, `{value, metadata}`. Raises TargetError `missing_output`.

        The repeat is not known here, so a hash of all records with a `repeat` replaces them.
        """
        if self._config.repeat is None:
            return self._answer(case.id, 1)
        if case.id not in self._hashes:
            records = self._records.get(case.id, {})
            answers = ((repeat, records[repeat].answer) for repeat in sorted(records))
            contents = [[repeat, *((answer.value, answer.metadata) if answer else ())] for repeat, answer in answers]
            self._hashes[case.id] = content_hash(contents)
        return {"id": case.id, "records": self._hashes[case.id]}

    def _answer(self, case_id: str, repeat: int) -> dict[str, Any]:
        path = self._config.path
        records = self._records.get(case_id)
        if not records:
            raise _missing(f"{path} has no record for this test case (by {self._config.id or 'order'})")
        record = records.get(repeat)
        if record is None:
            raise _missing(f"{path} has no record for repeat {repeat} of this test case (by {self._config.repeat})")
        if record.answer is None:
            where = f"{path}:{record.line}"
            if record.error is not None:
                message = f"{where} records a call that failed: {record.error}"
                raise TargetError(message, kind="recorded", retryable=False)
            raise _missing(f"{where} has nothing at {self._config.output}; the record is {record.what}")
        answer = {"value": record.answer.value, "metadata": record.answer.metadata}
        return {**answer, "has_own_time": True} if LATENCY in self._config.metadata else answer

    def recorded(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each output in the form for checks, with the id of its test case."""
        for case_id, record in _all(self._records):
            if record.answer is not None:
                yield case_id, output_context(Output(value=record.answer.value, metadata=record.answer.metadata))

    async def call(self, request: Any) -> TargetResponse:
        """Return the recorded answer for the present attempt's repeat. Raises TargetError."""
        if self._config.repeat is not None:
            request = self._answer(request["id"], attempt_under_way.get().repeat + 1)
        return TargetResponse(**request)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def open_recorded(config: target.RecordedTarget, file: Path, case_ids: Callable[[], Sequence[str]]) -> RecordedTarget:
    """Read the records in `file`, each mapped as `config` says, and match them with test cases.

    Raises InputError as `read_records` does, for an id that is missing or appears twice in a repeat, if no record has
    an output, and, if matched by order, if the numbers of records and cases differ. Raises JSONPathError for an invalid
    path.
    """
    others = {name: path for name, path in config.metadata.items() if name != LATENCY}
    refuse_reserved_names(others, "target.recorded.metadata")
    output = compile_path(config.output)
    beside = leading_keys(config.output)[:-1]
    metadata = {name: compile_path(path) for name, path in config.metadata.items()}

    def mapped(line: int, document: Any) -> _Record:
        if config.output == VALUE and isinstance(document, dict) and "value" not in document:
            # deepeval's name for the value, also in its files of test cases.
            document = {**document, "value": document["actual_output"]} if "actual_output" in document else document
        try:
            value = output.resolve(document)
        except JSONPathError:
            return _Record(line, None, describe(document), _error_of(None, document, beside))
        if (error := _error_of(value, document, beside)) is not None:
            return _Record(line, None, error=error)
        traced = {"trace": document["trace"]} if config.format in TRACES else {}
        return _Record(line, TargetResponse(value, {**metadata_in(metadata, document), **traced}))

    pairs = ((mapped(line, document), document) for line, document in read_records(file, config.format, config.path))
    by_id = _by_id(pairs, config) if config.id else _by_order([record for record, _ in pairs], config, case_ids())
    _refuse_all_without_output(by_id, config)
    return RecordedTarget(config, by_id)


def _error_of(value: Any, document: Any, beside: tuple[str | int, ...]) -> str | None:
    """Return the error that a record without a value, or with a part of one, names as `error` or `metadata.error`.

    `beside` are the keys of the object that has the value, as in our own reports: `$.execution_context.output.value`.
    """
    objects = [descend(document, beside[:depth])[1] for depth in range(len(beside) + 1)]
    places = [place for held in objects if isinstance(held, dict) for place in (held, held.get("metadata"))]
    for place in places:
        error = place.get("error") if isinstance(place, dict) else None
        is_object = isinstance(error, dict)
        if error and (value in (None, "") or (is_object and error.get("partial") is True)):
            return excerpt(text_of((error.get("message") if is_object else None) or error), frozenset(), 500)
    return None


def _by_id(pairs: Any, config: target.RecordedTarget) -> dict[str, dict[int, _Record]]:
    assert config.id is not None  # asked for only then
    path, repeat_path = compile_path(config.id), config.repeat and compile_path(config.repeat)
    records: dict[str, dict[int, _Record]] = {}
    problems = []
    for record, document in pairs:
        try:
            case_id = id_text(path.resolve(document))
        except (JSONPathError, ValueError):
            message = f"has no id at {config.id}; the record is {describe(document)}"
            problems.append(Problem(message, config.path, record.line))
            continue
        repeat, of_repeat = 1, ""
        if repeat_path:
            try:
                repeat = _number_of_repeat(repeat_path.resolve(document))
            except (JSONPathError, TypeError, ValueError):
                message = f"has no number from 1 at {config.repeat} (target.recorded.repeat)"
                problems.append(Problem(message, config.path, record.line))
                continue
            of_repeat = f" with repeat {repeat}"
        same = records.setdefault(case_id, {})
        if repeat in same:
            message = f"the id {case_id!r}{of_repeat} stands in line {same[repeat].line} already"
            problems.append(Problem(message, config.path, record.line))
        same.setdefault(repeat, record)
    if problems:
        raise InputError(problems[:20])
    return records


def _number_of_repeat(value: Any) -> int:
    """Return the number of a repeat, a text in CSV; raises TypeError or ValueError for anything but 1, 2, …"""
    if isinstance(value, bool) or str(value) != str(number := int(value)) or number < 1:
        raise ValueError
    return number


def _by_order(
    records: list[_Record], config: target.RecordedTarget, case_ids: Sequence[str]
) -> dict[str, dict[int, _Record]]:
    if len(records) != len(case_ids):
        message = f"holds {len(records):,} records, but there are {len(case_ids):,} test cases"
        advice = "name the test case's id in a record: target.recorded.id"
        raise InputError(Problem(message, config.path, advice=advice))
    return {case_id: {1: record} for case_id, record in zip(case_ids, records, strict=True)}


def _all(records: dict[str, dict[int, _Record]]) -> Iterator[tuple[str, _Record]]:
    yield from ((case_id, record) for case_id, same in records.items() for record in same.values())


def _refuse_all_without_output(records: dict[str, dict[int, _Record]], config: target.RecordedTarget) -> None:
    first = next((record for _, record in _all(records)), None)
    if first is not None and all(record.answer is None and record.error is None for _, record in _all(records)):
        message = f"no record has anything at {config.output} (target.recorded.output); the first is {first.what}"
        raise InputError(Problem(message, config.path, first.line))


def _missing(message: str) -> TargetError:
    return TargetError(message, kind="missing_output", retryable=False)


class GivenOutputs:
    """The target of a run that was created with outputs in the store; others are missing."""

    fingerprint = content_hash("given")
    secrets: frozenset[str] = frozenset()

    def render(self, case: TestCase) -> Any:
        """Return None: no request is made."""
        return None

    async def call(self, request: Any) -> TargetResponse:
        """Raise TargetError `missing_output`."""
        raise TargetError("no output was given for this test case", kind="missing_output", retryable=False)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""
