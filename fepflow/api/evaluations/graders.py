"""Graders: named lists of checks, built in or given over the network. All checks of a grader must pass."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from fepflow.api.evaluations.cases import INVALID, invalid
from fepflow.api.evaluations.requests import parse_body
from fepflow.checks.base import CheckType
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.core.data_checks import CaseChecks, CheckDefaults
from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import InvalidRequestError, TooLargeError, dotted
from fepflow.protocol.check import Check
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.records import Grader
from fepflow.text import brief, printable

MAX_CHECKS = 20
"""Checks of one grader."""
SEPARATOR = "--"
"""Between a grader's id and the number of a check, in the check's id; no grader's id holds it."""

_ID = re.compile(r"(?!.*--)[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")

_OUTPUT, _EXPECTED = "$.output.value", "$.test_case.expected"
_COMPARED = {"actual": _OUTPUT, "expected": _EXPECTED}


def _built_in(grader_id: str, name: str, check_type: CheckType, **arguments: Any) -> Grader:
    declared = {"type": str(check_type), "arguments": arguments}
    return Grader(id=grader_id, name=name, checks=[declared], created_at=utc_now())


BUILT_IN: Mapping[str, Grader] = {
    grader.id: grader
    for grader in (
        _built_in("string-match", "String Match", CheckType.EXACT_MATCH, **_COMPARED),
        _built_in("exact-match", "Exact Match", CheckType.EXACT_MATCH, **_COMPARED),
        _built_in("contains", "Contains", CheckType.CONTAINS, text=_OUTPUT, phrases=_EXPECTED),
        _built_in("regex", "Regex", CheckType.REGEX, text=_OUTPUT, pattern=_EXPECTED),
        _built_in("equals", "Equals", CheckType.EQUALS, **_COMPARED),
        _built_in("is-empty", "Is Empty", CheckType.IS_EMPTY, value=_OUTPUT),
        _built_in("subset", "Subset", CheckType.SUBSET, collection=_OUTPUT, required=_EXPECTED),
        _built_in("superset", "Superset", CheckType.SUPERSET, collection=_OUTPUT, allowed=_EXPECTED),
        _built_in("set-equal", "Set Equal", CheckType.SET_EQUAL, **_COMPARED),
        _built_in("disjoint", "Disjoint", CheckType.DISJOINT, collection=_OUTPUT, forbidden=_EXPECTED),
        _built_in("json-valid", "JSON Valid", CheckType.JSON_VALID, text=_OUTPUT),
        _built_in(
            "schema-validation", "Schema Validation", CheckType.SCHEMA_VALIDATION, data=_OUTPUT, schema=_EXPECTED
        ),
        _built_in(
            "text-match", "Text Match", CheckType.TEXT_MATCH, text=_OUTPUT, condition="contains", value=_EXPECTED
        ),
    )
}
"""Graders that need nothing but an output and what was expected, by id."""


def read_grader(body: bytes) -> Grader:
    """The grader that a caller gives, `{id, name, checks}`; without an id it gets one. It may take long.

    Raises InputError for what is no JSON, InvalidRequestError for what is no grader, or has a check that does not run,
    or that gives no yes or no; and TooLargeError for too many checks.
    """
    document = parse_body(body)
    if not isinstance(document, dict):
        raise InvalidRequestError(INVALID, "a grader is an object {id, name, checks}")
    for name in ("name", "checks"):
        if document.get(name) is None:
            raise InvalidRequestError("MISSING_FIELD", f"{name} is missing: a grader is {{id, name, checks}}")
    if unknown := sorted(document.keys() - {"id", "name", "checks"}):
        raise InvalidRequestError(
            INVALID, f"a grader has no {printable(brief(unknown[0]))}: it is {{id, name, checks}}"
        )
    grader_id = document.get("id")
    if grader_id is None:
        grader_id = str(uuid4())
    if not isinstance(grader_id, str) or not _ID.fullmatch(grader_id):
        raise InvalidRequestError(
            INVALID, "id: up to 64 letters, digits, _ and single -, and a letter or digit at both ends"
        )
    if not isinstance(document["name"], str) or not 0 < len(document["name"]) <= 200:
        raise InvalidRequestError(INVALID, "name: a text of 1 to 200 characters")
    checks = document["checks"]
    if not isinstance(checks, list) or not checks:
        raise InvalidRequestError(INVALID, "checks: a list of one check or more, each {type, arguments}")
    if len(checks) > MAX_CHECKS:
        raise TooLargeError(f"checks: a grader has at most {MAX_CHECKS}, and here are {len(checks):,}")
    return Grader(
        id=grader_id,
        name=document["name"],
        checks=[_declared(check, i) for i, check in enumerate(checks)],
        created_at=utc_now(),
    )


def require_allowed(grader: Grader) -> None:
    """Raise InvalidRequestError for a check that asks a model which the operator does not allow."""
    policy = CaseChecks(CheckDefaults(), [], settings().allowed_models, from_data=True)
    for index, check in enumerate(grader.checks):
        if refusal := policy.refusal(Check.model_validate(check)):
            raise invalid(f"checks[{index}]", refusal)


def checks_of(graders: Sequence[Grader]) -> list[dict[str, Any]]:
    """The checks of graders as those of a suite, each with an id by which `grader_of` knows its grader."""
    return [
        {**check, "id": f"{grader.id}{SEPARATOR}{number}"}
        for grader in graders
        for number, check in enumerate(grader.checks, 1)
    ]


def grader_of(check_id: str) -> str:
    """The id of the grader that a check of a run belongs to."""
    return check_id.partition(SEPARATOR)[0]


def _declared(given: Any, index: int) -> dict[str, Any]:
    place = f"checks[{index}]"
    try:
        check = Check.model_validate(given)
    except ValidationError as error:
        first = validation_messages(given, error, Check)[0]
        path = ".".join(part for part in (place, dotted(first.path)) if part)
        raise invalid(path, first.message) from None
    if refusal := _refusal(check):
        raise invalid(place, refusal)
    return check.model_copy(update={"id": None}).model_dump(exclude_none=True)


def _refusal(check: Check) -> str | None:
    """Why a check is not taken from the network."""
    if check.type == CheckType.CUSTOM_FUNCTION:
        return "custom_function runs code, which no request may bring"
    compiled = CompiledCheck(check, "check")
    if compiled.error is not None:
        return str(compiled.error)
    if check.type == CheckType.SEMANTIC_SIMILARITY and check.arguments.get("threshold") is None:
        return "semantic_similarity gives a number: give the threshold from which on it passes"
    if check.type == CheckType.LLM_JUDGE and not _says_passed(check.arguments.get("response_format")):
        return "llm_judge gives no yes or no: give response_format a boolean `passed`, and require it"
    return None


def _says_passed(response_format: Any) -> bool:
    if not isinstance(response_format, dict):
        return False
    properties, required = response_format.get("properties"), response_format.get("required")
    passed = properties.get("passed") if isinstance(properties, dict) else None
    is_boolean = isinstance(passed, dict) and passed.get("type") == "boolean"
    return is_boolean and isinstance(required, list) and "passed" in required
