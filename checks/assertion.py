"""The function `assert_case`, which checks one answer in a test of any test runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fepflow.checks.engine import GivenCheck, evaluate, require_list
from fepflow.checks.explanation import complaint
from fepflow.errors import InputError, Problem
from fepflow.protocol.results import TestCaseResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.text import as_json, cut, printable

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
    answer = output if isinstance(output, Output) else Output(value=output)
    (result,) = evaluate([TestCase.model_validate(case)], [answer], list(checks)).results
    complaints = [(check.check_id, complaint(check)) for check in result.check_results]
    if lines := [f"{check_id}: {text}" for check_id, text in complaints if text is not None]:
        asked = cut(printable(as_json(input)), MAX_LINE)
        got = cut(printable(as_json(answer.value)), MAX_LINE)
        raise AssertionError("\n".join([*lines, f"  input:  {asked}", f"  output: {got}"]))
    return result
