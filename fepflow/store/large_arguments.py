"""Large values that the checks of one output resolve again and again: stored once, with the test case or the output.

FEP 2.3.4 shows every resolved argument in each check result. A dozen checks of an answer of 10 MB would be 120 MB to
encode, hash and store. A large argument that a path found is stored as its path and its hash, and read back from the
test case or the output that it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fepflow.json.limits import is_large
from fepflow.jsonpath.path import SingularPath, compile_path
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.context import Context, evaluation_context
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase

HASH = "value_sha256"
"""Stands in place of `value`: SHA-256 of the value in canonical JSON."""


def leave_out_large(results: Sequence[CheckResult], case: TestCase, output: Output) -> Sequence[CheckResult]:
    """The results as they are stored."""
    context = evaluation_context(case, output)
    if not is_large(context):
        return results
    hashes: dict[str, str] = {}
    return [_leave_out(result, context, hashes) for result in results]


def fill_in_large(result: dict[str, Any], case: TestCase, output: Output | None) -> dict[str, Any]:
    """A stored result as the check gave it."""
    arguments = result.get("resolved_arguments") or {}
    left_out = {name: argument for name, argument in arguments.items() if HASH in argument}
    if not left_out or output is None:
        return result
    context = evaluation_context(case, output)
    filled = {
        name: {"jsonpath": argument["jsonpath"], "value": value}
        for name, argument in left_out.items()
        for value in compile_path(argument["jsonpath"]).find(context)
    }
    return {**result, "resolved_arguments": {**arguments, **filled}}


def _leave_out(result: CheckResult, context: Context, hashes: dict[str, str]) -> CheckResult:
    arguments = result.resolved_arguments or {}
    large = {name: argument["jsonpath"] for name, argument in arguments.items() if _stands_at_path(argument, context)}
    if not large:
        return result
    for path in large.values():
        if path not in hashes:
            hashes[path] = content_hash(compile_path(path).resolve(context))
    shown = {name: {"jsonpath": path, HASH: hashes[path]} for name, path in large.items()}
    return result.model_copy(update={"resolved_arguments": {**arguments, **shown}})


def _stands_at_path(argument: dict[str, Any], context: Context) -> bool:
    """Whether a large argument is the very value that its path finds, so that the path is enough to know it again."""
    if "jsonpath" not in argument or not is_large(argument["value"]):
        return False
    path = compile_path(argument["jsonpath"])
    return isinstance(path, SingularPath) and any(found is argument["value"] for found in path.find(context))
