"""Static validation of a suite's checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from fepflow.checks.base import argument_fields
from fepflow.checks.core.arguments import unknown_arguments
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.core.data_checks import CaseChecks
from fepflow.checks.models.defaults import CheckDefaults
from fepflow.checks.models.embedders import config_error_of, is_local
from fepflow.checks.models.model_check import NO_VERDICTS
from fepflow.checks.registry import find_check
from fepflow.checks.validation.paths import remarks_on, texts_in
from fepflow.documents.did_you_mean import did_you_mean
from fepflow.documents.loader import Document
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, InputError, JSONPathError, Problem, dotted
from fepflow.models import providers
from fepflow.models.configuration import CHAT, EMBEDDING, parse_model_config
from fepflow.models.model import Model
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.model_response import Kind
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import check_ids

_Issue = tuple[DocumentPath, str, str | None, Literal["error", "warning"]]

_KNOWN: dict[Kind, Mapping[str, Any]] = {"judge": CHAT, "embedding": EMBEDDING}


def default_problems(document: Document, defaults: CheckDefaults) -> Iterator[Problem]:
    """Errors in the sections of a suite that say which models its checks ask."""
    for kind, section in defaults.sections.items():
        given = {"model": "any/model", **section.llm_config}  # each check may name its own
        try:
            model = parse_model_config(given, section.provider_config, _KNOWN[kind])
        except ValueError as error:
            yield document.problem((kind,), str(error))
            continue
        why = _config_error(kind, model) if "model" in section.llm_config else None
        if why:
            yield document.problem((kind, "model_config"), why)


def _config_error(kind: Kind, model: Model) -> str | None:
    if not is_local(model):
        return providers.problem(model)
    return config_error_of(model) if kind == "embedding" else NO_VERDICTS.format(model.name)


def without_repetitions(problems: Iterable[Problem], of_sections: Sequence[Problem]) -> Iterator[Problem]:
    """Errors of checks without those that they only have from the suite's sections."""
    messages = [problem.message for problem in of_sections]
    for problem in problems:
        if not any(message in problem.message for message in messages):
            yield problem


def unpriced_models(checks: Iterable[AnyCheck]) -> list[str]:
    """The models that checks call and whose price is unknown."""
    names = (CompiledCheck(check, "").unpriced() for check in checks)
    return list(dict.fromkeys(name for name in names if name))


def check_problems(
    document: Document,
    checks: Sequence[Check | None],
    defaults: CheckDefaults = CheckDefaults(),  # noqa: B008  # never changes
) -> Iterator[Problem]:
    """Errors in `checks:` of a suite: types, versions, arguments, ids. None stands for one that is known as bad."""
    seen: dict[str, int] = {}
    for index, check in enumerate(checks):
        if check is None:
            continue
        location = ("checks", index)
        if check.id is not None and check.id in seen:
            advice = f"checks[{seen[check.id]}] has it; ids are unique"
            yield document.problem((*location, "id"), f"the id {check.id} stands twice", advice)
        seen.setdefault(check.id or "", index)
        for inside, text, cure, severity in _issues(check, check.id or check.type, defaults):
            yield replace(document.problem((*location, *inside), text, cure), severity=severity)


LineOf = Callable[[DocumentPath], int | None]
"""The line of what stands at a path in a test case."""


class CaseInFile(NamedTuple):
    """A test case that carries checks, with the lines of its parts. `known` are the checks, by index, whose errors are
    told already."""

    case: TestCase
    line_of: LineOf
    known: Collection[int] = ()


def case_check_problems(
    cases: Iterable[CaseInFile], file: str, shared: Sequence[Check | None], case_checks: CaseChecks
) -> Iterator[Problem]:
    """Errors in the checks that test cases carry themselves, beside the `shared` ones of the suite."""
    taken = check_ids([check for check in shared if check is not None])
    for case, line_of, known in cases:
        try:
            compiled_checks = case_checks.compiled(case.checks or (), taken)
        except InputError as error:
            line = line_of(("checks",))
            yield from (replace(problem, file=file, line=line, path=f"{case.id}.checks") for problem in error.problems)
            continue
        for index, (own, compiled) in enumerate(zip(case.checks or (), compiled_checks, strict=True)):
            if index in known:
                continue
            case_id, place = f"{case.id}.checks.{compiled.check_id}", ("checks", index)
            if refusal := case_checks.refusal(to_check(own)):  # what the case says itself, without the suite's part
                yield Problem(refusal, file, line_of(place), case_id)
                continue
            for inside, message, advice, severity in _issues(compiled.check, compiled.check_id, case_checks.defaults):
                line = line_of((*place, *inside))
                yield Problem(message, file, line, dotted((case_id, *inside)), advice, severity)


def _issues(check: Check, check_id: str, defaults: CheckDefaults) -> Iterator[_Issue]:
    """The errors of one check, each with its path in the check."""
    known = _known_arguments(check)
    if known is None:
        error = CompiledCheck(check, check_id).error
        yield ("version" if check.version else "type",), str(error), None, "error"
        return
    unknown = unknown_arguments(find_check(check.type, check.version), check.arguments)
    for name in unknown:
        message = f"{check.type} has no argument {name}"
        yield ("arguments", name), message, did_you_mean(name, known), "error"
    arguments = {name: value for name, value in check.arguments.items() if name not in unknown}
    compiled = CompiledCheck(defaults.complete([check.model_copy(update={"arguments": arguments})])[0], check_id)
    if compiled.error is not None:
        yield from _of_error(check, compiled.error)
    elif why := compiled.config_error():
        yield ("arguments",), why, None, "error"
    for warning in compiled.warnings:
        yield ("arguments",), warning, None, "warning"
    for remark in remarks_on(check):
        if remark.location or (compiled.error is None and not unknown):
            yield (
                ("arguments", *remark.location),
                remark.message,
                remark.advice,
                "error" if remark.is_error else "warning",
            )


def _of_error(check: Check, error: FepflowError) -> Iterator[_Issue]:
    messages = error.messages if isinstance(error, CheckArgumentsError) else ()
    for item in messages:
        whole = "" if item.path else f"{check.type} cannot take these arguments: "
        yield ("arguments", *item.path), whole + item.message, item.advice, "error"
    if not messages:
        expression = error.expression if isinstance(error, JSONPathError) else None
        locations = (location for location, text in texts_in(check.arguments, ("arguments",)) if text == expression)
        yield next(locations, ("arguments",)), str(error), None, "error"


def _known_arguments(check: Check) -> list[str] | None:
    try:
        return list(argument_fields(find_check(check.type, check.version)))
    except FepflowError:
        return None
