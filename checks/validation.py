"""Finding mistakes in a suite's checks before anything is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from checks.catalogue import find_check
from checks.compiled import CompiledCheck, compile_checks
from fepflow.documents import Document
from fepflow.errors import FepflowError, InputError, Problem
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase
from fepflow.suite import check_ids


def check_problems(document: Document, checks: Sequence[Check | None]) -> Iterator[Problem]:
    """Mistakes in `checks:` of a suite: types, versions, arguments, ids. None stands for one that is known as bad."""
    seen: dict[str, int] = {}
    for index, check in enumerate(checks):
        if check is None:
            continue
        place = ("checks", index)
        if check.id is not None and check.id in seen:
            advice = f"checks[{seen[check.id]}] has it; ids are unique"
            yield document.problem((*place, "id"), f"the id {check.id} stands twice", advice)
        seen.setdefault(check.id or "", index)
        compiled = CompiledCheck(check, check.id or check.type)
        if compiled.error is not None:
            part = "arguments" if _is_known(check) else "version" if check.version else "type"
            yield document.problem((*place, part), str(compiled.error))
        elif trouble := compiled.trouble():
            yield document.problem((*place, "arguments"), trouble)
        for warning in compiled.warnings:
            problem = document.problem((*place, "arguments"), warning)
            yield Problem(problem.message, problem.file, problem.line, problem.path, severity="warning")


def case_check_problems(cases: Iterable[TestCase], file: str, shared: Sequence[Check | None] = ()) -> Iterator[Problem]:
    """Mistakes in the checks that test cases carry themselves, beside the `shared` ones of the suite."""
    taken = check_ids([check for check in shared if check is not None])
    for case in cases:
        try:
            compiled_checks = compile_checks(case.checks or (), taken)
        except InputError as error:
            yield from (replace(problem, file=file, path=f"{case.id}.checks") for problem in error.problems)
            continue
        for compiled in compiled_checks:
            if compiled.error is not None:
                yield Problem(str(compiled.error), file, path=f"{case.id}.checks.{compiled.check_id}")
            elif trouble := compiled.trouble():
                yield Problem(trouble, file, path=f"{case.id}.checks.{compiled.check_id}")


def _is_known(check: Check) -> bool:
    try:
        find_check(check.type, check.version)
    except FepflowError:
        return False
    return True
