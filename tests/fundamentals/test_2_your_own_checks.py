"""Lesson 2: a check of your own is a class.

Its fields are its arguments, each a value or a path; what it returns are its results.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fepflow import BaseAsyncCheck, BaseCheck, Check, JSONPath, Output, TestCase, evaluate, register


@register("lesson_max_words", version="1.0.0")
class MaxWords(BaseCheck):
    """Passes when a text has at most so many words."""

    text: str | JSONPath
    limit: int | JSONPath = 10

    def __call__(self) -> dict[str, Any]:
        words = len(self.text.split())
        return {"passed": words <= self.limit, "words": words}


CASE = TestCase(id="a", input="?")


def test_it_is_used_as_a_class() -> None:
    results = evaluate([CASE], [Output(value="one two three")], [MaxWords(text="$.output.value")])
    assert results.results[0].check_results[0].results == {"passed": True, "words": 3}


def test_it_is_used_by_its_name_as_suites_do() -> None:
    check = Check(type="lesson_max_words", arguments={"text": "$.output.value", "limit": "$.test_case.metadata.limit"})
    case = TestCase(id="a", input="?", metadata={"limit": 2})
    results = evaluate([case], [Output(value="one two three")], [check])
    assert results.results[0].check_results[0].results["passed"] is False


def test_it_is_called_directly_with_values() -> None:
    assert MaxWords(text="one two three", limit=3)() == {"passed": True, "words": 3}


def test_a_check_may_be_async() -> None:
    class Slow(BaseAsyncCheck):
        text: str | JSONPath

        async def __call__(self) -> dict[str, Any]:
            await asyncio.sleep(0)  # a model, a database, a service
            return {"passed": bool(self.text)}

    results = evaluate([CASE], [Output(value="yes")], [Slow(text="$.output.value")])
    assert results.results[0].check_results[0].results == {"passed": True}


def test_an_exception_in_it_is_that_checks_error() -> None:
    class Broken(BaseCheck):
        def __call__(self) -> dict[str, Any]:
            raise RuntimeError("no luck")

    results = evaluate([CASE], [Output(value="yes")], [Broken(), MaxWords(text="$.output.value")])
    broken, fine = results.results[0].check_results
    assert broken.error is not None
    assert broken.error.type == "unknown_error"
    assert "no luck" in broken.error.message
    assert fine.results["passed"] is True
