"""Records of files, in bounded memory; errors are collected and raised together."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal, get_args

from fepflow.datasets.csv_reader import csv_records
from fepflow.datasets.error_collector import ErrorCollector
from fepflow.documents.loader import MAX_BYTES as MAX_YAML_BYTES
from fepflow.documents.loader import SAVE_AS_UTF8, decode, not_utf8, other_encoding, parse_document
from fepflow.errors import InputError, Problem
from fepflow.json import parser
from fepflow.security.regular_files import open_regular

Format = Literal["jsonl", "json", "yaml", "csv"]

MAX_LINE_BYTES = 10_000_000
MAX_STREAM_BYTES = 2_000_000_000
MAX_JSON_BYTES = 100_000_000
MAX_LINES = 5_000_000

_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_ENDINGS |= {".yaml": "yaml", ".yml": "yaml"}
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


def format_of(path: Path, format: str | None, file: str) -> Format:
    """The format as given, else by the file's ending; raises InputError for one that is not known."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    known = format if format in get_args(Format) else _ENDINGS.get(suffixes[-1] if suffixes else "")
    if known is None:
        advice = "known are .jsonl, .json, .yaml and .csv, each also with .gz; or name it, as in `format: jsonl`"
        raise InputError(Problem("the ending does not say what format it is", file, advice=advice))
    return known  # type: ignore[return-value]  # one of get_args(Format), which the checker does not follow


def records(path: Path, format: Format, errors: ErrorCollector) -> Iterator[tuple[int, Any]]:
    """Each readable record with the line, from 1, on which it begins."""
    if format == "jsonl":
        return _jsonl(_lines(path, errors), errors)
    if format == "csv":
        return csv_records(_lines(path, errors), errors, MAX_LINE_BYTES)
    return _document(path, format, errors)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as stream:
        if path.suffix.lower() != ".gz":
            yield stream
            return
        with gzip.open(stream) as plain:
            yield plain  # type: ignore[misc]  # GzipFile reads like any IO[bytes]


def _lines(path: Path, errors: ErrorCollector) -> Iterator[tuple[int, str]]:
    """Each line with its number and its line end. Ends with an error at the first that cannot be read."""
    number = total = 0
    try:
        with _open(path) as stream:
            for number in count(1):
                raw = stream.readline(MAX_LINE_BYTES + 1)
                total += len(raw)
                if not raw or errors.are_enough:
                    return
                if number > MAX_LINES:
                    errors.add(f"has more than {MAX_LINES:,} lines")
                    return
                if len(raw) > MAX_LINE_BYTES or total > MAX_STREAM_BYTES:
                    limit, what = (
                        (MAX_LINE_BYTES, "this line") if len(raw) > MAX_LINE_BYTES else (MAX_STREAM_BYTES, "the file")
                    )
                    errors.add(f"{what} is larger than {limit:,} bytes", number)
                    return
                if number == 1 and (reason := _foreign(raw)):
                    errors.add(reason, advice=SAVE_AS_UTF8)
                    return
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        errors.add(not_utf8(error.object, error.start), number, advice=SAVE_AS_UTF8)
    except (OSError, EOFError, zlib.error) as error:
        errors.add(*_unreadable(error))


def _foreign(beginning: bytes) -> str | None:
    if beginning.startswith(b"\x1f\x8b"):
        return "is gzip data, but its name does not end in .gz"
    return other_encoding(beginning)


def _unreadable(error: Exception) -> tuple[str]:
    if isinstance(error, _DAMAGED):
        return ("is no complete gzip file",)
    if isinstance(error, FileNotFoundError):
        return ("there is no such file",)
    return (f"cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}",)


def _jsonl(lines: Iterator[tuple[int, str]], errors: ErrorCollector) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        text = line.strip()
        if number == 1 and text in ("[", "{"):
            errors.add("is one JSON document, not a record a line", 1, advice="name it .json, or set `format: json`")
            return
        if not text:
            continue
        try:
            record = parser.parse(text)
        except ValueError as error:
            errors.add(f"is not valid JSON: {error}", number)
        else:
            yield number, record


def _document(path: Path, format: Format, errors: ErrorCollector) -> Iterator[tuple[int, Any]]:
    limit = MAX_JSON_BYTES if format == "json" else MAX_YAML_BYTES
    try:
        with _open(path) as stream:
            raw = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        errors.add(*_unreadable(error))
        return
    if len(raw) > limit:
        errors.add(f"is larger than {limit:,} bytes", advice="use JSONL, which is read as a stream")
    elif reason := _foreign(raw):
        errors.add(reason, advice=SAVE_AS_UTF8)
    else:
        try:
            text = decode(raw, errors.file)
            pairs = _json_list(text) if format == "json" else _yaml_list(text, errors.file)
        except InputError as error:
            for problem in error.problems:
                errors.add_problem(problem)
        except ValueError as error:
            errors.add(str(error))
        else:
            yield from pairs


def _json_list(text: str) -> list[tuple[int, Any]]:
    try:
        data = parser.parse(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    elements = _elements(data)
    pairs = []
    line, at = 1, 0
    for element, start in zip(elements, _starts(text), strict=True):
        line += text.count("\n", at, start)
        at = start
        pairs.append((line, element))
    return pairs


def _yaml_list(text: str, file: str) -> list[tuple[int, Any]]:
    document = parse_document(text, file)
    data = document.data
    prefix: tuple[str, ...] = ("test_cases",) if isinstance(data, dict) else ()
    elements = _elements(data if data is not None else [])
    return [(document.line_of((*prefix, index)) or index + 1, element) for index, element in enumerate(elements)]


def _elements(data: Any) -> list[Any]:
    elements = data.get("test_cases") if isinstance(data, dict) else data
    if not isinstance(elements, list):
        raise ValueError("holds no list of records, and no object with a list under test_cases")
    return elements


_SEPARATORS = re.compile(r"[ \t\r\n,:]*")


def _starts(text: str) -> Iterator[int]:
    """Where each element of the list begins; `text` is known to be valid JSON with a list where it is looked for."""
    decode_at = json.JSONDecoder().raw_decode

    def skip(at: int) -> int:
        match = _SEPARATORS.match(text, at)
        return match.end() if match else at

    at = skip(0)
    if text[at] == "{":
        key, at = decode_at(text, skip(at + 1))
        while key != "test_cases":
            at = skip(decode_at(text, skip(at))[1])
            key, at = decode_at(text, at)
        at = skip(at)
    at = skip(at + 1)
    while text[at] != "]":
        yield at
        at = skip(decode_at(text, at)[1])
