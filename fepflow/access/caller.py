"""Callers over the network, and what they may do."""

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
    """A program that has been admitted.

    `name` is `key:ID` or `jwt:SUBJECT`; None for anybody, who is admitted on this machine where no key is asked for.
    """

    name: str | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has the scope; `admin` stands for all of them."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise PermissionDeniedError without the scope."""
        if not self.may(scope):
            raise PermissionDeniedError(f"{self.name or 'the caller'} has not the scope {scope!r} that this takes")


def name_of_user() -> str:
    """Return the operating system's name for whoever runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
