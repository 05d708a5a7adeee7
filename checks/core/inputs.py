"""What `evaluate` is given, as test cases, outputs and checks: objects, dicts and plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fepflow.documents.document_path import dotted
from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import InputError, Problem
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.test_case import Output, TestCase

M = TypeVar("M", bound=BaseModel)


def read_test_cases(given: Sequence[Any]) -> list[TestCase]:
    """A dict with the key `input` is a test case as FEP writes it (2.1); anything else is the input itself.

    Cases without an id get one from their content; of those that say the same, the second one ends in `-2`. Raises
    InputError with every error.
    """
    problems: list[Problem] = []
    cases = []
    counts: dict[str, int] = {}
    for index, item in enumerate(given):
        case = _read(TestCase, "input", item, f"test_cases[{index}]", problems)
        if case is None:
            continue
        if not isinstance(item, TestCase) and not (isinstance(item, dict) and item.get("id")):
            counts[case.id] = counts.get(case.id, 0) + 1
            if counts[case.id] > 1:
                case = case.model_copy(update={"id": f"{case.id}-{counts[case.id]}"})
        cases.append(case)
    if problems:
        raise InputError(problems)
    return cases


def read_outputs(given: Sequence[Any]) -> list[Output]:
    """A dict with the key `value` is an output as FEP writes it (2.2); anything else is the value itself.

    A value that is such a dict is given as `Output(value=...)`. Raises InputError with every error.
    """
    problems: list[Problem] = []
    outputs = [_read(Output, "value", item, f"outputs[{index}]", problems) for index, item in enumerate(given)]
    if problems:
        raise InputError(problems)
    return [output for output in outputs if output is not None]


def read_checks(given: Sequence[Any] | None) -> tuple[Sequence[AnyCheck], Sequence[Sequence[AnyCheck]]]:
    """Shared checks, or checks for each case; an empty list is shared, none. A dict is a check as a suite writes it."""
    problems: list[Problem] = []
    if given and isinstance(given[0], Sequence) and not isinstance(given[0], str):
        per_case = [_checks(own, f"checks[{index}]", problems) for index, own in enumerate(given)]
        shared: list[AnyCheck] = []
    else:
        per_case, shared = [], _checks(given or [], "checks", problems)
    if problems:
        raise InputError(problems)
    return shared, per_case


def _checks(given: Sequence[Any], location: str, problems: list[Problem]) -> list[AnyCheck]:
    found: list[AnyCheck] = []
    for index, item in enumerate(given):
        if isinstance(item, dict):
            check = _read(Check, None, item, f"{location}[{index}]", problems)
            found += [check] if check is not None else []
        else:
            found.append(item)  # one that is not a check is reported when it is compiled
    return found


def _read(model: type[M], mark: str | None, item: Any, location: str, problems: list[Problem]) -> M | None:
    """The model that `item` is, or is a document of: one that has `mark`. Else `item` is the value of `mark`."""
    if isinstance(item, model):
        return item
    document = item if mark is None or (isinstance(item, dict) and mark in item) else {mark: item}
    try:
        return model.model_validate(document)
    except ValidationError as error:
        name = model.__name__
        advice = None if mark is None else f"a dict with {mark!r} is read as {name}; else write {name}({mark}=...)"
        for item in validation_messages(document, error):
            path = dotted((location, *item.path))
            problems.append(Problem(item.message, path=path, advice=advice or item.advice))
        return None
