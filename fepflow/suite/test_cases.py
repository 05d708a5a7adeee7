"""Test cases, and records of recorded outputs, from files in JSONL, JSON, YAML, CSV, Parquet or Excel.

A suite may have more test cases than memory should hold: they wait on disk.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

from pydantic import ValidationError

from fepflow.datasets.records import TRACES, Columns, ErrorCollector, Format, format_of, records
from fepflow.documents.messages import bare_name, closest, kind_name, validation_messages
from fepflow.errors import JSONPathError, Problem, dotted
from fepflow.json.values import NotJsonError, decode, encode, parse
from fepflow.jsonpath.path import Path as JSONPath
from fepflow.jsonpath.path import compile_path, leading_keys
from fepflow.protocol.test_case import TestCase, case_in_full
from fepflow.suite.foreign_names import TEST_CASE, with_our_names, with_types_named
from fepflow.suite.models import Dataset

_PARTS = ("id", "input", "expected", "metadata", "checks")
_CONVERSATION = ("turns", "user")
"""Parts of test cases that are conversations; in other records, fields of these names may be anything."""


@dataclass(frozen=True)
class Cases:
    """Test cases in the order of their file, and notes about them for the user."""

    cases: CasesOnDisk
    warnings: list[Problem]


def read_records(path: Path, format: str | None, file: str) -> Iterator[tuple[int, Any]]:
    """Yield each record with its line, from 1; a JSONL or CSV file of any length is read as a stream.

    `format` is one that a suite names; None: by the file's ending. `file` is the file's name in messages. A JSON or
    YAML file holds a list, or `{"test_cases": [...]}`; a CSV record maps the header's names to strings. Blank lines
    are skipped. Raises InputError, after the last readable record, with what is wrong with the others.
    """
    errors = ErrorCollector(file)
    yield from records(path, format_of(path, format, file), errors)
    errors.raise_if_any()


def id_text(value: Any) -> str:
    """Return a record's id as a test case has it: numbers become strings. Raises ValueError for anything else."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError("an id is a text or a number")


def read_test_cases(
    dataset: Dataset,
    path: Path,
    file: str,
    complete: Callable[[TestCase], TestCase] = lambda case: case,
    more: Sequence[tuple[Path, str]] = (),
) -> Cases:
    """Return the test cases in `path`, mapped as `dataset` says, each with an id of its own, and made `complete`.

    `file` is the file's name in messages. `more` are further parts of it, each with its name in messages.

    A part without mapping is where FEP 2.1 has it. Without any mapping, fields that FEP does not know go to the case's
    metadata, with one warning; with one they are left out. Raises InputError with all errors (20 of them spelled
    out), JSONPathError for a mapping that is not a valid path.
    """
    format = format_of(path, dataset.format, file)
    errors = ErrorCollector(file)
    if format in TRACES:  # the rest of a record is its output, and not part of the case
        dataset = dataset.model_copy(update={"id": dataset.id or "$.id", "input": dataset.input or "$.input"})
    reader = _Reader(dataset, errors, format)
    cases = CasesOnDisk()
    for part, errors.file in ((path, file), *more):
        for line, case in reader.cases(records(part, format, errors, reader.columns)):
            try:
                cases.add(complete(case), line)
            except NotJsonError as error:
                errors.add(f"has no JSON form: {error}", line)
    reader.report_mappings()
    if not reader.seen and not errors:
        errors.add("holds no test cases", advice='add one, such as {"input": ..., "expected": ...}')
    errors.raise_if_any()
    return Cases(cases, reader.warnings(file))


class _Reader:
    """A reader of records into test cases, which collects every error."""

    def __init__(self, dataset: Dataset, errors: ErrorCollector, format: Format) -> None:
        parts = {"id": dataset.id, "input": dataset.input, "expected": dataset.expected, "turns": dataset.turns}
        self._paths = {part: compile_path(path) for part, path in parts.items() if path}
        self._metadata = {name: compile_path(path) for name, path in (dataset.metadata or {}).items()}
        self._maps_metadata = dataset.metadata is not None
        self._unused = set(self._metadata)
        self._is_table = format in ("csv", "xlsx")
        # A cell cannot be an object or a list of checks.
        self._known = ("id", "input", "expected") if self._is_table else _PARTS
        # Parquet has every column in every row: one without an expected answer has null there.
        self._empty_cells = ("",) if self._is_table else (None,) if format == "parquet" else ()
        self._errors = errors
        self._extra: dict[str, None] = {}
        self._lines: dict[str, int] = {}
        self._lacking: dict[str, ErrorCollector] = {}
        self.seen = 0

    @property
    def columns(self) -> Columns | None:
        """The fields that are read; None if all are, because fields that are not mapped go to the metadata."""
        paths = [*self._paths.values(), *self._metadata.values()]
        keys = [leading_keys(path.expression) for path in paths]
        if not all(keys) or not (self._paths or self._maps_metadata):
            return None
        return Columns({str(first) for first, *_ in keys}, {*self._known, *_CONVERSATION})

    def cases(self, records: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, TestCase]]:
        """Yield the valid test cases with unique ids, and their lines."""
        for line, record in records:
            self.seen += 1
            if not isinstance(record, dict):
                self._errors.add(f"a test case is an object, but this is {kind_name(record)}", line)
                continue
            data = self._data(record if self._paths or self._maps_metadata else with_our_names(record), line)
            case = None if data is None else self._case(data, line)
            if case is not None and self._is_new(case, line, given="id" in (data or {})):
                yield line, case

    def warnings(self, file: str) -> list[Problem]:
        """Return warnings about the records."""
        if not self._extra:
            return []
        names = ", ".join(list(self._extra)[:10]) + (", ..." if len(self._extra) > 10 else "")
        message = f"fields that test cases do not have went to their metadata: {names}"
        return [Problem(message, file, advice="map them, if one is the input or expected", severity="warning")]

    def report_mappings(self) -> None:
        """Add the errors of paths that find nothing.

        A metadata path may find nothing in some records, but not in all. Each record in which another path finds
        nothing is an error, reported once if it finds nothing in any record.
        """
        for part, lacking in self._lacking.items():
            if len(lacking) == self.seen > 1:
                expression = self._paths[part].expression
                first = lacking.first
                message = f"none of the {self.seen:,} records has anything at {expression}"
                self._errors.add(message, first.line, part, first.advice)
            else:
                self._errors.take(lacking)
        for name in sorted(self._unused) if self.seen else ():
            message = f"no record has anything at {self._metadata[name].expression}"
            self._errors.add(message, path=f"metadata.{name}")

    def _data(self, record: dict[str, Any], line: int) -> dict[str, Any] | None:
        data = {part: record[part] for part in self._known if part in record}
        data.update(self._conversation(record))
        complete = True
        for part, path in self._paths.items():
            found, value = self._find(path, record)
            if found:
                data[part] = value
            else:
                complete = False
                lacking = self._lacking.setdefault(part, ErrorCollector(self._errors.file))
                lacking.add(f"nothing at {path.expression}", line, part, _meant(path, record))
        if self._maps_metadata:
            data["metadata"] = self._mapped_metadata(record)
        elif not self._paths:
            self._keep_extra(record, data)
        if self._empty_cells:
            optional = self._may_be_empty(data)
            data = {
                part: value for part, value in data.items() if part not in optional or value not in self._empty_cells
            }
        if data.get("id") is None:
            data.pop("id", None)
        if not self._paths and "turns" not in data and data.get("input") in (None, "") and record.get("turns"):
            advice = 'write ["Hello", "Bye"]'
            self._errors.add("a record without an input has turns that are not a list", line, "turns", advice)
            return None
        return data if complete and self._is_complete(data, record, line) else None

    def _conversation(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a conversation. In other records, fields of these names may be anything."""
        if self._paths.keys() & {"input", "turns"}:
            return {}
        fields = {name: record[name] for name in _CONVERSATION if name in record}
        if self._is_table:  # whose cells are texts
            fields = {name: _from_json(value) for name, value in fields.items()}
        has_input = record.get("input") not in (None, "")
        return {
            name: value
            for name, value in fields.items()
            if isinstance(value, list if name == "turns" else dict)
            and (name == "turns" or "goal" in value or not has_input)
        }

    def _is_complete(self, data: dict[str, Any], record: Mapping[str, Any], line: int) -> bool:
        if not data.keys() & {"input", *_CONVERSATION}:
            names = [name for name in record if name not in self._known]
            meant = (name for name in names if TEST_CASE.get(bare_name(name)) == "it is input")
            likely = next(meant, next(iter(names), "question"))
            advice = f"the record has {_keys(record)}; say where the input is, as in `input: $.{likely}`"
            self._errors.add("input is missing", line, advice=advice)
        return bool(data.keys() & {"input", *_CONVERSATION})

    @staticmethod
    def _may_be_empty(data: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns of a table whose empty cells are left out."""
        optional = tuple(part for part in _PARTS if part != "input")
        return (*optional, "input") if data.keys() & set(_CONVERSATION) else optional

    def _mapped_metadata(self, record: dict[str, Any]) -> dict[str, Any]:
        metadata = {}
        for name, path in self._metadata.items():
            found, value = self._find(path, record)
            if found:
                metadata[name] = value
                self._unused.discard(name)
        return metadata

    @staticmethod
    def _find(path: JSONPath, record: dict[str, Any]) -> tuple[bool, Any]:
        try:
            return True, path.resolve(record)
        except JSONPathError:
            return False, None

    def _keep_extra(self, record: dict[str, Any], data: dict[str, Any]) -> None:
        extra = {name: value for name, value in record.items() if name not in self._known and name not in data}
        own = data.get("metadata") or {}
        if extra and isinstance(own, dict):
            self._extra.update(dict.fromkeys(extra))
            data["metadata"] = {**extra, **own}

    def _case(self, data: dict[str, Any], line: int) -> TestCase | None:
        try:
            if "id" in data:
                data["id"] = id_text(data["id"])
            return TestCase.model_validate(case_in_full(data))
        except ValidationError as error:
            for item in with_types_named(data, validation_messages(data, error, TestCase), is_check=False):
                self._errors.add(item.message, line, dotted(item.path), item.advice)
        except ValueError as error:
            self._errors.add(str(error), line, "id")
        return None

    def _is_new(self, case: TestCase, line: int, *, given: bool) -> bool:
        first = self._lines.get(case.id)
        if first is None:
            self._lines[case.id] = line
        elif given:
            self._errors.add(f"the id {case.id!r} stands in line {first} already", line)
        else:
            advice = "take one away, or give both an id"
            self._errors.add(f"is the same test case as the one in line {first}", line, advice=advice)
        return first is None


def _from_json(text: Any) -> Any:
    """Return the list or object that a cell holds as JSON; any other text as it is."""
    try:
        return parse(text) if isinstance(text, str) and text.lstrip()[:1] in ("[", "{") else text
    except ValueError:
        return text


def _meant(path: JSONPath, record: Mapping[str, Any]) -> str:
    keys = leading_keys(path.expression)
    close = closest(str(keys[0]), list(record)[:1_000]) if keys else None
    return f"did you mean $.{close}?" if close else f"the record has {_keys(record)}"


def _keys(record: Mapping[str, Any]) -> str:
    names = [ascii(name)[1:-1] for name in list(record)[:10]]
    return ", ".join(names) if names else "no fields"


# --- test cases that wait on disk ------------------------------------------------------------------------------------


_IN_MEMORY = 4_000_000
_READ_AT_ONCE = 100_000


class CasesOnDisk(Collection[TestCase]):
    """Test cases in the order in which they were added; up to 4 MB of them stay in memory.

    The file has no name, belongs to this object, and goes with it. Not for use by several threads at once.
    """

    def __init__(self, cases: Iterable[TestCase] = ()) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # closed with this object
        weakref.finalize(self, self._file.close)
        self._count = self._end = 0
        self._with_checks = array("Q")
        """Numbers and positions of the cases that carry checks, in turn."""

        self._lines = array("Q")
        self.has_conversations = False
        for case in cases:
            self.add(case)

    def add(self, case: TestCase, line: int = 0) -> None:
        """Add a case at the end; `line` is its line in a file, 0 without one.

        Raises NotJsonError, without a change, if the case has no JSON form.
        """
        written = encode(case.model_dump()).encode("ascii") + b"\n"
        if case.checks:
            self._with_checks.extend((self._count, self._end))
        self.has_conversations |= case.is_conversation
        self._lines.append(line)
        self._file.seek(self._end)
        self._end += self._file.write(written)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TestCase]:
        position = 0
        while position < self._end:
            # There may be other readers: each goes on where it was.
            self._file.seek(position)
            lines = self._file.readlines(_READ_AT_ONCE)
            position = self._file.tell()
            yield from map(_read, lines)

    def __contains__(self, case: object) -> bool:
        return any(case == mine for mine in self)

    def with_lines(self) -> Iterator[tuple[TestCase, int | None]]:
        """Yield all cases, each with its line in its file, counted from 1; None for those of a suite."""
        yield from zip(self, (line or None for line in self._lines), strict=True)

    def with_checks(self) -> Iterator[TestCase]:
        """Yield the cases that carry checks."""
        yield from (case for case, _ in self.with_checks_and_lines())

    def with_checks_and_lines(self) -> Iterator[tuple[TestCase, int | None]]:
        """Yield the cases that carry checks, each with its line in its file, counted from 1."""
        for number, position in zip(self._with_checks[::2], self._with_checks[1::2], strict=True):
            self._file.seek(position)
            yield _read(self._file.readline()), self._lines[number] or None


def _read(line: bytes) -> TestCase:
    return TestCase.trusted(decode(line.decode("ascii")))
