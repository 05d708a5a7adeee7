"""The suite's target: whether it can be opened. No call is made."""

from __future__ import annotations

from dataclasses import replace

from fepflow.documents.loader import Document
from fepflow.errors import InputError, Problem
from fepflow.settings import settings
from fepflow.targets.base import Target
from fepflow.targets.factory import open_target
from tasks.validation.suite_validation import SuiteValidation, file_of


def inspect_target(found: SuiteValidation) -> Target | None:
    """Open the target, which makes no call, for the mistakes that only it knows: headers, recorded outputs.

    None if it does not open.
    """
    loaded, target = found.loaded, found.loaded.section("target")
    if target is None:
        return None
    if target.recorded is not None:
        location = ("target", "recorded", "path")
        if file_of(loaded, target.recorded.path, location, found.problems) is None or not found.cases:
            return None
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


def _placed(document: Document, problem: Problem) -> Problem:
    if problem.file is not None or problem.path is None:
        return problem
    return replace(problem, file=document.file, line=document.line_of(tuple(problem.path.split("."))))
