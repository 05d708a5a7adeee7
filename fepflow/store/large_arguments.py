"""Large values among the resolved arguments of a check: a hash and the path that leads to the value stand in its place.

FEP 2.3.4 shows every resolved argument in each check result. A thousand checks of an answer of 1 MB would be 1 GB to
encode, store and send, although the answer itself stands once in `execution_context`, or in the check that was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from fepflow.json.values import is_large
from fepflow.jsonpath.path import is_path, placeholders
from fepflow.protocol.check import Check
from fepflow.protocol.content_hash import canonical_json
from fepflow.protocol.results import CheckResult

HASH = "value_sha256"
"""Stands in place of `value`: SHA-256 of the value in canonical JSON."""


class LargeArguments:
    """The large arguments of one output's checks: a value that several of them share is hashed once."""

    def __init__(self) -> None:
        self._hashes: dict[int, tuple[Any, str]] = {}

    def left_out(self, result: CheckResult, declared: Check | None = None) -> CheckResult:
        """Return the result with hashes in place of large values.

        A value that a path found keeps its `jsonpath`. Any other one has `argument`, its place in the check as
        declared, and in `jsonpaths` the paths that stand inside of that.
        """
        arguments = result.resolved_arguments or {}
        short = {
            name: self._short(name, argument, declared)
            for name, argument in arguments.items()
            if "value" in argument and is_large(argument["value"])
        }
        return result.model_copy(update={"resolved_arguments": {**arguments, **short}}) if short else result

    def _short(self, name: str, argument: dict[str, Any], declared: Check | None) -> dict[str, Any]:
        hashed = {HASH: self._hash(argument["value"])}
        if "jsonpath" in argument:
            return {"jsonpath": argument["jsonpath"], **hashed}
        paths = list(_paths_in(declared.arguments.get(name))) if declared is not None else []
        return {"argument": f"$.arguments.{name}", **({"jsonpaths": paths} if paths else {}), **hashed}

    def _hash(self, value: Any) -> str:
        # The value is kept, as another one could have its id once it is gone.
        known, digest = self._hashes.get(id(value), (None, ""))
        if known is not value:
            digest = hashlib.sha256(canonical_json(value)).hexdigest()
            self._hashes[id(value)] = value, digest
        return digest


def leave_out_large(results: Sequence[CheckResult], checks: Sequence[Check | None] = ()) -> list[CheckResult]:
    """Return the results of one output's checks as they are stored and sent; `checks` are the declarations."""
    large = LargeArguments()
    declared = checks or [None] * len(results)
    return [large.left_out(result, check) for result, check in zip(results, declared, strict=True)]


def _paths_in(argument: Any) -> Iterator[str]:
    """Yield the paths in an argument as declared; one that is nested too deep for a check has been refused."""
    if isinstance(argument, str):
        yield from [argument] if is_path(argument) else placeholders(argument)
    elif isinstance(argument, dict | list):
        for item in argument.values() if isinstance(argument, dict) else argument:
            yield from _paths_in(item)
