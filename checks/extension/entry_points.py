"""Check classes that installed packages offer, by entry points of the group `fepflow.checks`.

[project.entry-points."fepflow.checks"]
politeness = "my_package.politeness:PolitenessCheck"
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, distributions

from fepflow.checks.base import BaseCheck

CheckClass = type[BaseCheck]

ENTRY_POINTS = "fepflow.checks"


def installed_checks() -> dict[str, dict[str, CheckClass]]:
    """The classes by check type and version."""
    return _load_all()[0]


def broken_checks() -> dict[str, str]:
    """What is wrong with the check types whose classes cannot be loaded: they keep no other check from its work."""
    return _load_all()[1]


@cache
def _load_all() -> tuple[dict[str, dict[str, CheckClass]], dict[str, str]]:
    found: dict[str, dict[str, CheckClass]] = {}
    broken: dict[str, str] = {}
    for entry in entries(ENTRY_POINTS):
        try:
            check_class = _load(entry)
        except (Exception, SystemExit) as error:
            package = entry.dist.name if entry.dist else "a package"
            broken[entry.name] = (
                f"the check {entry.name} of {package} cannot be loaded: {type(error).__name__}: {error}"
            )
        else:
            found.setdefault(entry.name, {}).setdefault(check_class.check_version, check_class)
    return found, broken


def entries(group: str) -> Iterator[EntryPoint]:
    """As `importlib.metadata.entry_points(group=...)`, which parses what all packages offer and takes 20 ms."""
    for package in distributions():
        if group in (package.read_text("entry_points.txt") or ""):
            yield from package.entry_points.select(group=group)


def _load(entry: EntryPoint) -> CheckClass:
    check_class = entry.load()
    if not (isinstance(check_class, type) and issubclass(check_class, BaseCheck)):
        raise TypeError(f"{entry.value} is no class of BaseCheck")
    check_class.check_type = check_class.check_type or entry.name
    return check_class
