"""Where the agent of an `ecp` target is: processes of a command, or an address."""

from __future__ import annotations

from pathlib import Path

from fepflow.calls.ecp.connection import Agents
from fepflow.calls.ecp.stdio import Programs
from fepflow.suite.target import Target


def open_agents(target: Target, folder: Path, secrets: frozenset[str]) -> Agents:
    """The agents of a target that has `ecp`; nothing is started yet. `secrets` are shown in no message.

    Raises InputError for an address or a header that cannot be used.
    """
    assert target.ecp is not None  # the caller has looked
    if target.ecp.command is not None:
        return Programs(target.ecp, folder, secrets)
    from fepflow.calls.ecp.http import Endpoint  # loads httpx, which processes need not wait for

    return Endpoint(target, secrets)
