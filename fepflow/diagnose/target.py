"""The suite's target: whether it can be opened. No call is made."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from fepflow.calls.base import Target
from fepflow.calls.factory import open_target
from fepflow.diagnose.suite_validation import SuiteValidation, file_of
from fepflow.documents.loader import Document
from fepflow.env_file import SUITE_VARIABLES
from fepflow.errors import InputError, Problem
from fepflow.manifest.document import SuiteDocument
from fepflow.settings import settings
from fepflow.suite import target as section
from fepflow.suite.reader import SPELLED_OUT


def validate_target(found: SuiteValidation) -> Target | None:
    """Open the target, which makes no call, for the errors that only it knows: headers, recorded outputs.

    None if it does not open.
    """
    loaded, target = found.loaded, found.loaded.section("target")
    if target is None:
        return None
    if target.given is not None:
        found.error(("target", "given"), "outputs are given with a request over the network", "name a file: recorded")
        return None
    if target.recorded is not None:
        location = ("target", "recorded", "path")
        if file_of(loaded, target.recorded.path, location, found.problems) is None or not found.cases:
            return None
    if target.ecp is not None:
        _validate_ecp(found, target.ecp)
    try:
        return open_target(
            target,
            folder=loaded.folder,
            case_ids=lambda: [case.id for case in found.cases],
            roots=settings().allowed_roots,
            is_called=False,
        )
    except InputError as error:
        found.problems += [_placed(loaded.document, problem) for problem in error.problems]
    return None


def _validate_ecp(found: SuiteValidation, ecp: section.EcpTarget) -> None:
    from fepflow.calls.ecp.command import find_command  # only for suites that have such a target
    from fepflow.calls.ecp.scenario import scenario_problem

    document = found.loaded.document
    if ecp.command is not None:
        try:
            find_command(ecp, found.loaded.folder)
        except InputError as error:
            is_manifest = isinstance(document, SuiteDocument)  # ECP has it as an error of each step
            placed = (_placed(document, problem) for problem in error.problems)
            found.problems += (replace(problem, is_confined=is_manifest) for problem in placed)
    for index, name in enumerate(ecp.env):
        if name not in SUITE_VARIABLES:
            message = f"{name} is not set in the environment, so the agent does not get it"
            found.warn(("target", "ecp", "env", index), message, f"export {name}")
    wrong = ((case.id, problem) for case in found.cases if (problem := scenario_problem(case.input)) is not None)
    for case_id, problem in islice(wrong, SPELLED_OUT):
        found.error(("test_cases",), f"{case_id}: {problem}", "write a step as text, or as {input: text}")


def _placed(document: Document, problem: Problem) -> Problem:
    if problem.file is not None or problem.path is None:
        return problem
    placed = document.problem(tuple(problem.path.split(".")), problem.message, problem.advice)
    return replace(placed, severity=problem.severity)
