"""Requests to evaluate outputs that exist (FEP 5.1 EvaluationRequest), judged strictly.

The library's own `evaluate` takes plain values, makes ids and reads what it can; over the network ids, arguments and
semantic versions are what the specification says they are. Members that it does not know are allowed by it: they are
left out, and `unknown` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fepflow.checks.core.compiled import require_unique_ids
from fepflow.checks.engine import require_match
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, TooLargeError, dotted
from fepflow.json.values import SMALL_CHARACTERS, parse, texts_in
from fepflow.jsonpath.path import Key, descend, is_path, leading_keys, placeholders
from fepflow.protocol.check import CHECK_ID, SEMVER, AnyCheck, to_check
from fepflow.protocol.check import Check as FepCheck
from fepflow.protocol.results import ExperimentMetadata
from fepflow.protocol.test_case import Output as FepOutput
from fepflow.protocol.test_case import TestCase as FepTestCase
from fepflow.protocol.test_case import evaluation_context
from fepflow.suite.models import check_ids

MAX_RESOLVED = 500_000_000
"""Characters that the checks of one request look at together."""

MAX_REPEATED = 32_000_000
"""Characters of arguments that their results repeat together; a large argument is left out of them."""

_LEFT_OUT = 200
"""Characters of a large argument in a result: its hash, and the path that leads to it."""

_OF_NODE = 4
"""Characters that a value has beside its text: quotes, commas, brackets."""

Argument = tuple[int, Sequence[str]]
"""An argument as declared: the size of what is literal in it, and its paths."""

Checked = tuple[FepTestCase, FepOutput, Sequence[AnyCheck], Sequence[AnyCheck]]
"""A test case, its output, its own checks and those that all test cases share."""


def require_bounded(checked: Iterable[Checked]) -> None:
    """Raise InputError, with the sum, for checks that look at too much together, or repeat too much in results.

    What a query finds is estimated from the part of the document that it searches.
    """
    shared_sizes: list[tuple[int, list[Argument]]] | None = None
    resolved = repeated = 0
    for case, output, own, shared in checked:
        if shared_sizes is None:
            shared_sizes = [_measured(check) for check in shared]
        sizes = _Sizes(case, output)
        for names, arguments in [*map(_measured, own), *shared_sizes]:
            repeated += names
            for literal, paths in arguments:
                looked_at = [sizes.at(path) for path in paths]
                resolved += literal + sum(size for size, _ in looked_at)
                size = literal + sum(size * repeats for size, repeats in looked_at)
                repeated += size if size <= SMALL_CHARACTERS else _LEFT_OUT
    if resolved > MAX_RESOLVED:
        raise _too_much(f"the checks look at {resolved:,} characters together", MAX_RESOLVED)
    if repeated > MAX_REPEATED:
        raise _too_much(f"the results of the checks repeat {repeated:,} characters of arguments", MAX_REPEATED)


def _too_much(message: str, limit: int) -> InputError:
    advice = f"{limit:,} are taken at most: send fewer checks, fewer test cases or smaller values at a time"
    return InputError(Problem(message, path="checks", advice=advice))


def _measured(check: AnyCheck) -> tuple[int, list[Argument]]:
    """Return the size of a check's names, which each of its results repeats, and its arguments."""
    declared = to_check(check)
    names = 2 * len(declared.type) + len(declared.id or "") + len(declared.version or "")
    arguments: list[Argument] = []
    for name, value in declared.arguments.items():
        texts = [text for _, text in texts_in(value, ())]
        paths = [path for text in texts for path in ([text] if is_path(text) else placeholders(text))]
        arguments.append((len(name) + _measure(value, {})[0], paths))
    return names, arguments


class _Sizes:
    """The sizes of the parts of one evaluation context; they are measured when the first one is asked for."""

    def __init__(self, case: FepTestCase, output: FepOutput) -> None:
        self._case, self._output = case, output
        self._known: dict[int, tuple[int, int]] = {}

    @cached_property
    def _context(self) -> dict[str, Any]:
        context = evaluation_context(self._case, self._output)
        _measure(context, self._known)
        return context

    def at(self, path: str) -> tuple[int, int]:
        """Return the size of the part of the document that a path looks at, and how often it may find that."""
        keys, descents = _way(path)
        reached, value = descend(self._context, keys)
        if reached < len(keys):
            return 0, 1
        size, depth = self._known.get(id(value)) or (_measure(value, {})[0], 1)
        return size, depth**descents


@lru_cache(maxsize=4096)
def _way(path: str) -> tuple[tuple[Key, ...], int]:
    """Return the keys with which a path begins, and how often it descends: a part that is found may contain itself."""
    return leading_keys(path), min(path.count(".."), 3)


def _measure(value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return size and depth of a JSON value; `known` gets those of each object and array in it, by their ids."""
    if isinstance(value, str):
        return len(value) + _OF_NODE, 0
    if isinstance(value, int):
        return value.bit_length() // 3 + _OF_NODE, 0
    if not isinstance(value, dict | list):
        return 20, 0
    inner = [_measure(item, known) for item in (value.values() if isinstance(value, dict) else value)]
    names = sum(map(len, value)) if isinstance(value, dict) else 0
    size = _OF_NODE + names + sum(size for size, _ in inner)
    known[id(value)] = size, 1 + max((depth for _, depth in inner), default=0)
    return known[id(value)]


MAX_CHECKS = 100_000
"""Check results of one request: its checks, times the test cases that they are for."""

MAX_UNKNOWN = 20
"""Members that are not known and are named."""

_NOT_GIVEN: Any = None


def _without_defaults(schema: dict[str, Any]) -> None:
    for member in schema.get("properties", {}).values():
        member.pop("default", None)


def _checks_somewhere(schema: dict[str, Any]) -> None:
    """Require checks in the schema: those of the request, or those of each test case."""
    _without_defaults(schema)
    inline = {"properties": {"test_cases": {"items": {"required": ["checks"]}}}}
    schema["anyOf"] = [{"required": ["checks"]}, inline]


class _Given(BaseModel):
    """A part of a caller's request. An optional member is absent or of its type: null is neither."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_without_defaults)


class Check(_Given):
    """A check (FEP 2.3); `id` is fepflow's addition, the name that its results carry."""

    type: str = Field(min_length=1, description="Identifier of the check implementation.")
    arguments: dict[str, Any] = Field(description="Arguments; a string that begins with `$.` is a JSONPath.")
    version: str = Field(_NOT_GIVEN, pattern=SEMVER, description="Semantic version of the check implementation.")
    id: str = Field(_NOT_GIVEN, pattern=CHECK_ID, description="Name of the check in its results.")


class TestCase(_Given):
    """A test case (FEP 2.1). Any JSON value is an input."""

    __test__ = False

    id: str = Field(min_length=1, description="Unique identifier of the test case.")
    input: Any = Field(description="The input of the system under test.")
    expected: Any = Field(_NOT_GIVEN, description="Reference output.")
    metadata: dict[str, Any] = Field(_NOT_GIVEN, description="Whatever describes the test case.")
    checks: list[Check] = Field(_NOT_GIVEN, description="Checks of this test case alone.")


class Output(_Given):
    """An output (FEP 2.2). Any JSON value is one."""

    value: Any = Field(description="The output of the system under test.")
    id: str = Field(_NOT_GIVEN, description="Identifier of the output.")
    metadata: dict[str, Any] = Field(_NOT_GIVEN, description="Whatever describes how the output came about.")


class Experiment(_Given):
    """The experiment that an evaluation belongs to (FEP 3.2)."""

    name: str = Field(_NOT_GIVEN, description="Name of the experiment.")
    metadata: dict[str, Any] = Field(_NOT_GIVEN, description="Whatever describes the experiment.")


class EvaluationRequestBody(_Given):
    """Test cases, the output of each, and checks: shared by all, or one list for each (FEP 3.1)."""

    model_config = ConfigDict(json_schema_extra=_checks_somewhere)

    test_cases: list[TestCase] = Field(min_length=1)
    outputs: list[Output] = Field(min_length=1, description="outputs[i] belongs to test_cases[i].")
    checks: list[Check] | list[list[Check]] = Field(
        _NOT_GIVEN, description="For all test cases, or checks[i] for test_cases[i]; left out if each has its own."
    )
    experiment_metadata: Experiment = Field(_NOT_GIVEN)


class EvaluationRequest(BaseModel):
    """A request that can be carried out: `per_case` is empty, or has a list of checks for each test case."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    test_cases: list[FepTestCase]
    outputs: list[FepOutput]
    checks: list[AnyCheck]
    per_case: list[list[AnyCheck]]
    experiment: ExperimentMetadata | None
    unknown: list[str]

    @classmethod
    def read(cls, data: Any) -> EvaluationRequest:
        """Return the request that a JSON value is. Raises InputError with all that is wrong, TooLargeError."""
        body = _body(data)
        shared, per_case = _checks(body)
        if "checks" not in body.model_fields_set and not all(case.checks is not None for case in body.test_cases):
            advice = "give checks for all test cases, or each test case its own"
            raise InputError(Problem("is missing", path="checks", advice=advice))
        cases = [FepTestCase.model_validate(_plain(case)) for case in body.test_cases]
        outputs = [FepOutput.model_validate(_plain(output)) for output in body.outputs]
        require_match(cases, outputs, per_case)
        own = sum(len(case.checks or ()) for case in cases) + sum(map(len, per_case))
        if own + len(shared) * len(cases) > MAX_CHECKS:
            raise TooLargeError(f"A request has at most {MAX_CHECKS:,} checks, each counted for each of its test cases")
        experiment = body.experiment_metadata
        request = cls.model_construct(
            test_cases=cases,
            outputs=outputs,
            checks=shared,
            per_case=per_case,
            experiment=None if experiment is None else ExperimentMetadata.model_validate(_plain(experiment)),
            unknown=list(islice(_unknown(body, ()), MAX_UNKNOWN)),
        )
        request._require_unique_ids()
        require_bounded(
            (case, output, request.own_checks(index), shared)
            for index, (case, output) in enumerate(zip(cases, outputs, strict=True))
        )
        return request

    @classmethod
    def read_json(cls, body: bytes) -> EvaluationRequest:
        """Return the request that a body in JSON is. Raises as `read` does."""
        return cls.read(parse_body(body))

    def own_checks(self, index: int) -> Sequence[AnyCheck]:
        """Return the checks of one test case alone, its own before those of the request."""
        return [*(self.test_cases[index].checks or ()), *(self.per_case[index] if self.per_case else ())]

    def shared_ids(self) -> list[str]:
        """Return the ids of the checks that all test cases share."""
        return check_ids([to_check(check) for check in self.checks])

    def own_ids(self, index: int, shared: Sequence[str]) -> list[str]:
        """Return the ids of the checks of one test case alone, beside those that all share."""
        return check_ids([to_check(check) for check in self.own_checks(index)], shared)

    def _require_unique_ids(self) -> None:
        shared = self.shared_ids()
        taken = set(shared)
        require_unique_ids(self.checks)
        for index in range(len(self.test_cases)):
            if own := self.own_checks(index):
                require_unique_ids(own, taken)

    def cases_with_checks(self) -> list[FepTestCase]:
        """Return the test cases, each with all checks of its own."""
        cases = enumerate(self.test_cases)
        return [case.model_copy(update={"checks": list(self.own_checks(index))}) for index, case in cases]


def parse_body(body: bytes) -> Any:
    """Return the JSON value that a body is, within the limits of `fepflow.json.values`. Raises InputError."""
    try:
        return parse(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(Problem("the body is not UTF-8")) from None
    except ValueError as error:
        raise InputError(Problem(f"the body is not valid JSON: {error}")) from None


def _body(data: Any) -> EvaluationRequestBody:
    if not isinstance(data, dict):
        raise InputError(Problem("the request is not an object", advice="give {test_cases, outputs, checks}"))
    try:
        return EvaluationRequestBody.model_validate(data)
    except ValidationError as error:
        messages = validation_messages(data, error)
        raise InputError([Problem(one.message, path=dotted(one.path), advice=one.advice) for one in messages]) from None


def _checks(body: EvaluationRequestBody) -> tuple[list[AnyCheck], list[list[AnyCheck]]]:
    """Shared checks, or a list for each test case; an empty list is shared, none."""
    given: list[Any] = body.checks or []
    if given and isinstance(given[0], list):
        return [], [[_check(check) for check in own] for own in given]
    return [_check(check) for check in given], []


def _check(check: Check) -> FepCheck:
    return FepCheck.model_validate(_plain(check))


def _plain(model: _Given) -> dict[str, Any]:
    """Return the members that are known and given, as they were."""
    found: dict[str, Any] = {}
    for name in _given(model):
        value = getattr(model, name)
        found[name] = [_plain(item) for item in value] if name == "checks" and value else value
    return found


def _given(model: _Given) -> list[str]:
    """Return the known members that were given, in the specification's order: a set's differs between processes."""
    return [name for name in type(model).model_fields if name in model.model_fields_set]


def _unknown(model: _Given, path: tuple[str | int, ...]) -> Iterator[str]:
    yield from (dotted((*path, name)) for name in model.model_extra or ())
    for name in _given(model):
        value = getattr(model, name)
        if isinstance(value, _Given):
            yield from _unknown(value, (*path, name))
        for index, item in enumerate(value if isinstance(value, list) else ()):
            for number, inner in enumerate(item if isinstance(item, list) else [item]):
                if isinstance(inner, _Given):
                    steps = (index, number) if isinstance(item, list) else (index,)
                    yield from _unknown(inner, (*path, name, *steps))


def example() -> dict[str, Any]:
    """Return a request for documents: one right answer."""
    return {
        "test_cases": [{"id": "capital", "input": "What is the capital of France?", "expected": "Paris"}],
        "outputs": [{"value": "The capital of France is Paris."}],
        "checks": [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["Paris"]}}],
    }
