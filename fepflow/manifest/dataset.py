"""The steps of a scenario from a file, one a row: its input, and what the agent is to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fepflow.datasets.error_collector import ErrorCollector
from fepflow.datasets.records import records
from fepflow.documents.did_you_mean import did_you_mean
from fepflow.errors import DocumentPath, InputError
from fepflow.manifest.models import Dataset
from fepflow.manifest.parts import PartsReader
from fepflow.settings import settings
from fepflow.suite.files import resolve_inside
from fepflow.text import shortened

Row = tuple[str, str | None]
"""A step's input, and what the agent is to say; None where nothing is said of it."""


def rows_of_dataset(reader: PartsReader, given: Any, path: DocumentPath, folder: Path) -> list[Row]:
    """The rows of the file that a dataset of a manifest in `folder` names; none, with an error, if it is not valid."""
    dataset = reader.fields(Dataset, given, path)
    if len(dataset) < len(Dataset.model_fields):
        return []
    source = dataset["source"]
    try:
        file = resolve_inside(folder, source, settings().allowed_roots)
        exists = file.is_file()
    except (OSError, ValueError) as error:
        reader.error((*path, "source"), str(error))
        return []
    if not exists:
        advice = "check the path; it starts at the manifest's folder"
        reader.error((*path, "source"), f"there is no file {shortened(source)}", advice)
        return []
    errors = ErrorCollector(str(Path(reader.document.file).parent / source))
    rows = list(_rows(file, dataset, errors, is_named="output_column" in given))
    if not rows and not errors:
        errors.add("holds no rows", advice="add one, with an input")
    try:
        errors.raise_if_any()
    except InputError as error:
        reader.problems += error.problems
        return []
    return rows


def _rows(file: Path, dataset: dict[str, Any], errors: ErrorCollector, *, is_named: bool) -> Iterator[Row]:
    question, answer = dataset["input_column"], dataset["output_column"]
    columns: dict[str, None] = {}
    for line, record in records(file, dataset["type"], errors):
        if not isinstance(record, dict):
            errors.add("a row is an object with an input", line)
            continue
        columns.update(dict.fromkeys(list(record)[:100]))
        if question not in record:
            advice = did_you_mean(question, list(record)[:100])
            errors.add(f"there is no {question} (input_column of the dataset)", line, advice=advice)
            continue
        wrong = [name for name in (question, answer) if not isinstance(record.get(name) or "", str)]
        for name in wrong:
            errors.add("must be a text", line, name, "put it in quotes")
        if not wrong:
            yield record[question] or "", record.get(answer) or None
    if is_named and columns and answer not in columns:
        advice = did_you_mean(answer, list(columns))
        errors.add(f"no row has {answer} (output_column of the dataset)", advice=advice)
