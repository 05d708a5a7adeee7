"""The suite's checks, those that its cases carry, and what a budget can count of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from fepflow.checks.core.data_checks import CaseChecks
from fepflow.checks.models.defaults import CheckDefaults, kind_of
from fepflow.checks.validation.checks import (
    CaseInFile,
    case_check_problems,
    check_problems,
    default_problems,
    unpriced_models,
    without_repetitions,
)
from fepflow.checks.validation.paths import BRACES_STAY
from fepflow.diagnose.cases import dataset_of
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.loader import Document
from fepflow.errors import DocumentPath
from fepflow.json.codec import encode
from fepflow.manifest.document import SuiteDocument
from fepflow.protocol.check import Check, to_check
from fepflow.settings import settings
from fepflow.suite.models import COMPLETED, Dataset, check_ids


def validate_checks(found: SuiteValidation) -> None:
    """Find what is wrong with the checks, and with the models that they ask."""
    document, checks = found.loaded.document, found.loaded.section("checks")
    defaults = CheckDefaults(found.loaded.section("judge"), found.loaded.section("embedding"))
    dataset = dataset_of(found.loaded)
    file = document.file if dataset is None else str(Path(document.file).parent / dataset.path)
    allowed = settings().allowed_models
    case_checks = CaseChecks(
        defaults, [check for check in checks or () if check], allowed, from_data=dataset is not None
    )
    is_manifest = isinstance(document, SuiteDocument)
    of_sections = [replace(problem, is_confined=is_manifest) for problem in default_problems(document, defaults)]
    of_checks = [
        *check_problems(document, checks or (), defaults),
        *case_check_problems(_cases_with_lines(found, dataset), file, checks or (), case_checks),
    ]
    if is_manifest:  # what its graders compare with is meant literally, and an error is that grader's alone
        of_graders = (problem for problem in of_checks if problem.message != BRACES_STAY)
        of_checks = [replace(problem, is_confined=True) for problem in of_graders]
    found.problems += [*of_sections, *without_repetitions(of_checks, of_sections)]
    if checks in ([], [COMPLETED]) and found.cases and not any(found.cases.with_checks()):
        _without_checks(found, is_judged=bool(checks))
    _validate_budget(found, defaults)


def _without_checks(found: SuiteValidation, *, is_judged: bool) -> None:
    advice = "add checks:, or checks of the test cases"
    if is_judged:
        found.warn((), "there are no checks: all that is judged is that the agent answers each step", advice)
    else:
        found.error((), "there are no checks, so nothing is judged", advice)


def _cases_with_lines(found: SuiteValidation, dataset: Dataset | None) -> Iterator[CaseInFile]:
    """The cases that carry checks, with the lines of their parts: in the suite, or that of their record in a file."""
    if dataset is not None:
        for case, line in found.cases.with_checks_and_lines():
            yield CaseInFile(case, partial(_same_line, line))
        return
    document = found.loaded.document
    faulty = document.faulty_checks if isinstance(document, SuiteDocument) else {}
    for index, case in enumerate(found.cases):
        if case.checks:
            yield CaseInFile(case, partial(_line_in_suite, document, index), faulty.get(index, ()))


def _same_line(line: int | None, _: DocumentPath) -> int | None:
    return line


def _line_in_suite(document: Document, index: int, path: DocumentPath) -> int | None:
    return document.line_of(("test_cases", index, *path))


def _validate_budget(found: SuiteValidation, defaults: CheckDefaults) -> None:
    """A budget counts what is reported: by the target's answers, or by the models that checks call."""
    budget, target = found.loaded.section("budget"), found.loaded.section("target")
    if budget is None or target is None:
        return
    own = [to_check(check) for case in found.cases.with_checks() for check in case.checks or ()]
    with_model = [check for check in [*(found.loaded.section("checks") or ()), *own] if check and kind_of(check)]
    says_itself = (
        target.python or target.ecp or target.given
    )  # a function may return an Output that does, and an agent its usage
    for name in budget.limits:
        if not says_itself and name not in (target.http or target.recorded).metadata and not with_model:
            advice = f"map it in the target's metadata ({name}: $.…)"
            found.error(("budget", name), f"no answer tells its {name}", advice)
    if "usd" in budget.limits and (unpriced := unpriced_models(defaults.complete(with_model))):
        message = f"it does not count {', '.join(unpriced)}: the price is not known"
        found.warn(("budget", "usd"), message, "tokens are counted, with budget.tokens")


def checks_by_id(found: SuiteValidation) -> dict[str, list[Check]]:
    """All checks that results of an id come from: those that all cases share first, then those that some carry."""
    shared = [check for check in found.loaded.section("checks") or () if check]
    shared_ids = check_ids(shared)
    # By their text, as each of thousands of cases may have a check of its own under the same id.
    checks = {name: {encode(check.model_dump()): check} for name, check in zip(shared_ids, shared, strict=True)}
    for case in found.cases.with_checks():
        own = [to_check(check) for check in case.checks or ()]
        for name, check in zip(check_ids(own, shared_ids), own, strict=True):
            checks.setdefault(name, {})[encode(check.model_dump())] = check
    return {name: list(distinct.values()) for name, distinct in checks.items()}
