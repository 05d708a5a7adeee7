"""Static validation of a suite's checks, of the checks of test cases, and of the budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fepflow.calls.models import _litellm
from fepflow.calls.models.model import CHAT, EMBEDDING, Model, parse_model_config
from fepflow.checks.base import default_paths, meant_argument
from fepflow.checks.core.compiled import CompiledCheck, unknown_argument, unknown_arguments
from fepflow.checks.core.declarations import CaseChecks, CheckDefaults, kind_of
from fepflow.checks.models.model_check import NO_VERDICTS, config_error_of, is_local
from fepflow.checks.registry import CheckType, find_check
from fepflow.checks.schemas import result_shape
from fepflow.diagnose.paths import BRACES_STAY, Remark, remarks_on
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.loader import Document
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, InputError, JSONPathError, Problem, dotted
from fepflow.extras import is_installed
from fepflow.json.values import encode, texts_in
from fepflow.protocol.check import Check, id_of_type, to_check
from fepflow.protocol.content_hash import Kind
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.suite.manifest import SuiteDocument
from fepflow.suite.models import ANSWERED, COMPLETED, check_ids
from fepflow.text import brief
from fepflow.verdict.metric_rules import unchecked_cases

_PARAMETERS: dict[Kind, Mapping[str, Any]] = {"judge": CHAT, "embedding": EMBEDDING}


def validate_checks(validation: SuiteValidation) -> None:
    """Find what is wrong with the checks, and with the models that they ask."""
    loaded, document = validation.loaded, validation.loaded.document
    checks, dataset = loaded.section("checks"), validation.dataset
    defaults = CheckDefaults(loaded.section("judge"), loaded.section("embedding"))
    shared = [check for _, check in validation.checks]
    case_checks = CaseChecks(defaults, shared, settings().allowed_models, from_data=dataset is not None)
    file = document.file if dataset is None else validation.beside(dataset.path)
    is_manifest = isinstance(document, SuiteDocument)
    of_sections = [replace(problem, is_confined=is_manifest) for problem in default_problems(document, defaults)]
    of_checks = [
        *check_problems(document, checks or (), defaults),
        *case_check_problems(_cases_with_lines(validation), file, checks or (), case_checks),
    ]
    if is_manifest:  # what its graders compare with is meant literally, and an error is that grader's alone
        of_graders = (problem for problem in of_checks if problem.message != BRACES_STAY)
        of_checks = [replace(problem, is_confined=True) for problem in of_graders]
    # An error in a section of the suite is also one of each check that uses the section: it is reported once.
    repeated = [problem.message for problem in of_sections]
    validation.problems += of_sections
    validation.problems += (item for item in of_checks if not any(message in item.message for message in repeated))
    own = (case.checks != [COMPLETED] for case in validation.cases.with_checks())
    unchecked = 0 if checks else len(validation.cases) - sum(1 for _ in validation.cases.with_checks())
    if 0 < unchecked < len(validation.cases):
        message = unchecked_cases(unchecked, len(validation.cases))
        validation.warn(("test_cases",), message, "give them checks, or add checks: for all")
    if checks in ([], [COMPLETED], [ANSWERED]) and validation.cases and not any(own):
        advice = "add checks:, or checks of the test cases"
        if checks or any(validation.cases.with_checks()):
            what = "no tool answers with an error" if checks == [ANSWERED] else "the agent answers each step"
            message = f"there are no checks: all that is judged is that {what}"
            validation.warn((), message, advice)
        else:
            validation.error((), "there are no checks, so nothing is judged", advice)
    _validate_declared(validation)
    _validate_schemas(validation)
    _validate_budget(validation, defaults)


def _validate_declared(validation: SuiteValidation) -> None:
    """Find a `declared` check of a target that declares nothing. Recorded outputs may come from an MCP server."""
    target = validation.target
    if target is None or not (target.http or target.ecp):
        return
    for index, check in validation.checks:
        schema = default_paths(find_check(check.type))["schema"] if check.type == CheckType.DECLARED else None
        if schema is not None and check.arguments.get("schema", schema) == schema:
            message = "declared reads what an MCP server declares, but the target is not an MCP server"
            validation.error(("checks", index), message, "use schema_validation")


def _validate_schemas(validation: SuiteValidation) -> None:
    """Find words in JSON Schemas that are no keywords: the standard ignores them, so that more values pass."""
    for index, check in validation.checks:
        schema = check.arguments.get("schema")
        if check.type not in ("schema_validation", "json_valid") or not isinstance(schema, dict) or not schema:
            continue
        from fepflow.checks.schema_validation import KEYWORDS, misspelt_keywords  # the check has loaded it

        if not schema.keys() & KEYWORDS:
            names = brief(", ".join(map(str, schema)), 100)
            message = f"every value fits the schema, as it has no keyword of JSON Schema: {names}"
            validation.warn(("checks", index), message, "write {type: object, properties: {…}}")
        for name, meant in dict(misspelt_keywords(schema)).items():
            message = f"{brief(name, 60)} in the schema is no keyword of JSON Schema, and is ignored"
            validation.warn(("checks", index), message, f"did you mean {meant}?")


def _validate_budget(validation: SuiteValidation, defaults: CheckDefaults) -> None:
    """Find limits of a budget that neither the target's answers nor the models of checks report."""
    budget, target = validation.loaded.section("budget"), validation.target
    if budget is None or target is None:
        return
    own = [to_check(check) for case in validation.cases.with_checks() for check in case.checks or ()]
    with_model = [check for check in [*(check for _, check in validation.checks), *own] if kind_of(check)]
    # A function may return an Output that tells its usage, and an agent its own.
    reports_usage = target.python or target.ecp or target.a2a or target.openai or target.given
    mapping = target.http or target.recorded
    for name in budget.limits:
        if not reports_usage and name not in (mapping.metadata if mapping else ()) and not with_model:
            advice = f"map it in the target's metadata ({name}: $.…)" if mapping else "remove it"
            validation.error(("budget", name), f"no answer reports its {name}", advice)
    if "usd" not in budget.limits:
        return
    names = [name for check in defaults.complete(with_model) for name in CompiledCheck(check, "").unpriced()]
    if target.openai is not None and is_installed("run", "litellm"):
        from fepflow.calls.openai import model_of

        names += [] if _litellm.has_price(model := model_of(target.openai)) else [model.name]
    if unpriced := list(dict.fromkeys(names)):
        message = f"it does not count {', '.join(unpriced)}: the price is not known"
        validation.warn(("budget", "usd"), message, "tokens are counted, with budget.tokens")


def checks_by_id(validation: SuiteValidation) -> dict[str, list[Check]]:
    """Return all checks by id: those of the suite first, then those of test cases."""
    shared = [check for _, check in validation.checks]
    shared_ids = check_ids(shared)
    # By their text, as each of thousands of cases may have a check of its own under the same id.
    checks = {name: {encode(check.model_dump()): check} for name, check in zip(shared_ids, shared, strict=True)}
    for case in validation.cases.with_checks():
        own = [to_check(check) for check in case.checks or ()]
        for name, check in zip(check_ids(own, shared_ids), own, strict=True):
            checks.setdefault(name, {})[encode(check.model_dump())] = check
    return {name: list(distinct.values()) for name, distinct in checks.items()}


def default_problems(document: Document, defaults: CheckDefaults) -> Iterator[Problem]:
    """Yield errors in the sections of a suite for the models of its checks."""
    for kind, section in defaults.sections.items():
        model_config = {"model": "any/model", **section.llm_config}  # each check may name its own
        try:
            model = parse_model_config(model_config, section.provider_config, _PARAMETERS[kind])
        except ValueError as error:
            yield document.problem((kind,), str(error))
            continue
        if "model" in section.llm_config and (problem := _model_problem(kind, model)):
            yield document.problem((kind, "model_config"), problem)


def _model_problem(kind: Kind, model: Model) -> str | None:
    if not is_local(model):
        return _litellm.problem(model)
    return config_error_of(model) if kind == "embedding" else NO_VERDICTS.format(model.name)


def check_problems(
    document: Document,
    checks: Sequence[Check | None],
    defaults: CheckDefaults = CheckDefaults(),  # noqa: B008  # never changes
) -> Iterator[Problem]:
    """Yield errors in `checks:` of a suite: types, versions, arguments, ids. None: errors are reported already."""
    seen: dict[str, int] = {}
    for index, check in enumerate(checks):
        if check is None:
            continue
        location = ("checks", index)
        if check.id is not None and check.id in seen:
            advice = f"checks[{seen[check.id]}] has it; ids are unique"
            yield document.problem((*location, "id"), f"the id {check.id} appears twice", advice)
        seen.setdefault(check.id or "", index)
        for issue in _issues(check, check.id or id_of_type(check.type), defaults):
            problem = document.problem((*location, *issue.location), issue.message, issue.advice)
            yield replace(problem, severity=issue.severity)


LineOf = Callable[[DocumentPath], int | None]
"""A function from a path in a test case to its line."""


class CaseInFile(NamedTuple):
    """A test case that carries checks, with the lines of its parts. Errors of checks at `reported` are known."""

    case: TestCase
    line_of: LineOf
    reported: Collection[int] = ()


def _cases_with_lines(validation: SuiteValidation) -> Iterator[CaseInFile]:
    """Yield cases that carry checks, with the lines of their parts in the suite, or of their record in a file."""
    if validation.dataset is not None:
        for case, line in validation.cases.with_checks_and_lines():
            yield CaseInFile(case, partial(_same_line, line))
        return
    document = validation.loaded.document
    faulty = document.faulty_checks if isinstance(document, SuiteDocument) else {}
    for index, case in enumerate(validation.cases):
        if case.checks:
            yield CaseInFile(case, partial(_line_in_suite, document, index), faulty.get(index, ()))


def _same_line(line: int | None, _: DocumentPath) -> int | None:
    return line


def _line_in_suite(document: Document, index: int, path: DocumentPath) -> int | None:
    return document.line_of(("test_cases", index, *path))


def case_check_problems(
    cases: Iterable[CaseInFile], file: str, shared: Sequence[Check | None], case_checks: CaseChecks
) -> Iterator[Problem]:
    """Yield errors in the checks that test cases carry themselves, beside the `shared` ones of the suite."""
    taken = check_ids([check for check in shared if check is not None])
    for case, line_of, reported in cases:
        try:
            compiled_checks = case_checks.compiled(case.checks or (), taken)
        except InputError as error:
            line = line_of(("checks",))
            yield from (replace(problem, file=file, line=line, path=f"{case.id}.checks") for problem in error.problems)
            continue
        for index, (own, compiled) in enumerate(zip(case.checks or (), compiled_checks, strict=True)):
            if index in reported:
                continue
            case_id, place = f"{case.id}.checks.{compiled.check_id}", ("checks", index)
            if refusal := case_checks.refusal(to_check(own)):  # what the case says itself, without the suite's part
                yield Problem(refusal, file, line_of(place), case_id)
                continue
            for issue in _issues(compiled.check, compiled.check_id, case_checks.defaults):
                line, path = line_of((*place, *issue.location)), dotted((case_id, *issue.location))
                yield Problem(issue.message, file, line, path, issue.advice, issue.severity)


def _issues(check: Check, check_id: str, defaults: CheckDefaults) -> Iterator[Remark]:
    try:
        check_class = find_check(check.type, check.version)
    except FepflowError:
        error = CompiledCheck(check, check_id).error
        yield Remark(("version" if check.version else "type",), str(error))
        return
    unknown = unknown_arguments(check_class, check.arguments)
    for name in unknown:
        yield Remark(("arguments", name), unknown_argument(check, name), meant_argument(check_class, name))
    arguments = {name: value for name, value in check.arguments.items() if name not in unknown}
    compiled = CompiledCheck(defaults.complete([check.model_copy(update={"arguments": arguments})])[0], check_id)
    shape = result_shape(check.model_copy(update={"arguments": {**arguments, "pass_at": None}}))
    if arguments.get("pass_at") is not None and shape is not None and not shape.keys() & {"score", "response"}:
        yield Remark(("arguments", "pass_at"), f"{check.type} gives no score here", "leave pass_at out")
    if compiled.error is not None:
        yield from _argument_issues(check, compiled.error)
    elif config_error := compiled.config_error():
        yield Remark(("arguments",), config_error)
    for warning in compiled.warnings:
        yield Remark(("arguments",), warning, is_error=False)
    for remark in remarks_on(check):
        if remark.location or (compiled.error is None and not unknown):
            yield replace(remark, location=("arguments", *remark.location))


def _argument_issues(check: Check, error: FepflowError) -> Iterator[Remark]:
    messages = error.messages if isinstance(error, CheckArgumentsError) else ()
    for item in messages:
        whole = "" if item.path else f"{check.type} cannot take these arguments: "
        yield Remark(("arguments", *item.path), whole + item.message, item.advice)
    if not messages:
        expression = error.expression if isinstance(error, JSONPathError) else None
        locations = (location for location, text in texts_in(check.arguments, ("arguments",)) if text == expression)
        yield Remark(next(locations, ("arguments",)), str(error))
