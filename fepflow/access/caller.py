"""Callers over the network, and their permissions."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import Literal, get_args

from fepflow.errors import PermissionDeniedError

Scope = Literal["read", "evaluate", "admin"]
"""Reading results; starting evaluations, storing what they need, and cancelling them; everything."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """An admitted program.

    `name` is `key:ID` or `jwt:SUBJECT`. It is None for callers on this machine while no key is required.
    """

    name: str | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has the scope; `admin` includes all scopes."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise PermissionDeniedError without the scope."""
        if not self.may(scope):
            raise PermissionDeniedError(
                f"{self.name or 'the caller'} does not have the scope {scope!r}, which this needs"
            )


def name_of_user() -> str:
    """Return the operating system's name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
