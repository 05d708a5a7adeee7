"""EVALUATE: test cases, their outputs and checks into results (FEP 3.1).

Outputs are given, or made by a function that is called with the test cases. `assert_case` checks one answer in a test
of any test runner.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from inspect import isawaitable, iscoroutinefunction, signature
from pathlib import Path
from time import perf_counter
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from fepflow.calls.models.client import ModelRequests, nested_or_own
from fepflow.calls.python.worker import first_cause, is_installed, joined
from fepflow.checks.base import meant_argument
from fepflow.checks.core.checked_output import MAX_WAITING, YIELD_INTERVAL, case_result, checks_of, run_checks
from fepflow.checks.core.compiled import CompiledCheck, compile_checks, unknown_argument, unknown_arguments
from fepflow.checks.core.declarations import class_of
from fepflow.checks.explanation import complaint
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, dotted
from fepflow.protocol.check import CHECK_KEYS, AnyCheck, Check, in_full, to_check
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import (
    CheckResult,
    EvaluationRunResult,
    ExperimentMetadata,
    TestCaseResult,
    status_of,
    summarize_run,
)
from fepflow.protocol.test_case import Output, TestCase, case_in_full
from fepflow.suite import foreign_names
from fepflow.suite.foreign_names import with_our_names
from fepflow.text import as_json, cut, printable

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")


# --- input -----------------------------------------------------------------------------------------------------------


def read_test_cases(items: Sequence[Any]) -> list[TestCase]:
    """Read test cases. A dict with the key `input` is one in FEP's form (2.1); anything else is the input itself.

    Cases without an id get one from their content; a second case with the same content gets `-2`. Raises InputError
    with every error.
    """
    problems: list[Problem] = []
    cases = []
    counts: dict[str, int] = {}
    for index, item in enumerate(items):
        item = with_our_names(item) if _has_only_fields(item) else item
        case = _read(TestCase, "input", item, f"test_cases[{index}]", problems)
        if case is None:
            continue
        if isinstance(item, dict) and isinstance(item.get("checks"), list):
            for number, document in enumerate(item["checks"]):
                if isinstance(document, dict):
                    check = to_check((case.checks or ())[number])
                    problems += _unknown_beside_type(check, document, f"test_cases[{index}].checks[{number}]")
        if not isinstance(item, TestCase) and not (isinstance(item, dict) and item.get("id")):
            counts[case.id] = counts.get(case.id, 0) + 1
            if counts[case.id] > 1:
                case = case.model_copy(update={"id": f"{case.id}-{counts[case.id]}"})
        cases.append(case)
    if problems:
        raise InputError(problems)
    return cases


def _has_only_fields(item: Any) -> bool:
    """Return whether a dict is a test case with another tool's names; any other dict is an input."""
    ours = with_our_names(item)
    return isinstance(item, dict) and "input" in ours and ours.keys() <= set(TestCase.model_fields)


def read_outputs(items: Sequence[Any]) -> list[Output]:
    """Read outputs. A dict with the key `value` is one in FEP's form (2.2); anything else is the value itself.

    Write a value that is such a dict as `Output(value=...)`. Raises InputError with every error.
    """
    problems: list[Problem] = []
    outputs = [_read(Output, "value", item, f"outputs[{index}]", problems) for index, item in enumerate(items)]
    for index, output in enumerate(outputs):
        if (pending := _pending(output)) is not None:
            problems.append(Problem(f"is {pending}", path=f"outputs[{index}]", advice="give the agent's whole answer"))
    if problems:
        raise InputError(problems)
    return [output for output in outputs if output is not None]


def read_metadata(metadata: Any, experiment: Any) -> tuple[dict[str, Any] | None, ExperimentMetadata | None]:
    """Return the metadata of a result, and its experiment (FEP 3.2), which may be a dict.

    Raises InputError for other values, for members that FEP does not know, and for values that JSON cannot express.
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
        problems: list[Problem] = []
        experiment = _read(ExperimentMetadata, None, experiment, "experiment_metadata", problems)
        if problems:
            raise InputError([replace(problem, advice=advice) for problem in problems])
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
    for name, value in metadata.items():
        if not isinstance(name, str):
            raise InputError(Problem(f"{name!r} is not a name", path=path, advice="names of metadata are texts"))
        try:
            to_jsonable_python(value)
        except (ValueError, RecursionError):
            message = f"has no JSON form: {type(value).__name__}"
            raise InputError(Problem(message, path=f"{path}.{name}", advice="metadata hold JSON values")) from None


def require_list(items: Any, path: str) -> None:
    """Raise InputError for a single item: each letter of a text, or key of a dict, would count as an item."""
    if isinstance(items, str | bytes | Mapping | BaseModel):
        message = f"must be a list, not a single {type(items).__name__}"
        raise InputError(Problem(message, path=path, advice="write [...] around it"))


def read_checks(items: Sequence[Any] | None) -> tuple[Sequence[AnyCheck], Sequence[Sequence[AnyCheck]]]:
    """Read checks, shared or for each case; an empty list is shared. A dict is a check in a suite's form."""
    problems: list[Problem] = []
    if items and isinstance(items[0], Sequence) and not isinstance(items[0], str):
        per_case = [_checks(own, f"checks[{index}]", problems) for index, own in enumerate(items)]
        shared: list[AnyCheck] = []
    else:
        per_case, shared = [], _checks(items or [], "checks", problems)
    if problems:
        raise InputError(problems)
    return shared, per_case


def _checks(items: Sequence[Any], location: str, problems: list[Problem]) -> list[AnyCheck]:
    checks: list[AnyCheck] = []
    for index, item in enumerate(items):
        if isinstance(item, dict):
            place = f"{location}[{index}]"
            check = _read(Check, None, item, place, problems)
            if check is not None:
                problems += _unknown_beside_type(check, item, place)
                checks.append(check)
        else:
            checks.append(item)  # one that is not a check is reported when it is compiled
    return checks


def _unknown_beside_type(check: Check, document: dict[str, Any], location: str) -> Iterator[Problem]:
    """Yield unknown arguments of the check's type that are beside `type`.

    In FEP's form, with all arguments in `arguments`, unknown ones are ignored with a warning.
    """
    check_class = class_of(check)
    if check_class is None or document.keys() <= CHECK_KEYS:
        return
    for name in unknown_arguments(check_class, check.arguments):
        advice = meant_argument(check_class, name)
        place = f"{location}.{name}" if name in document else f"{location}.arguments.{name}"
        yield Problem(unknown_argument(check, name), path=place, advice=advice)


def _read(model: type[M], mark: str | None, item: Any, location: str, problems: list[Problem]) -> M | None:
    """Return `item` as a model if it is one or its document, which has `mark`; else `item` is the value of `mark`."""
    if isinstance(item, model):
        return item
    document = item if mark is None or (isinstance(item, dict) and mark in item) else {mark: item}
    document = in_full(document) if model is Check else case_in_full(document) if model is TestCase else document
    try:
        return model.model_validate(document)
    except ValidationError as error:
        name = model.__name__
        elsewhere = foreign_names.CHECK if model is Check else None
        advice = None if mark is None else f"a dict with {mark!r} is read as {name}; else write {name}({mark}=...)"
        for item in validation_messages(document, error, model, elsewhere):
            path = dotted((location, *item.path))
            problems.append(Problem(item.message, path=path, advice=advice or item.advice))
        return None


# --- evaluate --------------------------------------------------------------------------------------------------------


logger = logging.getLogger("fepflow.checks")

GivenCheck = AnyCheck | dict[str, Any]
GivenChecks = Sequence[GivenCheck | Sequence[GivenCheck]]
"""Checks for all cases, or a sequence for each. In a union of two sequences mypy finds no type for a mixed list."""


async def evaluate_async(
    test_cases: Sequence[Any],
    outputs: Sequence[Any] | Callable[..., Any],
    checks: GivenChecks | None = None,
    metadata: dict[str, Any] | ExperimentMetadata | None = None,
    max_async_concurrent: int | None = None,
    *,
    repeats: int = 1,
    experiment_metadata: ExperimentMetadata | dict[str, Any] | None = None,
) -> EvaluationRunResult:
    """Run checks against the output of each test case (FEP 3.1). `evaluate` is for synchronous code.

    `outputs[i]` belongs to `test_cases[i]`. A test case is a TestCase, a dict with `input` (FEP 2.1), or the input
    itself. An output is an Output, a dict with `value` (FEP 2.2), or the value itself, which may be any other dict.
    `checks` are shared by all cases, or one list for each case; a case's own checks come before them. An error inside a
    check is in its result.

    Instead of outputs, you can pass a sync or async function that makes them. It is called `repeats` times with the
    input of each test case, or with the test case itself if it has a parameter `test_case`. Its exceptions are in the
    results. Then there is a result for each repeat, whose metadata has its number as `repeat`, from 1.

    `metadata` is any dict, and is kept in the result. FEP's experiment (3.2), a name and metadata, is
    `experiment_metadata`, or `metadata` if that is an ExperimentMetadata. `max_async_concurrent` is the number of
    checks that may wait at once.

    Raises InputError before any check runs if the input cannot be evaluated: no cases, different lengths, duplicate
    ids, metadata that JSON cannot express.
    """
    return await _begin(
        test_cases,
        outputs,
        checks,
        metadata,
        max_async_concurrent,
        repeats=repeats,
        experiment_metadata=experiment_metadata,
    )


def _begin(
    test_cases: Sequence[Any],
    outputs: Sequence[Any] | Callable[..., Any],
    checks: GivenChecks | None = None,
    metadata: dict[str, Any] | ExperimentMetadata | None = None,
    max_async_concurrent: int | None = None,
    *,
    repeats: int = 1,
    experiment_metadata: ExperimentMetadata | dict[str, Any] | None = None,
) -> Coroutine[Any, Any, EvaluationRunResult]:
    """Read the arguments of `evaluate_async`, and return what is left to await.

    Outside of an event loop, a sync function is called here: it may run a loop of its own, with `asyncio.run`.
    """
    metadata, experiment = read_metadata(metadata, experiment_metadata)
    for path, items in (
        ("test_cases", test_cases),
        ("outputs", None if callable(outputs) else outputs),
        ("checks", checks),
    ):
        require_list(items, path)
    limit = None
    if max_async_concurrent is not None:
        limit = asyncio.Semaphore(require_count(max_async_concurrent, "checks", "max_async_concurrent"))
    shared, per_case = read_checks(checks)
    calls, cases = callable(outputs), read_test_cases(test_cases)
    repeats = require_repeats(repeats, calls=calls)
    given = [] if callable(outputs) else read_outputs(outputs)
    require_match(cases, None if calls else given, per_case)
    started_at = utc_now()
    compiled_shared = compile_checks(shared)
    for warning in (warning for check in compiled_shared for warning in check.warnings):
        logger.warning(warning)
    makers = _makers(outputs, cases, repeats) if callable(outputs) else []
    if not iscoroutinefunction(outputs) and not _is_in_loop():
        makers = [(case, _made_now(make)) for case, make in makers]
    own = {case.id: per_case[index] for index, case in enumerate(cases)} if per_case else {}

    async def rest() -> EvaluationRunResult:
        pairs = await _outputs_of(makers) if calls else list(zip(cases, given, strict=True))
        with_checks = (
            (case, output, checks_of([*(case.checks or ()), *own.get(case.id, ())], compiled_shared))
            for case, output in pairs
        )
        async with nested_or_own() as requests:
            results = await _case_results(with_checks, requests, limit)
        if repeats > 1:
            numbers = (index % repeats + 1 for index in range(len(results)))
            results = [
                result.model_copy(update={"metadata": {"repeat": number}})
                for result, number in zip(results, numbers, strict=True)
            ]
        return run_result(str(uuid4()), results, started_at, experiment, metadata=metadata)

    return rest()


def _blocking(function: Callable[P, Coroutine[Any, Any, EvaluationRunResult]]) -> Callable[P, EvaluationRunResult]:
    """Return a function for synchronous code, which also works inside a running event loop (a notebook)."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> EvaluationRunResult:
        if not _is_in_loop():
            return _evaluate(*args, **kwargs)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_evaluate, *args, **kwargs).result()

    return call


def _evaluate(*args: Any, **kwargs: Any) -> EvaluationRunResult:
    begun = _begin(*args, **kwargs)
    results: list[EvaluationRunResult] = []

    async def run() -> None:
        # The result is not returned: asyncio.run would spell it out, in a message that is never shown.
        results.append(await begun)

    asyncio.run(run())
    return results[0]


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


evaluate = _blocking(evaluate_async)
evaluate.__name__ = evaluate.__qualname__ = _begin.__qualname__ = "evaluate"  # a TypeError names it


async def _case_results(
    with_checks: Iterable[tuple[TestCase, Output, Sequence[CompiledCheck]]],
    requests: ModelRequests,
    limit: asyncio.Semaphore | None,
) -> list[TestCaseResult]:
    """Return the results of test cases, in their order; a limited number of them waits at once."""
    results: dict[int, TestCaseResult] = {}
    waiting: set[asyncio.Task[None]] = set()
    last_yield = perf_counter()

    async def finish(index: int, case: TestCase, output: Output, pending: Awaitable[list[CheckResult]]) -> None:
        results[index] = case_result(case, output, await pending)

    try:
        for index, (case, output, checks) in enumerate(with_checks):
            answers = run_checks(case, output, checks, requests, limit)
            if isinstance(answers, list):
                results[index] = case_result(case, output, answers)
            else:
                waiting.add(asyncio.create_task(finish(index, case, output, answers)))
                if len(waiting) >= MAX_WAITING:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    await asyncio.gather(*done)  # a fault of ours raises; no result is missing without a word
            if perf_counter() - last_yield > YIELD_INTERVAL:
                await asyncio.sleep(0)
                last_yield = perf_counter()
        await asyncio.gather(*waiting)
    finally:
        for task in waiting:
            task.cancel()  # the evaluation failed, or was cancelled
    return [results[index] for index in range(len(results))]


def run_result(
    evaluation_id: str,
    results: list[TestCaseResult],
    started_at: datetime,
    experiment: ExperimentMetadata | None,
    completed_at: datetime | None = None,
    metadata: dict[str, Any] | None = None,
) -> EvaluationRunResult:
    """Return the result of a run (FEP 4.2), which ends now unless it has ended."""
    fields: dict[str, Any] = {} if experiment is None else {"experiment": experiment}
    if metadata is not None:
        fields["metadata"] = metadata
    return EvaluationRunResult(
        evaluation_id=evaluation_id,
        started_at=started_at,
        completed_at=completed_at or utc_now(),
        status=status_of(result.status for result in results),
        summary=summarize_run(results),
        results=results,
        **fields,
    )


def require_match(
    test_cases: Sequence[TestCase], outputs: Sequence[Output] | None, per_case: Sequence[Sequence[AnyCheck]]
) -> None:
    """Raise InputError without test cases, for a missing output or list of checks, and for a duplicate id.

    `outputs` is None if a function makes them later.
    """
    if not test_cases:
        raise InputError(Problem("there are no test cases", path="test_cases", advice="give at least one"))
    if outputs is not None and len(test_cases) != len(outputs):
        message = f"{len(test_cases)} test cases but {len(outputs)} outputs"
        raise InputError(Problem(message, path="outputs", advice="outputs[i] belongs to test_cases[i]"))
    if per_case and len(per_case) != len(test_cases):
        message = f"{len(test_cases)} test cases but {len(per_case)} lists of checks"
        raise InputError(Problem(message, path="checks", advice="checks[i] belongs to test_cases[i]"))
    first: dict[str, int] = {}
    for index, case in enumerate(test_cases):
        if case.id in first:
            message = f"the id {case.id!r} appears twice: test_cases[{first[case.id]}] and test_cases[{index}]"
            raise InputError(Problem(message, path=f"test_cases[{index}].id", advice="ids are unique"))
        first[case.id] = index


# --- outputs of a function that is called ---------------------------------------------------------------------------


CONCURRENCY = 16
"""Calls of an async function that are under way at once."""

CASE_PARAMETER = "test_case"
"""Name of the parameter of a function that gets the whole test case."""


Maker = Callable[[], Any]
"""A call of the function: it returns the answer, or what is to be awaited for it."""


def _makers(function: Callable[..., Any], cases: Sequence[TestCase], repeats: int) -> list[tuple[TestCase, Maker]]:
    """Return the calls of the function, for each repeat of each case.

    It gets the input, or the test case if it has a parameter `test_case`.
    """
    wants_case = _wants_case(function)

    def make(case: TestCase) -> Any:
        # A function that changes its input would change it for the next repeat, and in the result.
        return function(**{CASE_PARAMETER: copied(case)}) if wants_case else function(as_it_is_now(case.input))

    return [(case, partial(make, case)) for case in cases for _ in range(repeats)]


def _made_now(make: Maker) -> Maker:
    """Call now, and return what gives the answer later."""
    started = perf_counter()
    try:
        answer = make()
        answer = answer if isawaitable(answer) else output_of(answer, started)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        answer = failed_output(error, described(error), started)
    return lambda: answer


async def _outputs_of(makers: Sequence[tuple[TestCase, Maker]]) -> list[tuple[TestCase, Output]]:
    """Return the cases with their outputs. An exception becomes a failed output.

    Calls of an async function run side by side; those of a sync one run one after another, in this thread.
    """
    places = asyncio.Semaphore(CONCURRENCY)

    async def output_of_call(case: TestCase, make: Maker) -> tuple[TestCase, Output]:
        async with places:
            started = perf_counter()
            try:
                answer = make()
                return case, output_of(await answer if isawaitable(answer) else answer, started)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                return case, failed_output(error, described(error), started)

    return await asyncio.gather(*(output_of_call(case, make) for case, make in makers))


def _wants_case(function: Callable[..., Any]) -> bool:
    try:
        return CASE_PARAMETER in signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False


def require_count(value: Any, noun: str, path: str) -> int:
    """Return a whole number of at least 1. Raises InputError for other values."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(Problem(f"{value!r} is not a number of {noun}", path=path, advice="give 1 or more"))
    return value


def require_repeats(repeats: Any, *, calls: bool) -> int:
    """Return the number of repeats. Raises InputError for none, and for several of existing outputs."""
    require_count(repeats, "repeats", "repeats")
    if repeats > 1 and not calls:
        advice = "give the function that makes them, in place of outputs"
        raise InputError(Problem("outputs that are there cannot be repeated", path="repeats", advice=advice))
    return int(repeats)


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled; a CancelledError may also come from another one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the caller is not async
        return False
    return task is not None and task.cancelling() > 0


def _pending(value: Any) -> str | None:
    """Return what a value is that is no answer yet, as somebody has to await or read it; None for any other one."""
    value = value.value if isinstance(value, Output) else value
    if isinstance(value, AsyncIterator):
        return "an async generator"
    if isinstance(value, Iterator):
        return f"a {type(value).__name__} that nobody has read"
    return f"a {type(value).__name__} that nobody awaited" if isawaitable(value) else None


def output_of(value: Any, started: float) -> Output:
    """Return a function's return value as an output, with its duration. A generator is read whole.

    Raises TypeError for a value that has to be awaited or read: the agent has not answered, but a check may find it not
    empty.
    """
    if isinstance(value, Iterator):
        value = joined(list(value))
    if (pending := _pending(value)) is not None:
        raise TypeError(
            f"the function returned {pending}: return the whole answer, from an async function if it has to be awaited"
        )
    return value if isinstance(value, Output) else Output(value=as_it_is_now(value), metadata=_latency(started))


def failed_output(error: BaseException, message: str, started: float) -> Output:
    """Return the output of a call that raised; `message` describes the exception."""
    cause = {
        "type": "timeout_error" if isinstance(error, TimeoutError) else "unknown_error",
        "kind": "exception",
        "message": message,
        "recoverable": False,
    }
    return Output(value=None, metadata={"error": cause, **_latency(started)})


def described(error: BaseException, name: str | None = None) -> str:
    """Return an exception on one line: its name or type, its message, and the user's line that raised it."""
    cause, others = first_cause(error)
    try:
        message = message_on_one_line(str(cause)) + others
    except Exception:  # the exception's __str__ may fail
        message = "no message"
    return f"{name or type(cause).__name__}: {message}{_location(error, cause)}"


def message_on_one_line(text: str) -> str:
    """Return an exception's message on one line; `no message` if it is empty."""
    return " ".join(text.split()) or "no message"


def as_it_is_now(value: Any) -> Any:
    """Copy a value that a later call might change: fixtures and returned lists may be shared."""
    if not isinstance(value, list | dict):
        return value
    try:
        return deepcopy(value)
    except Exception:  # an object inside that cannot be copied
        return value


def copied(case: TestCase) -> TestCase:
    """Return a copy for one call: what the function changes in it is seen by no check, other call or test."""
    given = case.model_fields_set & {"input", "expected", "metadata", "turns", "checks"}
    return case.model_copy(update={name: as_it_is_now(getattr(case, name)) for name in given})


def _location(*errors: BaseException) -> str:
    """Return the line that raised the last of them: the innermost one outside of fepflow and installed code."""
    ours = str(Path(__file__).parents[1])
    frames = [frame for error in errors for frame in traceback.extract_tb(error.__traceback__)]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(ours)]
    own = [frame for frame in others if not is_installed(Path(frame.filename))] or others
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _latency(started: float) -> dict[str, Any]:
    return {"latency_ms": round((perf_counter() - started) * 1000, 1)}


# --- one answer in a test -------------------------------------------------------------------------------------------


MAX_LINE = 300


def assert_case(
    input: Any,
    output: Any,
    checks: Sequence[GivenCheck],
    *,
    expected: Any = None,
    metadata: dict[str, Any] | None = None,
) -> TestCaseResult:
    """Assert that an output passes every check, and return the results.

    `output` is a value or an Output. `expected` and `metadata` are those of the test case, which checks may read.
    Raises AssertionError, with the reason, if a check failed, ended in an error or has no verdict. Raises InputError if
    there are no checks, or if they cannot be evaluated.
    """
    __tracebackhide__ = True
    require_list(checks, "checks")
    if not checks:
        raise InputError(Problem("there are no checks", path="checks", advice="give at least one"))
    parts = {"input": input, "expected": expected, "metadata": metadata}
    case = {name: value for name, value in parts.items() if value is not None or name == "input"}
    (answer,) = read_outputs([output if isinstance(output, Output) else Output(value=output)])
    (result,) = evaluate([TestCase.model_validate(case)], [answer], list(checks)).results
    complaints = [(check.check_id, complaint(check)) for check in result.check_results]
    if lines := [f"{check_id}: {text}" for check_id, text in complaints if text is not None]:
        asked = cut(printable(as_json(input)), MAX_LINE)
        got = cut(printable(as_json(answer.value)), MAX_LINE)
        raise AssertionError("\n".join([*lines, f"  input:  {asked}", f"  output: {got}"]))
    return result
