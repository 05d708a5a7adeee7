"""What `evaluate` is given, as test cases, outputs and checks: objects, dicts and plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import InputError, Problem, dotted
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.results import ExperimentMetadata
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


def read_metadata(metadata: Any, experiment: Any) -> tuple[dict[str, Any] | None, ExperimentMetadata | None]:
    """Return the metadata of a result, and what it says of its experiment (FEP 3.2), which may be a dict too.

    Raises InputError for what is neither, for members that FEP does not know, and for what JSON cannot say.
    """
    if isinstance(metadata, ExperimentMetadata):
        if experiment is not None:
            raise InputError(Problem("the experiment is given twice", path="metadata", advice="give it once"))
        metadata, experiment = None, metadata
    if experiment is not None and not isinstance(experiment, ExperimentMetadata):
        advice = "give ExperimentMetadata(name=..., metadata=...), or a dict of these; other facts go into metadata="
        if not isinstance(experiment, dict):
            message = f"must be a dict, not {type(experiment).__name__}"
            raise InputError(Problem(message, path="experiment_metadata", advice=advice))
        try:
            experiment = ExperimentMetadata.model_validate(experiment)
        except ValidationError as error:
            raise InputError(
                [
                    Problem(found.message, path=f"experiment_metadata.{dotted(found.path)}", advice=advice)
                    for found in validation_messages(experiment, error, ExperimentMetadata)
                ]
            ) from None
    _require_json(metadata, "metadata")
    if experiment is not None:
        _require_json(experiment.metadata, "experiment_metadata.metadata")
    return metadata, experiment


def _require_json(metadata: Any, path: str) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        advice = 'give a dict, such as {"experiment_name": "baseline"}'
        raise InputError(Problem(f"must be a dict, not {type(metadata).__name__}", path=path, advice=advice))
    names = [name for name in metadata if not isinstance(name, str)]
    if names:
        raise InputError(Problem(f"{names[0]!r} is no name", path=path, advice="names of metadata are texts"))
    for name, value in metadata.items():
        try:
            to_jsonable_python(value)
        except (ValueError, RecursionError):
            message = f"a {type(value).__name__} that has no JSON form"
            raise InputError(Problem(message, path=f"{path}.{name}", advice="metadata hold JSON values")) from None


def read_limit(max_async_concurrent: Any) -> asyncio.Semaphore | None:
    """Return what bounds the checks that wait at once. Raises InputError for what is no number of checks."""
    if max_async_concurrent is None:
        return None
    if not isinstance(max_async_concurrent, int) or isinstance(max_async_concurrent, bool) or max_async_concurrent < 1:
        message = f"{max_async_concurrent!r} is no number of checks"
        raise InputError(Problem(message, path="max_async_concurrent", advice="give 1 or more, or nothing"))
    return asyncio.Semaphore(max_async_concurrent)


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
