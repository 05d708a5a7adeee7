"""Which checks can be run on an output of which only the first steps are there, as the call failed at a later one."""

from __future__ import annotations

from fepflow.checks.core.argument_paths import paths_of
from fepflow.jsonpath.path import leading_keys
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output

_STEPS = ("output", "value", "steps")


def reads_only_completed_steps(check: Check, output: Output) -> bool:
    """Whether a check sees what it would see of the whole output: steps that are there, each named by its number from
    the beginning, one at least."""
    steps = output.value.get("steps") if isinstance(output.value, dict) else None
    paths = [leading_keys(use.expression) for use in paths_of(check)]
    of_output = [keys for keys in paths if keys[:1] != ("test_case",)]
    return bool(of_output) and all(_is_completed(keys, steps) for keys in of_output)


def _is_completed(keys: tuple[str | int, ...], steps: object) -> bool:
    if keys[:3] != _STEPS or len(keys) < 4 or not isinstance(steps, list):
        return False
    return isinstance(keys[3], int) and 0 <= keys[3] < len(steps)
