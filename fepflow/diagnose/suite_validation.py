"""A suite under validation: its cases, its thresholds, and every error with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fepflow.analysis.dependence import ClusteredCases, Dependence
from fepflow.checks.core.declarations import with_default_paths
from fepflow.checks.registry import load_plugin
from fepflow.datasets.addresses import data_address_problem, is_address, public_address
from fepflow.datasets.remote import RemoteFiles, fetch_cases
from fepflow.documents.files import reason
from fepflow.errors import DocumentPath, InfrastructureError, InputError, MissingExtraError, Problem
from fepflow.evalguard.models import Thresholds
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import redact
from fepflow.settings import settings
from fepflow.suite.models import COMPLETED, Dataset, Gate, Suite
from fepflow.suite.reader import LoadedSuite, resolve_inside
from fepflow.suite.target import Target
from fepflow.suite.test_cases import CasesOnDisk, read_test_cases
from fepflow.suite.variants import run_name
from fepflow.text import shortened


@dataclass
class SuiteValidation:
    """A suite, the content of its files, and its errors.

    `limit` is the number or fraction of cases of a run; None is all. `version` is the run's name for the target's
    version; None: the suite's.
    """

    loaded: LoadedSuite
    cases: CasesOnDisk = field(default_factory=CasesOnDisk)
    thresholds: Thresholds | None = None
    limit: float | None = None
    version: str | None = None
    problems: list[Problem] = field(default_factory=list)
    origin: RemoteFiles | None = None
    unreachable: list[Problem] = field(default_factory=list)
    """Problems that are not the suite's, such as a source that does not answer: trying again later may help."""
    variants: list[SuiteValidation] = field(default_factory=list)
    """The suite of each combination, if it has variants; this one is then the first, with the problems of all."""

    @cached_property
    def dependence(self) -> Dependence:
        """The dependence of all cases on one another."""
        cluster, slices = self.loaded.section("cluster"), self.loaded.section("slices")
        dependence = Dependence(self.loaded.snapshot, cluster, self.gate or Gate(), self.thresholds, slices)
        for case in self.cases:
            dependence.add(case)
        return dependence

    @property
    def clusters(self) -> ClusteredCases | None:
        """The clusters of all cases; None if they are independent."""
        return self.dependence.clusters

    @property
    def target(self) -> Target | None:
        """The target, if it is valid."""
        target: Target | None = self.loaded.section("target")
        return target

    @property
    def gate(self) -> Gate | None:
        """The gate, if there is one and it is valid."""
        gate: Gate | None = self.loaded.section("gate")
        return gate

    @property
    def checks(self) -> list[tuple[int, Check]]:
        """The valid checks of all cases, with their positions in the suite."""
        return [(index, check) for index, check in enumerate(self.loaded.section("checks") or ()) if check is not None]

    @property
    def path(self) -> Path:
        """The suite's file."""
        return Path(self.loaded.document.file)

    @property
    def errors(self) -> list[Problem]:
        """All errors, including those with which the suite can be run."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """Warnings about things that are allowed, but probably not meant."""
        return [problem for problem in self.problems if problem.severity == "warning"]

    @property
    def run_name(self) -> str:
        """The name of the suite's runs."""
        return run_name(self.loaded.section("name"), self.loaded.section("variant"))

    @property
    def notes(self) -> list[Problem]:
        """Warnings, and errors of single checks and calls, which a run has as results."""
        return [problem for problem in self.problems if problem.severity == "warning" or problem.is_confined]

    def require(self) -> Suite:
        """Return the suite. Raises InputError with every error if one of them prevents a run.

        Raises InfrastructureError if the only problem is that something could not be reached.
        """
        if self.is_only_unreachable:
            raise InfrastructureError("\n".join(problem.message for problem in self.unreachable))
        if self.loaded.suite is None or not all(problem.is_confined for problem in self.errors):
            raise InputError(self.errors)
        return self.loaded.suite

    @property
    def is_only_unreachable(self) -> bool:
        """True if the suite cannot be run now, but has no error itself."""
        return bool(self.unreachable) and all(problem in self.unreachable for problem in self.errors)

    def error(self, location: DocumentPath, message: str, advice: str | None = None) -> None:
        """Add an error at `location` of the suite."""
        self.problems.append(self.loaded.document.problem(location, message, advice))

    def warn(self, location: DocumentPath, message: str, advice: str | None = None) -> None:
        """Add a warning at `location` of the suite, which can still be run."""
        problem = self.loaded.document.problem(location, message, advice)
        self.problems.append(replace(problem, severity="warning"))

    @property
    def dataset(self) -> Dataset | None:
        """The file of the test cases; None if they are in the suite, or not valid."""
        source = self.loaded.section("test_cases")
        return Dataset(path=source) if isinstance(source, str) else source if isinstance(source, Dataset) else None

    def place_of(self, case_id: str) -> DocumentPath | None:
        """Return where a test case stands in the suite; None if it is in a file."""
        cases = self.loaded.section("test_cases")
        if not isinstance(cases, list):
            return None
        return ("test_cases", next(index for index, case in enumerate(cases) if case.id == case_id))

    def file(self, name: str, location: DocumentPath, *, or_folder: bool = False) -> Path | None:
        """Return the file or folder named at `location`; None, with an error, if it cannot be read."""
        if is_address(name):
            self.error(location, "is an address, but a file of this machine is read here", "download it")
            return None
        try:
            path = resolve_inside(self.loaded.folder, name, settings().allowed_roots)
        except ValueError as error:
            self.error(location, str(error))
            return None
        try:
            exists = path.exists()
        except (OSError, ValueError) as error:
            self.error(location, f"{shortened(name)} cannot be read: {reason(error)}")
            return None
        if not exists:
            advice = "check the path; it starts at the suite's folder"
            self.error(location, f"there is no file {shortened(name)}", advice)
        elif path.is_dir() and not or_folder:
            self.error(location, f"{shortened(name)} is a folder", "name a file in it")
        else:
            return path
        return None

    def beside(self, name: str) -> str:
        """Return the name of a suite's file in messages: relative to the working directory, an address unchanged."""
        if is_address(name):
            return redact(public_address(name), self.loaded.secrets)
        return str(self.path.parent / name)


def validate_cases(validation: SuiteValidation) -> None:
    """Read the test cases, from the suite or its file, and report their errors."""
    source = validation.loaded.section("test_cases")
    dataset = validation.dataset
    if dataset is not None:
        _read_dataset(validation, dataset)
    elif isinstance(source, list):
        validation.cases = CasesOnDisk(map(_completing(validation), source))
        validation.problems += _duplicate_cases(validation.loaded, source)
        if not source:
            validation.error(("test_cases",), "there are no test cases", "give at least one, or a file")


def _read_dataset(validation: SuiteValidation, dataset: Dataset) -> None:
    in_mapping = isinstance(validation.loaded.snapshot["test_cases"], dict)
    location: DocumentPath = ("test_cases", "path") if in_mapping else ("test_cases",)
    is_remote = is_address(dataset.path)
    if problem := data_address_problem(dataset.path, dataset.split, dataset.revision, is_remote=is_remote):
        key, message, advice = problem
        validation.error(location if key == "path" else ("test_cases", key), message, advice)
    if is_remote and any((problem.path or "").startswith("test_cases") for problem in validation.errors):
        return  # it is not asked with a secret that stands in the suite
    if problem:
        return
    try:
        if is_remote:
            validation.origin = _fetched(validation, dataset, location)
            files = [(download.path, shown) for download, shown in validation.origin.files] if validation.origin else []
        else:
            path = validation.file(dataset.path, location)
            files = [(path, validation.beside(dataset.path))] if path is not None else []
        if not files:
            return
        cases = read_test_cases(dataset, *files[0], _completing(validation), files[1:])
    except InputError as error:
        validation.problems += error.problems
    else:
        validation.cases = cases.cases
        validation.problems += cases.warnings


def _completing(validation: SuiteValidation) -> Callable[[TestCase], TestCase]:
    """Return a function that adds default paths to checks, and to conversations the check that all turns were answered.

    Every case of an ecp target has that check already, and recorded outputs were never asked for.
    """
    target = validation.target
    is_asked = target is not None and target.kind not in ("ecp", "recorded", "given")

    def complete(case: TestCase) -> TestCase:
        if case.checks:
            checks = [with_default_paths(to_check(check)) for check in case.checks]
            case = case.model_copy(update={"checks": checks})
        if not is_asked:
            return case
        if not case.is_conversation or any(to_check(check) == COMPLETED for check in case.checks or ()):
            return case  # one that `fepflow cases add` wrote has it already
        return case.model_copy(update={"checks": [*(case.checks or ()), COMPLETED]})

    return complete


def _fetched(validation: SuiteValidation, dataset: Dataset, location: DocumentPath) -> RemoteFiles | None:
    """Return the files at an address; None, with an error, if it cannot be fetched."""
    try:
        return fetch_cases(dataset.path, dataset.format, dataset.split, dataset.revision)
    except MissingExtraError as error:
        validation.error(location, str(error))
    except InputError as error:
        for problem in error.problems:
            validation.error(location, f"{problem.file}: {problem.message}", problem.advice)
    except InfrastructureError as error:
        problem = validation.loaded.document.problem(location, str(error))
        validation.problems.append(problem)
        validation.unreachable.append(problem)
    return None


def _duplicate_cases(loaded: LoadedSuite, cases: Sequence[TestCase]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if case.id in first:
            advice = f"test_cases[{first[case.id]}] has it; ids are unique"
            yield loaded.document.problem(("test_cases", index), f"the id {case.id!r} appears twice", advice)
        first.setdefault(case.id, index)


def read_cases(loaded: LoadedSuite) -> CasesOnDisk:
    """Return all test cases of the suite, even if a run leaves some out. Raises InputError."""
    validation = SuiteValidation(loaded)
    validate_cases(validation)
    if validation.errors:
        raise InputError(validation.errors)
    return validation.cases


def load_plugins(loaded: LoadedSuite) -> list[Problem]:
    """Run the suite's plugins, which register checks and embedders; return their errors."""
    validation = SuiteValidation(loaded)
    for index, name in enumerate(loaded.section("plugins") or ()):
        plugin = validation.file(name, ("plugins", index))
        if plugin is None:
            continue
        try:
            load_plugin(plugin, validation.beside(name))
        except InputError as error:
            validation.problems += error.problems
    return validation.problems
