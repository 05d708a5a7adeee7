"""Checks that are ready to run many times: type, literals and paths are looked up, validated and compiled once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable, iscoroutinefunction, unwrap
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from fepflow.calls.models.client import ModelRequests, offered_to_nested_calls
from fepflow.calls.thread_pool import LOOKUPS, USER_CHECK_POOL, ThreadPool
from fepflow.checks.base import (
    FILLED_LATER,
    MISSING,
    OUTPUT,
    RESOLVED,
    UNKNOWN_ARGUMENT,
    BaseAsyncCheck,
    BaseCheck,
    JSONPath,
    answering,
    argument_fields,
    default_paths,
    modifier_names,
    refuse_misspelt,
    refused,
    wrong_arguments,
)
from fepflow.checks.core.modifiers import AlternativeResults, Modifiers, split_modifiers
from fepflow.checks.explanation import redacted
from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import CheckType, file_of, find_check, is_ours, source_hash
from fepflow.errors import (
    CheckArgumentsError,
    CheckTimeoutError,
    FepflowError,
    InputError,
    ModelError,
    Problem,
    RunLimitExceededError,
    TraceUnknownError,
    ValidationMessage,
)
from fepflow.json.values import is_large
from fepflow.jsonpath.path import (
    Path,
    TextTemplate,
    compile_path,
    compile_template,
    copy_containers,
    is_path,
    leading_keys,
)
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.content_hash import Kind
from fepflow.protocol.model import to_jsonable, utc_now
from fepflow.protocol.results import CheckError, CheckResult, ErrorTypeText
from fepflow.protocol.test_case import Context, turn_context
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.security.redaction import known_secrets, redact_json, words_of
from fepflow.suite.models import OWN_CHECKS, check_ids
from fepflow.text import brief
from fepflow.time_limit import IN_LOOP, NotInLoopError
from fepflow.traces.conventions import why_unknown

TIME_LIMIT = 60.0
"""Seconds that a check may take that waits for something or that is not ours."""

LARGE_LIMIT = 10.0
"""Seconds that one of our checks may take in a thread, for large values and paths that may find much."""

SLOW_LIMIT = 1.5
"""Seconds that one may take in a thread on other values.

Patterns and schemas have a limit of a second, but that of patterns counts seconds of computing, which last longer on a
busy machine.
"""

Shown = dict[str, Any]


class _PathWithDefault:
    """A path with a default for documents in which it finds nothing."""

    def __init__(self, expression: str, default: Any, is_absent: Callable[[Path, Any], bool]) -> None:
        self.expression = expression
        self._path = compile_path(expression)
        self._default = default
        self._is_absent = is_absent

    def find(self, document: Any) -> list[Any]:
        """See Path.find."""
        return [self.resolve(document)]

    def resolve(self, document: Any) -> Any:
        """Return the value of the path, else the default."""
        return self._default if self._is_absent(self._path, document) else self._path.resolve(document)


class Arguments:
    """The arguments of one check, ready to be resolved for any number of evaluation contexts. Never changes.

    Raises CheckArgumentsError for arguments that the check type does not take, and JSONPathError for invalid paths.
    """

    def __init__(self, check_class: type[BaseCheck], check_type: str, arguments: dict[str, Any]) -> None:
        self._class = check_class
        self._type = check_type
        self._fields = argument_fields(check_class)
        self.modifiers, arguments = split_modifiers(check_class, check_type, arguments)
        self.unknown = unknown_arguments(check_class, arguments)
        try:
            refuse_misspelt(check_class, self.unknown, arguments)
        except ValueError as error:
            raise CheckArgumentsError(f"{check_type}: {error}") from None
        arguments = {**default_paths(check_class), **arguments}
        self.template = compile_template(arguments, _special_paths(check_class, check_type, arguments))
        # Of a path inside a list, an object or a text, the argument as a whole is known only when it is resolved.
        self._paths: dict[str, str | None] = {str(location[0]): None for location, _ in self.template.paths}
        for location, path in self.template.paths:
            if len(location) == 1 and not isinstance(path, TextTemplate):
                self._paths[str(location[0])] = path.expression
        literals = {
            name: value
            for name, value in self.template.literal.items()
            if name not in self._paths and name in self._fields
        }
        paths = {name: JSONPath(path) if path else FILLED_LATER for name, path in self._paths.items()}
        self._unresolved = {**literals, **paths}
        if self.modifiers is not None:
            self._unresolved = self._first_alternative(self.modifiers, literals)
        self.sample = sample = self.instance(self._unresolved)
        """The check with its literal arguments, and paths for the others."""
        defaults = {name: getattr(sample, field) for name, field in self._fields.items() if name not in arguments}
        given = {} if self.modifiers is None else self.modifiers.given
        shown = {**defaults, **literals, **given}
        self._shown = {name: {"value": self._plain(name, value)} for name, value in shown.items()}

    def _first_alternative(self, modifiers: Modifiers, literals: dict[str, Any]) -> dict[str, Any]:
        """Return the known arguments, with the first of several alternatives. Raises CheckArgumentsError."""
        unresolved = self._unresolved
        if modifiers.extract is not None and modifiers.subject in literals:
            unresolved = {
                **unresolved,
                modifiers.subject: modifiers.extracted(literals)[modifiers.subject],
            }
        if modifiers.alternatives in literals:
            for item in reversed(modifiers.alternatives_in(literals)):
                unresolved = {**unresolved, modifiers.alternatives: item}
                self.instance(unresolved)
        return unresolved

    def misfit(self, name: str, value: Any) -> ValidationMessage | None:
        """Return why a value cannot be this argument, whatever the others are; None if it can."""
        if self.modifiers is not None:
            if self.modifiers.extract is not None and name == self.modifiers.subject:
                return None
            if name == self.modifiers.alternatives and isinstance(value, list):
                value = value[0] if value else None
        try:
            self.instance({**self._unresolved, name: value})
        except CheckArgumentsError as error:
            return next((message for message in error.messages if message.path[:1] == (name,)), None)
        return None

    def instance(self, resolved: dict[str, Any]) -> BaseCheck:
        """Return an instance of the check with these values; raises CheckArgumentsError."""
        try:
            return self._class.model_validate(resolved, context=RESOLVED)
        except ValidationError as error:
            raise wrong_arguments(self._class, self._type, resolved, error) from None

    def others_instance(self, resolved: dict[str, Any]) -> BaseCheck:
        """Return an instance of a class that is not ours. It gets copies, and no value becomes a path."""
        resolved = copy_containers(resolved)
        instance = self.instance(resolved)
        fields = instance.__dict__
        for name in resolved:
            # A user's own validator may take a text that begins like a path for one.
            field = self._fields.get(name, name)
            if isinstance(fields.get(field), JSONPath):
                fields[field] = resolved[name]
        return instance

    @property
    def whole_paths(self) -> dict[str, str | None]:
        """The arguments that hold paths, each with its path, or None if the path is a part of the argument."""
        return self._paths

    def shown(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """Return FEP 2.3.4's `resolved_arguments`."""
        shown: dict[str, Any] = dict(self._shown)
        for name, path in self._paths.items():
            value = self._plain(name, resolved[name])
            shown[name] = {"value": value} if path is None else {"jsonpath": path, "value": value}
        return shown

    def _plain(self, name: str, value: Any) -> Any:
        """Return a value as JSON: options become objects, and functions their names."""
        if value is MISSING:
            return None
        shown = to_jsonable(value)
        return redacted(shown) if name in self._class.check_secrets else shown


def unknown_arguments(check_class: type[BaseCheck], arguments: Mapping[str, Any]) -> list[str]:
    """Return the arguments that a check type does not know and either ignores or refuses."""
    known = {*argument_fields(check_class), *modifier_names(check_class)}
    takes_any = check_class.model_config.get("extra") == "allow"
    return [] if takes_any else [name for name in arguments if name not in known]


def unknown_argument(check: Check, name: str) -> str:
    """Return the message about an argument that a check's type does not know."""
    return f"{check.type} has no argument {brief(name, 60)}"


def _special_paths(check_class: type[BaseCheck], check_type: str, arguments: dict[str, Any]) -> dict[str, Path]:
    """Return the arguments that are not compiled like plain paths: templates, and paths with a default."""
    special: dict[str, Path] = {}
    for name in check_class.check_templates & arguments.keys():
        text = arguments[name]
        if isinstance(text, str) and not is_path(text) and "{{" in text:
            special[name] = template = TextTemplate(text)
            if name in check_class.check_case_templates:
                _require_of_case(check_type, name, template.paths)
    for name in check_class.check_tool_calls & arguments.keys():
        if is_path(arguments[name]):
            special[name] = _PathWithDefault(arguments[name], [], made_no_calls)
    defaults = default_paths(check_class)
    for name in check_class.check_optional_paths & arguments.keys():
        if name in defaults and arguments[name] != defaults[name]:
            continue  # what the author has written has to be there
        if not is_path(arguments[name]):
            raise CheckArgumentsError(f"{check_type}: {name} must be a JSONPath, a text that starts with $.")
        special[name] = _PathWithDefault(arguments[name], MISSING, lambda path, document: not path.find(document))
    return special


def _require_of_case(check_type: str, name: str, paths: Sequence[str]) -> None:
    other = next((path for path in paths if leading_keys(path)[:1] != ("test_case",)), None)
    if other is not None:
        why = f"{other} is not a part of the test case, and an answer must not say how it is judged"
        raise refused(check_type, [ValidationMessage((name,), why)])


def _negated_subject(arguments: Arguments, check: Check) -> str:
    """Return the argument that is the whole output, if `negate` passes an output without the value."""
    whole = (name for name, use in arguments.whole_paths.items() if use == OUTPUT.expression)
    return next(whole, "") if check.arguments.get("negate") is True else ""


def _trace_parts(paths: Sequence[tuple[Any, Path]]) -> Iterator[str]:
    """Yield the parts of an output's trace that paths read; an empty text for all parts."""
    for _, path in paths:
        for expression in path.paths if isinstance(path, TextTemplate) else (path.expression,):
            keys = leading_keys(expression)
            if keys[:3] == ("output", "metadata", "trace"):
                keys = ("output", *keys[2:])
            if keys[:2] == ("output", "trace"):
                yield str(keys[2]) if len(keys) > 2 else ""


class _Run(NamedTuple):
    """One run of a check: when it started, and its requests to models."""

    started: float
    requests: ModelRequests | None


class CompiledCheck:
    """One check of a suite, ready to run any number of times.

    A check that cannot be compiled, or that has a `refusal`, is a CompiledCheck, too. Each of its results is an error
    with the reason, and other checks are not affected.
    """

    def __init__(self, check: AnyCheck, check_id: str, refusal: str | None = None) -> None:
        self.check = to_check(check)
        self.check_id = check_id
        self.check_type = self.check.type
        self.warnings: list[str] = []
        self.error: FepflowError | None = None
        self.version = ""
        self._model_check: ModelCheck | None = None
        if refusal is not None:
            self.error = CheckArgumentsError(refusal)
            return
        try:
            self._prepare(check)
        except FepflowError as error:
            self.error = error
        except RecursionError:
            self.error = CheckArgumentsError(f"the arguments of {self.check_type} nest too deep, or contain themselves")
        except Exception as error:  # of a user's own objects and validators
            why = f"{type(error).__name__}: {words_of(error)}"
            self.error = CheckArgumentsError(f"the arguments of {self.check_type} cannot be used: {why}")

    def _prepare(self, check: AnyCheck) -> None:
        declared = self.check
        check_class = type(check) if isinstance(check, BaseCheck) else find_check(declared.type, declared.version)
        self.version = check_class.check_version
        self.source = source_hash(check_class)
        self._arguments = Arguments(check_class, declared.type, declared.arguments)
        self._template = self._arguments.template
        self._modifiers = self._arguments.modifiers
        self.warnings += [UNKNOWN_ARGUMENT % (declared.type, name) for name in self._arguments.unknown]
        self.file = None if is_ours(check_class) else file_of(check_class)
        is_others = self.file is not None or check_class.check_type == CheckType.CUSTOM_FUNCTION
        self._is_others = is_others
        waits = issubclass(check_class, BaseAsyncCheck) or iscoroutinefunction(unwrap(check_class.__call__))
        self._in_thread = is_others and not waits
        self._instance = self._arguments.others_instance if is_others else self._arguments.instance
        self._call = answering(check_class)
        sample = self._arguments.sample
        self._model_check = sample if isinstance(sample, ModelCheck) and sample.check_models() else None
        self.warnings += self._model_check.check_config_warnings() if self._model_check is not None else []
        self._negated = _negated_subject(self._arguments, declared)
        self._thread_limit = LARGE_LIMIT if is_large(self._template.literal) else None
        self._trace_parts = frozenset(_trace_parts(self._template.paths))
        self._metadata: dict[str, Any] = {"check_version": self.version, "check_id": self.check_id}
        if declared.turn is not None:
            self._metadata["turn"] = declared.turn

    @property
    def model_kind(self) -> Kind | None:
        """The kind of model that it calls, if it calls one; None for a user's function."""
        return None if self._model_check is None else self._model_check.check_kind

    def config_error(self) -> str | None:
        """Return why it cannot run, or None: its model is unknown or has no key. May take seconds."""
        return None if self.error is not None or self._model_check is None else self._model_check.check_config_error()

    def unpriced(self) -> list[str]:
        """Return the names of its models whose price is unknown. May take seconds."""
        return [] if self.error is not None or self._model_check is None else self._model_check.check_unpriced()

    def run(
        self, context: Context, requests: ModelRequests | None = None, *, large: bool | None = None
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result for one evaluation context (FEP 2.3.1); awaitable if the check has to wait for something.

        `requests` calls models; without it, the check has a client of its own. `large` is the answer of `is_large` for
        the context, if it is known already. Errors are in the result, with one exception: awaiting it raises
        RunLimitExceededError if the run may not call models any more.
        """
        run = _Run(perf_counter(), requests)
        if self.error is not None:
            return self.failed(self.error, None, run.started)
        for part in self._trace_parts:
            if (why := why_unknown(context["output"].get("trace"), part)) is not None:
                unknown = TraceUnknownError(f"$.output.trace does not tell {part or 'all'}: {why}")
                return self.failed(unknown, None, run.started)
        if self._in_thread:
            if USER_CHECK_POOL.is_here:  # a user's check evaluates others, and would wait for itself
                return self._evaluate(context, run)
            return self._evaluate_in_thread(context, run, USER_CHECK_POOL, TIME_LIMIT)
        is_context_large = is_large(context) if large is None else large
        if limit := LARGE_LIMIT if is_context_large else self._thread_limit:
            return self._evaluate_in_thread(context, run, LOOKUPS, limit)
        token = IN_LOOP.set(True)
        try:
            return self._evaluate(context, run)
        except NotInLoopError:
            self._thread_limit = SLOW_LIMIT  # the next answers are probably like this one
            return self._evaluate_in_thread(context, run, LOOKUPS, SLOW_LIMIT)
        finally:
            IN_LOOP.reset(token)

    async def _evaluate_in_thread(self, context: Context, run: _Run, pool: ThreadPool, limit: float) -> CheckResult:
        try:
            answer = await pool.run(partial(self._evaluate, context, run), limit, self.check_id)
        except Exception as error:
            return self.failed(error, None, run.started)
        return await result_of(answer)

    def _evaluate(self, context: Context, run: _Run) -> CheckResult | Awaitable[CheckResult]:
        try:
            resolved = self._template.render(
                context if self.check.turn is None else turn_context(context, self.check.turn)
            )
            if self._modifiers is not None:
                resolved = self._modifiers.extracted(resolved)
            if self._modifiers is None or not self._modifiers.alternatives:
                return self._execute_once(resolved, run)
            alternatives = self._modifiers.alternatives_in(resolved)
        except NotInLoopError:
            raise
        except Exception as error:
            return self.failed(error, None, run.started)
        name = self._modifiers.alternatives
        answers = (self._execute_once({**resolved, name: item}, run) for item in alternatives)
        choice = AlternativeResults(all_of_them=self._modifiers.all_of_them)
        for answer in answers:
            if not isinstance(answer, CheckResult):
                return self._choose(chain([answer], answers), choice, resolved)
            if choice.is_decided_by(answer):
                break
        return self._with_all(choice.result, resolved)

    async def _choose(
        self,
        answers: Iterator[CheckResult | Awaitable[CheckResult]],
        choice: AlternativeResults,
        resolved: dict[str, Any],
    ) -> CheckResult:
        """Return the result of several alternatives, tried in turn until one decides."""
        for answer in answers:
            if choice.is_decided_by(await result_of(answer)):
                break
        return self._with_all(choice.result, resolved)

    def _with_all(self, result: CheckResult, resolved: dict[str, Any]) -> CheckResult:
        """Return the result of one alternative, with all of them among its arguments."""
        return result.model_copy(update={"resolved_arguments": self._arguments.shown(resolved)})

    def _execute_once(self, resolved: dict[str, Any], run: _Run) -> CheckResult | Awaitable[CheckResult]:
        shown: Shown | None = None
        try:
            shown = self._arguments.shown(resolved)
            answer = self._invoke(self._instance(resolved), run.requests)
            return self._completed(answer, shown, run) if isinstance(answer, dict) else self._wait(answer, shown, run)
        except NotInLoopError:
            raise
        except Exception as error:
            return self.failed(error, shown, run.started)

    async def _wait(self, answer: Awaitable[Any], shown: Shown, run: _Run) -> CheckResult:
        # Requests to models have time limits of their own, and waiting for a free slot is no fault.
        seconds = TIME_LIMIT if self._model_check is None else None
        try:
            async with asyncio.timeout(seconds) as limit:
                with offered_to_nested_calls(run.requests):
                    return self._completed(self._as_json(await answer), shown, run)
        except RunLimitExceededError as error:
            if self._model_check is not None:
                raise
            return self.failed(error, shown, run.started)
        except Exception as error:
            late = CheckTimeoutError(f"{self.check_id} did not answer within {TIME_LIMIT:g} s")
            return self.failed(late if limit.expired() else error, shown, run.started)
        except (asyncio.CancelledError, SystemExit, GeneratorExit, BaseExceptionGroup) as error:
            if _is_being_stopped():
                raise
            # A fault of the check, such as a task of its own that it lost.
            return self.failed(error, shown, run.started)

    def _invoke(self, instance: BaseCheck, requests: ModelRequests | None) -> dict[str, Any] | Awaitable[Any]:
        answer: Any
        if requests is not None and self._is_others:
            with offered_to_nested_calls(requests):
                answer = self._call(instance)
        elif requests is not None and isinstance(instance, ModelCheck):
            answer = instance.check_call(requests)
        else:
            answer = self._call(instance)
        if isinstance(answer, dict):
            return self._as_json(answer) if self._is_others else answer
        return answer if isawaitable(answer) else self._as_json(answer)

    def _completed(self, results: dict[str, Any], shown: Shown, run: _Run) -> CheckResult:
        if self._modifiers is not None:
            results = self._modifiers.judged(results)
        if self._negated and shown[self._negated]["value"] is None and results.get("passed") is True:
            raise CheckArgumentsError(
                f"{self._negated}: the output is null, and so differs from whatever is not wanted"
            )
        fields = {
            "check_type": self.check_type,
            "status": "completed",
            "results": results,
            "evaluated_at": utc_now(),
            "resolved_arguments": shown,
            "metadata": {**self._metadata, "execution_time_ms": _milliseconds(run.started)},
        }
        return CheckResult.trusted(fields)

    def _as_json(self, answer: Any) -> dict[str, Any]:
        """Return a copy that is JSON: a user's own check may return a set, a date or a model."""
        if not isinstance(answer, dict):
            message = f'{self.check_type} must return a dict of results such as {{"passed": True}}'
            raise CheckArgumentsError(f"{message}, not {type(answer).__name__}")
        try:
            results: dict[str, Any] = to_jsonable_python(answer)
        except ValueError as error:
            raise CheckArgumentsError(f"{self.check_type} must return JSON values: {words_of(error)}") from None
        # What a user's own code returns may hold the credentials that it used.
        return redact_json(results, known_secrets()) if self._is_others else results

    def failed(self, error: BaseException, shown: Shown | None = None, started: float | None = None) -> CheckResult:
        """Return the result of this check for an `error` that prevented an answer."""
        if isinstance(error, FepflowError):
            cause = CheckError(type=error.fep_type, message=str(error), recoverable=error.recoverable)
        else:
            message = f"{self.check_type} failed: {type(error).__name__}: {words_of(error)}"
            if isinstance(error, MemoryError):
                message = f"{self.check_id} takes more memory than a check may have"
            kind: ErrorTypeText = "timeout_error" if isinstance(error, TimeoutError) else "unknown_error"
            cause = CheckError(type=kind, message=message)
        metadata: dict[str, Any] = {"check_id": self.check_id}
        if self.version:
            metadata["check_version"] = self.version
        if self.check.turn is not None:
            metadata["turn"] = self.check.turn
        if started is not None:
            metadata["execution_time_ms"] = _milliseconds(started)
        if isinstance(error, ModelError):
            metadata["model_error"] = error.kind
        fields = {
            "check_type": self.check_type,
            "status": "error",
            "results": {},
            "evaluated_at": utc_now(),
            "metadata": metadata,
            "error": cause,
        }
        return CheckResult.trusted(fields if shown is None else {**fields, "resolved_arguments": shown})


def compile_checks(
    checks: Sequence[AnyCheck], taken: Sequence[str] = (), refusals: Sequence[str | None] = ()
) -> list[CompiledCheck]:
    """Compile checks in order and give each its id. `taken` are ids of other checks of the case.

    `refusals` has for each check why it may not run, or None. Raises InputError for duplicate ids.
    """
    require_unique_ids(checks, taken)
    ids = check_ids([to_check(check) for check in checks], taken)
    refused = refusals or [None] * len(ids)
    return [CompiledCheck(*item) for item in zip(checks, ids, refused, strict=True)]


def require_unique_ids(checks: Sequence[AnyCheck], taken: Collection[str] = ()) -> None:
    """Raise InputError if two checks have the same id, or one has an id that is taken."""
    counts = Counter(check.id for check in map(to_check, checks) if check.id)
    if twice := sorted(name for name, count in counts.items() if count > 1 or name in taken):
        is_own = any(own.id == twice[0] for own in OWN_CHECKS.values())
        advice = "fepflow's own check has it: choose another id" if is_own else "ids are unique"
        raise InputError(Problem(f"the check id {twice[0]} appears twice", path="checks", advice=advice))


async def result_of(answer: CheckResult | Awaitable[CheckResult]) -> CheckResult:
    """Return a result that may be there already."""
    return answer if isinstance(answer, CheckResult) else await answer


def _is_being_stopped() -> bool:
    """Return whether the check is being cancelled from outside."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop any more: what was not finished is closed
        return True
    return task is not None and task.cancelling() > 0


def _milliseconds(started: float) -> float:
    return int((perf_counter() - started) * 1e6) / 1000
