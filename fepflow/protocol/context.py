"""The evaluation context: what the paths of a check can find (FEP 2.3.1)."""

from __future__ import annotations

from typing import Any

from fepflow.protocol.test_case import Output, TestCase

Context = dict[str, Any]


def evaluation_context(case: TestCase, output: Output) -> Context:
    """The context of one output. An `expected` that was not given is not there: a path to it is an error."""
    test_case = {"id": case.id, "input": case.input, "metadata": case.metadata or {}}
    if "expected" in case.model_fields_set:
        test_case["expected"] = case.expected
    return {"test_case": test_case, "output": {"value": output.value, "metadata": output.metadata or {}}}
