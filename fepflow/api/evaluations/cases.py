"""Test cases as they come over the network: one, a list, or JSON lines."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import InputError, InvalidRequestError, Problem, TooLargeError, dotted
from fepflow.json.values import parse
from fepflow.protocol.test_case import TestCase
from fepflow.text import brief, printable

INVALID = "INVALID_REQUEST"
MAX_CASES = 5_000
"""Test cases of one request: to be stored, or to be evaluated."""
CASE_ID = re.compile(r"[A-Za-z0-9._:@-]{1,200}")


def read_case(document: Any, place: str = "") -> TestCase:
    """The test case `{id, input, expected, metadata}` that a caller gives; without an id it gets one.

    Raises InvalidRequestError.
    """
    if not isinstance(document, dict):
        raise invalid(place, "a test case is an object {id, input, expected, metadata}")
    if "input" not in document:
        raise InvalidRequestError("MISSING_FIELD", _shown(place, "input is missing"))
    if "checks" in document:
        raise invalid(place, "a test case has no checks here: graders have them")
    given = {**document, "id": str(uuid4())} if document.get("id") is None else document
    try:
        case = TestCase.model_validate(given)
    except ValidationError as error:
        first = validation_messages(given, error, TestCase)[0]
        raise invalid(place, f"{dotted(first.path)}: {first.message}") from None
    if not CASE_ID.fullmatch(case.id):
        raise invalid(place, "id: up to 200 letters, digits and . _ : @ -")
    return case


def read_cases(documents: Any) -> list[TestCase]:
    """The test cases of a list. Raises InvalidRequestError, also for an id that stands twice; TooLargeError."""
    if not isinstance(documents, list) or not documents:
        raise InvalidRequestError(INVALID, "test_cases: a list of one test case or more")
    if len(documents) > MAX_CASES:
        raise TooLargeError(f"a request stores at most {MAX_CASES:,} test cases, and here are {len(documents):,}")
    cases = [read_case(document, f"test_cases[{index}]") for index, document in enumerate(documents)]
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if first.setdefault(case.id, index) != index:
            raise invalid(f"test_cases[{index}]", f"the id {case.id} is that of test_cases[{first[case.id]}] too")
    return cases


def read_lines(body: bytes) -> list[Any]:
    """The documents of JSON lines; empty lines are left out. Raises InputError, InvalidRequestError."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(Problem("the body is not UTF-8")) from None
    documents = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                documents.append(parse(line))
            except ValueError as error:
                raise invalid(f"line {number}", f"is not valid JSON: {error}") from None
    return documents


def invalid(place: str, message: str) -> InvalidRequestError:
    """The error about a part of a request, or about the whole of it."""
    return InvalidRequestError(INVALID, _shown(place, message))


def _shown(place: str, message: str) -> str:
    return printable(brief(f"{place}: {message}" if place else message))
