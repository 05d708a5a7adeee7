"""Finding mistakes in a suite's checks before anything is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from checks.asking import NO_VERDICTS
from checks.catalogue import find_check
from checks.compiled import CompiledCheck, compile_checks
from checks.defaults import Defaults
from checks.embedders import is_local, trouble
from fepflow.answer import Kind
from fepflow.documents import Document
from fepflow.errors import FepflowError, InputError, Problem
from fepflow.llm import door
from fepflow.llm.configuration import CHAT, EMBEDDING, configured
from fepflow.llm.model import Model
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.test_case import TestCase
from fepflow.suite import check_ids

_KNOWN: dict[Kind, Mapping[str, Any]] = {"judge": CHAT, "embedding": EMBEDDING}


def default_problems(document: Document, defaults: Defaults) -> Iterator[Problem]:
    """Mistakes in the sections of a suite that say which models its checks ask."""
    for kind, section in defaults.sections.items():
        given = {"model": "any/model", **section.llm_config}  # each check may name its own
        try:
            model = configured(given, section.provider_config, _KNOWN[kind])
        except ValueError as error:
            yield document.problem((kind,), str(error))
            continue
        why = _trouble(kind, model) if "model" in section.llm_config else None
        if why:
            yield document.problem((kind, "model_config"), why)


def _trouble(kind: Kind, model: Model) -> str | None:
    if not is_local(model):
        return door.problem(model)
    return trouble(model) if kind == "embedding" else NO_VERDICTS.format(model.name)


def without_repetitions(problems: Iterable[Problem], of_sections: Sequence[Problem]) -> Iterator[Problem]:
    """Mistakes of checks without those that they only have from the suite's sections."""
    told = [problem.message for problem in of_sections]
    for problem in problems:
        if not any(message in problem.message for message in told):
            yield problem


def unpriced_models(checks: Iterable[AnyCheck]) -> list[str]:
    """The models that checks ask and whose price nobody knows."""
    names = (CompiledCheck(check, "").unpriced() for check in checks)
    return list(dict.fromkeys(name for name in names if name))


def check_problems(
    document: Document,
    checks: Sequence[Check | None],
    defaults: Defaults = Defaults(),  # noqa: B008  # never changes
) -> Iterator[Problem]:
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
        compiled = CompiledCheck(defaults.complete([check])[0], check.id or check.type)
        if compiled.error is not None:
            part = "arguments" if _is_known(check) else "version" if check.version else "type"
            yield document.problem((*place, part), str(compiled.error))
        elif why := compiled.trouble():
            yield document.problem((*place, "arguments"), why)
        for warning in compiled.warnings:
            problem = document.problem((*place, "arguments"), warning)
            yield Problem(problem.message, problem.file, problem.line, problem.path, severity="warning")


def case_check_problems(
    cases: Iterable[TestCase],
    file: str,
    shared: Sequence[Check | None] = (),
    defaults: Defaults = Defaults(),  # noqa: B008  # it never changes
) -> Iterator[Problem]:
    """Mistakes in the checks that test cases carry themselves, beside the `shared` ones of the suite."""
    taken = check_ids([check for check in shared if check is not None])
    for case in cases:
        try:
            compiled_checks = compile_checks(defaults.complete(case.checks or ()), taken)
        except InputError as error:
            yield from (replace(problem, file=file, path=f"{case.id}.checks") for problem in error.problems)
            continue
        for compiled in compiled_checks:
            if compiled.error is not None:
                yield Problem(str(compiled.error), file, path=f"{case.id}.checks.{compiled.check_id}")
            elif why := compiled.trouble():
                yield Problem(why, file, path=f"{case.id}.checks.{compiled.check_id}")


def _is_known(check: Check) -> bool:
    try:
        find_check(check.type, check.version)
    except FepflowError:
        return False
    return True
