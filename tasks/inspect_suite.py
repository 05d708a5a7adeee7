"""Everything about a suite that can be known before anything is called: its cases, checks, gate, and all mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from checks.defaults import Defaults, kind_of
from checks.plugins import load_plugin
from checks.validation import (
    case_check_problems,
    check_problems,
    default_problems,
    unpriced_models,
    without_repetitions,
)
from fepflow.cases_on_disk import CasesOnDisk
from fepflow.datasets import read_test_cases
from fepflow.documents import Document, DocumentPath
from fepflow.errors import FepflowError, InputError, Problem
from fepflow.evalguard.catalogue import Catalogue, catalogue_around
from fepflow.evalguard.files import load_thresholds, read_definition
from fepflow.evalguard.models import Thresholds
from fepflow.protocol.check import declare
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.statistics.estimate import minimum_sample
from fepflow.store.store import Store
from fepflow.suite import PREVIOUS, Dataset, Gate, Metric, Suite, check_ids
from fepflow.suite_file import LoadedSuite, load_suite, resolve_inside
from fepflow.targets.opening import open_target
from tasks.baseline import with_outcome


@dataclass
class Inspection:
    """A suite, what its files hold, and what is wrong with it; `suite` is None if there are errors."""

    loaded: LoadedSuite
    cases: CasesOnDisk = field(default_factory=CasesOnDisk)
    thresholds: Thresholds | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The suite's file."""
        return Path(self.loaded.document.file)

    @property
    def errors(self) -> list[Problem]:
        """What keeps the suite from running."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """What it can run with."""
        return [problem for problem in self.problems if problem.severity == "warning"]

    def require(self) -> Suite:
        """The suite; raises InputError with every mistake if there is one."""
        if self.errors or self.loaded.suite is None:
            raise InputError(self.errors)
        return self.loaded.suite


def inspect_suite(path: Path, env: Mapping[str, str] = os.environ) -> Inspection:
    """Read a suite and all files that it names, and collect every mistake. Calls nobody.

    Raises InputError only if the file itself is no document.
    """
    loaded = load_suite(path, env)
    found = Inspection(loaded, problems=list(loaded.problems))
    _read_cases(found)
    load_plugins(loaded, found.problems)
    _inspect_checks(found)
    _read_thresholds(found)
    _inspect_metrics(found)
    _inspect_target(found)
    _inspect_baseline(found)
    found.problems.sort(
        key=lambda problem: (problem.file != loaded.document.file, problem.file or "", problem.line or 0)
    )
    return found


def load_plugins(loaded: LoadedSuite, problems: list[Problem]) -> None:
    """Run the suite's plugins, so that their checks are registered; mistakes are added to `problems`."""
    for index, name in enumerate(loaded.section("plugins") or ()):
        plugin = _file_of(loaded, name, ("plugins", index), problems)
        if plugin is None:
            continue
        try:
            load_plugin(plugin, str(Path(loaded.document.file).parent / name))
        except InputError as error:
            problems += error.problems


def _file_of(loaded: LoadedSuite, name: str, place: DocumentPath, problems: list[Problem]) -> Path | None:
    """The file or folder that the suite names at `place`; None, with the mistake added, if it cannot be read."""
    try:
        path = resolve_inside(loaded.folder, name, settings().allowed_roots)
    except ValueError as error:
        problems.append(loaded.document.problem(place, str(error)))
        return None
    if not path.exists():
        advice = "check the path; it starts at the suite's folder"
        problems.append(loaded.document.problem(place, f"there is no file {name}", advice))
        return None
    return path


def read_cases(loaded: LoadedSuite) -> CasesOnDisk:
    """All test cases of the suite, whatever a run leaves out. Raises InputError."""
    found = Inspection(loaded)
    _read_cases(found)
    if found.errors:
        raise InputError(found.errors)
    return found.cases


def _read_cases(found: Inspection) -> None:
    loaded, source = found.loaded, found.loaded.section("test_cases")
    if isinstance(source, list):
        found.cases = CasesOnDisk(source)
        found.problems += _duplicate_cases(loaded, source)
        if not source:
            advice = "give at least one, or a file"
            found.problems.append(loaded.document.problem(("test_cases",), "there are no test cases", advice))
    elif source is not None:
        _read_dataset(found, Dataset(path=source) if isinstance(source, str) else source)


def _read_dataset(found: Inspection, dataset: Dataset) -> None:
    loaded = found.loaded
    in_mapping = isinstance(loaded.snapshot["test_cases"], dict)
    place: DocumentPath = ("test_cases", "path") if in_mapping else ("test_cases",)
    path = _file_of(loaded, dataset.path, place, found.problems)
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


def _inspect_checks(found: Inspection) -> None:
    document, checks = found.loaded.document, found.loaded.section("checks")
    defaults = Defaults(found.loaded.section("judge"), found.loaded.section("embedding"))
    of_sections = list(default_problems(document, defaults))
    of_checks = [
        *check_problems(document, checks or (), defaults),
        *case_check_problems(found.cases.with_checks(), document.file, checks or (), defaults),
    ]
    found.problems += [*of_sections, *without_repetitions(of_checks, of_sections)]
    if checks == [] and found.cases and not any(found.cases.with_checks()):
        advice = "add checks:, or checks of the test cases"
        found.problems.append(found.loaded.document.problem((), "there are no checks, so nothing is judged", advice))
    _inspect_budget(found, defaults)


def _inspect_budget(found: Inspection, defaults: Defaults) -> None:
    """A budget counts what somebody tells: the target's answers, or the models that checks ask."""
    budget, target = found.loaded.section("budget"), found.loaded.section("target")
    if budget is None or target is None:
        return
    document = found.loaded.document
    own = [declare(check) for case in found.cases.with_checks() for check in case.checks or ()]
    asking = [check for check in [*(found.loaded.section("checks") or ()), *own] if check and kind_of(check)]
    kept = (target.http or target.scripted).metadata
    for name in budget.limits:
        if name not in kept and not asking:
            advice = f"map it in the target's metadata ({name}: $.…)"
            found.problems.append(document.problem(("budget", name), f"no answer tells its {name}", advice))
    if "usd" in budget.limits and (unpriced := unpriced_models(defaults.complete(asking))):
        message = f"it does not count {', '.join(unpriced)}: the price is not known"
        problem = document.problem(("budget", "usd"), message, "tokens are counted, with budget.tokens")
        found.problems.append(replace(problem, severity="warning"))


def _read_thresholds(found: Inspection) -> None:
    loaded, source = found.loaded, found.loaded.section("thresholds")
    if source is None:
        return
    task = loaded.section("task")
    catalogue = Catalogue()
    try:
        if isinstance(source, str):
            path = _file_of(loaded, source, ("thresholds",), found.problems)
            if path is not None:
                found.thresholds = load_thresholds(path, task)
                catalogue = catalogue_around(path)
        else:
            whole, place = (source, ("thresholds",)) if "thresholds" in source else ({"thresholds": source}, ())
            data = {"task": task or "inline", **whole}
            found.thresholds = read_definition(Thresholds, data, loaded.document, place)
    except InputError as error:
        found.problems += error.problems
    if found.thresholds is not None:
        found.problems += catalogue.remarks(found.thresholds)


def _inspect_metrics(found: Inspection) -> None:
    loaded = found.loaded
    known = expected_check_ids([check for check in loaded.section("checks") or () if check], found.cases.with_checks())
    metrics: list[Metric | None] | None = loaded.section("metrics")
    if loaded.snapshot.get("metrics") is not None:
        for index, metric in enumerate(metrics or ()):
            if metric is not None and metric.check not in known:
                advice = f"its checks are {', '.join(known) or 'none'}"
                message = f"the suite has no check with the id {metric.check}"
                found.problems.append(loaded.document.problem(("metrics", index, "check"), message, advice))
    names = [metric.id for metric in metrics if metric] if metrics else known
    for name in {name for name in names if names.count(name) > 1}:
        found.problems.append(
            loaded.document.problem(("metrics",), f"the metric {name} stands twice", "ids are unique")
        )
    gate: Gate | None = loaded.section("gate")
    if gate is not None:
        found.problems += _gate_problems(found, gate, names)


def _gate_problems(found: Inspection, gate: Gate, metrics: Sequence[str]) -> Iterator[Problem]:
    document = found.loaded.document
    for name, minimum in gate.min.items():
        if name not in metrics:
            yield document.problem(
                ("gate", "min", name), f"there is no metric {name}", f"there is {', '.join(metrics)}"
            )
        elif minimum < 1 and found.cases and minimum_sample(minimum, gate.confidence) > len(found.cases):
            needed = minimum_sample(minimum, gate.confidence)
            message = f"{len(found.cases)} test cases cannot show {name} of at least {minimum:g}, even if all pass"
            problem = document.problem(("gate", "min", name), message, f"it takes {needed} at {gate.confidence:.0%}")
            yield Problem(problem.message, problem.file, problem.line, problem.path, problem.advice, "warning")
    if gate.max_impact is not None and found.thresholds is None and "thresholds" not in found.loaded.snapshot:
        advice = "add thresholds:, an EvalGuard file or folder"
        yield document.problem(("gate", "max_impact"), "there are no thresholds that give an impact", advice)


def _inspect_target(found: Inspection) -> None:
    """Open the target, which calls nobody, for the mistakes that only it knows: headers, recorded outputs."""
    loaded, target = found.loaded, found.loaded.section("target")
    if target is None:
        return
    if target.scripted is not None:
        place = ("target", "scripted", "path")
        if _file_of(loaded, target.scripted.path, place, found.problems) is None or not found.cases:
            return
    try:
        open_target(
            target,
            folder=loaded.folder,
            case_ids=lambda: [case.id for case in found.cases],
            roots=settings().allowed_roots,
        )
    except InputError as error:
        found.problems += [_placed(loaded.document, problem) for problem in error.problems]


def _inspect_baseline(found: Inspection) -> None:
    """A baseline that is not in the store is a warning: the run can do without."""
    named = found.loaded.section("baseline")
    if named in (None, PREVIOUS):
        return
    try:
        with Store.open(settings().store_address) as store:
            with_outcome(store, named)
    except FepflowError as error:
        problem = found.loaded.document.problem(("baseline",), str(error))
        found.problems.append(replace(problem, severity="warning"))


def _placed(document: Document, problem: Problem) -> Problem:
    if problem.file is not None or problem.path is None:
        return problem
    return replace(problem, file=document.file, line=document.line_of(tuple(problem.path.split("."))))


def expected_check_ids(shared: Sequence[object], cases: Iterable[TestCase]) -> list[str]:
    """The ids of all checks of a suite, shared ones first, then those that only some cases have."""
    shared_ids = check_ids([declare(check) for check in shared])  # type: ignore[arg-type]  # checks, by the caller
    ids = dict.fromkeys(shared_ids)
    for case in cases:
        if case.checks:
            ids.update(dict.fromkeys(check_ids([declare(check) for check in case.checks], shared_ids)))
    return list(ids)
