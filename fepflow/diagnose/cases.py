"""The suite's test cases: inline, or from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fepflow.datasets.case_spool import CasesOnDisk
from fepflow.diagnose.suite_validation import SuiteValidation, file_of
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import Dataset
from fepflow.suite.reader import LoadedSuite
from fepflow.suite.test_cases import read_test_cases


def read_cases(loaded: LoadedSuite) -> CasesOnDisk:
    """All test cases of the suite, whatever a run leaves out. Raises InputError."""
    found = SuiteValidation(loaded)
    validate_cases(found)
    if found.errors:
        raise InputError(found.errors)
    return found.cases


def validate_cases(found: SuiteValidation) -> None:
    """Read the test cases, and find what is wrong with them."""
    loaded, source = found.loaded, found.loaded.section("test_cases")
    dataset = dataset_of(loaded)
    if dataset is not None:
        _read_dataset(found, dataset)
    elif isinstance(source, list):
        found.cases = CasesOnDisk(source)
        found.problems += _duplicate_cases(loaded, source)
        if not source:
            found.error(("test_cases",), "there are no test cases", "give at least one, or a file")


def dataset_of(loaded: LoadedSuite) -> Dataset | None:
    """The file of the test cases, if they come from one; None if they stand in the suite, or are not valid."""
    source = loaded.section("test_cases")
    return Dataset(path=source) if isinstance(source, str) else source if isinstance(source, Dataset) else None


def _read_dataset(found: SuiteValidation, dataset: Dataset) -> None:
    loaded = found.loaded
    in_mapping = isinstance(loaded.snapshot["test_cases"], dict)
    location: DocumentPath = ("test_cases", "path") if in_mapping else ("test_cases",)
    path = file_of(loaded, dataset.path, location, found.problems)
    if path is None:
        return
    try:
        cases = read_test_cases(dataset, path, str(Path(loaded.document.file).parent / dataset.path))
    except InputError as error:
        found.problems += error.problems
    else:
        found.cases = cases.cases
        found.problems += cases.warnings


def _duplicate_cases(loaded: LoadedSuite, cases: Sequence[TestCase]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if case.id in first:
            advice = f"test_cases[{first[case.id]}] has it; ids are unique"
            yield loaded.document.problem(("test_cases", index), f"the id {case.id!r} stands twice", advice)
        first.setdefault(case.id, index)
