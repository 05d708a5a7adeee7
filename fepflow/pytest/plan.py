"""What a decorated test is to do, checked while pytest collects: nothing is called for what cannot be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.engine import checks_of
from fepflow.errors import InputError, Problem
from fepflow.protocol.check import AnyCheck, CheckForm
from fepflow.protocol.test_case import TestCase
from fepflow.verdict.pass_rule import PassRule

_RULES_OF_FLEX_EVALS: dict[str, PassRule] = {"per_test_case": "each_case", "sample": "sample"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, how often, and what must hold.

    `concurrency` bounds the calls under way at once, None where the test does not say.
    """

    cases: list[TestCase]
    checks: list[AnyCheck]
    samples: int
    threshold: float
    rule: PassRule
    concurrency: int | None


def make_plan(
    test_cases: Sequence[TestCase],
    checks: Sequence[AnyCheck],
    samples: int,
    threshold: float,
    rule: PassRule,
    concurrency: int | None,
) -> Plan:
    """The plan. Raises InputError for what cannot be evaluated: no cases, no checks, a threshold that is none."""
    __tracebackhide__ = True
    if not _is_whole(samples):
        raise invalid_argument("samples", f"{samples!r} is no number of samples", "give 1 or more")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise invalid_argument(
            "success_threshold", f"{threshold!r} is no share", "give a number from 0 to 1, such as 0.9"
        )
    if rule not in get_args(PassRule):
        raise invalid_argument("pass_rule", f"there is no {rule!r}", f"known are {', '.join(get_args(PassRule))}")
    if concurrency is not None and not _is_whole(concurrency):
        raise invalid_argument("max_concurrency", f"{concurrency!r} is no number of calls", "give 1 or more")
    cases = _usable_cases(test_cases)
    _require_usable_checks(cases, checks)
    return Plan(cases, list(checks), samples, threshold, rule, concurrency)


def rule_of_flex_evals(
    pass_threshold: float | None, pass_mode: str | None, threshold: float, rule: PassRule
) -> tuple[float, PassRule]:
    """Threshold and rule, where they were given as flex-evals 0.4 calls them; its defaults are 1.0, per_test_case."""
    __tracebackhide__ = True
    if threshold != 1.0:
        raise invalid_argument(
            "success_threshold", "pass_threshold and pass_mode go without it", "give pass_threshold alone"
        )
    if rule != "case":
        raise invalid_argument(
            "pass_rule", "pass_threshold and pass_mode go without it", "give pass_mode, or rename both"
        )
    named = _RULES_OF_FLEX_EVALS.get(str(pass_mode or "per_test_case"))
    if named is None:
        raise invalid_argument(
            "pass_mode", f"there is no {pass_mode!r}", f"known are {', '.join(_RULES_OF_FLEX_EVALS)}"
        )
    return (1.0 if pass_threshold is None else pass_threshold), named


def invalid_argument(path: str, message: str, advice: str | None = None) -> InputError:
    """The exception for one argument of the decorator."""
    return InputError(Problem(message, path=f"evaluate: {path}", advice=advice))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _usable_cases(test_cases: Sequence[TestCase]) -> list[TestCase]:
    __tracebackhide__ = True
    cases = list(test_cases)
    if not cases:
        raise invalid_argument("test_cases", "there are no test cases", "give at least one")
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if not isinstance(case, TestCase):
            raise invalid_argument(f"test_cases[{index}]", f"is a {type(case).__name__}, not a TestCase")
        if first.setdefault(case.id, index) != index:
            message = f"the id {case.id!r} is that of test_cases[{first[case.id]}] too"
            raise invalid_argument(f"test_cases[{index}]", message, "ids are unique")
    return cases


def _require_usable_checks(cases: list[TestCase], checks: Sequence[AnyCheck]) -> None:
    __tracebackhide__ = True
    for number, declared in enumerate(checks):
        if not isinstance(declared, CheckForm):
            raise invalid_argument(f"checks[{number}]", f"is a {type(declared).__name__}, not a check")
    shared = compile_checks(checks)
    for index, case in enumerate(cases):
        compiled = checks_of(case.checks or (), shared)
        if not compiled:
            advice = "give `checks`, or the case `checks` of its own"
            raise invalid_argument(f"test_cases[{index}]", f"no check judges {case.id!r}", advice)
        for check in compiled:
            if check.error is not None:
                raise invalid_argument(f"check {check.check_id}", str(check.error))
