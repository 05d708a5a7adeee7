"""What is found out about a suite: its cases, its thresholds, and every error with its place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from fepflow.datasets.case_spool import CasesOnDisk
from fepflow.documents.loader import reason
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.evalguard.models import Thresholds
from fepflow.settings import settings
from fepflow.suite.files import resolve_inside
from fepflow.suite.models import Suite
from fepflow.suite.reader import LoadedSuite
from fepflow.text import shortened


@dataclass
class SuiteValidation:
    """A suite, what its files hold, and what is wrong with it; `suite` is None if there are errors."""

    loaded: LoadedSuite
    cases: CasesOnDisk = field(default_factory=CasesOnDisk)
    thresholds: Thresholds | None = None
    limit: float | None = None
    """How many cases a run is to have, or which fraction; None is all."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The suite's file."""
        return Path(self.loaded.document.file)

    @property
    def errors(self) -> list[Problem]:
        """Return all errors, also those with which the suite can be run."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """Return what is allowed, and likely not meant."""
        return [problem for problem in self.problems if problem.severity == "warning"]

    @property
    def notes(self) -> list[Problem]:
        """Return warnings, and errors of single checks and calls, which a run will have as results."""
        return [problem for problem in self.problems if problem.severity == "warning" or problem.is_confined]

    def require(self) -> Suite:
        """The suite; raises InputError with every error if there is one that keeps it from running."""
        if self.loaded.suite is None or not all(problem.is_confined for problem in self.errors):
            raise InputError(self.errors)
        return self.loaded.suite

    def error(self, location: DocumentPath, message: str, advice: str | None = None) -> None:
        """Take note of an error at `location` of the suite."""
        self.problems.append(self.loaded.document.problem(location, message, advice))

    def warn(self, location: DocumentPath, message: str, advice: str | None = None) -> None:
        """Take note of something at `location` of the suite that it can run with."""
        problem = self.loaded.document.problem(location, message, advice)
        self.problems.append(replace(problem, severity="warning"))


def file_of(
    loaded: LoadedSuite, name: str, location: DocumentPath, problems: list[Problem], *, or_folder: bool = False
) -> Path | None:
    """The file (or folder) that the suite names at `location`; None, with the error added, if it cannot be read."""
    try:
        path = resolve_inside(loaded.folder, name, settings().allowed_roots)
    except ValueError as error:
        problems.append(loaded.document.problem(location, str(error)))
        return None
    try:
        exists = path.exists()
    except (OSError, ValueError) as error:
        problems.append(loaded.document.problem(location, f"{shortened(name)} cannot be read: {reason(error)}"))
        return None
    if not exists:
        advice = "check the path; it starts at the suite's folder"
        problems.append(loaded.document.problem(location, f"there is no file {shortened(name)}", advice))
        return None
    if path.is_dir() and not or_folder:
        problems.append(loaded.document.problem(location, f"{shortened(name)} is a folder", "name a file in it"))
        return None
    return path
