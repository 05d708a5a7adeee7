"""Static validation of test cases that are conversations: the target, and the models that play their users."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fepflow.calls.base import Target
from fepflow.calls.conversations import ConversationTarget
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import DocumentPath
from fepflow.protocol.test_case import TestCase
from fepflow.suite.reader import SPELLED_OUT


def validate_conversations(validation: SuiteValidation, opened: Target | None) -> None:
    """Find what is wrong with conversations; `opened` is the target, if it opens."""
    first = next(_conversations(validation), None)
    if first is None:
        return
    if isinstance(opened, ConversationTarget) and (problem := opened.problem):
        validation.error(("test_cases",), f"{first.id} is a conversation: {problem}")
    target = validation.loaded.section("target")
    if target is not None and target.ecp is not None:
        wrong = (case for case in _conversations(validation) for turn in case.turns or () if _is_no_text(turn.input))
        for case in islice(wrong, SPELLED_OUT):
            validation.error(_place(validation, case), f"{case.id}: what is said to an ECP agent is a text")


def _conversations(validation: SuiteValidation) -> Iterator[TestCase]:
    return (case for case in validation.cases if case.is_conversation)


def _is_no_text(said: object) -> bool:
    return not isinstance(said, str)


def _place(validation: SuiteValidation, case: TestCase) -> DocumentPath:
    cases = validation.loaded.section("test_cases")
    if not isinstance(cases, list):
        return ("test_cases",)
    return ("test_cases", next(index for index, other in enumerate(cases) if other.id == case.id))
