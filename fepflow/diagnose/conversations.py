"""Static validation of test cases that are conversations: the target, and the models that play their users."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from fepflow.calls.base import Target
from fepflow.calls.conversations import ConversationTarget
from fepflow.calls.models import _litellm
from fepflow.checks.core.declarations import UserModels, paths_of
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import CheckArgumentsError
from fepflow.protocol.test_case import SimulatedUser, TestCase
from fepflow.settings import settings
from fepflow.suite.reader import SPELLED_OUT

_CONVERSATION = {"steps": list[Any](), "messages": list[Any]()}


def validate_conversations(validation: SuiteValidation, opened: Target | None) -> None:
    """Find what is wrong with conversations; `opened` is the target, if it opens."""
    if not validation.cases.has_conversations:
        return
    first = next(_conversations(validation))
    if isinstance(opened, ConversationTarget) and (problem := opened.problem):
        validation.error(("test_cases",), f"{first.id} is a conversation: {problem}")
    if validation.target is not None and validation.target.ecp is not None:
        turns = ((case, turn) for case in _conversations(validation) for turn in case.turns or ())
        wrong = (case for case, turn in turns if not isinstance(turn.input, str))
        for case in islice(wrong, SPELLED_OUT):
            location = validation.place_of(case.id) or ("test_cases",)
            validation.error(location, f"{case.id}: the input of a turn must be a text for an ECP agent")
    _validate_users(validation)
    for index, check in validation.checks:
        for use in paths_of(check) if check.turn is None else ():
            if use.arguments is not None and use.expression == "$.output.value" and use.misfit(_CONVERSATION):
                message = f"of a conversation such as {first.id}, {use.expression} is an object with steps and messages"
                advice = "name an answer: $.output.value.messages[-1].content is the last; or give the check a turn"
                validation.warn(("checks", index, "arguments", *use.location), message, advice)


def _validate_users(validation: SuiteValidation) -> None:
    """Find what is wrong with the models that play users, and warn of a suite that runs each conversation once."""
    loaded = validation.loaded
    if next(_users(validation), None) is None:
        return
    section, gate = loaded.section("user"), validation.gate
    if section is None and "user" not in loaded.snapshot:
        message = "there are simulated users, and the suite does not say which model plays them"
        validation.error(("test_cases",), message, "add user: {model_config: {model: openai/gpt-5-mini}}")
    elif section is not None:
        models = UserModels(section, settings().allowed_models, from_data=validation.dataset is not None)
        seen: set[str | None] = set()
        problems: set[str] = set()
        for case in _users(validation):
            if case.user is not None and case.user.model not in seen:
                seen.add(case.user.model)
                problem = _model_problem(models, case.user)
                if problem is not None and problem not in problems:
                    problems.add(problem)
                    location = ("user",) if case.user.model is None else validation.place_of(case.id) or ("test_cases",)
                    validation.error(location, problem)
    max_repeats = gate.top_up.max_repeats if gate is not None and gate.top_up is not None else None
    if loaded.section("repeats") == 1 and max_repeats is None:
        message = "a simulated user says something else each time, so one conversation of a case shows little"
        validation.warn(("repeats",), message, "set repeats: 5, or gate: {top_up: {max_repeats: 10}}")


def _model_problem(models: UserModels, user: SimulatedUser) -> str | None:
    try:
        return _litellm.problem(models.model_of(user))
    except CheckArgumentsError as error:
        return str(error)


def _users(validation: SuiteValidation) -> Iterator[TestCase]:
    return (case for case in validation.cases if case.user is not None)


def _conversations(validation: SuiteValidation) -> Iterator[TestCase]:
    return (case for case in validation.cases if case.is_conversation)
